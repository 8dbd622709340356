//! Shape functions of pointwise ops: broadcasting, type promotion, memory order of the result.

use super::{broadcast, device};
use crate::dtype::{Promotion, result_type, to_float};
use crate::layout::Layout;
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};

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

fn refuse_bool(op: &'static str, dtype: DType) -> Result<()> {
    match dtype {
        DType::Bool => {
            Err(ErrorKind::DTypeUnsupported { op, found: dtype, expected: "a dtype other than bool" }.into())
        }
        _ => Ok(()),
    }
}

/// One operand that is no bool.
pub(crate) fn unary_no_bool(op: &'static str, t: &Tensor) -> Result<Spec> {
    refuse_bool(op, t.dtype())?;
    unary(op, t)
}

/// Two operands, promoted.
#[inline]
pub(crate) fn binary(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    binary_of(op, a, b)
}

/// Two operands, not both bool.
pub(crate) fn binary_no_bool(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    let spec = binary_of(op, a, b)?;
    refuse_bool(op, spec.dtype)?;
    Ok(spec)
}

/// Two operands; integers give the default float dtype.
pub(crate) fn binary_float(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    let spec = binary_of(op, a, b)?;
    Ok(Spec { dtype: to_float(spec.dtype), ..spec })
}

/// Two operands, the second times a number.
#[inline]
pub(crate) fn binary_alpha(op: &'static str, a: &Tensor, b: &Tensor, _alpha: Scalar) -> Result<Spec> {
    binary_of(op, a, b)
}

/// Two operands, result bool.
pub(crate) fn comparison(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    Ok(Spec { dtype: DType::Bool, ..binary_of(op, a, b)? })
}

/// A tensor and a number, result bool.
pub(crate) fn comparison_scalar(op: &'static str, t: &Tensor, _s: Scalar) -> Result<Spec> {
    unary_bool(op, t)
}

/// A tensor and a number; integers give the default float dtype.
pub(crate) fn with_scalar_float(op: &'static str, t: &Tensor, s: Scalar) -> Result<Spec> {
    let spec = with_scalar(op, t, s)?;
    Ok(Spec { dtype: to_float(spec.dtype), ..spec })
}

/// A tensor and a number times another.
pub(crate) fn with_scalar_alpha(op: &'static str, t: &Tensor, s: Scalar, _alpha: Scalar) -> Result<Spec> {
    with_scalar(op, t, s)
}

/// A tensor to the power of a number; integers have no negative powers.
pub(crate) fn pow_scalar(op: &'static str, t: &Tensor, exponent: Scalar) -> Result<Spec> {
    let spec = with_scalar(op, t, exponent)?;
    if !spec.dtype.is_floating_point() && exponent.to_i64() < 0 {
        return Err(Error::argument(
            op,
            "integers to negative powers are not integers; convert to a float dtype first",
        ));
    }
    Ok(spec)
}

/// A number and a tensor, promoted.
pub(crate) fn scalar_with(op: &'static str, s: Scalar, t: &Tensor) -> Result<Spec> {
    with_scalar(op, t, s)
}

/// A choice between two by a bool tensor.
pub(crate) fn where_self(op: &'static str, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Spec> {
    if condition.dtype() != DType::Bool {
        let found = condition.dtype();
        return Err(ErrorKind::DTypeUnsupported { op, found, expected: "a bool condition" }.into());
    }
    let dtype = result_type(a, b);
    Ok(Spec { dtype, ..pointwise_of(op, &[condition, a, b])? })
}
