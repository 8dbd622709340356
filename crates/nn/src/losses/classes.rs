//! Cross entropy of class indices as one node: it saves the scores, and not their logarithms beside them, and its gradient is made in
//! the memory of the scores where nothing else can see them. With a large vocabulary these are the largest values of a step.

use firebrand_core::autograd::{Context, Function, is_grad_enabled};
use firebrand_core::fusion::is_sole_owner;
use firebrand_core::{DType, Error, Result, Tensor, ops};

/// So many scores at a time.
const PART: usize = 1 << 14;

/// The mean cross entropy of `scores` (classes last) and class indices, one per row, without those that are `ignore`: the value of
/// [`ops::cross_entropy_loss`], as one node that needs less memory.
///
/// # Errors
/// If the numbers of labels and rows differ, a label is not a class, or the scores are neither f32 nor f64.
pub fn cross_entropy_of_classes(scores: &Tensor, labels: &Tensor, ignore: i64) -> Result<Tensor> {
    let classes = scores.shape().last().copied().unwrap_or(0);
    if !matches!(scores.dtype(), DType::F32 | DType::F64) || labels.numel() * classes != scores.numel() {
        let (found, labels) = (scores.shape(), labels.numel());
        let dtype = scores.dtype();
        let message =
            format!("expected f32 or f64 scores, one row per label, found {dtype} of {found:?} and {labels} labels");
        return Err(Error::user(message));
    }
    let labels = labels.try_to_dtype(DType::I64)?.try_reshape([-1i64, 1])?;
    let ignored = ops::eq_scalar(&labels, ignore.into())?;
    let counts = ops::logical_not(&ignored)?.try_to_dtype(scores.dtype())?;
    let count = ops::item(&ops::sum(&counts.try_to_dtype(DType::F64)?, None)?)?.to_f64();
    let function = CrossEntropy { labels: ops::masked_fill(&labels, &ignored, 0.into())?, counts, count };
    Ok(function.apply(&[scores])?.swap_remove(0))
}

/// The mean over all rows whose label is not ignored.
struct CrossEntropy {
    /// Class indices, one per row; zero where they are ignored.
    labels: Tensor,
    /// One, or zero where the label is ignored; a column.
    counts: Tensor,
    count: f64,
}

/// Rows from `from` of a tensor of rows.
fn part(t: &Tensor, from: usize, step: usize) -> Result<Tensor> {
    let to = (from + step).min(t.shape()[0]);
    ops::slice(t, 0, Some(from.into()), Some(to.into()), 1.into())
}

/// All dimensions but the last as one.
fn rows(t: &Tensor) -> Result<Tensor> {
    let classes = t.shape().last().copied().unwrap_or(1);
    t.try_reshape([(t.numel() / classes.max(1)) as i64, classes as i64])
}

impl Function for CrossEntropy {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let scores = rows(&inputs[0])?;
        let (n, step) = (scores.shape()[0], (PART / scores.shape()[1].max(1)).max(1));
        let losses = Tensor::zeros([n, 1], scores.dtype());
        for from in (0..n).step_by(step) {
            let logarithms = ops::log_softmax(&part(&scores, from, step)?, 1, None)?;
            let picked = ops::gather(&logarithms, 1, &part(&self.labels, from, step)?, false)?;
            ops::copy_(&part(&losses, from, step)?, &picked, false)?;
        }
        let sum = ops::sum(&ops::mul(&losses, &self.counts)?, None)?;
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(vec![ops::div_scalar(&sum, (-self.count).into())?])
    }

    fn takes_saved_tensors(&self) -> bool {
        true
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        self.backward_owned(ctx, grads.to_vec())
    }

    fn backward_owned(&self, ctx: &Context, mut grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        let (Some(grad), Some(mut given)) = (grads.swap_remove(0), ctx.take_saved_tensors()?.swap_remove(0)) else {
            return Ok(vec![None]);
        };
        let factors = ops::mul(&self.counts, &ops::div_scalar(&grad, self.count.into())?)?;
        let gradient = |scores: &Tensor, labels: &Tensor, factors: &Tensor| -> Result<Tensor> {
            let minus = ops::full_like(labels, (-1).into(), Some(scores.dtype()), None, None)?;
            let p = ops::scatter_add(&ops::softmax(scores, 1, None)?, 1, labels, &minus)?;
            ops::mul(&p, factors)
        };
        if is_grad_enabled() {
            let sizes: Vec<i64> = given.shape().iter().map(|&n| n as i64).collect();
            let found = gradient(&rows(&given)?, &self.labels, &factors)?;
            return Ok(vec![Some(found.try_reshape(sizes)?)]);
        }
        let own = given.is_contiguous() && !given.is_view() && is_sole_owner(&mut given);
        let result = if own { given.detach() } else { Tensor::zeros(given.shape(), given.dtype()) };
        let (scores, into) = (rows(&given)?, rows(&result)?);
        let step = (PART / scores.shape()[1].max(1)).max(1);
        for from in (0..scores.shape()[0]).step_by(step) {
            let part = |t: &Tensor| part(t, from, step);
            let found = gradient(&part(&scores)?, &part(&self.labels)?, &part(&factors)?)?;
            ops::copy_(&part(&into)?, &found, false)?;
        }
        Ok(vec![Some(result)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrand_core::autograd::{BackwardOptions, GradOptions, grad};
    use firebrand_core::random::manual_seed;

    /// Loss, gradient and second gradient of the op, with ignored labels, in one part and in several, over a kept graph and not.
    #[test]
    fn equals_the_op() -> Result<()> {
        manual_seed(3);
        for (rows, classes) in [(6usize, 5usize), (300, 1000)] {
            let x = Tensor::randn([2, rows / 2, classes], DType::F64).requires_grad_();
            let labels: Vec<i64> =
                (0..rows).map(|k| if k % 4 == 1 { -100 } else { (k * 7 % classes) as i64 }).collect();
            let labels = Tensor::new(&labels[..]);
            let weights = Tensor::randn([2, rows / 2, classes], DType::F64);
            let both = |lean: bool| -> Result<Vec<Tensor>> {
                // Scores that nothing else holds.
                let scores = || ops::mul(&x, &weights);
                let loss = |scores: Tensor| {
                    if lean {
                        return cross_entropy_of_classes(&scores, &labels, -100);
                    }
                    ops::cross_entropy_loss(&rows_of(&scores)?, &labels, None, 1, (-100).into(), 0.0)
                };
                let kept = loss(scores()?)?;
                kept.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() })?;
                loss(scores()?)?.try_backward(&BackwardOptions::default())?;
                let first = x.grad().expect("it ran");
                x.try_set_grad(None)?;
                let again = grad(&kept, &x, &GradOptions::create_graph())?.swap_remove(0).expect("it depends on x");
                let square = ops::sum(&ops::mul(&again, &again)?, None)?;
                let second = grad(&square, &x, &GradOptions::default())?.swap_remove(0).expect("it depends on x");
                Ok(vec![kept.detach(), first, again.detach(), second])
            };
            for (a, b) in both(false)?.iter().zip(both(true)?) {
                let off = (a - &b).abs().max().item::<f64>();
                assert!(off < 1e-13, "{rows} rows: off by {off}");
            }
        }
        Ok(())
    }

    fn rows_of(t: &Tensor) -> Result<Tensor> {
        rows(t)
    }
}
