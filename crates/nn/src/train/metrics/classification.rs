//! Predicted classes: accuracy, top-k accuracy, precision, recall, F1 and the confusion matrix.

use super::Metrics;
use firebrand_core::{DType, Error, Result, Tensor, ops};

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

/// How well one class is recognized; a ratio with a zero denominator is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassScores {
    /// The fraction of predictions of this class that are right.
    pub precision: f64,
    /// The fraction of samples of this class that are found.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// Samples of this class.
    pub support: usize,
}

impl ClassScores {
    fn new(right: usize, predicted: usize, support: usize) -> ClassScores {
        let share = |n: usize, of: usize| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        ClassScores {
            precision: share(right, predicted),
            recall: share(right, support),
            f1: share(2 * right, predicted + support),
            support,
        }
    }
}

/// Metrics of one class out of several, accumulated over batches.
#[derive(Clone, Debug)]
pub struct Classification {
    /// Per class: right predictions, predictions, samples.
    tally: Vec<[usize; 3]>,
    top_k: usize,
    top_hits: usize,
    total: usize,
    /// Kept up to [`Classification::CONFUSION`] classes.
    confusion: Option<ConfusionMatrix>,
}

impl Classification {
    /// Up to this many classes the confusion matrix is kept.
    pub const CONFUSION: usize = 1000;

    /// No predictions yet; a sample is a top-k hit if fewer than `top_k` classes score higher than the right one.
    pub fn new(classes: usize, top_k: usize) -> Classification {
        let confusion =
            (classes <= Classification::CONFUSION).then(|| ConfusionMatrix { counts: vec![vec![0; classes]; classes] });
        Classification { tally: vec![[0; 3]; classes], top_k, top_hits: 0, total: 0, confusion }
    }

    /// Adds scores `[samples, classes]` with their class indices; samples with the index `ignore` are left out. Returns the
    /// predicted classes of all samples.
    pub fn update(&mut self, scores: &Tensor, labels: &Tensor, ignore: i64) -> Result<Vec<i64>> {
        let classes = self.tally.len();
        let refused = |message| Err(Error::argument("Classification", message));
        if scores.shape().len() != 2 || scores.shape()[1] != classes {
            return refused(format!("expected scores of shape [samples, {classes}], found {:?}", scores.shape()));
        }
        let labels = labels.try_to_vec::<i64>()?;
        if labels.len() != scores.shape()[0] {
            return refused(format!("expected {} labels, found {}", scores.shape()[0], labels.len()));
        }
        let predicted = ops::argmax(scores, Some(-1), false)?.try_to_vec::<i64>()?;
        let values = scores.try_to_dtype(DType::F32)?.try_to_vec::<f32>()?;
        for (row, (&label, &guess)) in labels.iter().zip(&predicted).enumerate() {
            if label == ignore {
                continue;
            }
            let Some(truth) = usize::try_from(label).ok().filter(|t| *t < classes) else {
                return refused(format!("expected class indices below {classes}, found {label}"));
            };
            let guess = guess as usize;
            self.tally[guess][1] += 1;
            self.tally[truth][2] += 1;
            self.tally[truth][0] += usize::from(guess == truth);
            if let Some(confusion) = &mut self.confusion {
                confusion.counts[truth][guess] += 1;
            }
            let scores = &values[row * classes..][..classes];
            self.top_hits += usize::from(scores.iter().filter(|s| **s > scores[truth]).count() < self.top_k);
            self.total += 1;
        }
        Ok(predicted)
    }

    /// `accuracy`, `topK_accuracy` if there are more than K classes and K is above 1, and `f1`: the mean over the classes
    /// that occur as a label or as a prediction.
    pub fn metrics(&self) -> Metrics {
        let total = self.total as f64;
        let right: usize = self.tally.iter().map(|t| t[0]).sum();
        let mut metrics = Metrics::from_iter([("accuracy".to_string(), right as f64 / total)]);
        if self.top_k > 1 && self.tally.len() > self.top_k {
            metrics.insert(format!("top{}_accuracy", self.top_k), self.top_hits as f64 / total);
        }
        let scores = self.per_class();
        let seen: Vec<f64> =
            scores.iter().zip(&self.tally).filter(|(_, t)| t[1] + t[2] > 0).map(|(s, _)| s.f1).collect();
        metrics.insert("f1".into(), seen.iter().sum::<f64>() / seen.len() as f64);
        metrics
    }

    /// Precision, recall, F1 and number of samples of every class.
    pub fn per_class(&self) -> Vec<ClassScores> {
        self.tally.iter().map(|&[right, predicted, support]| ClassScores::new(right, predicted, support)).collect()
    }

    /// The confusion matrix; `None` with more than [`Classification::CONFUSION`] classes.
    pub fn confusion(&self) -> Option<&ConfusionMatrix> {
        self.confusion.as_ref()
    }
}

/// Metrics of independent binary labels, accumulated over batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Binary {
    right: usize,
    found: usize,
    predicted: usize,
    positive: usize,
    total: usize,
}

impl Binary {
    /// No predictions yet.
    pub fn new() -> Binary {
        Binary::default()
    }

    /// Adds logits and labels of the same shape: a logit above 0 is positive, as is a label above 0.5.
    pub fn update(&mut self, logits: &Tensor, labels: &Tensor) -> Result<()> {
        let numbers = |t: &Tensor| t.try_to_dtype(DType::F32)?.try_to_vec::<f32>();
        for (logit, label) in numbers(logits)?.into_iter().zip(numbers(labels)?) {
            let (guess, truth) = (logit > 0.0, label > 0.5);
            self.right += usize::from(guess == truth);
            self.found += usize::from(guess && truth);
            self.predicted += usize::from(guess);
            self.positive += usize::from(truth);
            self.total += 1;
        }
        Ok(())
    }

    /// `accuracy` over all labels, and `f1`, `precision` and `recall` of the positive class.
    pub fn metrics(&self) -> Metrics {
        let yes = ClassScores::new(self.found, self.predicted, self.positive);
        let accuracy = self.right as f64 / self.total as f64;
        let all = [("accuracy", accuracy), ("f1", yes.f1), ("precision", yes.precision), ("recall", yes.recall)];
        all.into_iter().map(|(name, v)| (name.to_string(), v)).collect()
    }
}
