//! Attention by blocks of queries: the kernel, and its node in the graph.
//!
//! The node keeps queries, keys and values only; the weights, quadratic in the length of the sequence, are computed again.
//! In plain backward runs the kernel does that. Where derivatives of the derivative are wanted (a graph of the backward
//! pass, function transforms), the same formulas run as ops, which have their own.
//! What the kernel does not know (masks, dropout, half precision, broadcast heads) stays with `composite::attention`.

use crate::autograd::node::{Backward, Gradients, Needs, Node};
use crate::autograd::record;
use crate::autograd::saved::{SavedHooks, SavedSlot, SavedTensor, SavedValue};
use crate::ops::formulas::sym;
use crate::{DType, Result, Scalar, Tensor, ops, state};
use firebrand_kernels::attention as kernel;
use smallvec::smallvec;

pub(crate) use kernel::Attention;

/// Whether nobody but the kernel has to know of a call: no layer, transform, tangent or recorder looks at single ops.
fn is_plain() -> bool {
    !state::is(state::LAYERS | state::INNER | state::DUAL | state::LEVEL)
}

/// Whether the kernel serves these operands, which fit each other.
pub(crate) fn serves(query: &Tensor, key: &Tensor, value: &Tensor) -> bool {
    let (&[b, h, l, _], &[kb, kh, s, _], &[vb, vh, _, _]) = (query.shape(), key.shape(), value.shape()) else {
        return false;
    };
    let all = [query, key, value];
    is_plain()
        && (kb, kh, vb, vh) == (b, h, b, h)
        && l > 0
        && s > 0
        && matches!(query.dtype(), DType::F32 | DType::F64)
        && all.iter().all(|t| !t.is_meta() && t.numel() > 0)
}

/// With the last dimension dense, as the kernel needs it.
fn dense(t: &Tensor) -> Result<Tensor> {
    if t.strides()[3] == 1 { Ok(t.detach()) } else { ops::cpu::reduce::contiguous(t) }
}

/// `[batch, heads, length, size]` whose heads lie side by side in memory, so that joining them costs nothing.
fn heads_beside(like: &Tensor, size: usize) -> Result<Tensor> {
    let &[b, h, l, _] = like.shape() else { unreachable!("`serves` saw four dimensions") };
    let strides = [l * h * size, size, h * size, 1];
    ops::empty_strided(&sym(&[b, h, l, size]), &sym(&strides), Some(like.dtype()), Some(like.device()))
}

/// `softmax(scale · query keyᵀ) value` of operands that the kernel [`serves`].
pub(crate) fn attention(of: Attention, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    for t in [query, key, value] {
        t.need_data("scaled_dot_product_attention")?;
    }
    let mut out = heads_beside(query, value.shape()[3])?;
    let [q, k, v] = [dense(query)?, dense(key)?, dense(value)?];
    kernel::forward(of, q.access().view(), k.access().view(), v.access().view(), out.access().view_mut());
    if state::is(state::GRAD) && record::any_requires_grad(&[query, key, value]) {
        let edges = smallvec![record::edge(query)?, record::edge(key)?, record::edge(value)?];
        let [query, key, value] = [query, key, value].map(SavedTensor::input);
        let saved = Saved { of, query: query?, key: key?, value: value? };
        record::finish(&mut out, edges, Box::new(AttentionBackward(SavedSlot::new(saved))))?;
    }
    Ok(out)
}

#[derive(Clone)]
struct Saved {
    of: Attention,
    query: SavedTensor,
    key: SavedTensor,
    value: SavedTensor,
}

struct AttentionBackward(SavedSlot<Saved>);

impl Backward for AttentionBackward {
    fn name(&self) -> &str {
        "ScaledDotProductFlashAttentionForCpuBackward0"
    }

    fn apply(&self, node: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        let Some(grad) = grads.into_iter().next().flatten() else { return Ok(smallvec![None; 3]) };
        let saved = self.0.take_or_clone(node, needs)?;
        let (query, key, value) =
            (saved.query.unpack_some(node)?, saved.key.unpack_some(node)?, saved.value.unpack_some(node)?);
        if is_plain() && !state::is(state::GRAD) && !grad.is_meta() {
            by_kernel(saved.of, &grad, &query, &key, &value)
        } else {
            by_ops(saved.of, &grad, &query, &key, &value)
        }
    }

    fn release(&self) {
        self.0.release()
    }

    fn takes_saved(&self) -> bool {
        true
    }

    fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
        let saved = self.0.read(node, Clone::clone)?;
        Ok(vec![
            ("query", saved.query.unpack(node)?.into()),
            ("key", saved.key.unpack(node)?.into()),
            ("value", saved.value.unpack(node)?.into()),
        ])
    }

    fn hook_saved(&self, name: &str, hooks: std::sync::Arc<SavedHooks>) -> Result<bool> {
        self.0.change(|s| {
            let tensor = match name {
                "query" => &mut s.query,
                "key" => &mut s.key,
                "value" => &mut s.value,
                _ => return Ok(false),
            };
            tensor.register_hooks(hooks).map(|()| true)
        })
    }
}

fn by_kernel(of: Attention, grad: &Tensor, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Gradients> {
    let [dq, dk, dv] = [query, key, value].map(|t| heads_beside(t, t.shape()[3]));
    let (dq, dk, dv) = (dq?, dk?, dv?);
    let [g, q, k, v] = [dense(grad)?, dense(query)?, dense(key)?, dense(value)?];
    let (into_q, into_k, into_v) = (dq.access(), dk.access(), dv.access());
    let into = kernel::Gradients { query: into_q.view_mut(), key: into_k.view_mut(), value: into_v.view_mut() };
    kernel::backward(of, g.access().view(), q.access().view(), k.access().view(), v.access().view(), into);
    drop((into_q, into_k, into_v));
    Ok(smallvec![Some(dq), Some(dk), Some(dv)])
}

/// With weights `w = softmax(scale · q kᵀ)` and `p = g vᵀ`: `dv = wᵀ g`, and `s = scale · w (p - Σ w p)` gives `dq = s k`
/// and `dk = sᵀ q`.
fn by_ops(of: Attention, grad: &Tensor, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Gradients> {
    let turned = |t: &Tensor| ops::transpose(t, -2, -1);
    let scaled = |t: &Tensor| ops::mul_scalar(t, Scalar::Float(of.scale));
    let mut products = scaled(&ops::matmul(query, &turned(key)?)?)?;
    if of.causal {
        let (l, s) = (query.shape()[2], key.shape()[2]);
        products = ops::add(&products, &ops::composite::causal_mask(l, s, query)?, Scalar::Int(1))?;
    }
    let weights = ops::softmax(&products, -1, None)?;
    let by_weights = ops::matmul(grad, &turned(value)?)?;
    let slopes = scaled(&ops::_softmax_backward_data(&by_weights, &weights, -1, query.dtype())?)?;
    Ok(smallvec![
        Some(ops::matmul(&slopes, key)?),
        Some(ops::matmul(&turned(&slopes)?, query)?),
        Some(ops::matmul(&turned(&weights)?, grad)?),
    ])
}
