//! Attention, composed of products and softmax; what the kernel supports is one op (`ops::attention` says when).

use crate::dispatch::MemoryFormat;
use crate::limits::as_size;
use crate::ops::attention::{is_whole, serves};
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
pub(crate) fn repeat_heads(t: &Tensor, heads: usize) -> Result<Tensor> {
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
pub(crate) fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    let number = |v: f64| cast(&Tensor::try_scalar(Scalar::Float(v))?, dtype);
    ops::where_self(mask, &number(0.0)?, &number(f64::NEG_INFINITY)?)
}

/// Position `i` sees positions up to `i`.
pub(crate) fn causal_mask(l: usize, s: usize, like: &Tensor) -> Result<Tensor> {
    let (sizes, device) = ([l.into(), s.into()], Some(like.device()));
    let hidden = ops::triu(&ops::ones(&sizes, Some(DType::Bool), device)?, 1.into())?;
    ops::masked_fill(&ops::zeros(&sizes, Some(like.dtype()), device)?, &hidden, Scalar::Float(f64::NEG_INFINITY))
}

/// Attention as one op, where the kernel serves it. Operands of fewer dimensions are those of one head or one batch.
fn whole(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
    causal: bool,
    grouped: bool,
) -> Result<Option<Tensor>> {
    let lead = 4usize.saturating_sub(q.ndim());
    if !is_whole() || [k, v].iter().any(|t| t.ndim() != q.ndim()) {
        return Ok(None);
    }
    // Of three dimensions the first is the batch: each has one head.
    let lift = |t: &Tensor| (0..lead).try_fold(t.clone(), |t, _| ops::unsqueeze(&t, t.ndim() as i64 - 2));
    let (q4, k4, v4) = (lift(q)?, lift(k)?, lift(v)?);
    let mask = match mask {
        Some(m) if matches!(m.dtype(), DType::F16 | DType::BF16) && !m.requires_grad() => Some(cast(m, q.dtype())?),
        Some(m) => Some(m.clone()),
        None => None,
    };
    let mask = mask.map(|m| if m.ndim() > 2 { lift(&m) } else { Ok(m) }).transpose()?;
    let heads = |t: &Tensor| t.shape().get(1).copied();
    let shared = grouped || heads(&k4) == heads(&q4) || heads(&k4) == Some(1);
    if !shared || !serves(&q4, &k4, &v4, mask.as_ref()) {
        return Ok(None);
    }
    let out = ops::_attention(&q4, &k4, &v4, mask.as_ref(), scale, causal)?;
    (0..lead).try_fold(out, |t, _| ops::squeeze_dim(&t, t.ndim() as i64 - 3)).map(Some)
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
    let (l, e, s) = (q.shape()[q.ndim() - 2], q.shape()[q.ndim() - 1], k.shape()[k.ndim() - 2]);
    let scale = scale.unwrap_or(1.0 / (e as f64).sqrt());
    if dropout_p == 0.0
        && let Some(out) = whole(&q, &k, &v, attn_mask, scale, is_causal, enable_gqa)?
    {
        return if half { cast(&out, dtype) } else { Ok(out) };
    }
    if enable_gqa {
        let heads = if q.ndim() >= 3 { q.shape()[q.ndim() - 3] } else { 0 };
        (k, v) = (repeat_heads(&k, heads)?, repeat_heads(&v, heads)?);
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
    let out = if half { cast(&out, dtype)? } else { out };
    // As PyTorch's kernel leaves it: the heads of a position side by side, which programs then see as one row.
    let by_position = out.ndim() == 4 && dropout_p == 0.0 && e == v.shape()[v.ndim() - 1];
    if by_position && !attn_mask.is_some_and(Tensor::requires_grad) {
        return ops::transpose(&ops::contiguous(&ops::transpose(&out, 1, 2)?, MemoryFormat::Contiguous)?, 1, 2);
    }
    Ok(out)
}

/// Attention with its weights: products and softmax, whatever the kernel would serve.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn attention_math(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    attn_mask: Option<&Tensor>,
    dropout_p: f64,
    is_causal: bool,
    dropout_mask: Option<&Tensor>,
    scale: Option<f64>,
    enable_gqa: bool,
) -> Result<(Tensor, Tensor)> {
    check(query, key, value)?;
    if dropout_p > 0.0 || dropout_mask.is_some() {
        return Err(Error::argument(OP, "attention with its weights takes no dropout; pass dropout_p 0"));
    }
    let (q, mut k, mut v) = (query.clone(), key.clone(), value.clone());
    if enable_gqa {
        let heads = if q.ndim() >= 3 { q.shape()[q.ndim() - 3] } else { 0 };
        (k, v) = (repeat_heads(&k, heads)?, repeat_heads(&v, heads)?);
    }
    let logits = scores(&q, &k, scale)?;
    let mask = total_mask(&q, &k, attn_mask, is_causal)?;
    let weights = match &mask {
        Some(m) => ops::_safe_softmax(&ops::add(&logits, m, Scalar::Int(1))?, -1, None)?,
        None => ops::softmax(&logits, -1, None)?,
    };
    Ok((ops::matmul(&weights, &v)?, weights))
}

