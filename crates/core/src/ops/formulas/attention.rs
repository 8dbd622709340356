//! The derivative of attention.

use crate::ops::attention::is_whole;
use crate::{Result, Scalar, Tensor, ops, state};

/// By the kernel, which computes the weights again; by ops where derivatives of the derivative are needed.
///
/// With weights `w = softmax(scale · q kᵀ)` and `p = g vᵀ`: `dv = wᵀ g`, and `s = scale · w (p - Σ w p)` gives `dq = s k`
/// and `dk = sᵀ q`.
pub(crate) fn attention_backward(
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    scale: f64,
    causal: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    if is_whole() && !state::is(state::GRAD) {
        return ops::_attention_backward(grad, query, key, value, scale, causal);
    }
    let turned = |t: &Tensor| ops::transpose(t, -2, -1);
    let scaled = |t: &Tensor| ops::mul_scalar(t, Scalar::Float(scale));
    let mut products = scaled(&ops::matmul(query, &turned(key)?)?)?;
    if causal {
        let (l, s) = (query.shape()[2], key.shape()[2]);
        products = ops::add(&products, &ops::composite::causal_mask(l, s, query)?, Scalar::Int(1))?;
    }
    let weights = ops::softmax(&products, -1, None)?;
    let by_weights = ops::matmul(grad, &turned(value)?)?;
    let slopes = scaled(&ops::_softmax_backward_data(&by_weights, &weights, -1, query.dtype())?)?;
    Ok((ops::matmul(&slopes, key)?, ops::matmul(&turned(&slopes)?, query)?, ops::matmul(&turned(&weights)?, grad)?))
}
