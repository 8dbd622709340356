//! Gradients of losses: first and second derivative of each element, and the factor of its reduction.

use super::base::cast;
use super::reduce::zero_where;
use crate::ops::shape::broadcast;
use crate::{Result, Scalar, SymInt, Tensor, ops};

fn number(v: f64) -> Scalar {
    Scalar::Float(v)
}

fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::mul(a, b)
}

fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::add(a, b, Scalar::Int(1))
}

fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::sub(a, b, Scalar::Int(1))
}

/// Reduction 0 leaves the elements, 1 takes their mean, 2 their sum.
pub(crate) fn apply_reduction(t: &Tensor, reduction: i64) -> Result<Tensor> {
    match reduction {
        1 => ops::mean(t, None),
        2 => ops::sum(t, None),
        _ => Ok(t.clone()),
    }
}

/// Like [`apply_reduction`], for gradients: those of no elements are 0, not NaN.
fn collect(t: &Tensor, reduction: i64) -> Result<Tensor> {
    if reduction == 1 && t.numel() == 0 { ops::sum(t, None) } else { apply_reduction(t, reduction) }
}

/// The gradient that each element gets from that of the reduced loss.
fn spread(grad: &Tensor, a: &Tensor, b: &Tensor, reduction: i64) -> Result<Tensor> {
    if reduction != 1 {
        return Ok(grad.clone());
    }
    let n: usize = broadcast("loss", a.shape(), b.shape())?.iter().product();
    ops::mul_scalar(grad, number(1.0 / n.max(1) as f64))
}

/// A loss of the difference of two tensors: its name and its parameter.
#[derive(Clone, Copy)]
pub(crate) enum Distance {
    Mse,
    SmoothL1(f64),
    Huber(f64),
}

impl Distance {
    fn slope(self, d: &Tensor) -> Result<Tensor> {
        match self {
            Distance::Mse => ops::mul_scalar(d, Scalar::Int(2)),
            Distance::SmoothL1(beta) => {
                let near = ops::lt_scalar(&ops::abs(d)?, number(beta))?;
                ops::where_self(&near, &ops::mul_scalar(d, number(1.0 / beta))?, &ops::sgn(d)?)
            }
            Distance::Huber(delta) => {
                let near = ops::lt_scalar(&ops::abs(d)?, number(delta))?;
                ops::where_self(&near, d, &ops::mul_scalar(&ops::sgn(d)?, number(delta))?)
            }
        }
    }

    /// `t` times the curvature at `d`.
    fn curve(self, t: &Tensor, d: &Tensor) -> Result<Tensor> {
        let within = |limit: f64, factor: f64| {
            let far = ops::ge_scalar(&ops::abs(d)?, number(limit))?;
            ops::mul_scalar(&zero_where(&far, t)?, number(factor))
        };
        match self {
            Distance::Mse => ops::mul_scalar(t, Scalar::Int(2)),
            Distance::SmoothL1(0.0) => within(0.0, 0.0),
            Distance::SmoothL1(beta) => within(beta, 1.0 / beta),
            Distance::Huber(delta) => within(delta, 1.0),
        }
    }
}

pub(crate) fn distance_mse() -> Result<Distance> {
    Ok(Distance::Mse)
}

pub(crate) fn distance_smooth_l1(beta: f64) -> Result<Distance> {
    Ok(Distance::SmoothL1(beta))
}

pub(crate) fn distance_huber(delta: f64) -> Result<Distance> {
    Ok(Distance::Huber(delta))
}

/// The tangent of a loss.
pub(crate) fn distance_jvp(
    loss: Distance,
    (a, a_t): (&Tensor, &Tensor),
    (b, b_t): (&Tensor, &Tensor),
    reduction: i64,
) -> Result<Tensor> {
    apply_reduction(&mul(&loss.slope(&sub(a, b)?)?, &sub(a_t, b_t)?)?, reduction)
}

/// The gradient of a loss's backward op with respect to the gradient it got.
pub(crate) fn distance_grad_output(
    loss: Distance,
    grad: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
) -> Result<Tensor> {
    collect(&mul(grad, &loss.slope(&sub(a, b)?)?)?, reduction)
}

/// The same with respect to the first operand.
pub(crate) fn distance_double_backward(
    loss: Distance,
    grad: &Tensor,
    grad_output: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
) -> Result<Tensor> {
    loss.curve(&mul(grad, &spread(grad_output, a, b, reduction)?)?, &sub(a, b)?)
}

/// The tangent of a loss's backward op.
pub(crate) fn distance_backward_jvp(
    loss: Distance,
    (grad, grad_t): (&Tensor, &Tensor),
    (a, a_t): (&Tensor, &Tensor),
    (b, b_t): (&Tensor, &Tensor),
    reduction: i64,
) -> Result<Tensor> {
    let d = sub(a, b)?;
    let linear = mul(&spread(grad_t, a, b, reduction)?, &loss.slope(&d)?)?;
    add(&linear, &loss.curve(&mul(&spread(grad, a, b, reduction)?, &sub(a_t, b_t)?)?, &d)?)
}

// ---- cross entropy of probabilities

fn weighted(t: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    weight.map_or_else(|| Ok(t.clone()), |w| mul(t, w))
}

/// `x (1 - x)`, not below a tiny number.
fn spread_of(x: &Tensor) -> Result<Tensor> {
    ops::clamp_min(&mul(&ops::rsub_scalar(x, Scalar::Int(1), Scalar::Int(1))?, x)?, number(1e-12))
}

fn bce_slope(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    ops::div(&sub(x, y)?, &spread_of(x)?)
}

