//! A softmax over many classes in which rare ones are cheap: frequent classes are scored directly, rare ones in clusters
//! that are evaluated only for samples of those classes.

use crate::layers::{Linear, LinearOptions, Sequential};
use crate::sequential;
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

/// Log-probabilities of the targets `[batch]` of inputs `[batch, in_features]`, and the mean loss. Classes are sorted by how
/// frequent they are, most frequent first.
#[derive(Module)]
pub struct AdaptiveLogSoftmaxWithLoss {
    /// Scores of the frequent classes and of the clusters.
    pub head: Linear,
    /// Scores within each cluster.
    pub tail: Vec<Sequential>,
    /// Where the clusters begin, and the number of classes.
    cutoffs: Vec<usize>,
    core: ModuleCore,
}

const NAME: &str = "AdaptiveLogSoftmaxWithLoss";

impl AdaptiveLogSoftmaxWithLoss {
    /// Classes below the first of `cutoffs` are frequent; each cutoff begins a cluster. Clusters are narrower by 4, 16, ….
    pub fn new(in_features: usize, n_classes: usize, cutoffs: &[usize]) -> Result<AdaptiveLogSoftmaxWithLoss> {
        AdaptiveLogSoftmaxWithLoss::with(in_features, n_classes, cutoffs, 4.0, false)
    }

    /// Like [`AdaptiveLogSoftmaxWithLoss::new`], with the factor between the widths of clusters, and a bias for the head.
    pub fn with(
        in_features: usize,
        n_classes: usize,
        cutoffs: &[usize],
        div_value: f64,
        head_bias: bool,
    ) -> Result<AdaptiveLogSoftmaxWithLoss> {
        let cutoffs: Vec<usize> = cutoffs.iter().copied().chain([n_classes]).collect();
        if cutoffs.len() < 2 || cutoffs[0] == 0 || !cutoffs.is_sorted_by(|a, b| a < b) {
            let message = format!("expected rising cutoffs between 1 and {n_classes} classes, found {cutoffs:?}");
            return Err(Error::argument(NAME, message));
        }
        let clusters = cutoffs.len() - 1;
        let plain = |i, o| LinearOptions { bias: false, ..LinearOptions::new(i, o) }.build();
        let head =
            LinearOptions { bias: head_bias, ..LinearOptions::new(in_features, cutoffs[0] + clusters) }.build()?;
        let cluster = |k: usize| -> Result<Sequential> {
            let width = (in_features as f64 / div_value.powi(k as i32 + 1)).floor() as usize;
            Ok(sequential![plain(in_features, width)?, plain(width, cutoffs[k + 1] - cutoffs[k])?])
        };
        let tail = (0..clusters).map(cluster).collect::<Result<_>>()?;
        Ok(AdaptiveLogSoftmaxWithLoss { head, tail, cutoffs, core: ModuleCore::new() })
    }

    /// Log-probabilities of all classes, `[batch, classes]`.
    pub fn log_prob(&self, input: &Tensor) -> Result<Tensor> {
        let head = ops::log_softmax(&self.head.try_call(input)?, 1, None)?;
        let columns = |from: usize, n: usize| ops::narrow(&head, 1, SymInt::from(from), SymInt::from(n));
        let frequent = self.cutoffs[0];
        let mut parts = vec![columns(0, frequent)?];
        for (k, cluster) in self.tail.iter().enumerate() {
            let within = ops::log_softmax(&cluster.try_call(input)?, 1, None)?;
            parts.push(ops::add(&within, &columns(frequent + k, 1)?, 1.into())?);
        }
        ops::cat(&parts, 1)
    }

    /// The most probable class of every sample.
    pub fn predict(&self, input: &Tensor) -> Result<Tensor> {
        ops::argmax(&self.log_prob(input)?, Some(1), false)
    }
}

/// Given inputs and classes, returns the log-probability of each sample's class, and the mean of their negatives.
impl Forward<(Tensor, Tensor)> for AdaptiveLogSoftmaxWithLoss {
    type Output = (Tensor, Tensor);
    fn forward(&self, (input, target): &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        if input.ndim() != 2 || target.shape() != &input.shape()[..1] {
            let (x, y) = (input.shape(), target.shape());
            return Err(Error::argument(
                NAME,
                format!("expected [batch, features] and [batch], found {x:?} and {y:?}"),
            ));
        }
        let (frequent, classes) = (self.cutoffs[0], self.cutoffs[self.tail.len()]);
        let mut columns = Vec::with_capacity(target.numel());
        let mut members: Vec<(Vec<i64>, Vec<i64>)> = vec![Default::default(); self.tail.len()];
        for (row, &class) in target.to_vec::<i64>().iter().enumerate() {
            let Some(class) = usize::try_from(class).ok().filter(|&c| c < classes) else {
                return Err(Error::argument(
                    NAME,
                    format!("expected classes from 0 to {}, found {class}", classes - 1),
                ));
            };
            match self.cutoffs.partition_point(|&start| start <= class) {
                0 => columns.push(class as i64),
                cluster => {
                    columns.push((frequent + cluster - 1) as i64);
                    members[cluster - 1].0.push(row as i64);
                    members[cluster - 1].1.push((class - self.cutoffs[cluster - 1]) as i64);
                }
            }
        }
        let chosen = |scores: &Tensor, columns: Vec<i64>| {
            let n = columns.len();
            let at = Tensor::try_from_vec(columns, [n, 1])?;
            ops::squeeze_dim(&ops::gather(&ops::log_softmax(scores, 1, None)?, 1, &at, false)?, 1)
        };
        let mut output = chosen(&self.head.try_call(input)?, columns)?;
        for (cluster, (rows, within)) in self.tail.iter().zip(members) {
            if rows.is_empty() {
                continue;
            }
            let n = rows.len();
            let rows = Tensor::try_from_vec(rows, [n])?;
            let scores = cluster.try_call(&ops::index_select(input, 0, &rows)?)?;
            output = ops::index_add(&output, 0, &rows, &chosen(&scores, within)?, 1.into())?;
        }
        let loss = ops::neg(&ops::mean(&output, None)?)?;
        Ok((output, loss))
    }
}
