//! Attention, built of products and softmax; what the kernel serves is one op (`ops::attention` says when).

use crate::ops::formulas::{cast, sym};
use crate::ops::shape::is_expandable_to;
use crate::{DType, Error, Result, Scalar, Tensor, ops};

const OP: &str = "scaled_dot_product_attention";

/// Checks shapes and dtypes; `query @ key.T` and its product with `value` must exist.
fn check(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<()> {
    let (&[.., e], &[.., s, ek], &[.., sv, _]) = (q.shape(), k.shape(), v.shape()) else {
        return Err(refuse(q, k, v));
    };
    let one_dtype = q.dtype() == k.dtype() && q.dtype() == v.dtype() && q.is_floating_point();
    if q.ndim() < 2 || e != ek || s != sv || !one_dtype {
        return Err(refuse(q, k, v));
    }
    Ok(())
}

fn refuse(q: &Tensor, k: &Tensor, v: &Tensor) -> Error {
    let shown = [q, k, v].map(|t| format!("{} {:?}", t.dtype(), t.shape())).join(", ");
    let message =
        format!("expected query [.., l, e], key [.., s, e] and value [.., s, d] of one float dtype, found {shown}");
    Error::argument(OP, message)
}

/// Heads of keys or values repeated so that there are as many as of queries.
fn repeat_heads(t: &Tensor, heads: usize) -> Result<Tensor> {
    let &[ref lead @ .., own, s, d] = t.shape() else {
        return Err(Error::argument(OP, "grouped heads need three dimensions or more"));
    };
    if own == 0 || !heads.is_multiple_of(own) {
        return Err(Error::argument(OP, format!("expected {heads} query heads to be a multiple of {own} key heads")));
    }
    if own == heads {
        return Ok(t.clone());
    }
    let wide = [lead, &[own, heads / own, s, d]].concat();
    let flat = [lead, &[heads, s, d]].concat();
    ops::reshape(&ops::expand(&ops::unsqueeze(t, -3)?, &sym(&wide), false)?, &sym(&flat))
}

/// Minus infinity where a position must not be seen, zero elsewhere.
fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    let number = |v: f64| cast(&Tensor::try_scalar(Scalar::Float(v))?, dtype);
    ops::where_self(mask, &number(0.0)?, &number(f64::NEG_INFINITY)?)
}

/// Position `i` sees positions up to `i`.
pub(crate) fn causal_mask(l: usize, s: usize, like: &Tensor) -> Result<Tensor> {
    let (sizes, device) = ([l.into(), s.into()], Some(like.device()));
    let hidden = ops::triu(&ops::ones(&sizes, Some(DType::Bool), device)?, 1.into())?;
    ops::masked_fill(&ops::zeros(&sizes, Some(like.dtype()), device)?, &hidden, Scalar::Float(f64::NEG_INFINITY))
}

pub(crate) fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    attn_mask: Option<&Tensor>,
    dropout_p: f64,
    is_causal: bool,
    scale: Option<f64>,
    enable_gqa: bool,
) -> Result<Tensor> {
    check(query, key, value)?;
    if is_causal && attn_mask.is_some() {
        return Err(Error::argument(OP, "expected either attn_mask or is_causal, found both"));
    }
    // Half precision would lose the sums: they are done in f32.
    let dtype = query.dtype();
    let half = matches!(dtype, DType::F16 | DType::BF16);
    let wide = |t: &Tensor| if half { cast(t, DType::F32) } else { Ok(t.clone()) };
    let (q, mut k, mut v) = (wide(query)?, wide(key)?, wide(value)?);
    if enable_gqa {
        let heads = if q.ndim() >= 3 { q.shape()[q.ndim() - 3] } else { 0 };
        (k, v) = (repeat_heads(&k, heads)?, repeat_heads(&v, heads)?);
    }
    let (l, e, s) = (q.shape()[q.ndim() - 2], q.shape()[q.ndim() - 1], k.shape()[k.ndim() - 2]);
    let scale = scale.unwrap_or(1.0 / (e as f64).sqrt());
    if attn_mask.is_none() && dropout_p == 0.0 && ops::attention::serves(&q, &k, &v) {
        let out = ops::_attention(&q, &k, &v, scale, is_causal)?;
        return if half { cast(&out, dtype) } else { Ok(out) };
    }
    // Both sides get the root, so that the product overflows less.
    let root = scale.abs().sqrt();
    let q = ops::mul_scalar(&q, Scalar::Float(if scale < 0.0 { -root } else { root }))?;
    let k = ops::mul_scalar(&ops::transpose(&k, -2, -1)?, Scalar::Float(root))?;
    let logits = ops::matmul(&q, &k)?;
    let mask = match attn_mask {
        Some(m) if m.dtype() == DType::Bool => Some(additive(m, q.dtype())?),
        Some(m) if m.is_floating_point() => Some(wide(m)?),
        Some(m) => return Err(Error::argument(OP, format!("expected a bool or float attn_mask, found {}", m.dtype()))),
        None if is_causal => Some(causal_mask(l, s, &q)?),
        None => None,
    };
    let weights = match &mask {
        Some(m) if !is_expandable_to(m.shape(), logits.shape()) => {
            let (expected, found) = (logits.shape(), m.shape());
            return Err(Error::argument(
                OP,
                format!("expected an attn_mask that broadcasts to {expected:?}, found {found:?}"),
            ));
        }
        Some(m) => ops::_safe_softmax(&ops::add(&logits, m, Scalar::Int(1))?, -1, None)?,
        None => ops::softmax(&logits, -1, None)?,
    };
    let weights = if dropout_p > 0.0 { ops::dropout(&weights, dropout_p, true)? } else { weights };
    let out = ops::matmul(&weights, &v)?;
    if half { cast(&out, dtype) } else { Ok(out) }
}
