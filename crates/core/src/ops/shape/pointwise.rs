//! Shape functions of pointwise ops: broadcasting, type promotion, memory order of the result.

use super::{broadcast, device};
use crate::dtype::{Promotion, result_type, to_float};
use crate::layout::Layout;
use crate::{DType, Result, Scalar, Spec, Tensor};

/// The layout of a pointwise result: dense in the memory order of the first operand that has the full shape.
#[inline]
fn pointwise_layout(sizes: &[usize], operands: &[&Tensor]) -> Layout {
    for t in operands {
        if t.shape() == sizes {
            if t.is_contiguous() {
                return Layout::contiguous(sizes);
            }
            if t.layout().is_non_overlapping_and_dense() || operands.len() == 1 {
                return t.layout().dense_like();
            }
        }
    }
    Layout::contiguous(sizes)
}

/// One operand, result of the same dtype.
#[inline]
pub(crate) fn unary(_op: &'static str, t: &Tensor) -> Result<Spec> {
    Ok(Spec { layout: pointwise_layout(t.shape(), &[t]), dtype: t.dtype(), device: t.device() })
}

/// One operand; integers give the default float dtype.
#[inline]
pub(crate) fn unary_float(_op: &'static str, t: &Tensor) -> Result<Spec> {
    Ok(Spec { layout: pointwise_layout(t.shape(), &[t]), dtype: to_float(t.dtype()), device: t.device() })
}

/// One operand, result bool.
pub(crate) fn unary_bool(_op: &'static str, t: &Tensor) -> Result<Spec> {
    Ok(Spec { layout: pointwise_layout(t.shape(), &[t]), dtype: DType::Bool, device: t.device() })
}

/// Two operands, promoted.
#[inline]
pub(crate) fn binary_of(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    let dtype = result_type(a, b);
    let device = device(op, &[a, b])?;
    if a.is_contiguous() && b.is_contiguous() && a.shape() == b.shape() {
        return Ok(Spec { layout: Layout::contiguous(a.shape()), dtype, device });
    }
    let sizes = broadcast(op, a.shape(), b.shape())?;
    Ok(Spec { layout: pointwise_layout(&sizes, &[a, b]), dtype, device })
}

/// Any number of operands, promoted.
pub(crate) fn pointwise_of(op: &'static str, ts: &[&Tensor]) -> Result<Spec> {
    let mut sizes = crate::layout::Dims::new();
    let mut promotion = Promotion::default();
    for t in ts {
        sizes = broadcast(op, &sizes, t.shape())?;
        promotion = promotion.tensor(t);
    }
    Ok(Spec { layout: pointwise_layout(&sizes, ts), dtype: promotion.result(), device: device(op, ts)? })
}

/// A tensor and a number, promoted.
#[inline]
pub(crate) fn with_scalar(_op: &'static str, t: &Tensor, s: Scalar) -> Result<Spec> {
    let dtype = if t.dtype() == s.dtype() { t.dtype() } else { Promotion::default().tensor(t).scalar(s).result() };
    Ok(Spec { layout: pointwise_layout(t.shape(), &[t]), dtype, device: t.device() })
}
