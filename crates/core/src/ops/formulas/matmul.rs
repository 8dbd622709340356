//! Gradients of matrix products. A gradient has the memory order of its operand (rows or columns contiguous), so that
//! weights used transposed get gradients in the order of the weights.

use super::base::conj;
use super::maybe_multiply;
use crate::layout::Layout;
use crate::{Result, Scalar, Tensor, ops};

/// Whether a matrix has contiguous columns and not rows.
fn by_columns(l: &Layout) -> bool {
    l.strides()[0] == 1 && l.strides()[1] >= l.sizes()[0] && l.sizes()[1] > 1
}

/// `a @ b`, laid out as `like`.
fn product_like(a: &Tensor, b: &Tensor, like: &Layout) -> Result<Tensor> {
    if by_columns(like) { ops::t(&ops::mm(&ops::t(b)?, &ops::t(a)?)?) } else { ops::mm(a, b) }
}

/// The gradient of the left factor of `alpha * a @ b`.
pub(crate) fn mm_mat1_backward(grad: &Tensor, mat2: &Tensor, mat1: &Layout, alpha: Scalar) -> Result<Tensor> {
    maybe_multiply(&product_like(grad, &ops::t(&conj(mat2)?)?, mat1)?, alpha.conj())
}

/// The gradient of the right factor of `alpha * a @ b`.
pub(crate) fn mm_mat2_backward(grad: &Tensor, mat1: &Tensor, mat2: &Layout, alpha: Scalar) -> Result<Tensor> {
    maybe_multiply(&product_like(&ops::t(&conj(mat1)?)?, grad, mat2)?, alpha.conj())
}

/// Like [`mm_mat1_backward`], for batches.
pub(crate) fn bmm_mat1_backward(grad: &Tensor, mat2: &Tensor, alpha: Scalar) -> Result<Tensor> {
    maybe_multiply(&ops::bmm(grad, &ops::transpose(&conj(mat2)?, 1, 2)?)?, alpha.conj())
}

/// Like [`mm_mat2_backward`], for batches.
pub(crate) fn bmm_mat2_backward(grad: &Tensor, mat1: &Tensor, alpha: Scalar) -> Result<Tensor> {
    maybe_multiply(&ops::bmm(&ops::transpose(&conj(mat1)?, 1, 2)?, grad)?, alpha.conj())
}
