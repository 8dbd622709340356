//! Formulas of pointwise ops that are more than an expression: choices at kinks and at the ends of a domain.
//!
//! Where a function has no derivative the values are PyTorch's: half to each of two equal maxima, none at the bounds of a
//! clamp.

use super::base::conj;
use crate::ops::{self, arith};
use crate::{Result, Scalar, Tensor};
use std::f64::consts::PI;

const ZERO: Scalar = Scalar::Int(0);
const ONE: Scalar = Scalar::Int(1);

/// `g` where `condition`, else zero.
fn keep(condition: &Tensor, g: &Tensor) -> Result<Tensor> {
    ops::where_scalar_other(condition, g, ZERO)
}

/// Zero where `condition`, else `g`.
pub(super) fn drop_where(condition: &Tensor, g: &Tensor) -> Result<Tensor> {
    ops::where_scalar_self(condition, ZERO, g)
}

/// Zeros like a tensor, without its history.
fn zeros(t: &Tensor) -> Result<Tensor> {
    super::zeros_like_primal(t)
}

/// `g * s`; the tensor itself if `s` is one.
pub(crate) fn maybe_multiply(g: &Tensor, s: Scalar) -> Result<Tensor> {
    if s.equals(1.0) { Ok(g.clone()) } else { ops::mul_scalar(g, s) }
}

/// `1 - s`.
pub(crate) fn one_minus(s: Scalar) -> Result<Scalar> {
    Ok(match s {
        Scalar::Complex(s) => Scalar::Complex(1.0 - s),
        s => Scalar::Float(1.0 - s.to_f64()),
    })
}

// ---- the larger and the smaller

/// What flows to `a` in `max(a, b)`.
pub(crate) fn larger_backward(g: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    drop_where(&ops::lt(a, b)?, &halve_where(&ops::eq(a, b)?, g)?)
}

/// What flows to `a` in `min(a, b)`.
pub(crate) fn smaller_backward(g: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    drop_where(&ops::gt(a, b)?, &halve_where(&ops::eq(a, b)?, g)?)
}

fn halve_where(condition: &Tensor, g: &Tensor) -> Result<Tensor> {
    ops::where_self(condition, &ops::mul_scalar(g, Scalar::Float(0.5))?, g)
}

/// What flows to `a` in `fmax(a, b)`, or in `fmax(b, a)` if it is not the `first`.
pub(crate) fn fmax_backward(g: &Tensor, a: &Tensor, b: &Tensor, first: bool) -> Result<Tensor> {
    fmax_share(&ops::ge(a, b)?, g, a, b, first)
}

/// What flows to `a` in `fmin(a, b)`, or in `fmin(b, a)` if it is not the `first`.
pub(crate) fn fmin_backward(g: &Tensor, a: &Tensor, b: &Tensor, first: bool) -> Result<Tensor> {
    fmax_share(&ops::le(a, b)?, g, a, b, first)
}

/// A NaN beside a number loses; of two NaN the first gets the gradient.
fn fmax_share(wins: &Tensor, g: &Tensor, a: &Tensor, b: &Tensor, first: bool) -> Result<Tensor> {
    let mut alone = ops::isnan(b)?;
    if !first {
        alone = ops::logical_and(&alone, &ops::logical_not(&ops::isnan(a)?)?)?;
    }
    keep(&ops::logical_or(wins, &alone)?, &halve_where(&ops::eq(a, b)?, g)?)
}

// ---- clamp

/// What flows through a clamp between numbers: nothing at the bounds.
pub(crate) fn clamp_backward(g: &Tensor, x: &Tensor, min: Option<Scalar>, max: Option<Scalar>) -> Result<Tensor> {
    let inside = match (min, max) {
        (Some(min), Some(max)) => ops::logical_and(&ops::gt_scalar(x, min)?, &ops::lt_scalar(x, max)?)?,
        (Some(min), None) => ops::gt_scalar(x, min)?,
        (None, Some(max)) => ops::lt_scalar(x, max)?,
        (None, None) => return Ok(g.clone()),
    };
    keep(&inside, g)
}

