//! Pointwise ops: which instruction, in which dtype.

use super::expand;
use crate::dtype::{Promotion, result_type};
use crate::{DType, Result, Scalar, Spec, Tensor};
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

/// Functions of one operand, in the dtype of the result.
macro_rules! functions {
    ($($name:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, out: &Tensor) -> Result<()> {
            unary_op(Op::$op, out.dtype(), a, out)
        }
    )*};
}
functions! {
    neg Neg, reciprocal Reciprocal, exp Exp, log Log, sin Sin, cos Cos, tanh Tanh, sqrt Sqrt, relu Relu,
}

/// Functions of two tensors, or of a tensor and a number, in the dtype of the result.
macro_rules! functions2 {
    ($($name:ident $scalar:ident $op:ident),* $(,)?) => {$(
        #[inline]
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            binary_op(Op::$op, out.dtype(), a, b, out)
        }
        #[inline]
        pub(crate) fn $scalar(a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
            scalar_op(Op::$op, out.dtype(), a, b, out)
        }
    )*};
}
functions2! { mul mul_scalar Mul, div div_scalar Div, pow pow_scalar Pow, remainder remainder_scalar Remainder }

/// Comparisons, in the promoted dtype of the operands.
macro_rules! comparisons {
    ($($name:ident $scalar:ident $op:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            binary_op(Op::$op, result_type(a, b), a, b, out)
        }
        pub(crate) fn $scalar(a: &Tensor, b: Scalar, out: &Tensor) -> Result<()> {
            scalar_op(Op::$op, Promotion::default().tensor(a).scalar(b).result(), a, b, out)
        }
    )*};
}
comparisons! { eq eq_scalar Eq, ne ne_scalar Ne, lt lt_scalar Lt, le le_scalar Le, gt gt_scalar Gt, ge ge_scalar Ge }

/// `b * alpha` in the dtype of `out`.
fn scaled(b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<Tensor> {
    let product = Tensor::try_empty(Spec::new(b.shape(), out.dtype(), out.device()))?;
    mul_scalar(b, alpha, &product)?;
    Ok(product)
}

fn product(a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => Scalar::Float(a.to_f64() * b.to_f64()),
        _ => Scalar::Int(a.to_i64().wrapping_mul(b.to_i64())),
    }
}

#[inline]
pub(crate) fn add(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    if alpha.equals(1.0) {
        return binary_op(Op::Add, out.dtype(), a, b, out);
    }
    binary_op(Op::Add, out.dtype(), a, &scaled(b, alpha, out)?, out)
}

#[inline]
pub(crate) fn sub(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    if alpha.equals(1.0) {
        return binary_op(Op::Sub, out.dtype(), a, b, out);
    }
    binary_op(Op::Sub, out.dtype(), a, &scaled(b, alpha, out)?, out)
}

pub(crate) fn rsub(a: &Tensor, b: &Tensor, alpha: Scalar, out: &Tensor) -> Result<()> {
    sub(b, a, alpha, out)
}

pub(crate) fn add_scalar(a: &Tensor, b: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    scalar_op(Op::Add, out.dtype(), a, product(b, alpha), out)
}

pub(crate) fn sub_scalar(a: &Tensor, b: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    scalar_op(Op::Sub, out.dtype(), a, product(b, alpha), out)
}

pub(crate) fn rsub_scalar(a: &Tensor, b: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    if alpha.equals(1.0) {
        return reversed_scalar_op(Op::Sub, out.dtype(), b, a, out);
    }
    reversed_scalar_op(Op::Sub, out.dtype(), b, &scaled(a, alpha, out)?, out)
}

pub(crate) fn scalar_pow(a: Scalar, exponent: &Tensor, out: &Tensor) -> Result<()> {
    reversed_scalar_op(Op::Pow, out.dtype(), a, exponent, out)
}

pub(crate) fn where_self(condition: &Tensor, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    ternary_op(Op::Where, out.dtype(), condition, a, b, out)
}
