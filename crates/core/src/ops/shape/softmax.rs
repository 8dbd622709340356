//! Shape functions of softmax and its derivative.

use super::{need_float, wrap_dim};
use crate::{DType, Error, Result, Spec, Tensor};

/// `_softmax`, `_log_softmax`.
pub(crate) fn softmax(op: &'static str, t: &Tensor, dim: i64, half_to_float: bool) -> Result<Spec> {
    wrap_dim(op, dim, t.ndim())?;
    need_float(op, t.dtype())?;
    if half_to_float && t.dtype() != DType::F16 {
        return Err(Error::argument(
            op,
            format!("half_to_float is for inputs of dtype f16, this one is {}", t.dtype()),
        ));
    }
    let dtype = if half_to_float { DType::F32 } else { t.dtype() };
    Spec::new(t.shape(), dtype, t.device())
}

/// `_softmax_backward_data`, `_log_softmax_backward_data`.
pub(crate) fn softmax_backward_data(
    op: &'static str,
    grad: &Tensor,
    output: &Tensor,
    dim: i64,
    input_dtype: DType,
) -> Result<Spec> {
    wrap_dim(op, dim, grad.ndim())?;
    need_float(op, grad.dtype())?;
    need_float(op, output.dtype())?;
    need_float(op, input_dtype)?;
    if grad.shape() != output.shape() {
        return Err(Error::argument(
            op,
            format!("gradient {:?} and output {:?} must have one shape", grad.shape(), output.shape()),
        ));
    }
    Spec::new(grad.shape(), input_dtype, grad.device())
}

/// `_safe_softmax`.
pub(crate) fn safe_softmax(op: &'static str, t: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Spec> {
    wrap_dim(op, dim, t.ndim())?;
    let dtype = dtype.unwrap_or(t.dtype());
    need_float(op, dtype)?;
    Spec::new(t.shape(), dtype, t.device())
}
