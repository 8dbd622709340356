//! Attention by blocks of queries.

use super::reduce::contiguous;
use crate::layout::Layout;
use crate::ops::shape;
use crate::{Result, Spec, Tensor};
use firebrand_kernels::attention::{self as kernel, Attention, Gradients};

/// With the last dimension dense, as the kernel needs it.
fn dense(t: &Tensor) -> Result<Tensor> {
    if t.strides()[3] == 1 { Ok(t.clone()) } else { contiguous(t) }
}

pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64, causal: bool, out: &Tensor) -> Result<()> {
    let [q, k, v] = [dense(q)?, dense(k)?, dense(v)?];
    let of = Attention { scale, causal };
    kernel::forward(of, q.read()?.view(), k.read()?.view(), v.read()?.view(), out.write()?.view_mut());
    Ok(())
}

/// The gradients lie beside each other, head by head, where queries, keys and values have one size: as the one projection
/// that made all three wants them.
pub(crate) fn attention_backward(
    grad: &Tensor,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    scale: f64,
    causal: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (dq, dk, dv) = shape::attention_backward("_attention_backward", grad, query, key, value)?;
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
        for t in [grad, query, key, value] {
            t.need_data("_attention_backward")?;
        }
        let [g, q, k, v] = [dense(grad)?, dense(query)?, dense(key)?, dense(value)?];
        let [dq, dk, dv] = [grads[0].write()?, grads[1].write()?, grads[2].write()?];
        let into = Gradients { query: dq.view_mut(), key: dk.view_mut(), value: dv.view_mut() };
        let of = Attention { scale, causal };
        kernel::backward(of, g.read()?.view(), q.read()?.view(), k.read()?.view(), v.read()?.view(), into);
    }
    Ok(grads.into())
}
