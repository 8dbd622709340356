//! Gradients of concatenating, repeating, flipping and padding.

use super::cast;
use crate::layout::Dims;
use crate::ops::shape::{join::is_skipped, wrap_dim};
use crate::sym::{SymInt, SymInts};
use crate::{DType, Result, Tensor, ops};

/// The gradients of `cat`: each tensor's own part.
pub(crate) fn cat_backward(grad: &Tensor, sizes: &[SymInts], dtypes: &[DType], dim: i64) -> Result<Vec<Tensor>> {
    let d = wrap_dim("cat", dim, grad.ndim())?;
    let mut at = SymInt::from(0i64);
    let mut parts = Vec::with_capacity(sizes.len());
    for (own, &dtype) in sizes.iter().zip(dtypes) {
        let plain: Dims = own.iter().map(|s| s.to_usize().unwrap_or(0)).collect();
        if is_skipped(&plain) && grad.ndim() != 1 {
            parts.push(ops::new_zeros(grad, own, Some(dtype), None)?);
            continue;
        }
        let part = ops::slice(grad, d as i64, Some(at), Some(at + own[d]), 1.into())?;
        parts.push(cast(&part, dtype)?);
        at += own[d];
    }
    Ok(parts)
}

/// The gradients of `stack`.
pub(crate) fn stack_backward(grad: &Tensor, dtypes: &[DType], dim: i64) -> Result<Vec<Tensor>> {
    ops::unbind(grad, dim)?.iter().zip(dtypes).map(|(g, &d)| cast(g, d)).collect()
}

/// The gradient of `repeat`: the sum over the copies.
pub(crate) fn repeat_backward(grad: &Tensor, repeats: &[SymInt], sizes: &[SymInt]) -> Result<Tensor> {
    if repeats.iter().any(|r| *r == 0i64) {
        return ops::new_zeros(grad, sizes, None, None);
    }
    let lead = repeats.len() - sizes.len();
    let (mut blocks, mut dims) = (SymInts::new(), Vec::new());
    for (k, &r) in repeats.iter().enumerate() {
        dims.push(blocks.len() as i64);
        blocks.push(r);
        if k >= lead {
            blocks.push(sizes[k - lead]);
        }
    }
    if dims.is_empty() {
        return Ok(grad.clone());
    }
    ops::sum_dim(&ops::reshape(grad, &blocks)?, Some(&dims), false, None)
}

/// The gradient of `roll`: rolled back.
pub(crate) fn roll_backward(grad: &Tensor, shifts: &[SymInt], dims: &[i64]) -> Result<Tensor> {
    ops::roll(grad, &negated(shifts), dims)
}

/// The gradient of `constant_pad_nd`: what was added is cropped, what was cropped is zero.
pub(crate) fn constant_pad_nd_backward(grad: &Tensor, pad: &[SymInt]) -> Result<Tensor> {
    ops::constant_pad_nd(grad, &negated(pad), crate::Scalar::Int(0))
}

fn negated(amounts: &[SymInt]) -> SymInts {
    amounts.iter().map(|&a| -a).collect()
}
