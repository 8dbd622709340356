//! Datasets: samples by index, and how samples are collated into batches.

use firebrand_core::{Error, Result, Tensor, ops};
use std::sync::Arc;

/// Collates samples into a batch, along a new first dimension.
pub trait Collate: Send + Sized + 'static {
    /// The batch. There is at least one sample.
    fn collate(samples: Vec<Self>) -> Result<Self>;
}

impl Collate for Tensor {
    fn collate(samples: Vec<Tensor>) -> Result<Tensor> {
        ops::stack(&samples, 0)
    }
}

/// As many tensors as the first sample has.
impl Collate for Vec<Tensor> {
    fn collate(samples: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        let width = samples.first().map_or(0, Vec::len);
        if let Some(other) = samples.iter().find(|s| s.len() != width) {
            let message = format!("expected samples of {width} tensors, found one of {}", other.len());
            return Err(Error::argument("collate", message));
        }
        let column = |k: usize| ops::stack(&samples.iter().map(|s| s[k].clone()).collect::<Vec<_>>(), 0);
        (0..width).map(column).collect()
    }
}

impl<const N: usize> Collate for [Tensor; N] {
    fn collate(samples: Vec<[Tensor; N]>) -> Result<[Tensor; N]> {
        let mut columns = [(); N].map(|()| Vec::with_capacity(samples.len()));
        for sample in samples {
            columns.iter_mut().zip(sample).for_each(|(column, t)| column.push(t));
        }
        let mut batch = Vec::with_capacity(N);
        for column in columns {
            batch.push(Tensor::collate(column)?);
        }
        Ok(batch.try_into().expect("as many columns as before"))
    }
}

/// Samples by index.
pub trait Dataset: Send + Sync + 'static {
    /// A sample, and also a batch of samples.
    type Sample: Collate;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One sample.
    fn get(&self, index: usize) -> Result<Self::Sample>;

    /// Several samples as one batch.
    fn batch(&self, indices: &[usize]) -> Result<Self::Sample> {
        Collate::collate(indices.iter().map(|&i| self.get(i)).collect::<Result<Vec<_>>>()?)
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Sample = D::Sample;
    fn len(&self) -> usize {
        (**self).len()
    }
    fn get(&self, index: usize) -> Result<D::Sample> {
        (**self).get(index)
    }
    fn batch(&self, indices: &[usize]) -> Result<D::Sample> {
        (**self).batch(indices)
    }
}

/// Rows of tensors: sample `i` holds row `i` of each.
#[derive(Clone, Debug)]
pub struct TensorDataset<const N: usize> {
    tensors: [Tensor; N],
    len: usize,
}

impl<const N: usize> TensorDataset<N> {
    /// From tensors with the same number of rows.
    pub fn new(tensors: [Tensor; N]) -> Result<TensorDataset<N>> {
        let rows: Vec<Option<usize>> = tensors.iter().map(|t| t.shape().first().copied()).collect();
        match rows.first() {
            Some(Some(len)) if rows.iter().all(|n| *n == Some(*len)) => Ok(TensorDataset { tensors, len: *len }),
            _ => {
                let shapes: Vec<&[usize]> = tensors.iter().map(Tensor::shape).collect();
                let message = format!("expected tensors with equally many rows, found shapes {shapes:?}");
                Err(Error::argument("TensorDataset", message))
            }
        }
    }

    /// The tensors.
    pub fn tensors(&self) -> &[Tensor; N] {
        &self.tensors
    }

    fn each(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<[Tensor; N]> {
        let made = self.tensors.iter().map(f).collect::<Result<Vec<_>>>()?;
        Ok(made.try_into().expect("one for each tensor"))
    }
}

impl<const N: usize> Dataset for TensorDataset<N> {
    type Sample = [Tensor; N];
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<[Tensor; N]> {
        self.each(|t| ops::select(t, 0, index.into()))
    }
    fn batch(&self, indices: &[usize]) -> Result<[Tensor; N]> {
        let rows = Tensor::new(&indices.iter().map(|&i| i as i64).collect::<Vec<i64>>());
        self.each(|t| ops::index_select(t, 0, &rows))
    }
}

/// Some samples of another set.
pub struct Subset<D> {
    dataset: Arc<D>,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples at these indices, in this order.
    pub fn new(dataset: Arc<D>, indices: Vec<usize>) -> Result<Subset<D>> {
        if let Some(bad) = indices.iter().find(|i| **i >= dataset.len()) {
            let message = format!("no sample {bad}: the dataset has {}", dataset.len());
            return Err(Error::argument("Subset", message));
        }
        Ok(Subset { dataset, indices })
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Sample = D::Sample;
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn get(&self, index: usize) -> Result<D::Sample> {
        self.dataset.get(self.indices[index])
    }
    fn batch(&self, indices: &[usize]) -> Result<D::Sample> {
        self.dataset.batch(&indices.iter().map(|&i| self.indices[i]).collect::<Vec<_>>())
    }
}

/// Samples of another dataset, transformed one by one (augmentation). Random values drawn in it come from the loader's streams.
pub struct Map<D, F> {
    dataset: D,
    f: F,
}

impl<D: Dataset, S: Collate, F: Fn(D::Sample) -> Result<S> + Send + Sync + 'static> Map<D, F> {
    /// Applies `f` to every sample.
    pub fn new(dataset: D, f: F) -> Map<D, F> {
        Map { dataset, f }
    }
}

impl<D: Dataset, S: Collate, F: Fn(D::Sample) -> Result<S> + Send + Sync + 'static> Dataset for Map<D, F> {
    type Sample = S;
    fn len(&self) -> usize {
        self.dataset.len()
    }
    fn get(&self, index: usize) -> Result<S> {
        (self.f)(self.dataset.get(index)?)
    }
}

/// Random parts of a dataset with these fractions (they sum to 1), drawn from the default generator as PyTorch does.
pub fn random_split<D: Dataset>(dataset: D, shares: &[f64]) -> Result<Vec<Subset<D>>> {
    let total: f64 = shares.iter().sum();
    if shares.iter().any(|s| !(0.0..=1.0).contains(s)) || (total - 1.0).abs() > 1e-9 {
        let message = format!("expected shares from 0 to 1 that sum to 1, found {shares:?}");
        return Err(Error::argument("random_split", message));
    }
    let n = dataset.len();
    let mut lengths: Vec<usize> = shares.iter().map(|s| (n as f64 * s).floor() as usize).collect();
    // What rounding left goes round.
    let left = n - lengths.iter().sum::<usize>();
    let parts = lengths.len();
    (0..left).for_each(|i| lengths[i % parts] += 1);
    let order: Vec<usize> =
        ops::randperm(n.into(), None, None)?.try_to_vec::<i64>()?.into_iter().map(|i| i as usize).collect();
    let dataset = Arc::new(dataset);
    let mut rest = &order[..];
    lengths
        .into_iter()
        .map(|length| {
            let (part, others) = rest.split_at(length);
            rest = others;
            Subset::new(dataset.clone(), part.to_vec())
        })
        .collect()
}
