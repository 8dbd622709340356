//! Gradients of copies and conversions.

use super::{cast, expand_to, sum_to_size};
use crate::{Result, Spec, Tensor, ops};

/// Back to the dtype and device the copy was made from.
pub(crate) fn to_copy_backward(grad: &Tensor, spec: &Spec) -> Result<Tensor> {
    if grad.dtype() == spec.dtype && grad.device() == spec.device {
        return Ok(grad.clone());
    }
    ops::to_copy(grad, Some(spec.dtype), Some(spec.device), false, None)
}

/// The gradient of the source of a copy: what broadcasting repeated is summed.
pub(crate) fn copy_backward(grad: &Tensor, spec: &Spec) -> Result<Tensor> {
    cast(&sum_to_size(grad, spec.layout.sizes())?, spec.dtype)
}

/// The tangent of a copy: the source's, with the shape and dtype of the target.
pub(crate) fn copy_tangent(target: &Tensor, source: &Tensor) -> Result<Tensor> {
    cast(&expand_to(source, target.shape())?, target.dtype())
}
