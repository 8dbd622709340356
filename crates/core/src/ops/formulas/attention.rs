//! The derivative of attention.

use super::sym;
use crate::ops::attention::is_whole;
use crate::{DType, Result, Scalar, Tensor, ops, state};

/// By the kernel, which computes the weights again; by ops where derivatives of the derivative are needed.
///
/// With weights `w = softmax(scale · q kᵀ)` and `p = g vᵀ`: `dv = wᵀ g`, and `s = scale · w (p - Σ w p)` gives `dq = s k`
/// and `dk = sᵀ q`.
pub(crate) fn attention_backward(
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
    causal: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    if is_whole() && !state::is(state::GRAD) {
        return ops::_attention_backward(grad, query, key, value, mask, scale, causal);
    }
    // Keys and values for every head of the queries; their gradients are summed over those that share them.
    let (heads, own) = (query.shape()[1], key.shape()[1]);
    let (k, v) = (&ops::composite::repeat_heads(key, heads)?, &ops::composite::repeat_heads(value, heads)?);
    let summed = |t: Tensor| {
        let &[b, _, s, size] = t.shape() else { return Ok(t) };
        if own == heads {
            return Ok(t);
        }
        ops::sum_dim(&ops::reshape(&t, &sym(&[b, own, heads / own, s, size]))?, Some(&[2]), false, None)
    };
    let turned = |t: &Tensor| ops::transpose(t, -2, -1);
    let scaled = |t: &Tensor| ops::mul_scalar(t, Scalar::Float(scale));
    let mut products = scaled(&ops::matmul(query, &turned(k)?)?)?;
    if causal {
        let (l, s) = (query.shape()[2], key.shape()[2]);
        products = ops::add(&products, &ops::composite::causal_mask(l, s, query)?, Scalar::Int(1))?;
    }
    let weights = match mask {
        Some(m) => {
            let m = if m.dtype() == DType::Bool { ops::composite::additive(m, query.dtype())? } else { m.clone() };
            ops::_safe_softmax(&ops::add(&products, &m, Scalar::Int(1))?, -1, None)?
        }
        None => ops::softmax(&products, -1, None)?,
    };
    let by_weights = ops::matmul(grad, &turned(v)?)?;
    let slopes = scaled(&ops::_softmax_backward_data(&by_weights, &weights, -1, query.dtype())?)?;
    let (dk, dv) = (ops::matmul(&turned(&slopes)?, query)?, ops::matmul(&turned(&weights)?, grad)?);
    Ok((ops::matmul(&slopes, k)?, summed(dk)?, summed(dv)?))
}
