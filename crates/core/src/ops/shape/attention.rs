//! Attention as one op: `[batch, heads, length, size]` of one float type, nothing empty.

use super::is_expandable_to;
use crate::layout::Layout;
use crate::{DType, Error, Result, Spec, Tensor};

/// Results whose heads are adjacent in memory, so that concatenating them costs nothing.
fn heads_beside(like: &Tensor, size: usize) -> Result<Spec> {
    let &[b, h, l, _] = like.shape() else { unreachable!("`check` saw four dimensions") };
    let row = h.saturating_mul(size);
    let layout = Layout::strided(&[b, h, l, size], &[l.saturating_mul(row), size, row, 1], 0)?;
    Ok(Spec { layout, dtype: like.dtype(), device: like.device() })
}

fn check(op: &'static str, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Result<()> {
    let fit = match (query.shape(), key.shape(), value.shape()) {
        (&[b, h, l, e], &[kb, kh, s, ke], &[vb, vh, vs, _]) => {
            [kb, ke, vb, vh, vs] == [b, e, b, kh, s]
                && kh > 0
                && h.is_multiple_of(kh)
                && mask.is_none_or(|m| is_expandable_to(m.shape(), &[b, h, l, s]))
        }
        _ => false,
    };
    let known = |m: &Tensor| m.dtype() == DType::Bool || m.dtype() == query.dtype();
    let all = [query, key, value];
    let float = matches!(query.dtype(), DType::F32 | DType::F64) && all.iter().all(|t| t.dtype() == query.dtype());
    if fit && float && mask.is_none_or(known) && all.iter().all(|t| t.numel() > 0) {
        return Ok(());
    }
    let shown = all.map(|t| format!("{} {:?}", t.dtype(), t.shape())).join(", ");
    let mask = mask.map_or(String::new(), |m| format!(" and a mask {} {:?}", m.dtype(), m.shape()));
    let message = format!(
        "expected f32 or f64 [b, h, l, e], [b, h, s, e] and [b, h, s, d] (or fewer heads of keys and values that divide h), \
         nothing empty, and a mask of bools or of their type that fits [b, h, l, s], found {shown}{mask}"
    );
    Err(Error::argument(op, message))
}

pub(crate) fn attention(
    op: &'static str,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    _scale: f64,
    _causal: bool,
) -> Result<Spec> {
    check(op, query, key, value, mask)?;
    heads_beside(query, value.shape()[3])
}

pub(crate) fn attention_backward(
    op: &'static str,
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
) -> Result<(Spec, Spec, Spec)> {
    check(op, query, key, value, mask)?;
    let &[b, h, l, _] = query.shape() else { unreachable!("`check` saw four dimensions") };
    let expected = [b, h, l, value.shape()[3]];
    if grad.shape() != expected || grad.dtype() != query.dtype() {
        let (dtype, found) = (query.dtype(), format!("{} {:?}", grad.dtype(), grad.shape()));
        return Err(Error::argument(op, format!("expected a gradient {dtype} {expected:?}, found {found}")));
    }
    let same = |t: &Tensor| heads_beside(t, t.shape()[3]);
    Ok((same(query)?, same(key)?, same(value)?))
}
