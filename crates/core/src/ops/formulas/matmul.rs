//! Gradients of matrix products.

use super::base::conj;
use crate::{Result, Tensor, ops};

pub(crate) fn mm_mat1_backward(grad: &Tensor, mat2: &Tensor) -> Result<Tensor> {
    ops::mm(grad, &ops::t(&conj(mat2)?)?)
}

pub(crate) fn mm_mat2_backward(grad: &Tensor, mat1: &Tensor) -> Result<Tensor> {
    ops::mm(&ops::t(&conj(mat1)?)?, grad)
}
