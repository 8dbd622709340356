//! Shapes of ops about random masks.

use crate::dtype::default_dtype;
use crate::{Error, Result, Spec, Tensor};

/// `native_dropout_backward`.
pub(crate) fn native_dropout_backward(op: &'static str, grad: &Tensor, mask: &Tensor, _scale: f64) -> Result<Spec> {
    if grad.shape() != mask.shape() {
        let m = format!("gradient of shape {:?} and mask of shape {:?}", grad.shape(), mask.shape());
        return Err(Error::argument(op, m));
    }
    // The factor is a float: integers become floats.
    let dtype = if grad.dtype().is_differentiable() { grad.dtype() } else { default_dtype() };
    Ok(Spec { layout: grad.layout().dense_like(), dtype, device: grad.device() })
}
