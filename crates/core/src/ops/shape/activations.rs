//! Shape functions of activations and of the kernels of their gradients.

use super::pointwise::{binary, binary_floating, like, need_number, pointwise_of, same_dtype, unary_floating};
use super::{need_float, wrap_dim};
use crate::layout::Layout;
use crate::tensor::Shape;
use crate::{Error, Result, Scalar, Spec, Tensor};

/// One float operand and a number.
pub(crate) fn floating1<'a>(op: &'static str, t: &'a Tensor, _: Scalar) -> Result<Shape<'a>> {
    unary_floating(op, t)
}

/// `softshrink`.
pub(crate) fn softshrink<'a>(op: &'static str, t: &'a Tensor, lambd: Scalar) -> Result<Shape<'a>> {
    if lambd.to_f64() < 0.0 {
        return Err(Error::argument(op, format!("lambd must not be negative, found {lambd}")));
    }
    unary_floating(op, t)
}

/// One float operand and two numbers.
pub(crate) fn floating2<'a>(op: &'static str, t: &'a Tensor, _: Scalar, _: Scalar) -> Result<Shape<'a>> {
    unary_floating(op, t)
}

/// `elu`.
pub(crate) fn elu<'a>(op: &'static str, t: &'a Tensor, _: Scalar, _: Scalar, _: Scalar) -> Result<Shape<'a>> {
    unary_floating(op, t)
}

/// `celu`.
pub(crate) fn celu<'a>(op: &'static str, t: &'a Tensor, alpha: Scalar) -> Result<Shape<'a>> {
    if alpha.equals(0.0) {
        return Err(Error::argument(op, "alpha must not be zero: the input is divided by it"));
    }
    unary_floating(op, t)
}

/// `hardtanh`.
pub(crate) fn hardtanh(op: &'static str, t: &Tensor, min: Scalar, max: Scalar) -> Result<Spec> {
    need_number(op, t.dtype())?;
    if min.to_f64() > max.to_f64() {
        return Err(Error::argument(op, format!("min_val ({min}) must not exceed max_val ({max})")));
    }
    like(t, t.dtype())
}

/// `threshold`.
pub(crate) fn threshold(op: &'static str, t: &Tensor, _: Scalar, _: Scalar) -> Result<Spec> {
    need_number(op, t.dtype())?;
    like(t, t.dtype())
}

fn check_approximate(op: &'static str, approximate: &str) -> Result<()> {
    if matches!(approximate, "none" | "tanh") {
        return Ok(());
    }
    Err(Error::argument(op, format!("approximate should be \"none\" or \"tanh\", found {approximate:?}")))
}

/// `gelu`.
pub(crate) fn gelu<'a>(op: &'static str, t: &'a Tensor, approximate: &str) -> Result<Shape<'a>> {
    check_approximate(op, approximate)?;
    unary_floating(op, t)
}

/// `log_sigmoid_forward`: the result, and what its gradient starts from.
pub(crate) fn log_sigmoid_forward(op: &'static str, t: &Tensor) -> Result<(Spec, Spec)> {
    let spec = unary_floating(op, t)?;
    let spec = spec.into_spec();
    Ok((spec.clone(), spec))
}

/// `_prelu_kernel`: both of one float dtype.
pub(crate) fn prelu_kernel<'a>(op: &'static str, t: &'a Tensor, weight: &Tensor) -> Result<Shape<'a>> {
    same_dtype(op, "self", t.dtype(), "weight", weight.dtype())?;
    binary_floating(op, t, weight)
}

/// `glu`: halves one dimension.
pub(crate) fn glu(op: &'static str, t: &Tensor, dim: i64) -> Result<Spec> {
    need_float(op, t.dtype())?;
    if t.ndim() == 0 {
        return Err(Error::argument(op, "a 0-dim tensor has no dimension to halve"));
    }
    let d = wrap_dim(op, dim, t.ndim())?;
    let n = t.shape()[d];
    if !n.is_multiple_of(2) {
        return Err(Error::argument(op, format!("dimension {d} is halved, but its size {n} is odd")));
    }
    let mut sizes = t.dims();
    sizes[d] = n / 2;
    Ok(Spec { layout: Layout::contiguous(&sizes)?, dtype: t.dtype(), device: t.device() })
}

// ---- gradients: the incoming one first, then what the forward op saved

/// `threshold_backward`.
pub(crate) fn threshold_backward<'a>(op: &'static str, grad: &'a Tensor, t: &Tensor, _: Scalar) -> Result<Shape<'a>> {
    let spec = binary(op, grad, t)?;
    need_number(op, spec.dtype)?;
    Ok(spec)
}

/// With one number.
pub(crate) fn backward1<'a>(op: &'static str, grad: &'a Tensor, t: &Tensor, _: Scalar) -> Result<Shape<'a>> {
    binary_floating(op, grad, t)
}

/// With two numbers.
pub(crate) fn backward2<'a>(op: &'static str, grad: &'a Tensor, t: &Tensor, _: Scalar, _: Scalar) -> Result<Shape<'a>> {
    binary_floating(op, grad, t)
}

/// `leaky_relu_backward`.
pub(crate) fn leaky_relu_backward<'a>(
    op: &'static str,
    grad: &'a Tensor,
    t: &Tensor,
    slope: Scalar,
    is_result: bool,
) -> Result<Shape<'a>> {
    if is_result && slope.to_f64() < 0.0 {
        let m = format!("the input cannot be recovered from the result when the slope is negative ({slope})");
        return Err(Error::argument(op, m));
    }
    binary_floating(op, grad, t)
}

/// `elu_backward`.
pub(crate) fn elu_backward<'a>(
    op: &'static str,
    grad: &'a Tensor,
    alpha: Scalar,
    _scale: Scalar,
    _input_scale: Scalar,
    is_result: bool,
    t: &Tensor,
) -> Result<Shape<'a>> {
    if is_result && alpha.to_f64() < 0.0 {
        let m = format!("the input cannot be recovered from the result when alpha is negative ({alpha})");
        return Err(Error::argument(op, m));
    }
    binary_floating(op, grad, t)
}

/// `gelu_backward`.
pub(crate) fn gelu_backward<'a>(
    op: &'static str,
    grad: &'a Tensor,
    t: &Tensor,
    approximate: &str,
) -> Result<Shape<'a>> {
    check_approximate(op, approximate)?;
    binary_floating(op, grad, t)
}

/// `log_sigmoid_backward`.
pub(crate) fn log_sigmoid_backward(op: &'static str, grad: &Tensor, t: &Tensor, buffer: &Tensor) -> Result<Spec> {
    let spec = pointwise_of(op, &[grad, t, buffer])?;
    need_float(op, spec.dtype)?;
    Ok(spec)
}

/// `glu_backward`: as large as the input of `glu`.
pub(crate) fn glu_backward(op: &'static str, grad: &Tensor, t: &Tensor, dim: i64) -> Result<Spec> {
    let half = glu("glu", t, dim)?;
    if grad.shape() != half.layout.sizes() {
        let m = format!("the gradient has shape {:?}, expected {:?}", grad.shape(), half.layout.sizes());
        return Err(Error::argument(op, m));
    }
    same_dtype(op, "grad_output", grad.dtype(), "self", t.dtype())?;
    Ok(Spec { layout: Layout::contiguous(t.shape())?, dtype: t.dtype(), device: grad.device() })
}