/// What flows to the clamped tensor: half where it equals one of two different bounds.
pub(crate) fn clamp_tensor_backward(
    g: &Tensor,
    x: &Tensor,
    min: Option<&Tensor>,
    max: Option<&Tensor>,
) -> Result<Tensor> {
    match (min, max) {
        (Some(min), Some(max)) => {
            let within = ops::logical_and(&ops::ge(x, min)?, &ops::le(x, max)?)?;
            let open = ops::logical_and(&within, &ops::lt(min, max)?)?;
            let at = ops::logical_or(&ops::eq(x, min)?, &ops::eq(x, max)?)?;
            keep(&open, &halve_where(&at, g)?)
        }
        (Some(min), None) => larger_backward(g, x, min),
        (None, Some(max)) => smaller_backward(g, x, max),
        (None, None) => Ok(g.clone()),
    }
}

fn clamp_min_share(g: &Tensor, x: &Tensor, min: &Tensor, max: Option<&Tensor>) -> Result<Tensor> {
    let Some(max) = max else { return larger_backward(g, min, x) };
    let below = ops::logical_and(&ops::lt(x, min)?, &ops::le(min, max)?)?;
    let at = ops::logical_and(&ops::eq(x, min)?, &ops::lt(min, max)?)?;
    keep(&ops::logical_or(&below, &at)?, &halve_where(&at, g)?)
}

fn clamp_max_share(g: &Tensor, x: &Tensor, min: Option<&Tensor>, max: &Tensor) -> Result<Tensor> {
    let Some(min) = min else { return smaller_backward(g, max, x) };
    let above = ops::logical_or(&ops::gt(x, max)?, &ops::gt(min, max)?)?;
    let at = ops::logical_and(&ops::eq(x, max)?, &ops::lt(min, max)?)?;
    keep(&ops::logical_or(&above, &at)?, &halve_where(&at, g)?)
}

/// What flows to the bounds.
pub(crate) fn clamp_bounds_backward(
    g: &Tensor,
    x: &Tensor,
    min: Option<&Tensor>,
    max: Option<&Tensor>,
    mask: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let to_min = min.filter(|_| mask[0]).map(|m| clamp_min_share(g, x, m, max)).transpose()?;
    let to_max = max.filter(|_| mask[1]).map(|m| clamp_max_share(g, x, min, m)).transpose()?;
    Ok((to_min, to_max))
}

/// The tangent of a clamp between tensors: each share of the gradient, applied to its tangent.
pub(crate) fn clamp_tensor_jvp(
    x: &Tensor,
    x_t: &Tensor,
    min: Option<&Tensor>,
    min_t: Option<&Tensor>,
    max: Option<&Tensor>,
    max_t: Option<&Tensor>,
) -> Result<Tensor> {
    let mut out = clamp_tensor_backward(x_t, x, min, max)?;
    if let (Some(min), Some(t)) = (min, min_t) {
        out = arith::add(&out, &clamp_min_share(t, x, min, max)?)?;
    }
    if let (Some(max), Some(t)) = (max, max_t) {
        out = arith::add(&out, &clamp_max_share(t, x, min, max)?)?;
    }
    Ok(out)
}

// ---- quotients

/// What flows to the dividend: nothing through a rounding.
pub(crate) fn div_mode_self_backward(g: &Tensor, other: &Tensor, mode: Option<&str>) -> Result<Tensor> {
    if mode.is_some() { zeros(g) } else { ops::div(g, other) }
}

/// What flows to the divisor.
pub(crate) fn div_mode_other_backward(g: &Tensor, a: &Tensor, other: &Tensor, mode: Option<&str>) -> Result<Tensor> {
    if mode.is_some() {
        return zeros(g);
    }
    ops::neg(&ops::mul(g, &ops::div(&ops::div(a, other)?, other)?)?)
}

/// The tangent of a quotient.
pub(crate) fn div_mode_jvp(
    a_t: &Tensor,
    other_t: &Tensor,
    other: &Tensor,
    result: &Tensor,
    mode: Option<&str>,
) -> Result<Tensor> {
    if mode.is_some() {
        return zeros(result);
    }
    ops::div(&arith::sub(a_t, &ops::mul(other_t, result)?)?, other)
}

/// What flows to the dividend of a division by a number.
pub(crate) fn div_scalar_mode_backward(g: &Tensor, other: Scalar, mode: Option<&str>) -> Result<Tensor> {
    if mode.is_some() { zeros(g) } else { ops::div_scalar(g, other) }
}

