//! Gradients of what picks elements by index: they go where the elements came from.

use crate::layout::Dims;
use crate::sym::SymInt;
use crate::{Result, Tensor, ops};

/// The gradient of a reduction that picks one element a line: it goes there.
pub(crate) fn value_selecting_reduction_backward(
    grad: &Tensor,
    dim: i64,
    indices: &Tensor,
    sizes: &[SymInt],
    keepdim: bool,
) -> Result<Tensor> {
    if sizes.is_empty() {
        return Ok(grad.clone());
    }
    let (grad, indices) = if keepdim {
        (grad.clone(), indices.clone())
    } else {
        (ops::unsqueeze(grad, dim)?, ops::unsqueeze(indices, dim)?)
    };
    scatter_into_zeros(&grad, dim, &indices, sizes)
}

/// The elements of `grad` added up at the places that `indices` names along `dim`.
pub(crate) fn scatter_into_zeros(grad: &Tensor, dim: i64, indices: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let plain: Dims = sizes.iter().map(|n| n.to_usize().unwrap_or(0)).collect();
    let zeros = Tensor::try_full(&plain[..], 0i64, (grad.dtype(), grad.device()))?;
    ops::scatter_add(&zeros, dim, indices, grad)
}

/// The tangents of the elements that were picked.
pub(crate) fn gather_with_keepdimed_indices(
    tangent: &Tensor,
    dim: i64,
    indices: &Tensor,
    keepdim: bool,
) -> Result<Tensor> {
    if tangent.ndim() == 0 {
        return Ok(tangent.clone());
    }
    let full = if keepdim { indices.clone() } else { ops::unsqueeze(indices, dim)? };
    let picked = ops::gather(tangent, dim, &full, false)?;
    if keepdim { Ok(picked) } else { ops::squeeze_dim(&picked, dim) }
}
