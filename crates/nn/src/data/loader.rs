//! Batches of a dataset, in order or shuffled, prepared ahead of time by worker threads.
//!
//! At the start of every pass, the same values are drawn from the default generator as by PyTorch's loader: the workers' seed
//! and, when shuffling, the seed of the permutation. So the order of samples is PyTorch's, and a pass can be resumed in
//! the middle. With workers, every batch has its own random stream, seeded by its index: batches depend neither on
//! timing nor on the number of workers.

use super::Dataset;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, Tensor, ops};
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

    /// Whether a pass has no batch.
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
            Ok((plan, seed)) => self.start(plan, seed, first),
            Err(e) => Batches { source: Source::Failed(Some(e)), left: 1 },
        }
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

    fn start(&self, plan: Vec<Vec<usize>>, seed: u64, first: usize) -> Batches<D> {
        let left = plan.len();
        let workers = self.options.num_workers;
        if workers == 0 {
            return Batches { source: Source::Direct(self.dataset.clone(), plan.into_iter()), left };
        }
        let mut parts: Vec<Vec<(u64, Vec<usize>)>> = (0..workers).map(|_| Vec::new()).collect();
        for (i, batch) in plan.into_iter().enumerate() {
            parts[i % workers].push((seed.wrapping_add((first + i) as u64), batch));
        }
        let receivers = parts.into_iter().enumerate().map(|(k, part)| {
            let (sender, receiver) = sync_channel(self.options.prefetch_factor.max(1));
            let dataset = self.dataset.clone();
            let work = move || {
                for (seed, batch) in part {
                    let made = with_generator(Generator::new(seed), || dataset.batch(&batch));
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

enum Source<D: Dataset> {
    Direct(Arc<D>, std::vec::IntoIter<Vec<usize>>),
    Workers { receivers: Vec<Receiver<Result<D::Sample>>>, next: usize },
    Failed(Option<firebrand_core::Error>),
}

/// The batches of one pass.
pub struct Batches<D: Dataset> {
    source: Source<D>,
    left: usize,
}

impl<D: Dataset> Iterator for Batches<D> {
    type Item = Result<D::Sample>;

    fn next(&mut self) -> Option<Result<D::Sample>> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::Direct(dataset, plan) => plan.next().map(|batch| dataset.batch(&batch)),
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