/// What flows to the divisor of `remainder` of a number.
pub(crate) fn scalar_remainder_backward(g: &Tensor, a: Scalar, other: &Tensor) -> Result<Tensor> {
    let quotient = ops::div_mode(&Tensor::try_wrapped_number(a)?, other, Some("floor"))?;
    ops::neg(&ops::mul(g, &quotient)?)
}

// ---- powers

/// What flows to the base of a power with a fixed exponent.
pub(crate) fn pow_backward(g: &Tensor, x: &Tensor, exponent: Scalar) -> Result<Tensor> {
    if exponent.equals(0.0) {
        return zeros(g);
    }
    let less = match exponent {
        Scalar::Float(e) => Scalar::Float(e - 1.0),
        Scalar::Complex(e) => Scalar::Complex(e - 1.0),
        e => Scalar::Int(e.to_i64() - 1),
    };
    if less.equals(1.0) {
        return arith::mul_conj(g, &ops::mul_scalar(x, exponent)?);
    }
    arith::mul_conj(g, &ops::mul_scalar(&ops::pow_scalar(x, less)?, exponent)?)
}

/// What flows to the base: nothing where the exponent is zero, whatever the base.
pub(crate) fn pow_backward_self(g: &Tensor, x: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    let power = ops::pow(x, &ops::sub_scalar(exponent, ONE, ONE)?)?;
    drop_where(&ops::eq_scalar(exponent, ZERO)?, &arith::mul_conj(g, &ops::mul(exponent, &power)?)?)
}

/// What flows to the exponent: nothing where zero is raised to a power that is not negative.
pub(crate) fn pow_backward_exponent(g: &Tensor, x: &Tensor, exponent: &Tensor, result: &Tensor) -> Result<Tensor> {
    let flat = ops::logical_and(&ops::eq_scalar(x, ZERO)?, &ops::ge_scalar(&ops::real(exponent)?, ZERO)?)?;
    // The logarithm of a negative number is complex, and so is the result if the exponent is.
    let log = match result.is_complex() && !x.is_complex() {
        true => ops::log(&ops::to_copy(x, Some(result.dtype()), None, false, None)?)?,
        false => ops::log(x)?,
    };
    drop_where(&flat, &arith::mul_conj(g, &ops::mul(result, &log)?)?)
}

/// What flows to the exponent of a number.
pub(crate) fn scalar_pow_backward(g: &Tensor, base: Scalar, exponent: &Tensor, result: &Tensor) -> Result<Tensor> {
    let log = match result.is_complex() {
        true => Scalar::Complex(base.to_complex().ln()),
        false => Scalar::Float(base.to_f64().ln()),
    };
    let grown = arith::mul_conj(g, &ops::mul_scalar(result, log)?)?;
    if base.equals(0.0) {
        return drop_where(&ops::ge_scalar(&ops::real(exponent)?, ZERO)?, &grown);
    }
    Ok(grown)
}

// ---- functions with holes

/// Gradients of `atan2`; both zero at the origin.
pub(crate) fn atan2_backward(
    g: &Tensor,
    a: &Tensor,
    b: &Tensor,
    mask: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let square = arith::add(&ops::mul(a, a)?, &ops::mul(b, b)?)?;
    let share = drop_where(&ops::eq_scalar(&square, ZERO)?, &ops::div(g, &square)?)?;
    let to_a = if mask[0] { Some(ops::mul(&share, b)?) } else { None };
    let to_b = if mask[1] { Some(ops::neg(&ops::mul(&share, a)?)?) } else { None };
    Ok((to_a, to_b))
}

/// The sign that `copysign` gave, times `g`; zero at zero.
pub(crate) fn copysign_backward(g: &Tensor, x: &Tensor, result: &Tensor) -> Result<Tensor> {
    ops::mul(g, &drop_where(&ops::eq_scalar(x, ZERO)?, &ops::div(result, x)?)?)
}

