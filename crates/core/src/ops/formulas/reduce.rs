//! Gradients of reductions: spreading over what was reduced.

use super::base::{conj, sum_to_size, sym};
use crate::layout::Dims;
use crate::ops::shape::wrap_dims;
use crate::sym::SymInt;
use crate::{DType, Result, Scalar, Tensor, ops};

/// Puts the reduced dims back with size 1.
pub(crate) fn restore_dims(grad: &Tensor, ndim: usize, dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    if keepdim || ndim == 0 {
        return Ok(grad.clone());
    }
    let mut dims = wrap_dims("sum", dim.unwrap_or_default(), ndim)?;
    dims.sort_unstable();
    let mut out = grad.clone();
    for d in dims {
        out = ops::unsqueeze(&out, d as i64)?;
    }
    Ok(out)
}

/// `t` with 0 where `mask` is true.
pub(crate) fn zero_where(mask: &Tensor, t: &Tensor) -> Result<Tensor> {
    ops::where_self(mask, &Tensor::try_wrapped_number(Scalar::Int(0))?, t)
}

/// Filled with a number, of a tensor's dtype and device.
pub(super) fn full_like(t: &Tensor, sizes: &[usize], value: i64) -> Result<Tensor> {
    if super::base::is_traced() {
        let sizes: Vec<SymInt> = sizes.iter().map(|&s| (s as i64).into()).collect();
        return ops::full(&sizes, value.into(), Some(t.dtype()), Some(t.device()));
    }
    Tensor::try_full(sizes, value, (t.dtype(), t.device()))
}

fn dims_of(dim: Option<&[i64]>, ndim: usize) -> Result<(Dims, Vec<i64>)> {
    let dims = wrap_dims("reduce", dim.unwrap_or_default(), ndim)?;
    let plain = dims.iter().map(|&d| d as i64).collect();
    Ok((dims, plain))
}

fn count_of(sizes: &[SymInt], dims: &[usize]) -> i64 {
    dims.iter().map(|&d| sizes[d].int()).product()
}

// ---- sums

pub(crate) fn sum_backward(grad: &Tensor, sizes: &[SymInt], dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    ops::expand(&restore_dims(grad, sizes.len(), dim, keepdim)?, sizes, false)
}

pub(crate) fn mean_backward(grad: &Tensor, sizes: &[SymInt], dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    let (dims, _) = dims_of(dim, sizes.len())?;
    let share = ops::div_scalar(grad, Scalar::Int(count_of(sizes, &dims).max(1)))?;
    sum_backward(&share, sizes, dim, keepdim)
}

pub(crate) fn nansum_backward(grad: &Tensor, input: &Tensor, dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    let spread = sum_backward(grad, &input.sym_sizes(), dim, keepdim)?;
    zero_where(&ops::ne(input, input)?, &spread)
}

pub(crate) fn nansum_jvp(
    tangent: &Tensor,
    input: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let clean = zero_where(&ops::ne(input, input)?, tangent)?;
    ops::sum_dim(&clean, dim, keepdim, dtype)
}

/// Sums over what broadcasting added.
pub(crate) fn sum_to(grad: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let plain: Vec<usize> = sizes.iter().map(|n| n.to_usize().unwrap_or(0)).collect();
    let out = sum_to_size(grad, &plain)?;
    if out.shape() == plain { Ok(out) } else { ops::view(&out, &sym(&plain)) }
}

pub(crate) fn trace_backward(grad: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    ops::mul(grad, &ops::eye_m(sizes[0], sizes[1], Some(grad.dtype()), Some(grad.device()))?)
}

// ---- extremes

/// 1 where the input is the value (NaN is equal to itself here), 0 elsewhere.
fn attains(input: &Tensor, value: &Tensor) -> Result<Tensor> {
    let equal = ops::eq(input, value)?;
    let input_nan = ops::ne(input, input)?;
    let both_nan = ops::where_self(&ops::ne(value, value)?, &input_nan, &equal)?;
    ops::to_copy(&both_nan, Some(input.dtype()), None, false, None)
}

/// The gradient of an extreme: shared equally by the elements that attain it.
pub(crate) fn evenly_distribute_backward(grad: &Tensor, input: &Tensor, value: &Tensor) -> Result<Tensor> {
    let mask = attains(input, value)?;
    let share = ops::div(grad, &ops::sum(&mask, None)?)?;
    ops::mul(&mask, &share)
}

/// The tangent of an extreme: the mean of the tangents of the elements that attain it.
pub(crate) fn evenly_read_jvp(tangent: &Tensor, input: &Tensor, value: &Tensor) -> Result<Tensor> {
    let mask = attains(input, value)?;
    ops::div(&ops::sum(&ops::mul(&mask, tangent)?, None)?, &ops::sum(&mask, None)?)
}

/// Where a result over some dims is attained, and by how many elements of each group.
pub(super) fn shares(input: &Tensor, value: &Tensor, dim: Option<&[i64]>, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let mask = attains(input, &restore_dims(value, input.ndim(), dim, keepdim)?)?;
    let (_, dims) = dims_of(dim, input.ndim())?;
    let count = if dims.is_empty() { mask.clone() } else { ops::sum_dim(&mask, Some(&dims), true, None)? };
    Ok((mask, count))
}

pub(crate) fn extreme_backward(
    grad: &Tensor,
    input: &Tensor,
    value: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    let (mask, count) = shares(input, value, dim, keepdim)?;
    let grad = restore_dims(grad, input.ndim(), dim, keepdim)?;
    ops::mul(&mask, &ops::div(&grad, &count)?)
}

