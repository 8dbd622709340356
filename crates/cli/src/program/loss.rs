//! Losses by name: `grad`'s over all outputs, `train`'s of the first float output against labels.

use crate::refusal::{Done, Refusal};
use clap::ValueEnum;
use firebrand::{DType, Tensor, ops};

/// Losses of `firebrand grad`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum GradLoss {
    /// Sum over float outputs of mean(v²), in f32 (means of f64 outputs in f64)
    MeanSquare,
    /// Mean cross entropy of the first float output, reshaped to (-1, C), with `__target__`
    CrossEntropy,
    /// Sum of the first float output
    Sum,
}

/// Losses of `firebrand train MODEL.pt2`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum TrainLoss {
    /// Mean squared error
    Mse,
    /// Mean absolute error
    L1,
    /// Smooth L1: quadratic near zero, linear elsewhere
    SmoothL1,
    /// Cross entropy of logits, reshaped to (-1, C), with class indices
    CrossEntropy,
    /// Binary cross entropy of logits
    BceWithLogits,
    /// Negative log likelihood of log-probabilities, reshaped to (-1, C), with class indices
    Nll,
}

/// ATen's number for the reduction `mean`.
const MEAN: i64 = 1;
/// The label that is ignored, as in PyTorch.
const IGNORE: i64 = -100;

fn first(floats: &[Tensor]) -> Done<&Tensor> {
    floats.first().ok_or_else(|| Refusal::because("the program has no floating point output"))
}

fn wanted(target: Option<&Tensor>) -> Done<&Tensor> {
    target.ok_or_else(|| Refusal::because("this loss needs labels: add an array `__target__`"))
}

/// Rows of classes, and one label for each.
fn rows(output: &Tensor, target: &Tensor) -> Done<(Tensor, Tensor)> {
    let classes =
        *output.shape().last().ok_or_else(|| Refusal::because("the output is a scalar and has no class dimension"))?;
    let rows = output.try_reshape([-1, classes as i64])?;
    let labels = target.try_reshape([-1])?;
    if labels.numel() != rows.shape()[0] {
        let (n, m) = (labels.numel(), rows.shape()[0]);
        return Err(Refusal::because(format!("`__target__` has {n} labels for {m} rows of {classes} classes")));
    }
    Ok((rows, labels))
}

impl GradLoss {
    /// The loss of these outputs.
    pub(crate) fn of(self, floats: &[Tensor], target: Option<&Tensor>) -> Done<Tensor> {
        match self {
            GradLoss::MeanSquare => {
                let mut total: Option<Tensor> = None;
                for t in floats {
                    let t = if t.dtype() == DType::F64 { t.clone() } else { t.try_to_dtype(DType::F32)? };
                    let mean = t.try_mul(&t)?.try_mean()?;
                    total = Some(match total {
                        Some(sum) => sum.try_add(&mean)?,
                        None => mean,
                    });
                }
                let total = total.ok_or_else(|| Refusal::because("the program has no floating point output"))?;
                Ok(total.try_to_dtype(DType::F32)?)
            }
            GradLoss::CrossEntropy => {
                let (rows, labels) = rows(first(floats)?, wanted(target)?)?;
                Ok(ops::cross_entropy_loss(&rows, &labels, None, MEAN, IGNORE.into(), 0.0)?)
            }
            GradLoss::Sum => Ok(first(floats)?.try_sum()?),
        }
    }
}

impl TrainLoss {
    /// The loss of the first output against labels.
    pub(crate) fn of(self, floats: &[Tensor], target: &Tensor) -> Done<Tensor> {
        let output = first(floats)?;
        let like = || -> Done<Tensor> {
            if target.numel() != output.numel() {
                let (t, o) = (target.shape(), output.shape());
                return Err(Refusal::because(format!("`__target__` of shape {t:?} does not match the output, {o:?}")));
            }
            Ok(target
                .try_reshape(output.shape().iter().map(|&n| n as i64).collect::<Vec<_>>())?
                .try_to_dtype(output.dtype())?)
        };
        Ok(match self {
            TrainLoss::Mse => ops::mse_loss(output, &like()?, MEAN)?,
            TrainLoss::L1 => ops::l1_loss(output, &like()?, MEAN)?,
            TrainLoss::SmoothL1 => ops::smooth_l1_loss(output, &like()?, MEAN, 1.0)?,
            TrainLoss::BceWithLogits => ops::binary_cross_entropy_with_logits(output, &like()?, None, None, MEAN)?,
            TrainLoss::CrossEntropy => {
                let (rows, labels) = rows(output, target)?;
                ops::cross_entropy_loss(&rows, &labels, None, MEAN, IGNORE.into(), 0.0)?
            }
            TrainLoss::Nll => {
                let (rows, labels) = rows(output, target)?;
                ops::nll_loss_nd(&rows, &labels, None, MEAN, IGNORE.into())?
            }
        })
    }
}
