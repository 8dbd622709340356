//! CTC loss with lengths in tensors, and reduced.

use super::sequences::integers;
use crate::ops::formulas::apply_reduction;
use crate::{Error, Result, Scalar, Tensor, ops};

pub(crate) fn ctc_loss_tensor(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    blank: i64,
    zero_infinity: bool,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "_ctc_loss";
    let (inputs, counts) = (integers(OP, input_lengths)?, integers(OP, target_lengths)?);
    ops::_ctc_loss(log_probs, targets, &inputs, &counts, blank, zero_infinity)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn ctc_loss_backward_tensor(
    grad: &Tensor,
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    neg_log_likelihood: &Tensor,
    log_alpha: &Tensor,
    blank: i64,
    zero_infinity: bool,
) -> Result<Tensor> {
    const OP: &str = "_ctc_loss_backward";
    let (inputs, counts) = (integers(OP, input_lengths)?, integers(OP, target_lengths)?);
    ops::_ctc_loss_backward(
        grad,
        log_probs,
        targets,
        &inputs,
        &counts,
        neg_log_likelihood,
        log_alpha,
        blank,
        zero_infinity,
    )
}

/// Losses of sequences, of one sequence without a batch too; the mean divides each by the length of its target first.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn ctc_loss_lists(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &[i64],
    target_lengths: &[i64],
    blank: i64,
    reduction: i64,
    zero_infinity: bool,
) -> Result<Tensor> {
    if !(0..=2).contains(&reduction) {
        let m = format!("reduction should be 0 (none), 1 (mean) or 2 (sum), found {reduction}");
        return Err(Error::argument("ctc_loss", m));
    }
    let single = log_probs.ndim() == 2;
    let batch = if single { ops::unsqueeze(log_probs, 1)? } else { log_probs.clone() };
    let (mut losses, _) = ops::_ctc_loss(&batch, targets, input_lengths, target_lengths, blank, zero_infinity)?;
    if zero_infinity {
        let infinite = ops::eq_scalar(&losses, Scalar::Float(f64::INFINITY))?;
        losses = ops::masked_fill(&losses, &infinite, Scalar::Int(0))?;
    }
    if reduction == 1 {
        // One division for each: a tensor of lengths would be on the device of this call in a program.
        let one = |(k, &n): (usize, &i64)| {
            ops::div_scalar(&ops::select(&losses, 0, k.into())?, Scalar::Float(n.max(1) as f64))
        };
        let each = target_lengths.iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
        losses = if each.is_empty() { losses } else { ops::stack(&each, 0)? };
    }
    let losses = apply_reduction(&losses, reduction)?;
    if single && reduction == 0 { ops::squeeze_dim(&losses, 0) } else { Ok(losses) }
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn ctc_loss_tensors(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    blank: i64,
    reduction: i64,
    zero_infinity: bool,
) -> Result<Tensor> {
    const OP: &str = "ctc_loss";
    let (inputs, counts) = (integers(OP, input_lengths)?, integers(OP, target_lengths)?);
    ctc_loss_lists(log_probs, targets, &inputs, &counts, blank, reduction, zero_infinity)
}