/// The derivative with respect to the target: `log(1 - x) - log(x)`, bounded as the loss is.
fn bce_target_slope(x: &Tensor) -> Result<Tensor> {
    let low = ops::clamp_min(&ops::log1p(&ops::neg(x)?)?, number(-100.0))?;
    sub(&low, &ops::clamp_min(&ops::log(x)?, number(-100.0))?)
}

/// `(x^2 - 2 x y + y) / (x (1 - x))^2`.
fn bce_curve(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let q = spread_of(x)?;
    let top = add(&sub(&mul(x, x)?, &ops::mul_scalar(&mul(x, y)?, Scalar::Int(2))?)?, y)?;
    ops::div(&top, &mul(&q, &q)?)
}

pub(crate) fn bce_target_backward(
    grad: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    mul(&weighted(&spread(grad, x, y, reduction)?, weight)?, &bce_target_slope(x)?)
}

pub(crate) fn bce_jvp(
    (x, x_t): (&Tensor, &Tensor),
    (y, y_t): (&Tensor, &Tensor),
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let each = add(&mul(&bce_slope(x, y)?, x_t)?, &mul(&bce_target_slope(x)?, y_t)?)?;
    apply_reduction(&weighted(&each, weight)?, reduction)
}

pub(crate) fn bce_grad_output(
    grad: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    collect(&weighted(&mul(grad, &bce_slope(x, y)?)?, weight)?, reduction)
}

pub(crate) fn bce_double_backward(
    grad: &Tensor,
    grad_output: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let k = weighted(&spread(grad_output, x, y, reduction)?, weight)?;
    mul(&mul(grad, &k)?, &bce_curve(x, y)?)
}

pub(crate) fn bce_double_backward_target(
    grad: &Tensor,
    grad_output: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let k = weighted(&spread(grad_output, x, y, reduction)?, weight)?;
    ops::neg(&ops::div(&mul(grad, &k)?, &spread_of(x)?)?)
}

pub(crate) fn bce_backward_jvp(
    (grad, grad_t): (&Tensor, &Tensor),
    (x, x_t): (&Tensor, &Tensor),
    (y, y_t): (&Tensor, &Tensor),
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let linear = mul(&weighted(&spread(grad_t, x, y, reduction)?, weight)?, &bce_slope(x, y)?)?;
    let by_input = bce_double_backward(x_t, grad, x, y, weight, reduction)?;
    let by_target = bce_double_backward_target(y_t, grad, x, y, weight, reduction)?;
    add(&linear, &add(&by_input, &by_target)?)
}

// ---- cross entropy of scores

/// `(1 + (p - 1) y) sigmoid(x) - p y`.
fn logits_slope(x: &Tensor, y: &Tensor, pos_weight: Option<&Tensor>) -> Result<Tensor> {
    let s = ops::sigmoid(x)?;
    let Some(p) = pos_weight else { return sub(&s, y) };
    let py = mul(p, y)?;
    let top = ops::add_scalar(&sub(&py, y)?, Scalar::Int(1), Scalar::Int(1))?;
    sub(&mul(&top, &s)?, &py)
}

/// `-x + (p - 1) log(1 + exp(-x))`.
fn logits_target_slope(x: &Tensor, pos_weight: Option<&Tensor>) -> Result<Tensor> {
    let down = ops::neg(x)?;
    let Some(p) = pos_weight else { return Ok(down) };
    let excess = ops::add_scalar(p, Scalar::Int(-1), Scalar::Int(1))?;
    add(&down, &mul(&excess, &ops::softplus(&down, Scalar::Int(1), Scalar::Int(40))?)?)
}

pub(crate) fn bce_logits_backward(
    grad: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    mul(&weighted(&spread(grad, x, y, reduction)?, weight)?, &logits_slope(x, y, pos_weight)?)
}

pub(crate) fn bce_logits_target_backward(
    grad: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    mul(&weighted(&spread(grad, x, y, reduction)?, weight)?, &logits_target_slope(x, pos_weight)?)
}

pub(crate) fn bce_logits_jvp(
    (x, x_t): (&Tensor, &Tensor),
    (y, y_t): (&Tensor, &Tensor),
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let by_input = mul(&logits_slope(x, y, pos_weight)?, x_t)?;
    let each = add(&by_input, &mul(&logits_target_slope(x, pos_weight)?, y_t)?)?;
    apply_reduction(&weighted(&each, weight)?, reduction)
}

// ---- negative log likelihood: linear in its input

pub(crate) fn nll_jvp(
    input_t: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
) -> Result<Tensor> {
    Ok(ops::nll_loss_forward(input_t, target, weight, reduction, ignore_index)?.0)
}

pub(crate) fn nll2d_jvp(
    input_t: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
) -> Result<Tensor> {
    Ok(ops::nll_loss2d_forward(input_t, target, weight, reduction, ignore_index)?.0)
}

/// The gradient of the backward op with respect to the gradient it got.
pub(crate) fn nll_grad_output(
    grad: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
    grad_output: &Tensor,
) -> Result<Tensor> {
    let out = nll_jvp(grad, target, weight, reduction, ignore_index)?;
    cast(&ops::reshape(&out, &grad_output.sym_sizes())?, grad_output.dtype())
}

/// Like [`nll_grad_output`], at places.
pub(crate) fn nll2d_grad_output(
    grad: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
    grad_output: &Tensor,
) -> Result<Tensor> {
    let out = nll2d_jvp(grad, target, weight, reduction, ignore_index)?;
    cast(&ops::reshape(&out, &grad_output.sym_sizes())?, grad_output.dtype())
}
