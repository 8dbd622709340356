//! Gradients of dropout.

use crate::{Result, Tensor, ops};

/// How much dropout scales what it keeps.
fn scale_of(p: f64, train: Option<bool>) -> f64 {
    match train {
        Some(false) => 1.0,
        _ if p == 1.0 => 0.0,
        _ => 1.0 / (1.0 - p),
    }
}

/// The gradient (and tangent) of `native_dropout`.
pub(crate) fn dropout_masked(grad: &Tensor, mask: &Tensor, p: f64, train: Option<bool>) -> Result<Tensor> {
    ops::native_dropout_backward(grad, mask, scale_of(p, train))
}