/// `scale * query @ keyᵀ`
fn scores(q: &Tensor, k: &Tensor, scale: Option<f64>) -> Result<Tensor> {
    let width = *q.shape().last().unwrap_or(&1);
    let scale = scale.unwrap_or(1.0 / (width as f64).sqrt());
    ops::matmul(&ops::mul_scalar(q, Scalar::Float(scale))?, &ops::transpose(k, -2, -1)?)
}

/// What is added to the scores.
fn total_mask(q: &Tensor, k: &Tensor, attn_mask: Option<&Tensor>, is_causal: bool) -> Result<Option<Tensor>> {
    let (l, s) = (q.shape()[q.ndim() - 2], k.shape()[k.ndim() - 2]);
    match attn_mask {
        Some(_) if is_causal => Err(Error::argument(OP, "expected either attn_mask or is_causal, found both")),
        Some(m) if m.dtype() == DType::Bool => additive(m, q.dtype()).map(Some),
        Some(m) => cast(m, q.dtype()).map(Some),
        None if is_causal => causal_mask(l, s, q).map(Some),
        None => Ok(None),
    }
}

/// Attention and the logarithms of the sums that its softmax divides by, which have no gradient.
pub(crate) fn flash_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    dropout_p: f64,
    is_causal: bool,
    attn_mask: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<(Tensor, Tensor)> {
    check(query, key, value)?;
    if query.ndim() != 4 || dropout_p != 0.0 {
        let m = format!("expected [batch, heads, l, e] and no dropout, found {:?} and {dropout_p}", query.shape());
        return Err(Error::argument("_scaled_dot_product_flash_attention_for_cpu", m));
    }
    let output = ops::scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale, false)?;
    let (q, k) = (ops::detach(query)?, ops::detach(key)?);
    let wide = |t: &Tensor| if t.dtype() == DType::F64 { Ok(t.clone()) } else { cast(t, DType::F32) };
    let logits = scores(&wide(&q)?, &wide(&k)?, scale)?;
    let logits = match total_mask(&wide(&q)?, &k, attn_mask.map(ops::detach).transpose()?.as_ref(), is_causal)? {
        Some(m) => ops::add(&logits, &m, Scalar::Int(1))?,
        None => logits,
    };
    Ok((output, ops::logsumexp(&logits, &[-1], false)?))
}

