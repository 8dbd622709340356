//! Shape functions of losses and of their derivatives. A reduction is 0 (none), 1 (mean) or 2 (sum).

use super::{broadcast, is_expandable_to, need_float};
use crate::dtype::result_type;
use crate::layout::Dims;
use crate::{DType, Error, Result, Spec, SymInt, Tensor};

fn check_reduction(op: &'static str, reduction: i64) -> Result<()> {
    if (0..=2).contains(&reduction) {
        return Ok(());
    }
    Err(Error::argument(op, format!("reduction should be 0 (none), 1 (mean) or 2 (sum), found {reduction}")))
}

fn after_reduction(reduction: i64, spec: Spec) -> Spec {
    if reduction == 0 { spec } else { Spec::scalar(spec.dtype, spec.device) }
}

/// The elementwise loss before its reduction.
fn elementwise(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    let dtype = result_type(a, b);
    need_float(op, dtype)?;
    Spec::new(&broadcast(op, a.shape(), b.shape())?, dtype, a.device())
}

fn fits(op: &'static str, what: &str, t: Option<&Tensor>, sizes: &[usize]) -> Result<()> {
    match t {
        Some(t) if !is_expandable_to(t.shape(), sizes) => Err(Error::argument(
            op,
            format!("{what} of shape {:?} cannot be broadcast to the loss's shape {sizes:?}", t.shape()),
        )),
        _ => Ok(()),
    }
}

/// A loss of two tensors.
pub(crate) fn pair_loss(op: &'static str, a: &Tensor, b: &Tensor, reduction: i64) -> Result<Spec> {
    check_reduction(op, reduction)?;
    Ok(after_reduction(reduction, elementwise(op, a, b)?))
}

/// The gradient of a loss of two tensors.
pub(crate) fn pair_loss_backward(
    op: &'static str,
    grad: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
) -> Result<Spec> {
    check_reduction(op, reduction)?;
    let spec = elementwise(op, a, b)?;
    fits(op, "a gradient", Some(grad), spec.layout.sizes())?;
    Ok(spec)
}

fn check_beta(op: &'static str, beta: f64) -> Result<()> {
    if beta >= 0.0 {
        return Ok(());
    }
    Err(Error::argument(op, format!("beta must not be negative, found {beta}")))
}

fn check_delta(op: &'static str, delta: f64) -> Result<()> {
    if delta > 0.0 {
        return Ok(());
    }
    Err(Error::argument(op, format!("delta must be positive, found {delta}")))
}

/// `smooth_l1_loss`.
pub(crate) fn smooth_l1_loss(op: &'static str, a: &Tensor, b: &Tensor, reduction: i64, beta: f64) -> Result<Spec> {
    check_beta(op, beta)?;
    pair_loss(op, a, b, reduction)
}

/// `smooth_l1_loss_backward`.
pub(crate) fn smooth_l1_loss_backward(
    op: &'static str,
    grad: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
    beta: f64,
) -> Result<Spec> {
    check_beta(op, beta)?;
    pair_loss_backward(op, grad, a, b, reduction)
}

/// `huber_loss`.
pub(crate) fn huber_loss(op: &'static str, a: &Tensor, b: &Tensor, reduction: i64, delta: f64) -> Result<Spec> {
    check_delta(op, delta)?;
    pair_loss(op, a, b, reduction)
}

/// `huber_loss_backward`.
pub(crate) fn huber_loss_backward(
    op: &'static str,
    grad: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
    delta: f64,
) -> Result<Spec> {
    check_delta(op, delta)?;
    pair_loss_backward(op, grad, a, b, reduction)
}

