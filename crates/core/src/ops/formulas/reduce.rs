//! Gradients of reductions: spreading over what was reduced.

use super::base::{sum_to_size, sym};
use crate::ops::shape::wrap_dims;
use crate::sym::SymInt;
use crate::{Result, Scalar, Tensor, ops};

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

pub(crate) fn sum_backward(grad: &Tensor, sizes: &[SymInt], dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    ops::expand(&restore_dims(grad, sizes.len(), dim, keepdim)?, sizes, false)
}

pub(crate) fn mean_backward(grad: &Tensor, sizes: &[SymInt], dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    let dims = wrap_dims("mean", dim.unwrap_or_default(), sizes.len())?;
    let count: i64 = dims.iter().map(|&d| sizes[d].int()).product();
    ops::div_scalar(&sum_backward(grad, sizes, dim, keepdim)?, Scalar::Int(count.max(1)))
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

/// 1 where the input is the value (NaN is equal to itself here), 0 elsewhere.
fn attains(input: &Tensor, value: &Tensor) -> Result<Tensor> {
    let equal = ops::eq(input, value)?;
    let input_nan = ops::ne(input, input)?;
    let both_nan = ops::where_self(&ops::ne(value, value)?, &input_nan, &equal)?;
    ops::to_copy(&both_nan, Some(input.dtype()), None, false, None)
}

/// Sums over what broadcasting added.
pub(crate) fn sum_to(grad: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let plain: Vec<usize> = sizes.iter().map(|n| n.to_usize().unwrap_or(0)).collect();
    let out = sum_to_size(grad, &plain)?;
    if out.shape() == plain { Ok(out) } else { ops::view(&out, &sym(&plain)) }
}
