//! Batches of a dataset, in order or shuffled, prepared ahead of time by worker threads.
//!
//! At the start of every pass, the same values are drawn from the default generator as by PyTorch's loader: the workers' seed
//! and, when shuffling, the seed of the permutation. So the order of samples is PyTorch's, and a pass can be resumed in
//! the middle. With workers, every batch has its own random stream, seeded by its index: batches depend neither on
//! timing nor on the number of workers. Where there are no threads, the caller makes the batches of workers too.

use super::Dataset;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, HAVE_THREADS, Result, Tensor, ops};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Options of a [`DataLoader`].
#[derive(Clone, Copy, Debug)]
pub struct LoaderOptions {
    /// Samples per batch.
    pub batch_size: usize,
    /// Whether to shuffle the samples in every pass.
    pub shuffle: bool,
    /// Whether to drop the last batch if it is incomplete.
    pub drop_last: bool,
    /// Number of threads that prepare batches; with 0 they are prepared on demand.
    pub num_workers: usize,
    /// Batches that each worker prefetches.
    pub prefetch_factor: usize,
}

impl LoaderOptions {
    /// In order, without workers.
    pub fn new(batch_size: usize) -> LoaderOptions {
        LoaderOptions { batch_size, shuffle: false, drop_last: false, num_workers: 0, prefetch_factor: 2 }
    }
}

/// Iterates over a dataset in batches.
pub struct DataLoader<D> {
    dataset: Arc<D>,
    options: LoaderOptions,
}

/// A seed from the default generator, drawn as PyTorch does.
fn draw_seed() -> Result<u64> {
    let seed = Tensor::empty([1], DType::I64);
    ops::random_(&seed)?;
    Ok(seed.try_item::<i64>()? as u64)
}

