//! Pointwise ops that are aliases or short combinations of others.

use crate::ops;
use crate::{DType, Error, ErrorKind, Result, Scalar, SymInt, Tensor};

/// `div.Tensor`.
pub(crate) fn true_divide(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::div(a, b)
}

/// The power of two.
pub(crate) fn square(a: &Tensor) -> Result<Tensor> {
    ops::pow_scalar(a, Scalar::Int(2))
}

/// The power of two, in place.
pub(crate) fn square_(a: &Tensor) -> Result<&Tensor> {
    ops::pow_scalar_(a, Scalar::Int(2))
}

/// `maximum`.
pub(crate) fn max_other(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::maximum(a, b)
}

/// `minimum`.
pub(crate) fn min_other(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::minimum(a, b)
}

/// The tensor itself; bools have no sign.
pub(crate) fn positive(a: &Tensor) -> Result<Tensor> {
    if a.dtype() == crate::DType::Bool {
        return Err(ErrorKind::DTypeUnsupported { op: "positive", found: a.dtype(), expected: "a number dtype" }.into());
    }
    Ok(a.clone())
}

/// `trunc`.
pub(crate) fn fix(a: &Tensor) -> Result<Tensor> {
    ops::trunc(a)
}

/// `trunc_`.
pub(crate) fn fix_(a: &Tensor) -> Result<&Tensor> {
    ops::trunc_(a)
}

/// `abs`.
pub(crate) fn absolute(a: &Tensor) -> Result<Tensor> {
    ops::abs(a)
}

/// `abs_`.
pub(crate) fn absolute_(a: &Tensor) -> Result<&Tensor> {
    ops::abs_(a)
}

/// `clamp`.
pub(crate) fn clip(a: &Tensor, min: Option<Scalar>, max: Option<Scalar>) -> Result<Tensor> {
    ops::clamp(a, min, max)
}

/// `clamp_`.
pub(crate) fn clip_(a: &Tensor, min: Option<Scalar>, max: Option<Scalar>) -> Result<&Tensor> {
    ops::clamp_(a, min, max)
}

pub(crate) use ops::{bitwise_and, bitwise_and_scalar, bitwise_or, bitwise_or_scalar, bitwise_xor, bitwise_xor_scalar};

/// Whether elements are equal within `atol + rtol |b|`.
pub(crate) fn isclose(a: &Tensor, b: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
    const OP: &str = "isclose";
    if a.dtype() != b.dtype() {
        let m =
            format!("expected tensors of the same dtype, found {} and {}; convert one of them", a.dtype(), b.dtype());
        return Err(Error::argument(OP, m));
    }
    if rtol < 0.0 || atol < 0.0 {
        return Err(Error::argument(OP, format!("tolerances must not be negative, found rtol {rtol} and atol {atol}")));
    }
    let mut close = ops::eq(a, b)?;
    if equal_nan && a.dtype().is_differentiable() {
        close = ops::logical_or(&close, &ops::logical_and(&ops::isnan(a)?, &ops::isnan(b)?)?)?;
    }
    if rtol == 0.0 && atol == 0.0 {
        return Ok(close);
    }
    let float = |t: &Tensor| ops::formulas::cast(t, crate::dtype::to_float(t.dtype()));
    let (x, y) = (float(a)?, float(b)?);
    let one = Scalar::Int(1);
    let allowed = ops::add_scalar(&ops::abs(&ops::mul_scalar(&y, rtol.into())?)?, atol.into(), one)?;
    let distance = ops::abs(&ops::sub(&x, &y, one)?)?;
    let near = ops::logical_and(&ops::isfinite(&distance)?, &ops::le(&distance, &allowed)?)?;
    ops::logical_or(&close, &near)
}

