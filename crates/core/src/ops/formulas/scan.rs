//! Gradients of running sums, products, extremes and log-sum-exps.

use super::base::conj;
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
    let (input, output) = (&conj(&super::cast(input, output.dtype())?)?, &conj(output)?);
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
        let one = super::reduce::full_like(&own, own.shape(), 1)?;
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
    ops::scatter_add(&ops::new_zeros(grad, sizes, None, None)?, dim, indices, grad)
}

/// A number whose exponential is 0, and that can be added to others of its kind in f64.
const NOTHING: f64 = f32::MIN as f64;

/// `f` of the logarithms of the positive elements, less that of the negative ones: linear, and nothing overflows.
fn by_sign(t: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let side = |t: &Tensor| -> Result<Tensor> {
        let positive = ops::gt_scalar(t, Scalar::Int(0))?;
        let one = Tensor::try_wrapped_number(Scalar::Int(1))?;
        // The logarithm is taken of 1 where it is not used: its slope stays finite.
        let log = ops::log(&ops::where_self(&positive, t, &one)?)?;
        f(&ops::where_self(&positive, &log, &Tensor::try_wrapped_number(Scalar::Float(NOTHING))?)?)
    };
    ops::sub(&side(t)?, &side(&ops::neg(t)?)?, Scalar::Int(1))
}

/// The logarithm of complex numbers, a finite one where there is none: complex numbers have signs of every kind.
fn logarithm(t: &Tensor) -> Result<Tensor> {
    let number = |n: f64| Tensor::try_wrapped_number(Scalar::Float(n));
    let zero = ops::eq_scalar(t, Scalar::Int(0))?;
    let log = ops::log(&ops::where_self(&zero, &number(1.0)?, t)?)?;
    ops::where_self(&zero, &number(NOTHING)?, &log)
}

pub(crate) fn logcumsumexp_backward(grad: &Tensor, input: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    if grad.ndim() == 0 || grad.numel() == 0 {
        return Ok(grad.clone());
    }
    if grad.is_complex() {
        let (log, input, result) = (logarithm(grad)?, conj(input)?, conj(result)?);
        let sums = reversed_logcumsumexp(&ops::sub(&log, &result, Scalar::Int(1))?, dim)?;
        return ops::exp(&ops::add(&sums, &input, Scalar::Int(1))?);
    }
    by_sign(grad, |log| {
        let sums = reversed_logcumsumexp(&ops::sub(log, result, Scalar::Int(1))?, dim)?;
        ops::exp(&ops::add(&sums, input, Scalar::Int(1))?)
    })
}

pub(crate) fn logcumsumexp_jvp(tangent: &Tensor, input: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    if tangent.ndim() == 0 || tangent.numel() == 0 {
        return Ok(tangent.clone());
    }
    if tangent.is_complex() {
        let sums = ops::logcumsumexp(&ops::add(&logarithm(tangent)?, input, Scalar::Int(1))?, dim)?;
        return ops::exp(&ops::sub(&sums, result, Scalar::Int(1))?);
    }
    by_sign(tangent, |log| {
        let sums = ops::logcumsumexp(&ops::add(log, input, Scalar::Int(1))?, dim)?;
        ops::exp(&ops::sub(&sums, result, Scalar::Int(1))?)
    })
}