/// `binary_cross_entropy`.
pub(crate) fn binary_cross_entropy(
    op: &'static str,
    a: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Spec> {
    check_reduction(op, reduction)?;
    let spec = elementwise(op, a, target)?;
    fits(op, "weight", weight, spec.layout.sizes())?;
    Ok(after_reduction(reduction, spec))
}

/// `binary_cross_entropy_backward`.
pub(crate) fn binary_cross_entropy_backward(
    op: &'static str,
    grad: &Tensor,
    a: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Spec> {
    let spec = pair_loss_backward(op, grad, a, target, reduction)?;
    fits(op, "weight", weight, spec.layout.sizes())?;
    Ok(spec)
}

/// `binary_cross_entropy_with_logits`.
pub(crate) fn binary_cross_entropy_with_logits(
    op: &'static str,
    a: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Spec> {
    check_reduction(op, reduction)?;
    let spec = elementwise(op, a, target)?;
    fits(op, "weight", weight, spec.layout.sizes())?;
    fits(op, "pos_weight", pos_weight, spec.layout.sizes())?;
    Ok(after_reduction(reduction, spec))
}

/// Sizes of a classification as samples, classes and places, and of its targets.
fn classes(op: &'static str, input: &Tensor, target: &Tensor, weight: Option<&Tensor>, places: bool) -> Result<Dims> {
    need_float(op, input.dtype())?;
    if !matches!(target.dtype(), DType::I64 | DType::U8) {
        let m = format!("targets must be class indices of dtype int64 or uint8, found {}", target.dtype());
        return Err(Error::argument(op, m));
    }
    let sizes: Option<Dims> = match (input.shape(), places) {
        ([_], false) => Some(Dims::new()),
        ([n, _], false) => Some(Dims::from_slice(&[*n])),
        ([n, _, h, w], true) => Some(Dims::from_slice(&[*n, *h, *w])),
        _ => None,
    };
    let Some(sizes) = sizes else {
        let expected = if places { "samples, classes, height and width" } else { "classes, or samples and classes" };
        return Err(Error::argument(op, format!("expected {expected}, found shape {:?}", input.shape())));
    };
    // One sample may have its target in a vector of one.
    if target.shape() != &sizes[..] && !(sizes.is_empty() && target.shape() == [1]) {
        let m = format!(
            "an input of shape {:?} needs targets of shape {sizes:?}, found {:?}",
            input.shape(),
            target.shape()
        );
        return Err(Error::argument(op, m));
    }
    let c = input.shape()[usize::from(input.ndim() > 1)];
    if let Some(w) = weight.filter(|w| w.shape() != [c] || w.dtype() != input.dtype()) {
        let m = format!("expected {c} weights of {}, found {} {:?}", input.dtype(), w.dtype(), w.shape());
        return Err(Error::argument(op, m));
    }
    Ok(sizes)
}

fn nll_forward(
    op: &'static str,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    places: bool,
) -> Result<(Spec, Spec)> {
    check_reduction(op, reduction)?;
    let sizes = classes(op, input, target, weight, places)?;
    let one = Spec::new(&[], input.dtype(), input.device())?;
    Ok((after_reduction(reduction, Spec::new(&sizes, input.dtype(), input.device())?), one))
}

fn nll_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    places: bool,
) -> Result<Spec> {
    let (loss, _) = nll_forward(op, input, target, weight, reduction, places)?;
    if grad.numel() != loss.layout.numel() {
        let m = format!("expected a gradient of shape {:?}, found {:?}", loss.layout.sizes(), grad.shape());
        return Err(Error::argument(op, m));
    }
    Spec::new(input.shape(), input.dtype(), input.device())
}

/// `nll_loss_forward`: the loss and the sum of the weights it was divided by.
pub(crate) fn nll_loss_forward(
    op: &'static str,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    _ignore_index: SymInt,
) -> Result<(Spec, Spec)> {
    nll_forward(op, input, target, weight, reduction, false)
}

/// `nll_loss2d_forward`.
pub(crate) fn nll_loss2d_forward(
    op: &'static str,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    _ignore_index: SymInt,
) -> Result<(Spec, Spec)> {
    nll_forward(op, input, target, weight, reduction, true)
}

/// The sum of weights that a mean was divided by.
fn one_weight(op: &'static str, total_weight: &Tensor) -> Result<()> {
    if total_weight.numel() == 1 {
        return Ok(());
    }
    Err(Error::argument(op, format!("expected a total_weight of one element, found shape {:?}", total_weight.shape())))
}

/// `nll_loss_backward`.
pub(crate) fn nll_loss_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    _ignore_index: SymInt,
    total_weight: &Tensor,
) -> Result<Spec> {
    one_weight(op, total_weight)?;
    nll_backward(op, grad, input, target, weight, reduction, false)
}

/// `nll_loss2d_backward`.
pub(crate) fn nll_loss2d_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    _ignore_index: SymInt,
    total_weight: &Tensor,
) -> Result<Spec> {
    one_weight(op, total_weight)?;
    nll_backward(op, grad, input, target, weight, reduction, true)
}
