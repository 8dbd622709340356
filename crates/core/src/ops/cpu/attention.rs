//! Attention by blocks of queries.

use super::expand;
use super::reduce::contiguous;
use crate::layout::Layout;
use crate::ops::shape;
use crate::{Result, Spec, Tensor};
use firebrand_kernels::attention::{self as kernel, Attention, Gradients};

/// With the last dimension dense, as the kernel needs it.
fn dense(t: &Tensor) -> Result<Tensor> {
    if t.strides()[3] == 1 { Ok(t.clone()) } else { contiguous(t) }
}

/// A mask that is dense along the keys.
fn mask_of(mask: Option<&Tensor>, key: &Tensor) -> Result<Option<Tensor>> {
    let Some(m) = mask else { return Ok(None) };
    let keys = key.shape()[2];
    match (m.shape().last(), m.strides().last()) {
        (Some(&n), Some(&1)) if n == keys => Ok(Some(m.clone())),
        (Some(&1), _) if keys == 1 => Ok(Some(m.clone())),
        _ => {
            let lead = &m.shape()[..m.ndim().saturating_sub(1)];
            let whole = Tensor::try_empty(Spec::new(&[lead, &[keys]].concat(), m.dtype(), m.device())?)?;
            super::copy_into(m, &whole)?;
            Ok(Some(whole))
        }
    }
}

pub(crate) fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
    causal: bool,
    out: &Tensor,
) -> Result<()> {
    let (mask, sizes) = (mask_of(mask, k)?, weights(q, k));
    let mask = mask.as_ref().map(|m| expand(m, &sizes)).transpose()?;
    let [q, k, v] = [dense(q)?, dense(k)?, dense(v)?];
    let of = Attention { scale, causal, mask: mask.as_ref().map(|m| m.view()) };
    kernel::forward(of, q.read()?.view(), k.read()?.view(), v.read()?.view(), out.write()?.view_mut());
    Ok(())
}

/// The sizes of the weights.
fn weights(q: &Tensor, k: &Tensor) -> [usize; 4] {
    [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]]
}

/// The gradients lie beside each other, head by head, where queries, keys and values have one size: as the one projection
/// that made all three wants them.
pub(crate) fn attention_backward(
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
    causal: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (dq, dk, dv) = shape::attention_backward("_attention_backward", grad, query, key, value, mask)?;
    let grads = match query.shape() {
        &[b, h, l, size] if [&dk, &dv].iter().all(|d| d.layout.same_geometry(&dq.layout)) => {
            let all = Tensor::try_empty(Spec::new(&[b, l, 3, h, size], dq.dtype, dq.device)?)?;
            let part = |k| Layout::derived(query.shape(), &[3 * l * h * size, size, 3 * h * size, 1], k * h * size);
            // They share memory and no element: a write to one is none to the others.
            [0, 1, 2].map(|k| all.alias_with(part(k)).counting_alone())
        }
        _ => [Tensor::try_empty(dq)?, Tensor::try_empty(dk)?, Tensor::try_empty(dv)?],
    };
    if !query.is_meta() {
        for t in [grad, query, key, value].into_iter().chain(mask) {
            t.need_data("_attention_backward")?;
        }
        let [g, q, k, v] = [dense(grad)?, dense(query)?, dense(key)?, dense(value)?];
        let [dq, dk, dv] = [grads[0].write()?, grads[1].write()?, grads[2].write()?];
        let into = Gradients { query: dq.view_mut(), key: dk.view_mut(), value: dv.view_mut() };
        let mask = mask_of(mask, key)?;
        let mask = mask.as_ref().map(|m| expand(m, &weights(query, key))).transpose()?;
        let of = Attention { scale, causal, mask: mask.as_ref().map(|m| m.view()) };
        kernel::backward(of, g.read()?.view(), q.read()?.view(), k.read()?.view(), v.read()?.view(), into);
    }
    Ok(grads.into())
}
