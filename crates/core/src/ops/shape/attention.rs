//! Attention as one op: `[batch, heads, length, size]` of one float type, nothing empty.

use crate::layout::Layout;
use crate::{DType, Error, Result, Spec, Tensor};

/// Results whose heads are adjacent in memory, so that concatenating them costs nothing.
fn heads_beside(like: &Tensor, size: usize) -> Result<Spec> {
    let &[b, h, l, _] = like.shape() else { unreachable!("`check` saw four dimensions") };
    let row = h.saturating_mul(size);
    let layout = Layout::strided(&[b, h, l, size], &[l.saturating_mul(row), size, row, 1], 0)?;
    Ok(Spec { layout, dtype: like.dtype(), device: like.device() })
}

fn check(op: &'static str, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<()> {
    let fit = match (query.shape(), key.shape(), value.shape()) {
        (&[b, h, _, e], &[kb, kh, s, ke], &[vb, vh, vs, _]) => [kb, kh, ke, vb, vh, vs] == [b, h, e, b, h, s],
        _ => false,
    };
    let all = [query, key, value];
    let float = matches!(query.dtype(), DType::F32 | DType::F64) && all.iter().all(|t| t.dtype() == query.dtype());
    if fit && float && all.iter().all(|t| t.numel() > 0) {
        return Ok(());
    }
    let shown = all.map(|t| format!("{} {:?}", t.dtype(), t.shape())).join(", ");
    let message =
        format!("expected f32 or f64 [b, h, l, e], [b, h, s, e] and [b, h, s, d], nothing empty, found {shown}");
    Err(Error::argument(op, message))
}

pub(crate) fn attention(
    op: &'static str,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    _scale: f64,
    _causal: bool,
) -> Result<Spec> {
    check(op, query, key, value)?;
    heads_beside(query, value.shape()[3])
}

pub(crate) fn attention_backward(
    op: &'static str,
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
) -> Result<(Spec, Spec, Spec)> {
    check(op, query, key, value)?;
    let &[b, h, l, _] = query.shape() else { unreachable!("`check` saw four dimensions") };
    let expected = [b, h, l, value.shape()[3]];
    if grad.shape() != expected || grad.dtype() != query.dtype() {
        let (dtype, found) = (query.dtype(), format!("{} {:?}", grad.dtype(), grad.shape()));
        return Err(Error::argument(op, format!("expected a gradient {dtype} {expected:?}, found {found}")));
    }
    let same = |t: &Tensor| heads_beside(t, t.shape()[3]);
    Ok((same(query)?, same(key)?, same(value)?))
}
