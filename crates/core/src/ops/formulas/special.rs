//! Derivatives of special functions.

use super::pointwise::drop_where;
use crate::{Result, Scalar, Tensor, ops};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

fn times(t: &Tensor, factor: f64) -> Result<Tensor> {
    ops::mul_scalar(t, Scalar::Float(factor))
}

/// `slope(x)` away from zero, and one half at it: both are the limit of what divides by `x`.
fn half_at_zero(g: &Tensor, x: &Tensor, slope: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let far = ops::gt_scalar(&ops::abs(x)?, Scalar::Float(f64::EPSILON))?;
    let one = Tensor::try_wrapped_number(Scalar::Float(1.0))?;
    let safe = ops::where_self(&far, x, &one)?;
    ops::mul(g, &ops::where_self(&far, &slope(&safe)?, &times(&one, 0.5)?)?)
}

/// `i1' = i0 - i1 / x`.
pub(crate) fn i1_backward(g: &Tensor, x: &Tensor, result: &Tensor) -> Result<Tensor> {
    half_at_zero(g, x, |x| ops::sub(&ops::i0(x)?, &ops::div(result, x)?, Scalar::Int(1)))
}

/// `j1' = j0 - j1 / x`.
pub(crate) fn bessel_j1_backward(g: &Tensor, x: &Tensor, result: &Tensor) -> Result<Tensor> {
    half_at_zero(g, x, |x| ops::sub(&ops::special_bessel_j0(x)?, &ops::div(result, x)?, Scalar::Int(1)))
}

/// `i1e' = i0e - i1e (sign(x) + 1 / x)`.
pub(crate) fn i1e_backward(g: &Tensor, x: &Tensor, result: &Tensor) -> Result<Tensor> {
    half_at_zero(g, x, |x| {
        let both = ops::add(&ops::sgn(x)?, &ops::reciprocal(x)?, Scalar::Int(1))?;
        ops::sub(&ops::special_i0e(x)?, &ops::mul(result, &both)?, Scalar::Int(1))
    })
}

/// One over the normal density at the result.
pub(crate) fn ndtri_backward(g: &Tensor, result: &Tensor) -> Result<Tensor> {
    let density = ops::exp(&times(&ops::square(result)?, 0.5)?)?;
    times(&ops::mul(g, &density)?, (2.0 * PI).sqrt())
}

/// Density over probability: `sqrt(2 / pi) / erfcx(-x / sqrt(2))`.
pub(crate) fn log_ndtr_backward(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let tail = ops::special_erfcx(&times(x, -FRAC_1_SQRT_2)?)?;
    times(&ops::div(g, &tail)?, (2.0 / PI).sqrt())
}

/// The derivative in the place: `x^(a - 1) e^-x / Gamma(a)`.
pub(crate) fn igamma_backward(g: &Tensor, order: &Tensor, x: &Tensor) -> Result<Tensor> {
    let power = ops::mul(&ops::sub_scalar(order, Scalar::Int(1), Scalar::Int(1))?, &ops::log(x)?)?;
    let log = ops::sub(&ops::sub(&power, x, Scalar::Int(1))?, &ops::lgamma(order)?, Scalar::Int(1))?;
    ops::mul(g, &ops::exp(&log)?)
}

/// `g log(1 + y)`, and none where `x` is zero and the logarithm is not there.
pub(crate) fn xlog1py_backward(g: &Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let hole = ops::logical_and(&ops::eq_scalar(x, Scalar::Int(0))?, &ops::le_scalar(y, Scalar::Int(-1))?)?;
    drop_where(&hole, &ops::special_xlog1py(g, y)?)
}
