//! Metrics of a model's quality.

use firebrand_core::{Error, Result, Tensor, ops};
use indexmap::IndexMap;

/// Metrics by name, in the order they were put in.
pub type Metrics = IndexMap<String, f64>;

/// The fraction of rows whose largest score is at the target class.
pub fn accuracy(scores: &Tensor, targets: &Tensor) -> Result<f64> {
    let hits = ops::eq(&ops::argmax(scores, Some(-1), false)?, targets)?;
    let hits = hits.try_to_vec::<bool>()?;
    Ok(hits.iter().filter(|h| **h).count() as f64 / hits.len().max(1) as f64)
}

/// Counts of predictions by true class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    /// `counts[truth][prediction]`.
    pub counts: Vec<Vec<usize>>,
}

impl ConfusionMatrix {
    /// From true and predicted class indices.
    pub fn new(classes: usize, truth: &[i64], predicted: &[i64]) -> Result<ConfusionMatrix> {
        let mut counts = vec![vec![0; classes]; classes];
        for (t, p) in truth.iter().zip(predicted) {
            let at = |v: i64| usize::try_from(v).ok().filter(|v| *v < classes);
            let (Some(row), Some(column)) = (at(*t), at(*p)) else {
                let message = format!("expected class indices below {classes}, found {t} and {p}");
                return Err(Error::argument("ConfusionMatrix", message));
            };
            counts[row][column] += 1;
        }
        Ok(ConfusionMatrix { counts })
    }

    /// The fraction of correct predictions.
    pub fn accuracy(&self) -> f64 {
        let total: usize = self.counts.iter().flatten().sum();
        let right: usize = self.counts.iter().enumerate().map(|(k, row)| row[k]).sum();
        right as f64 / total.max(1) as f64
    }
}
