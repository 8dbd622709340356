//! When attention is one op, computed by blocks of queries, and when it is products and softmax.
//!
//! `_attention` keeps queries, keys and values only; the weights, quadratic in the length of the sequence, are recomputed
//! by its derivative. Layers, transforms and tangents see products and softmax instead, which have rules
//! of their own, unless they ask for the whole op ([`keep_whole`]).
//! What the kernel does not support (dropout, masks with gradients) stays with `composite::attention`.

use crate::ops::shape::is_expandable_to;
use crate::slot::{Slot, SlotGuard};
use crate::{DType, Tensor, state};

static WHOLE: Slot<bool> = Slot::new(|| false);

/// While it lives, attention is one op on this thread even where a layer looks at single ops.
#[derive(Debug)]
pub struct WholeAttention(#[allow(dead_code)] SlotGuard<bool>);

/// Shows attention to the layers of this thread as one op where the kernel serves it.
pub fn keep_whole() -> WholeAttention {
    WholeAttention(WHOLE.enter(true))
}

/// Whether only the kernel has to see a call: no layer, transform, tangent or recorder looks at single ops, or
/// it wants the whole.
pub(crate) fn is_whole() -> bool {
    let outside = state::DUAL | state::LEVEL;
    let layers = if WHOLE.get() { 0 } else { state::LAYERS | state::INNER };
    !state::is(outside | layers)
}

/// Whether the op serves these operands, the first three of which fit each other.
pub(crate) fn serves(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> bool {
    let (&[b, h, l, _], &[kb, kh, s, _], &[vb, vh, _, _]) = (query.shape(), key.shape(), value.shape()) else {
        return false;
    };
    let all = [query, key, value];
    let masked = |m: &Tensor| {
        let known = m.dtype() == DType::Bool || m.dtype() == query.dtype();
        known && !m.requires_grad() && (WHOLE.get() || !m.is_meta()) && is_expandable_to(m.shape(), &[b, h, l, s])
    };
    is_whole()
        && (kb, vb, vh) == (b, b, kh)
        && kh > 0
        && h.is_multiple_of(kh)
        && mask.is_none_or(masked)
        && l > 0
        && s > 0
        && matches!(query.dtype(), DType::F32 | DType::F64)
        && all.iter().all(|t| (WHOLE.get() || !t.is_meta()) && t.numel() > 0)
}
