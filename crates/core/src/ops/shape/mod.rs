//! Shape functions: what an op returns, and whether its arguments are valid. One per op, used by every way of running it.
//!
//! A shape function reads sizes, dtypes and devices, never values; so it serves eager tensors, the meta device and
//! programs that are only inspected. This file holds what all families share.

pub(crate) mod activations;
pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod creation;
pub(crate) mod fft;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod linalg;
pub(crate) mod loss;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod pointwise;
pub(crate) mod pool;
pub(crate) mod quantized;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod region;
pub(crate) mod resample;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod view;

pub(crate) use activations::*;
pub(crate) use attention::*;
pub(crate) use conv::*;
pub(crate) use loss::*;
pub(crate) use matmul::*;
pub(crate) use norm::*;
pub(crate) use pointwise::*;
pub(crate) use pool::*;
pub(crate) use quantized::*;
pub(crate) use reduce::*;
pub(crate) use resample::*;
pub(crate) use softmax::*;

pub(crate) use crate::layout::wrap_dim;

use crate::layout::{Dims, Layout};
use crate::{DType, Device, Error, ErrorKind, Result, Scalar, Tensor};

/// Dimensions counted from the start, each at most once; an empty list means all of them.
pub(crate) fn wrap_dims(op: &'static str, dims: &[i64], ndim: usize) -> Result<Dims> {
    if dims.is_empty() {
        return Ok((0..ndim).collect());
    }
    let mut out = Dims::new();
    for &d in dims {
        let d = wrap_dim(op, d, ndim)?;
        if out.contains(&d) {
            return Err(Error::argument(op, format!("dimension {d} is given twice in {dims:?}")));
        }
        out.push(d);
    }
    if ndim == 0 {
        out.clear();
    }
    Ok(out)
}

/// The common shape of two.
pub(crate) fn broadcast(op: &'static str, a: &[usize], b: &[usize]) -> Result<Dims> {
    if a == b {
        return Ok(Dims::from_slice(a));
    }
    let n = a.len().max(b.len());
    let mut out: Dims = smallvec::smallvec![1; n];
    for k in 0..n {
        let at = |s: &[usize]| if k + s.len() >= n { s[k + s.len() - n] } else { 1 };
        let (x, y) = (at(a), at(b));
        out[k] = match (x, y) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            (x, y) => {
                let (left, right) = (a.to_vec(), b.to_vec());
                return Err(ErrorKind::Broadcast { op, left, right, dim: k, a: x, b: y }.into());
            }
        };
    }
    Ok(out)
}

/// Whether a tensor of shape `from` can be broadcast to shape `to`.
pub(crate) fn is_expandable_to(from: &[usize], to: &[usize]) -> bool {
    from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(a, b)| a == b || *a == 1)
}

/// The layout of a tensor seen with a larger shape it can be broadcast to: repeated dims get stride 0.
pub(crate) fn expanded(t: &Tensor, sizes: &[usize]) -> Result<Layout> {
    if t.shape() == sizes {
        return Ok(t.layout().clone());
    }
    let lead = sizes.len() - t.ndim();
    let strides: Dims = (0..sizes.len())
        .map(|k| if k < lead || t.shape()[k - lead] != sizes[k] { 0 } else { t.strides()[k - lead] })
        .collect();
    Layout::strided(sizes, &strides, t.layout().offset())
}

/// The device of a call: all operands of an op are on one, which was checked before its shape function runs.
#[inline]
pub(crate) fn device(ts: &[&Tensor]) -> Device {
    ts.first().map_or(Device::default(), |t| t.device())
}

/// Fails for complex operands: what an op does that does not say `complex: true`.
#[inline]
pub(crate) fn need_real(op: &'static str, ts: &[&Tensor]) -> Result<()> {
    match ts.iter().find(|t| t.is_complex()) {
        None => Ok(()),
        Some(t) => Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected: "a real dtype" }.into()),
    }
}

/// Fails for a complex number given to an op that takes real ones only.
pub(crate) fn need_real_number(op: &'static str, n: Scalar) -> Result<()> {
    if n.is_complex() { Err(Error::argument(op, format!("expected a real number, found {n:?}"))) } else { Ok(()) }
}

/// Fails for a complex dtype asked of an op that computes real numbers only.
pub(crate) fn need_real_dtype(op: &'static str, dtype: Option<DType>) -> Result<()> {
    match dtype.filter(|d| d.is_complex()) {
        None => Ok(()),
        Some(found) => Err(ErrorKind::DTypeUnsupported { op, found, expected: "a real dtype" }.into()),
    }
}

/// Fails unless the dtype is a float or complex type.
pub(crate) fn need_float_or_complex(op: &'static str, d: DType) -> Result<()> {
    if d.is_complex() { Ok(()) } else { need_float(op, d) }
}

/// Fails unless the dtype is a float type.
pub(crate) fn need_float(op: &'static str, d: DType) -> Result<()> {
    if d.is_floating_point() {
        return Ok(());
    }
    Err(ErrorKind::DTypeUnsupported { op, found: d, expected: "a floating point dtype" }.into())
}
