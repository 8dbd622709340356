//! Gradients of Fourier transforms: the transform in the other direction, divided by the same.

use crate::sym::{SymInt, SymInts};
use crate::{Result, Scalar, Tensor, ops};
use smallvec::smallvec;

fn places(dim: &[i64]) -> SymInts {
    dim.iter().map(|&d| d.into()).collect()
}

/// What flows to real numbers from (half of) their spectrum: frequencies left out got nothing.
pub(crate) fn fft_r2c_backward(
    grad: &Tensor,
    dim: &[i64],
    normalization: i64,
    onesided: bool,
    sizes: &[SymInt],
) -> Result<Tensor> {
    let mut grad = grad.clone();
    if let (Some(&last), true) = (dim.last(), onesided) {
        let d = ops::shape::wrap_dim("_fft_r2c", last, grad.ndim())?;
        let missing = sizes[d].int() - grad.shape()[d] as i64;
        let mut pad: SymInts = smallvec![SymInt::from(0); 2 * (grad.ndim() - d)];
        pad[2 * (grad.ndim() - d) - 1] = missing.into();
        grad = ops::constant_pad_nd(&grad, &pad, Scalar::Int(0))?;
    }
    ops::real(&ops::fft_c2c(&grad, &places(dim), normalization, false)?)
}

/// What flows to half of a spectrum from real numbers: frequencies whose mirror image was implied count twice.
pub(crate) fn fft_c2r_backward(grad: &Tensor, dim: &[i64], normalization: i64) -> Result<Tensor> {
    let half = ops::fft_r2c(grad, dim, normalization, true)?;
    let Some(&last) = dim.last() else { return Ok(half) };
    let d = ops::shape::wrap_dim("_fft_c2r", last, grad.ndim())?;
    let (n, m) = (grad.shape()[d], half.shape()[d]);
    // The first, those with a mirror image, and (if n is even) the last, which is its own.
    let parts = [(1, 1), (n - m, 2), (2 * m - n - 1, 1)].map(|(count, weight)| {
        let mut sizes: SymInts = smallvec![SymInt::ONE; grad.ndim()];
        sizes[d] = count.into();
        ops::full(&sizes, Scalar::Int(weight), Some(grad.dtype()), Some(grad.device()))
    });
    let weights = ops::cat(&parts.into_iter().collect::<Result<Vec<_>>>()?, d as i64)?;
    ops::mul(&half, &weights)
}
