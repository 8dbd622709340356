//! Helpers of pointwise derivatives.

use crate::{Result, Scalar, Tensor, ops};

/// `t * s`, or `t` itself if `s` is 1.
pub(crate) fn maybe_multiply(t: &Tensor, s: Scalar) -> Result<Tensor> {
    if s.equals(1.0) { Ok(t.clone()) } else { ops::mul_scalar(t, s) }
}

/// `floor(a / b)`, of which remainders are multiples.
pub(crate) fn div_floor(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::div(&ops::sub(a, &ops::remainder(a, b)?, Scalar::Int(1))?, b)
}

pub(crate) fn pow_backward(grad: &Tensor, base: &Tensor, exponent: Scalar) -> Result<Tensor> {
    if exponent.equals(0.0) {
        return ops::zeros_like(base, None, None, None);
    }
    let less = match exponent {
        Scalar::Float(e) => Scalar::Float(e - 1.0),
        e => Scalar::Int(e.to_i64() - 1),
    };
    ops::mul(grad, &ops::mul_scalar(&ops::pow_scalar(base, less)?, exponent)?)
}

pub(crate) fn pow_backward_self(grad: &Tensor, base: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    let less = ops::sub_scalar(exponent, Scalar::Int(1), Scalar::Int(1))?;
    let slope = ops::mul(exponent, &ops::pow(base, &less)?)?;
    // 0 ** 0 is flat, though its slope would come out as 0 * inf.
    let zero = ops::zeros_like(&slope, None, None, None)?;
    ops::mul(grad, &ops::where_self(&ops::eq_scalar(exponent, Scalar::Int(0))?, &zero, &slope)?)
}

pub(crate) fn pow_backward_exponent(
    grad: &Tensor,
    base: &Tensor,
    exponent: &Tensor,
    result: &Tensor,
) -> Result<Tensor> {
    let slope = ops::mul(result, &ops::log(base)?)?;
    let zero = ops::zeros_like(&slope, None, None, None)?;
    // 0 ** e is 0 around every e >= 0, though log(0) is infinite.
    let flat = ops::where_self(
        &ops::eq_scalar(base, Scalar::Int(0))?,
        &ops::ge_scalar(exponent, Scalar::Int(0))?,
        &ops::ne(base, base)?,
    )?;
    let nan = ops::ne(base, base)?;
    let flat = ops::where_self(&nan, &ops::zeros_like(&flat, None, None, None)?, &flat)?;
    ops::mul(grad, &ops::where_self(&flat, &zero, &slope)?)
}

pub(crate) fn scalar_pow_backward(grad: &Tensor, base: Scalar, exponent: &Tensor, result: &Tensor) -> Result<Tensor> {
    let base = base.to_f64();
    let slope = ops::mul_scalar(result, Scalar::Float(base.ln()))?;
    if base != 0.0 {
        return ops::mul(grad, &slope);
    }
    let zero = ops::zeros_like(&slope, None, None, None)?;
    ops::mul(grad, &ops::where_self(&ops::ge_scalar(exponent, Scalar::Int(0))?, &zero, &slope)?)
}