/// Whether all elements are close.
pub(crate) fn allclose(a: &Tensor, b: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<bool> {
    let far = ops::logical_not(&isclose(a, b, rtol, atol, equal_nan)?)?;
    Ok(!ops::any(&far)?.try_item::<bool>()?)
}

// ---- where with numbers

/// `where` with a number for the other choice.
pub(crate) fn where_scalar_other(condition: &Tensor, a: &Tensor, other: Scalar) -> Result<Tensor> {
    ops::where_self(condition, a, &Tensor::try_wrapped_number(other)?)
}

/// `where` with a number for the first choice.
pub(crate) fn where_scalar_self(condition: &Tensor, a: Scalar, other: &Tensor) -> Result<Tensor> {
    ops::where_self(condition, &Tensor::try_wrapped_number(a)?, other)
}

/// `where` between two numbers, of the dtype they have together.
pub(crate) fn where_scalar(condition: &Tensor, a: Scalar, other: Scalar) -> Result<Tensor> {
    ops::where_self(condition, &Tensor::try_scalar(a)?, &Tensor::try_scalar(other)?)
}

/// Powers of at least double precision.
fn precise(t: &Tensor) -> Result<Tensor> {
    let wide = if t.is_complex() { DType::C128 } else { DType::F64 };
    ops::to_dtype(t, wide, false, false, None)
}

pub(crate) fn float_power(a: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    if a.is_complex() != exponent.is_complex() {
        let wide = |t: &Tensor| ops::to_dtype(t, DType::C128, false, false, None);
        return ops::pow(&wide(a)?, &wide(exponent)?);
    }
    ops::pow(&precise(a)?, &precise(exponent)?)
}

pub(crate) fn float_power_scalar(a: &Tensor, exponent: Scalar) -> Result<Tensor> {
    ops::pow_scalar(&precise(a)?, exponent)
}

pub(crate) fn float_power_of_scalar(a: Scalar, exponent: &Tensor) -> Result<Tensor> {
    let exponent = precise(exponent)?;
    ops::pow(&ops::scalar_tensor(a, Some(exponent.dtype()), Some(exponent.device()))?, &exponent)
}

/// Whether each number has no imaginary part.
pub(crate) fn isreal(a: &Tensor) -> Result<Tensor> {
    match a.is_complex() {
        true => ops::eq_scalar(&ops::imag(a)?, Scalar::Int(0)),
        false => ops::ones_like(a, Some(DType::Bool), None, None),
    }
}

/// Negation is never put off here, so there is nothing to do.
pub(crate) fn resolve_neg(a: &Tensor) -> Result<Tensor> {
    Ok(a.clone())
}

/// The logarithm of the multivariate gamma function of dimension `p`.
pub(crate) fn mvlgamma(a: &Tensor, p: i64) -> Result<Tensor> {
    if p < 1 {
        return Err(Error::argument("mvlgamma", format!("the dimension must be positive, found {p}")));
    }
    let constant = p as f64 * (p - 1) as f64 / 4.0 * std::f64::consts::PI.ln();
    let float = if a.is_floating_point() { a.dtype() } else { DType::F32 };
    let order = ops::arange(Scalar::Int(p), Some(DType::F64), Some(a.device()))?;
    let shifts = ops::to_dtype(&ops::mul_scalar(&order, Scalar::Float(-0.5))?, float, false, false, None)?;
    let terms = ops::lgamma(&ops::add(&ops::unsqueeze(a, -1)?, &shifts, Scalar::Int(1))?)?;
    ops::add_scalar(&ops::sum_dim(&terms, Some(&[-1]), false, None)?, Scalar::Float(constant), Scalar::Int(1))
}

/// The area under the normal curve left of each number.
pub(crate) fn special_ndtr(a: &Tensor) -> Result<Tensor> {
    let root = Scalar::Float(-std::f64::consts::FRAC_1_SQRT_2);
    ops::mul_scalar(&ops::erfc(&ops::mul_scalar(a, root)?)?, Scalar::Float(0.5))
}

/// `-x ln x`: zero at zero, and minus infinity below.
pub(crate) fn special_entr(a: &Tensor) -> Result<Tensor> {
    let inside = ops::neg(&ops::xlogy(a, a)?)?;
    let below = ops::lt_scalar(a, Scalar::Int(0))?;
    ops::where_self(&below, &Tensor::try_wrapped_number(Scalar::Float(f64::NEG_INFINITY))?, &inside)
}

/// The sum to these sizes of what they were broadcast to.
pub(crate) fn sum_to_size(a: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    let sizes = crate::sym::checked_sizes("sum_to_size", size)?;
    if !crate::ops::shape::is_expandable_to(&sizes, a.shape()) {
        let m = format!("sizes {sizes:?} do not broadcast to the tensor's, {:?}", a.shape());
        return Err(Error::argument("sum_to_size", m));
    }
    // One number is a sum even of one number: of truth values, how many hold.
    if sizes.is_empty() { crate::ops::sum(a, None) } else { crate::ops::formulas::sum_to_size(a, &sizes) }
}
