//! Gradients of p-norms.

use super::base::cast;
use super::real_of_product;
use super::reduce::{full_like, reduce_like, restore_dims, shares, zero_where};
use crate::{Result, Scalar, Tensor, ops};

/// The gradient of the p-norm; 0 where the norm is 0.
pub(crate) fn norm_backward(
    grad: &Tensor,
    input: &Tensor,
    p: Scalar,
    norm: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    let p = p.to_f64();
    let (grad, norm) =
        (restore_dims(grad, input.ndim(), dim, keepdim)?, restore_dims(norm, input.ndim(), dim, keepdim)?);
    if p == 0.0 {
        return super::zeros_like_primal(input);
    }
    if p == 1.0 {
        return ops::mul(&ops::sgn(input)?, &grad);
    }
    let nothing = ops::eq_scalar(&norm, Scalar::Int(0))?;
    if p == 2.0 {
        return ops::mul(&grad, &zero_where(&nothing, &ops::div(input, &norm)?)?);
    }
    if p.is_infinite() {
        let (mask, count) = shares(&ops::abs(input)?, &norm, dim, true)?;
        return ops::mul(&ops::sgn(input)?, &ops::mul(&mask, &ops::div(&grad, &count)?)?);
    }
    let size = ops::abs(input)?;
    if p < 1.0 {
        let steep = ops::mul(&ops::sgn(input)?, &ops::pow_scalar(&size, Scalar::Float(p - 1.0))?)?;
        let steep = zero_where(&ops::eq_scalar(input, Scalar::Int(0))?, &steep)?;
        return ops::mul(&steep, &ops::mul(&grad, &ops::pow_scalar(&norm, Scalar::Float(1.0 - p))?)?);
    }
    let slope = if p < 2.0 {
        ops::mul(&ops::sgn(input)?, &ops::pow_scalar(&size, Scalar::Float(p - 1.0))?)?
    } else {
        ops::mul(input, &ops::pow_scalar(&size, Scalar::Float(p - 2.0))?)?
    };
    let scale = ops::div(&grad, &ops::pow_scalar(&norm, Scalar::Float(p - 1.0))?)?;
    ops::mul(&slope, &zero_where(&nothing, &scale)?)
}

pub(crate) fn norm_jvp(
    tangent: &Tensor,
    input: &Tensor,
    p: Scalar,
    norm: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    let slope = norm_backward(&full_like(norm, norm.shape(), 1)?, input, p, norm, dim, keepdim)?;
    reduce_like(&real_of_product(&cast(tangent, slope.dtype())?, &slope)?, dim, keepdim)
}

/// Like [`norm_backward`], for an order that may be left out.
pub(crate) fn opt_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    p: Option<Scalar>,
    norm: &Tensor,
    dim: &[i64],
    keepdim: bool,
) -> Result<Tensor> {
    norm_backward(grad, input, p.unwrap_or(Scalar::Int(2)), norm, Some(dim), keepdim)
}

/// Like [`norm_jvp`], for an order that may be left out.
pub(crate) fn opt_norm_jvp(
    tangent: &Tensor,
    input: &Tensor,
    p: Option<Scalar>,
    norm: &Tensor,
    dim: &[i64],
    keepdim: bool,
) -> Result<Tensor> {
    norm_jvp(tangent, input, p.unwrap_or(Scalar::Int(2)), norm, Some(dim), keepdim)
}

/// Like [`norm_backward`], for a norm of another dtype than its input.
pub(crate) fn vector_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    p: Scalar,
    norm: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    let wide = widened(input, norm)?;
    cast(&norm_backward(grad, &wide, p, norm, dim, keepdim)?, input.dtype())
}

/// The input at the precision of its norm; complex numbers stay complex.
fn widened(input: &Tensor, norm: &Tensor) -> Result<Tensor> {
    cast(input, if input.is_complex() { norm.dtype().to_complex() } else { norm.dtype() })
}

/// Like [`norm_jvp`], for a norm of another dtype than its input.
pub(crate) fn vector_norm_jvp(
    tangent: &Tensor,
    input: &Tensor,
    p: Scalar,
    norm: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    norm_jvp(tangent, &widened(input, norm)?, p, norm, dim, keepdim)
}
