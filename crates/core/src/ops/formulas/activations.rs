//! Second derivatives of activations, composed of ops so that they can be differentiated again.

use crate::ops::{self, arith};
use crate::{Result, Scalar, SymInt, Tensor};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

const ZERO: Scalar = Scalar::Int(0);

/// `celu` is `elu` with a scaled input.
pub(crate) fn celu_backward(g: &Tensor, alpha: Scalar, x: &Tensor) -> Result<Tensor> {
    let input_scale = Scalar::Float(1.0 / alpha.to_f64());
    ops::elu_backward(g, alpha, Scalar::Float(1.0), input_scale, false, x)
}

/// From `elu_backward` to its second argument.
pub(crate) fn elu_double_backward(
    g: &Tensor,
    grad_output: &Tensor,
    alpha: Scalar,
    scale: Scalar,
    input_scale: Scalar,
    is_result: bool,
    x: &Tensor,
) -> Result<Tensor> {
    let g = ops::mul_scalar(&ops::mul(g, grad_output)?, input_scale)?;
    let curved = if is_result {
        g
    } else {
        let factor = input_scale.to_f64() * alpha.to_f64() * scale.to_f64();
        arith::mul(&ops::mul(&g, &ops::exp(&ops::mul_scalar(x, input_scale)?)?)?, &factor)?
    };
    ops::where_scalar_other(&ops::le_scalar(x, ZERO)?, &curved, ZERO)
}

/// From `gelu_backward` to its second argument.
pub(crate) fn gelu_double_backward(g: &Tensor, grad_output: &Tensor, x: &Tensor, approximate: &str) -> Result<Tensor> {
    let g = ops::mul(g, grad_output)?;
    let square = ops::mul(x, x)?;
    if approximate != "tanh" {
        // (2 - x^2) times the normal density.
        let density = ops::exp(&arith::mul(&square, &-0.5)?)?;
        let curve = arith::mul(&ops::mul(&arith::sub(&2.0, &square)?, &density)?, &(FRAC_2_SQRT_PI / SQRT_2 / 2.0))?;
        return ops::mul(&g, &curve);
    }
    // t = tanh(u), u = beta (x + kappa x^3): (1 - t^2) (u' + x (u''/2 - t u'^2)).
    let (beta, kappa) = (SQRT_2 * FRAC_2_SQRT_PI / 2.0, 0.044715);
    let cubic = arith::add(&arith::mul(&square, &kappa)?, &1.0)?;
    let t = ops::tanh(&arith::mul(&ops::mul(x, &cubic)?, &beta)?)?;
    let first = arith::mul(&arith::add(&arith::mul(&square, &(3.0 * kappa))?, &1.0)?, &beta)?;
    let half_second = arith::mul(x, &(3.0 * beta * kappa))?;
    let inner = arith::sub(&half_second, &ops::mul(&t, &ops::mul(&first, &first)?)?)?;
    let curve = arith::add(&first, &ops::mul(x, &inner)?)?;
    let steep = arith::sub(&1.0, &ops::mul(&t, &t)?)?;
    ops::mul(&g, &ops::mul(&steep, &curve)?)
}

/// `hardswish` is a parabola between -3 and 3.
pub(crate) fn hardswish_double_backward(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let inside = ops::logical_and(&ops::gt_scalar(x, Scalar::Int(-3))?, &ops::lt_scalar(x, Scalar::Int(3))?)?;
    ops::where_scalar_other(&inside, &ops::div_scalar(g, Scalar::Int(3))?, ZERO)
}

/// `-s (1 - s)` with the sigmoid `s`.
pub(crate) fn log_sigmoid_double_backward(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let s = ops::sigmoid(x)?;
    ops::mul(g, &ops::mul(&s, &arith::sub(&s, &1.0)?)?)
}

/// `beta s (1 - s)` with the sigmoid `s` of `beta x`, up to the threshold.
pub(crate) fn softplus_double_backward(g: &Tensor, x: &Tensor, beta: Scalar, threshold: Scalar) -> Result<Tensor> {
    let y = ops::mul_scalar(x, beta)?;
    let s = ops::sigmoid(&y)?;
    let curved = ops::mul_scalar(&ops::mul(g, &ops::mul(&s, &arith::sub(&1.0, &s)?)?)?, beta)?;
    ops::where_scalar_self(&ops::gt_scalar(&y, threshold)?, ZERO, &curved)
}

/// `s (1 - s) (2 + x (1 - 2 s))` with the sigmoid `s`.
pub(crate) fn silu_double_backward(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let s = ops::sigmoid(x)?;
    let bend = arith::add(&ops::mul(x, &arith::sub(&1.0, &arith::mul(&s, &2.0)?)?)?, &2.0)?;
    ops::mul(g, &ops::mul(&ops::mul(&s, &arith::sub(&1.0, &s)?)?, &bend)?)
}

/// `(1 - t^2) s (2 + x (1 - s - 2 t s))` with the sigmoid `s` and `t = tanh(softplus(x))`.
pub(crate) fn mish_double_backward(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let s = ops::sigmoid(x)?;
    let t = ops::tanh(&ops::softplus(x, Scalar::Int(1), Scalar::Int(20))?)?;
    let inner = arith::sub(&arith::sub(&1.0, &s)?, &arith::mul(&ops::mul(&t, &s)?, &2.0)?)?;
    let bend = arith::add(&ops::mul(x, &inner)?, &2.0)?;
    let steep = ops::mul(&arith::sub(&1.0, &ops::mul(&t, &t)?)?, &s)?;
    ops::mul(g, &ops::mul(&steep, &bend)?)
}

// ---- glu: a sigmoid(b) of the halves a and b

/// The halves along a dimension.
fn halves(t: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    let d = ops::shape::wrap_dim("glu", dim, t.ndim())?;
    let half = t.shape()[d] / 2;
    let part = |from: usize| ops::slice(t, dim, Some(from.into()), Some((from + half).into()), SymInt::from(1));
    Ok((part(0)?, part(half)?))
}

/// The tangent of `glu`; also what flows to the gradient of `glu_backward`, which is the same product.
pub(crate) fn glu_jvp(x: &Tensor, x_t: &Tensor, dim: i64) -> Result<Tensor> {
    let ((a, b), (a_t, b_t)) = (halves(x, dim)?, halves(x_t, dim)?);
    let s = ops::sigmoid(&b)?;
    let to_b = ops::mul(&a, &ops::mul(&s, &arith::sub(&1.0, &s)?)?)?;
    arith::add(&ops::mul(&a_t, &s)?, &ops::mul(&b_t, &to_b)?)
}

/// From `glu_backward` to its second argument.
pub(crate) fn glu_double_backward(g: &Tensor, grad_output: &Tensor, x: &Tensor, dim: i64) -> Result<Tensor> {
    let ((a, b), (g_a, g_b)) = (halves(x, dim)?, halves(g, dim)?);
    let s = ops::sigmoid(&b)?;
    let slope = ops::mul(grad_output, &ops::mul(&s, &arith::sub(&1.0, &s)?)?)?;
    // d(grad s)/db and d(grad a s')/da are the same slope; d(grad a s')/db bends with 1 - 2 s.
    let to_a = ops::mul(&g_b, &slope)?;
    let bend = ops::mul(&a, &arith::sub(&1.0, &arith::mul(&s, &2.0)?)?)?;
    let to_b = ops::mul(&slope, &arith::add(&g_a, &ops::mul(&g_b, &bend)?)?)?;
    ops::cat(&[to_a, to_b], dim)
}
