//! Gradients of indexing.

use super::base::zeros_of;
use super::pointwise::maybe_multiply;
use crate::sym::SymInt;
use crate::{Result, Scalar, Spec, Tensor, ops};

pub(crate) fn index_select_backward(grad: &Tensor, sizes: &[SymInt], dim: i64, index: &Tensor) -> Result<Tensor> {
    let sizes: Vec<usize> = sizes.iter().map(|n| n.to_usize().unwrap_or(0)).collect();
    let zeros = zeros_of(&Spec::new(&sizes, grad.dtype(), grad.device()))?;
    ops::index_add(&zeros, dim, index, grad, Scalar::Int(1))
}

pub(crate) fn index_add_source_backward(
    grad: &Tensor,
    dim: i64,
    index: &Tensor,
    sizes: &[SymInt],
    alpha: Scalar,
) -> Result<Tensor> {
    let picked = ops::index_select(grad, dim, index)?;
    maybe_multiply(&ops::expand(&picked, sizes, false)?, alpha)
}
