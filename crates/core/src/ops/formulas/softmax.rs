//! Second derivatives of softmax and log-softmax.

use crate::{DType, Result, Scalar, Tensor, ops};

fn line_sum(a: &Tensor, b: &Tensor, dim: i64) -> Result<Tensor> {
    ops::sum_dim(&ops::mul(a, b)?, Some(&[dim]), true, None)
}

/// The gradient of `output * (grad_output - sum(grad_output * output))` with respect to the output.
pub(crate) fn softmax_double_backward(
    grad: &Tensor,
    grad_output: &Tensor,
    dim: i64,
    output: &Tensor,
) -> Result<Tensor> {
    let centred = ops::sub(grad_output, &line_sum(grad_output, output, dim)?, Scalar::Int(1))?;
    ops::sub(&ops::mul(grad, &centred)?, &ops::mul(grad_output, &line_sum(grad, output, dim)?)?, Scalar::Int(1))
}

/// The tangent of `output * (grad_output - sum(grad_output * output))`.
pub(crate) fn softmax_backward_jvp(
    grad_t: &Tensor,
    grad: &Tensor,
    output_t: &Tensor,
    output: &Tensor,
    dim: i64,
    dtype: DType,
) -> Result<Tensor> {
    let linear = ops::_softmax_backward_data(grad_t, output, dim, dtype)?;
    let centred = ops::sub(grad, &line_sum(grad, output, dim)?, Scalar::Int(1))?;
    let moved =
        ops::sub(&ops::mul(output_t, &centred)?, &ops::mul(output, &line_sum(grad, output_t, dim)?)?, Scalar::Int(1))?;
    ops::add(&linear, &moved, Scalar::Int(1))
}

/// The gradient of `grad_output - exp(output) * sum(grad_output)` with respect to `grad_output`.
pub(crate) fn log_softmax_backward_grad(grad: &Tensor, output: &Tensor, dim: i64) -> Result<Tensor> {
    ops::sub(grad, &line_sum(grad, &ops::exp(output)?, dim)?, Scalar::Int(1))
}

/// The same with respect to the output.
pub(crate) fn log_softmax_double_backward(
    grad: &Tensor,
    grad_output: &Tensor,
    dim: i64,
    output: &Tensor,
) -> Result<Tensor> {
    let sum = ops::sum_dim(grad_output, Some(&[dim]), true, None)?;
    ops::neg(&ops::mul(&ops::mul(&ops::exp(output)?, grad)?, &sum)?)
}

/// The tangent of `grad_output - exp(output) * sum(grad_output)`.
pub(crate) fn log_softmax_backward_jvp(
    grad_t: &Tensor,
    grad: &Tensor,
    output_t: &Tensor,
    output: &Tensor,
    dim: i64,
) -> Result<Tensor> {
    let (sum, sum_t) = (ops::sum_dim(grad, Some(&[dim]), true, None)?, ops::sum_dim(grad_t, Some(&[dim]), true, None)?);
    let inner = ops::add(&ops::mul(output_t, &sum)?, &sum_t, Scalar::Int(1))?;
    ops::sub(grad_t, &ops::mul(&ops::exp(output)?, &inner)?, Scalar::Int(1))
}

/// The tangent of log-softmax.
pub(crate) fn log_softmax_jvp(tangent: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    log_softmax_backward_grad(tangent, result, dim)
}