/// Gradients of queries, keys and values.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn flash_attention_backward(
    grad_out: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    out: &Tensor,
    logsumexp: &Tensor,
    dropout_p: f64,
    is_causal: bool,
    attn_mask: Option<&Tensor>,
    scale: Option<f64>,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "_scaled_dot_product_flash_attention_for_cpu_backward";
    if dropout_p != 0.0 {
        return Err(Error::argument(OP, format!("expected no dropout, found {dropout_p}")));
    }
    check(query, key, value)?;
    let rows = &query.shape()[..query.ndim() - 1];
    let per_row = |t: &Tensor| t.ndim() == query.ndim() && t.shape().starts_with(rows);
    if !per_row(grad_out) || grad_out.shape() != out.shape() || logsumexp.shape() != rows {
        let found = [grad_out, out, logsumexp].map(|t| format!("{:?}", t.shape())).join(", ");
        let m = format!("expected grad_out and out of {rows:?} and a width, logsumexp of {rows:?}, found {found}");
        return Err(Error::argument(OP, m));
    }
    let logits = scores(query, key, scale)?;
    let logits = match total_mask(query, key, attn_mask, is_causal)? {
        Some(m) => ops::add(&logits, &m, Scalar::Int(1))?,
        None => logits,
    };
    let sums = cast(&ops::unsqueeze(logsumexp, -1)?, logits.dtype())?;
    let weights = ops::exp(&ops::sub(&logits, &sums, Scalar::Int(1))?)?;
    let to_weights = ops::matmul(grad_out, &ops::transpose(value, -2, -1)?)?;
    let along = ops::sum_dim(&ops::mul(grad_out, out)?, Some(&[-1]), true, None)?;
    let to_logits = ops::mul(&weights, &ops::sub(&to_weights, &along, Scalar::Int(1))?)?;
    let width = *query.shape().last().unwrap_or(&1);
    let to_logits = ops::mul_scalar(&to_logits, Scalar::Float(scale.unwrap_or(1.0 / (width as f64).sqrt())))?;
    let turned = |t: &Tensor| ops::transpose(t, -2, -1);
    Ok((
        ops::matmul(&to_logits, key)?,
        ops::matmul(&turned(&to_logits)?, query)?,
        ops::matmul(&turned(&weights)?, grad_out)?,
    ))
}

/// Queries, keys and values of one product, their bias added and queries scaled, head by head.
pub(crate) fn transform_bias_rescale_qkv(
    qkv: &Tensor,
    qkv_bias: &Tensor,
    num_heads: i64,
) -> Result<(Tensor, Tensor, Tensor)> {
    let heads = (num_heads > 0).then(|| as_size(num_heads));
    let (&[b, t, wide], Some(heads)) = (qkv.shape(), heads) else {
        let m = format!("expected [batch, time, 3 * width] and heads, found {:?} and {num_heads}", qkv.shape());
        return Err(Error::argument("_transform_bias_rescale_qkv", m));
    };
    if !wide.is_multiple_of(3) || !(wide / 3).is_multiple_of(heads) || qkv_bias.shape() != [wide] {
        let m = format!("a width of {wide} is not three times a multiple of {heads} heads, or the bias is another");
        return Err(Error::argument("_transform_bias_rescale_qkv", m));
    }
    let each = wide / 3 / heads;
    let all = ops::reshape(&ops::add(qkv, qkv_bias, Scalar::Int(1))?, &sym(&[b, t, 3, heads, each]))?;
    let all = ops::permute(&all, &[2, 0, 3, 1, 4])?;
    let part = |k: i64| ops::clone(&ops::select(&all, 0, k.into())?, Some(MemoryFormat::Contiguous));
    let q = ops::mul_scalar(&part(0)?, Scalar::Float(1.0 / (each as f64).sqrt()))?;
    Ok((q, part(1)?, part(2)?))
}

/// Softmax of what a mask leaves: of keys for all queries (0), of padding per sample (1), or of single scores (2).
pub(crate) fn masked_softmax(
    self_: &Tensor,
    mask: &Tensor,
    dim: Option<i64>,
    mask_type: Option<i64>,
) -> Result<Tensor> {
    const OP: &str = "_masked_softmax";
    if mask.dtype() != DType::Bool {
        return Err(Error::argument(OP, format!("expected a bool mask, found {}", mask.dtype())));
    }
    let mask = match (mask_type, self_.shape(), mask.ndim()) {
        (Some(1), &[b, _, _, s], 2) => ops::reshape(mask, &sym(&[b, 1, 1, s]))?,
        (Some(0), &[_, _, l, s], 2) => ops::reshape(mask, &sym(&[1, 1, l, s]))?,
        (Some(0..=2), _, _) => mask.clone(),
        (found, _, _) => return Err(Error::argument(OP, format!("expected a mask type from 0 to 2, found {found:?}"))),
    };
    if !is_expandable_to(mask.shape(), self_.shape()) {
        let m = format!("a mask of shape {:?} does not fit {:?}", mask.shape(), self_.shape());
        return Err(Error::argument(OP, m));
    }
    let masked = ops::masked_fill(self_, &mask, Scalar::Float(f64::NEG_INFINITY))?;
    ops::softmax(&masked, dim.unwrap_or(-1), None)
}