pub(crate) fn extreme_jvp(
    tangent: &Tensor,
    input: &Tensor,
    value: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    let (mask, count) = shares(input, value, dim, keepdim)?;
    let weighted = ops::mul(tangent, &ops::div(&mask, &count)?)?;
    reduce_like(&weighted, dim, keepdim)
}

/// The sum over the dims of a reduction.
pub(super) fn reduce_like(t: &Tensor, dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    let (_, dims) = dims_of(dim, t.ndim())?;
    if dims.is_empty() { Ok(t.clone()) } else { ops::sum_dim(t, Some(&dims), keepdim, None) }
}

pub(crate) fn aminmax_backward(
    grad_min: Option<&Tensor>,
    grad_max: Option<&Tensor>,
    input: &Tensor,
    dim: Option<i64>,
    keepdim: bool,
    min: &Tensor,
    max: &Tensor,
) -> Result<Option<Tensor>> {
    let dim = dim.as_ref().map(std::slice::from_ref);
    let low = grad_min.map(|g| extreme_backward(g, input, min, dim, keepdim)).transpose()?;
    let high = grad_max.map(|g| extreme_backward(g, input, max, dim, keepdim)).transpose()?;
    plus(low, high)
}

pub(crate) fn aminmax_jvp(
    tangent: &Tensor,
    input: &Tensor,
    value: &Tensor,
    dim: Option<i64>,
    keepdim: bool,
) -> Result<Tensor> {
    extreme_jvp(tangent, input, value, dim.as_ref().map(std::slice::from_ref), keepdim)
}

// ---- variance

/// The gradient of a variance: `2 (x - mean) / (n - correction)`.
pub(crate) fn var_backward(
    grad: &Tensor,
    input: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Tensor> {
    let (dims, plain) = dims_of(dim, input.ndim())?;
    let count = count_of(&input.sym_sizes(), &dims) as f64;
    let factor = 2.0 / (count - correction.map_or(1.0, Scalar::to_f64));
    let grad = ops::mul_scalar(&restore_dims(grad, input.ndim(), dim, keepdim)?, Scalar::Float(factor))?;
    let centre = if plain.is_empty() { input.clone() } else { ops::mean_dim(input, Some(&plain), true, None)? };
    ops::mul(&grad, &ops::sub(input, &centre, Scalar::Int(1))?)
}

pub(crate) fn var_jvp(
    tangent: &Tensor,
    input: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Tensor> {
    if !input.is_complex() {
        return reduce_like(&var_backward(tangent, input, dim, correction, true)?, dim, keepdim);
    }
    // What changes is the real part of the product with the conjugate.
    let product = var_backward(&ops::conj_physical(tangent)?, input, dim, correction, true)?;
    reduce_like(&ops::real(&product)?, dim, keepdim)
}

/// From the gradient of a standard deviation to that of the variance; 0 where the deviation is 0.
fn std_to_var(grad: &Tensor, std: &Tensor) -> Result<Tensor> {
    let scaled = ops::div(grad, &ops::mul_scalar(std, Scalar::Int(2))?)?;
    zero_where(&ops::eq_scalar(std, Scalar::Int(0))?, &scaled)
}

pub(crate) fn std_backward(
    grad: &Tensor,
    input: &Tensor,
    std: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Tensor> {
    var_backward(&std_to_var(grad, std)?, input, dim, correction, keepdim)
}

pub(crate) fn std_jvp(
    tangent: &Tensor,
    input: &Tensor,
    std: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Tensor> {
    std_to_var(&var_jvp(tangent, input, dim, correction, keepdim)?, std)
}

fn plus(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(ops::add(&a, &b, Scalar::Int(1))?)),
        (a, b) => Ok(a.or(b)),
    }
}

pub(crate) fn var_mean_backward(
    grad_var: Option<&Tensor>,
    grad_mean: Option<&Tensor>,
    input: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Option<Tensor>> {
    let sizes = input.sym_sizes();
    let var = grad_var.map(|g| var_backward(g, input, dim, correction, keepdim)).transpose()?;
    let mean = grad_mean.map(|g| mean_backward(g, &sizes, dim, keepdim)).transpose()?;
    plus(var, mean)
}

pub(crate) fn std_mean_backward(
    grad_std: Option<&Tensor>,
    grad_mean: Option<&Tensor>,
    input: &Tensor,
    std: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Option<Tensor>> {
    let grad_var = grad_std.map(|g| std_to_var(g, std)).transpose()?;
    var_mean_backward(grad_var.as_ref(), grad_mean, input, dim, correction, keepdim)
}

// ---- log of sums of exponentials

/// The softmax of the elements: what each adds to their log-sum-exp.
fn parts_of_sum(input: &Tensor, result: &Tensor, dim: &[i64], keepdim: bool) -> Result<Tensor> {
    let total = restore_dims(result, input.ndim(), Some(dim), keepdim)?;
    ops::exp(&ops::sub(input, &total, Scalar::Int(1))?)
}

pub(crate) fn logsumexp_backward(
    grad: &Tensor,
    input: &Tensor,
    result: &Tensor,
    dim: &[i64],
    keepdim: bool,
) -> Result<Tensor> {
    let grad = restore_dims(grad, input.ndim(), Some(dim), keepdim)?;
    ops::mul(&grad, &conj(&parts_of_sum(input, result, dim, keepdim)?)?)
}

pub(crate) fn logsumexp_jvp(
    tangent: &Tensor,
    input: &Tensor,
    result: &Tensor,
    dim: &[i64],
    keepdim: bool,
) -> Result<Tensor> {
    reduce_like(&ops::mul(&parts_of_sum(input, result, dim, keepdim)?, tangent)?, Some(dim), keepdim)
}
