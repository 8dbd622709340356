//! One pass over samples without gradients: loss, metrics, confusion matrix, and the samples with the largest losses. Used
//! for validation while training and by `firebrand eval`.

use super::data::{Batch, Samples};
use super::objective::{Objective, Tally};
use super::subject::Subject;
use crate::refusal::{Done, Refusal};
use firebrand::data::Dataset;
use firebrand::prelude::*;
use firebrand::train::{ClassScores, ConfusionMatrix, Metrics};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How many of the samples with the largest losses are kept.
const WORST: usize = 24;

/// A sample with a large loss.
#[derive(Clone)]
pub(crate) struct Hard {
    /// Its index in its file.
    pub(crate) row: usize,
    pub(crate) loss: f64,
    pub(crate) label: Option<i64>,
    pub(crate) predicted: Option<i64>,
    /// Its first input.
    pub(crate) input: Tensor,
}

/// The results of a pass.
pub(crate) struct Evaluation {
    /// `loss` and what goes with it.
    pub(crate) metrics: Metrics,
    pub(crate) confusion: Option<ConfusionMatrix>,
    pub(crate) per_class: Vec<ClassScores>,
    /// Largest loss first.
    pub(crate) worst: Vec<Hard>,
    pub(crate) samples: usize,
    /// Samples skipped because the program only accepts batches of a fixed size.
    pub(crate) left_out: usize,
}

/// How a pass is made.
pub(crate) struct Pass<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) objective: &'a Objective,
    pub(crate) data: &'a Samples,
    pub(crate) batch_size: usize,
    /// Ends the pass with an error when set.
    pub(crate) stop: Option<&'a AtomicBool>,
}

impl Pass<'_> {
    /// Runs the pass; the caller sets the mode. If the program accepts nothing smaller, the last samples are padded to a full
    /// batch and only their own results count; an output that is itself the loss cannot be split by sample, so in that case
    /// they are skipped.
    pub(crate) fn run(&self) -> Done<Evaluation> {
        let (least, _) = self.subject.batch_range()?;
        let mut tally = self.objective.tally();
        let (mut loss, mut count, mut left_out) = (0.0, 0.0, 0);
        let mut worst: Vec<Hard> = Vec::new();
        let mut labels_per_sample = 1;
        let all: Vec<usize> = (0..self.data.len()).collect();
        for rows in all.chunks(self.batch_size) {
            if self.stop.is_some_and(|s| s.load(Relaxed)) {
                return Err(Refusal::because("stopped"));
            }
            let n = rows.len();
            if n < least && !self.objective.splits() {
                left_out += n;
                continue;
            }
            let filled: Vec<usize> =
                rows.iter().copied().chain(std::iter::repeat(rows[0])).take(n.max(least)).collect();
            let batch = self.data.batch(&filled)?;
            let outputs = self.subject.forward(&batch)?;
            let (outputs, batch) = if n < least { cut(outputs, batch, n)? } else { (outputs, batch) };
            let computed = self.objective.compute(&outputs, &batch)?;
            if computed.loss.count > 0.0 {
                loss += firebrand::ops::item(&computed.loss.mean)?.to_f64() * computed.loss.count;
                count += computed.loss.count;
            }
            let predicted = self.objective.observe(&mut tally, &computed)?;
            let labels = computed
                .labels
                .as_ref()
                .filter(|t| t.dtype() == DType::I64)
                .map(|t| t.try_to_vec::<i64>())
                .transpose()?;
            labels_per_sample = labels_per_sample.max(labels.as_ref().map_or(1, |l| l.len() / n));
            if let Some(each) = self.objective.by_sample(&computed, n)? {
                let of = |list: &Option<Vec<i64>>, k: usize| list.as_ref().filter(|l| l.len() == n).map(|l| l[k]);
                for (k, loss) in each.into_iter().enumerate() {
                    if of(&labels, k) == Some(super::objective::IGNORE) {
                        continue;
                    }
                    // Copy only what will be kept.
                    if worst.len() == WORST && worst.last().is_some_and(|w| w.loss >= loss) {
                        continue;
                    }
                    let input = match batch.inputs.first() {
                        Some(t) => firebrand::ops::select(t, 0, k.into())?.try_deep_copy()?,
                        None => continue,
                    };
                    let hard =
                        Hard { row: batch.index[k], loss, label: of(&labels, k), predicted: of(&predicted, k), input };
                    let at = worst.partition_point(|w| w.loss >= loss);
                    worst.insert(at, hard);
                    worst.truncate(WORST);
                }
            }
        }
        let mean = loss / count;
        let mut metrics = Metrics::from_iter([("loss".to_string(), mean)]);
        let (mut confusion, mut per_class) = (None, Vec::new());
        match &tally {
            Tally::Classes(Some(c)) => {
                metrics.extend(c.metrics());
                if labels_per_sample > 1 {
                    metrics.insert("perplexity".into(), mean.exp());
                }
                // Of tokens there are many, and none is a class that anybody asks about.
                if self.data.largest_token().is_some() {
                    metrics.shift_remove("f1");
                } else {
                    confusion = c.confusion().cloned();
                    per_class = c.per_class();
                }
            }
            Tally::YesNo(b) => metrics.extend(b.metrics()),
            Tally::Numbers(r) => metrics.extend(r.metrics()),
            Tally::Classes(None) | Tally::LossOnly => {}
        }
        Ok(Evaluation { metrics, confusion, per_class, worst, samples: self.data.len() - left_out, left_out })
    }
}

/// The results of the first samples of a batch.
fn cut(outputs: Vec<Option<Tensor>>, mut batch: Batch, n: usize) -> Done<(Vec<Option<Tensor>>, Batch)> {
    let full = batch.index.len();
    let first = |t: Tensor| if t.shape().first() == Some(&full) { t.try_narrow(0, 0, n) } else { Ok(t) };
    let outputs = outputs.into_iter().map(|t| t.map(first).transpose()).collect::<Result<Vec<_>>>()?;
    batch.inputs = batch.inputs.into_iter().map(first).collect::<Result<_>>()?;
    batch.target = batch.target.map(first).transpose()?;
    batch.index.truncate(n);
    Ok((outputs, batch))
}

/// Why a loss is not finite: the sample, and whether its inputs already are.
pub(super) fn blame(
    objective: &Objective,
    computed: &super::objective::Computed,
    batch: &Batch,
    data: &Samples,
) -> Done<String> {
    for (k, row) in batch.index.iter().enumerate() {
        for t in batch.inputs.iter().chain(&batch.target).filter(|t| t.is_floating_point()) {
            let values = firebrand::ops::select(t, 0, k.into())?.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?;
            if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
                return Ok(format!("{} holds {bad}", data.name(*row)));
            }
        }
    }
    // A sample whose label is ignored may have corrupted the weights in an earlier step.
    if let Some((row, bad)) = data.first_not_finite()? {
        return Ok(format!("{} holds {bad}", data.name(row)));
    }
    let each = objective.by_sample(computed, batch.index.len())?;
    let bad = each.and_then(|e| e.iter().position(|l| !l.is_finite()));
    Ok(match bad {
        Some(k) => format!("first at {}", data.name(batch.index[k])),
        None => {
            let names: Vec<String> = batch.index.iter().take(8).map(|r| data.name(*r)).collect();
            format!("in the batch of {}", names.join(", "))
        }
    })
}
