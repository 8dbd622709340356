//! Gradients of running sums, products, extremes and log-sum-exps.

use super::selection::scatter_into_zeros;
use crate::ops::shape::wrap_dim;
use crate::sym::SymInt;
use crate::{Result, Scalar, Tensor, ops};

/// The running sum from the end.
pub(crate) fn reversed_cumsum(t: &Tensor, dim: i64) -> Result<Tensor> {
    if t.ndim() == 0 || t.numel() <= 1 {
        return Ok(t.clone());
    }
    ops::flip(&ops::cumsum(&ops::flip(t, &[dim])?, dim, None)?, &[dim])
}

fn reversed_logcumsumexp(t: &Tensor, dim: i64) -> Result<Tensor> {
    if t.ndim() == 0 {
        return ops::logcumsumexp(t, dim);
    }
    ops::flip(&ops::logcumsumexp(&ops::flip(t, &[dim])?, dim)?, &[dim])
}

pub(crate) fn cumprod_backward(grad: &Tensor, input: &Tensor, dim: i64, output: &Tensor) -> Result<Tensor> {
    if input.ndim() == 0 || input.numel() <= 1 {
        return Ok(grad.clone());
    }
    let d = wrap_dim("cumprod", dim, input.ndim())?;
    if input.shape()[d] == 1 {
        return Ok(grad.clone());
    }
    if !super::products::has_zero(input)? {
        return ops::div(&reversed_cumsum(&ops::mul(output, grad)?, dim)?, input);
    }
    // With zeros: for every element the products that leave it out, one position after the other.
    let (dim, n) = (d as i64, input.shape()[d]);
    let from = |t: &Tensor, k: usize| ops::slice(t, dim, Some(SymInt::from(k)), None, 1.into());
    let one_of = |t: &Tensor, k: usize| ops::slice(t, dim, Some(SymInt::from(k)), Some(SymInt::from(k + 1)), 1.into());
    let mut before: Option<Tensor> = None;
    let mut parts = Vec::with_capacity(n);
    for k in 0..n {
        let own = one_of(input, k)?;
        let one = Tensor::try_full(own.shape(), 1i64, (own.dtype(), own.device()))?;
        let mut others = ops::cumprod(&ops::cat(&[one, from(input, k + 1)?], dim)?, dim, None)?;
        if let Some(b) = &before {
            others = ops::mul(b, &others)?;
        }
        parts.push(ops::sum_dim(&ops::mul(&from(grad, k)?, &others)?, Some(&[dim]), true, None)?);
        before = Some(before.map_or_else(|| Ok(own.clone()), |b| ops::mul(&b, &own))?);
    }
    ops::cat(&parts, dim)
}

/// The tangent of a running product: the running product of `x + e t`, to first order in `e`.
pub(crate) fn cumprod_jvp(tangent: &Tensor, input: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    if input.ndim() == 0 {
        return Ok(tangent.clone());
    }
    if !super::products::has_zero(input)? {
        return ops::mul(result, &ops::cumsum(&ops::div(tangent, input)?, dim, None)?);
    }
    let d = wrap_dim("cumprod", dim, input.ndim())?;
    let mut parts = Vec::with_capacity(input.shape()[d]);
    let mut carried: Option<(Tensor, Tensor)> = None;
    for k in 0..input.shape()[d] {
        let at = |t: &Tensor| ops::slice(t, d as i64, Some(SymInt::from(k)), Some(SymInt::from(k + 1)), 1.into());
        let (x, t) = (at(input)?, at(tangent)?);
        let next = match carried {
            None => (x, t),
            Some((p, s)) => (ops::mul(&p, &x)?, ops::add(&ops::mul(&s, &x)?, &ops::mul(&p, &t)?, Scalar::Int(1))?),
        };
        parts.push(next.1.clone());
        carried = Some(next);
    }
    ops::cat(&parts, d as i64)
}

pub(crate) fn cummax_backward(grad: &Tensor, dim: i64, indices: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    if sizes.is_empty() {
        return Ok(grad.clone());
    }
    scatter_into_zeros(grad, dim, indices, sizes)
}

/// Positive and negative gradients apart, each as a logarithm, so that nothing overflows.
pub(crate) fn logcumsumexp_backward(grad: &Tensor, input: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    if grad.ndim() == 0 || grad.numel() == 0 {
        return Ok(grad.clone());
    }
    let side = |g: &Tensor| -> Result<Tensor> {
        let positive = ops::gt_scalar(g, Scalar::Int(0))?;
        let one = Tensor::wrapped_number(Scalar::Int(1))?;
        let lowest = Tensor::wrapped_number(Scalar::Float(f64::from(f32::MIN)))?;
        // The logarithm is taken of 1 where it is not used: its slope stays finite.
        let log = ops::where_self(&positive, &ops::log(&ops::where_self(&positive, g, &one)?)?, &lowest)?;
        let sums = reversed_logcumsumexp(&ops::sub(&log, result, Scalar::Int(1))?, dim)?;
        ops::exp(&ops::add(&sums, input, Scalar::Int(1))?)
    };
    ops::sub(&side(grad)?, &side(&ops::neg(grad)?)?, Scalar::Int(1))
}

pub(crate) fn logcumsumexp_jvp(tangent: &Tensor, input: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    if tangent.ndim() == 0 {
        return Ok(tangent.clone());
    }
    // exp(x - m) keeps the sums in range; the shift cancels.
    let m = ops::amax(input, &[dim], true)?;
    let shift = |t: &Tensor| ops::exp(&ops::sub(t, &m, Scalar::Int(1))?);
    let sums = ops::cumsum(&ops::mul(&shift(input)?, tangent)?, dim, None)?;
    ops::div(&sums, &shift(result)?)
}