/// `1 / (x (1 - x))`: nothing outside the clamp, not a number outside the domain.
pub(crate) fn logit_backward(g: &Tensor, x: &Tensor, eps: Option<f64>) -> Result<Tensor> {
    let slope = ops::div(g, &ops::mul(x, &arith::sub(&1.0, x)?)?)?;
    let (low, high, outside) = match eps {
        Some(eps) if eps >= 0.0 => (eps, 1.0 - eps, 0.0),
        _ => (0.0, 1.0, f64::NAN),
    };
    let inside = ops::logical_and(&ops::ge_scalar(x, low.into())?, &ops::le_scalar(x, high.into())?)?;
    ops::where_scalar_other(&inside, &slope, outside.into())
}

/// The derivative of `sin(pi x) / (pi x)`, zero at zero.
pub(crate) fn sinc_backward(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    let at_zero = ops::eq_scalar(x, ZERO)?;
    let safe = ops::where_scalar_self(&at_zero, ONE, x)?;
    let angle = ops::mul_scalar(&safe, PI.into())?;
    let rise = ops::sub(&ops::mul(&angle, &ops::cos(&angle)?)?, &ops::sin(&angle)?, ONE)?;
    let slope = ops::div(&rise, &ops::mul(&angle, &safe)?)?;
    drop_where(&at_zero, &ops::mul(g, &conj(&slope)?)?)
}

/// What flows to the factor of `x log(y)`: nothing at `0 log(y)` with `y` not positive.
pub(crate) fn xlogy_backward(g: &Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let hole = ops::logical_and(&ops::eq_scalar(x, ZERO)?, &ops::le_scalar(y, ZERO)?)?;
    drop_where(&hole, &ops::xlogy(g, y)?)
}

/// As above, for a number `y`.
pub(crate) fn xlogy_scalar_backward(g: &Tensor, x: &Tensor, y: Scalar) -> Result<Tensor> {
    let slope = ops::xlogy_scalar(g, y)?;
    if y.to_f64() > 0.0 { Ok(slope) } else { drop_where(&ops::eq_scalar(x, ZERO)?, &slope) }
}

// ---- complex numbers

/// The real part of `t` times the conjugate of `slope`: how the tangent of a real function of complex numbers is made.
/// Of real numbers the product.
pub(crate) fn real_of_product(t: &Tensor, slope: &Tensor) -> Result<Tensor> {
    ops::real(&arith::mul_conj(t, slope)?)
}

/// The derivative of `z / |z|`, whose Jacobian is symmetric; nothing at zero. Of real numbers nothing anywhere.
pub(crate) fn sgn_backward(g: &Tensor, z: &Tensor, sgn: &Tensor) -> Result<Tensor> {
    if !z.is_complex() {
        return zeros(g);
    }
    let length = ops::abs(z)?;
    let along = ops::mul(sgn, &real_of_product(g, sgn)?)?;
    drop_where(&ops::eq_scalar(z, ZERO)?, &ops::div(&ops::sub(g, &along, ONE)?, &length)?)
}

/// `i z / |z|²`, the direction in which the angle grows; nothing at zero and along the real line.
pub(crate) fn angle_backward(g: &Tensor, z: &Tensor) -> Result<Tensor> {
    if !z.is_complex() {
        return zeros(g);
    }
    let length = ops::abs(z)?;
    let turned = ops::mul_scalar(z, Scalar::Complex(firebrand_kernels::Complex::new(0.0, 1.0)))?;
    let slope = ops::div(&turned, &ops::mul(&length, &length)?)?;
    ops::mul(g, &drop_where(&ops::eq_scalar(z, ZERO)?, &slope)?)
}

/// The tangent of the angle.
pub(crate) fn angle_jvp(t: &Tensor, z: &Tensor) -> Result<Tensor> {
    if !z.is_complex() {
        return zeros(t);
    }
    real_of_product(t, &angle_backward(&ops::ones_like(&ops::abs(z)?, None, None, None)?, z)?)
}

/// What flows to the real part of a number.
pub(crate) fn real_part(g: &Tensor) -> Result<Tensor> {
    ops::real(g)
}

/// What flows to the imaginary part of a number.
pub(crate) fn imag_part(g: &Tensor) -> Result<Tensor> {
    ops::imag(g)
}

/// Pairs as complex numbers, wherever they lie.
pub(crate) fn pairs_to_complex(g: &Tensor) -> Result<Tensor> {
    ops::view_as_complex(&ops::contiguous(g, crate::dispatch::MemoryFormat::Contiguous)?)
}
