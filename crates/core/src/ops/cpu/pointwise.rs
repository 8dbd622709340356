//! Pointwise ops: which instruction, in which dtype.

use super::expand;
use crate::{DType, Result, Scalar, Tensor};
use firebrand_kernels::pointwise::{self as kernel, Op, Operand};

/// One operand, computed in `compute`.
#[inline]
pub(crate) fn unary_op(op: Op, compute: DType, a: &Tensor, out: &Tensor) -> Result<()> {
    kernel::unary(op, compute, a.access().view(), out.access().view_mut());
    Ok(())
}

/// Two operands, broadcast, computed in `compute`.
#[inline]
pub(crate) fn binary_op(op: Op, compute: DType, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    let sizes = out.shape();
    if a.shape() == sizes && b.shape() == sizes {
        let (a, b, out) = (a.access(), b.access(), out.access());
        kernel::binary(op, compute, a.view().into(), b.view().into(), out.view_mut());
        return Ok(());
    }
    // A number keeps its precision as a constant: converting a 0-dim f64 to f32 first would be the same.
    let (a, b, out) = (expand(a, sizes), expand(b, sizes), out.access());
    kernel::binary(op, compute, a.view().into(), b.view().into(), out.view_mut());
    Ok(())
}

/// A tensor and a number.
pub(crate) fn scalar_op(op: Op, compute: DType, a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
    let (a, out) = (expand(a, out.shape()), out.access());
    kernel::binary(op, compute, a.view().into(), Operand::Value(b.into()), out.view_mut());
    Ok(())
}

/// A number and a tensor.
pub(crate) fn reversed_scalar_op(op: Op, compute: DType, a: Scalar, b: &Tensor, out: &Tensor) -> Result<()> {
    let (b, out) = (expand(b, out.shape()), out.access());
    kernel::binary(op, compute, Operand::Value(a.into()), b.view().into(), out.view_mut());
    Ok(())
}

/// Three operands, broadcast.
pub(crate) fn ternary_op(op: Op, compute: DType, a: &Tensor, b: &Tensor, c: &Tensor, out: &Tensor) -> Result<()> {
    let sizes = out.shape();
    let (a, b, c, out) = (expand(a, sizes), expand(b, sizes), expand(c, sizes), out.access());
    kernel::ternary(op, compute, a.view().into(), b.view().into(), c.view().into(), out.view_mut());
    Ok(())
}