impl<D: Dataset> DataLoader<D> {
    /// Creates a loader of `dataset`.
    pub fn new(dataset: D, options: LoaderOptions) -> DataLoader<D> {
        DataLoader {
            dataset: Arc::new(dataset),
            options: LoaderOptions { batch_size: options.batch_size.max(1), ..options },
        }
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The options.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Number of batches per pass.
    pub fn len(&self) -> usize {
        let (n, size) = (self.dataset.len(), self.options.batch_size);
        if self.options.drop_last { n / size } else { n.div_ceil(size) }
    }

    /// Whether a pass has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One pass over the data.
    pub fn iter(&self) -> Batches<D> {
        self.iter_from(0)
    }

    /// One pass that skips its first batches without preparing them, for resuming.
    pub fn iter_from(&self, first: usize) -> Batches<D> {
        match self.plan(first) {
            Ok((plan, seed)) => {
                let own_stream = self.options.num_workers > 0;
                let of = |i: usize| own_stream.then(|| seed.wrapping_add((first + i) as u64));
                self.start(plan.into_iter().enumerate().map(|(i, rows)| Piece { seed: of(i), rows }).collect())
            }
            Err(e) => Batches::failed(e),
        }
    }

    /// One pass in which every batch is divided into `shards` parts, as evenly as possible, and only the parts in `local` are prepared.
    /// Every part has its own random streams, so it does not depend on where it is prepared.
    pub fn shards_from(&self, first: usize, shards: usize, local: Range<usize>) -> Shards<D> {
        let (plan, seed) = match self.plan(first) {
            Ok(found) => found,
            Err(e) => return Shards { made: Batches::failed(e), cut: vec![vec![(0, true)]].into_iter() },
        };
        let (mut pieces, mut cut) = (Vec::new(), Vec::with_capacity(plan.len()));
        for (i, rows) in plan.iter().enumerate() {
            let mut parts = Vec::with_capacity(local.len());
            for shard in local.clone() {
                let part = &rows[shard * rows.len() / shards..(shard + 1) * rows.len() / shards];
                // Even numbers for making samples, odd ones for what is computed with them.
                let number = ((first + i) * shards + shard) as u64 * 2;
                let seed = seed.wrapping_add(number);
                parts.push((seed.wrapping_add(1), !part.is_empty()));
                if !part.is_empty() {
                    pieces.push(Piece { seed: Some(seed), rows: part.to_vec() });
                }
            }
            cut.push(parts);
        }
        Shards { made: self.start(pieces), cut: cut.into_iter() }
    }

    /// The samples of every remaining batch, and the workers' seed.
    fn plan(&self, first: usize) -> Result<(Vec<Vec<usize>>, u64)> {
        let n = self.dataset.len();
        let seed = draw_seed()?;
        let order: Vec<usize> = if self.options.shuffle {
            let permutation =
                with_generator(Generator::new(draw_seed()?), || ops::randperm(n.into(), Some(DType::I64), None))?;
            permutation.try_to_vec::<i64>()?.into_iter().map(|i| i as usize).collect()
        } else {
            (0..n).collect()
        };
        let batches = order.chunks(self.options.batch_size).take(self.len()).skip(first);
        Ok((batches.map(<[usize]>::to_vec).collect(), seed))
    }

    fn start(&self, plan: Vec<Piece>) -> Batches<D> {
        let left = plan.len();
        let workers = self.options.num_workers;
        if workers == 0 || !HAVE_THREADS {
            return Batches { source: Source::Direct(self.dataset.clone(), plan.into_iter()), left };
        }
        let mut parts: Vec<Vec<Piece>> = (0..workers).map(|_| Vec::new()).collect();
        for (i, piece) in plan.into_iter().enumerate() {
            parts[i % workers].push(piece);
        }
        let receivers = parts.into_iter().enumerate().map(|(k, part)| {
            let (sender, receiver) = sync_channel(self.options.prefetch_factor.max(1));
            let dataset = self.dataset.clone();
            let work = move || {
                for piece in part {
                    let made = piece.make(&*dataset);
                    // The receiver is gone if the pass was left early.
                    if sender.send(made).is_err() {
                        return;
                    }
                }
            };
            // Without a thread the batches of this worker are missing, which the receiver reports.
            let _ = std::thread::Builder::new().name(format!("firebrand-data-{k}")).spawn(work);
            receiver
        });
        Batches { source: Source::Workers { receivers: receivers.collect(), next: 0 }, left }
    }
}

impl<D: Dataset> IntoIterator for &DataLoader<D> {
    type Item = Result<D::Sample>;
    type IntoIter = Batches<D>;
    fn into_iter(self) -> Batches<D> {
        self.iter()
    }
}

/// Samples that are made at one go, and the seed of their own random stream, if they have one.
struct Piece {
    seed: Option<u64>,
    rows: Vec<usize>,
}

impl Piece {
    fn make<D: Dataset>(&self, dataset: &D) -> Result<D::Sample> {
        match self.seed {
            Some(seed) => with_generator(Generator::new(seed), || dataset.batch(&self.rows)),
            None => dataset.batch(&self.rows),
        }
    }
}

enum Source<D: Dataset> {
    Direct(Arc<D>, std::vec::IntoIter<Piece>),
    Workers { receivers: Vec<Receiver<Result<D::Sample>>>, next: usize },
    Failed(Option<firebrand_core::Error>),
}

/// The batches of one pass.
pub struct Batches<D: Dataset> {
    source: Source<D>,
    left: usize,
}

impl<D: Dataset> Batches<D> {
    fn failed(e: firebrand_core::Error) -> Batches<D> {
        Batches { source: Source::Failed(Some(e)), left: 1 }
    }
}

impl<D: Dataset> Iterator for Batches<D> {
    type Item = Result<D::Sample>;

    fn next(&mut self) -> Option<Result<D::Sample>> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::Direct(dataset, plan) => plan.next().map(|piece| piece.make(&**dataset)),
            Source::Workers { receivers, next } => {
                let k = *next;
                *next = (k + 1) % receivers.len();
                Some(receivers[k].recv().unwrap_or_else(|_| {
                    let message = "a data worker ended without its batch: it panicked or could not be started";
                    Err(firebrand_core::Error::argument("DataLoader", message))
                }))
            }
            Source::Failed(e) => e.take().map(Err),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// A part of a batch.
pub struct Shard<S> {
    /// The seed for computations with this part.
    pub seed: u64,
    /// Its samples; `None` if the batch has fewer samples than parts and this one is empty.
    pub samples: Option<S>,
}

/// The parts of the batches of one pass, see [`DataLoader::shards_from`].
pub struct Shards<D: Dataset> {
    made: Batches<D>,
    /// For every batch, the seeds of its parts, and whether they have samples.
    cut: std::vec::IntoIter<Vec<(u64, bool)>>,
}

impl<D: Dataset> Iterator for Shards<D> {
    type Item = Result<Vec<Shard<D::Sample>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let parts = self.cut.next()?;
        let part = |(seed, there): (u64, bool)| {
            let samples = if there { self.made.next().transpose()? } else { None };
            Ok(Shard { seed, samples })
        };
        Some(parts.into_iter().map(part).collect())
    }
}
