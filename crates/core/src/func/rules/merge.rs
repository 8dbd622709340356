//! Ops whose first dimension is a batch already: the two become one.

use super::{Call, Out, Outs, Rule};
use crate::dispatch::{self, Value};
use crate::sym::SymInt;
use crate::{Result, Tensor, ops};

/// How many dimensions an input with a batch of its own has; the argument that holds sizes beginning with it.
pub(super) fn rule(name: &str) -> Option<Rule> {
    use Rule::Merge;
    Some(match name {
        "max_pool2d_with_indices"
        | "max_pool2d_with_indices_backward"
        | "avg_pool2d"
        | "avg_pool2d_backward"
        | "_adaptive_avg_pool2d"
        | "_adaptive_avg_pool2d_backward"
        | "adaptive_max_pool2d"
        | "adaptive_max_pool2d_backward"
        | "max_unpool2d"
        | "im2col"
        | "reflection_pad2d"
        | "reflection_pad2d_backward"
        | "replication_pad2d"
        | "replication_pad2d_backward"
        | "upsample_nearest2d"
        | "_upsample_nearest_exact2d"
        | "upsample_bilinear2d"
        | "upsample_bicubic2d"
        | "grid_sampler_2d"
        | "grid_sampler_2d_backward" => Merge(4, None),
        "max_pool3d_with_indices"
        | "max_pool3d_with_indices_backward"
        | "avg_pool3d"
        | "avg_pool3d_backward"
        | "_adaptive_avg_pool3d"
        | "_adaptive_avg_pool3d_backward"
        | "adaptive_max_pool3d"
        | "adaptive_max_pool3d_backward"
        | "reflection_pad3d"
        | "reflection_pad3d_backward"
        | "replication_pad3d"
        | "replication_pad3d_backward"
        | "upsample_nearest3d"
        | "_upsample_nearest_exact3d"
        | "upsample_trilinear3d"
        | "grid_sampler_3d"
        | "grid_sampler_3d_backward" => Merge(5, None),
        "col2im"
        | "reflection_pad1d"
        | "reflection_pad1d_backward"
        | "replication_pad1d"
        | "replication_pad1d_backward"
        | "upsample_nearest1d"
        | "_upsample_nearest_exact1d"
        | "upsample_linear1d" => Merge(3, None),
        "upsample_nearest1d_backward" | "_upsample_nearest_exact1d_backward" | "upsample_linear1d_backward" => {
            Merge(3, Some(2))
        }
        "upsample_nearest2d_backward"
        | "_upsample_nearest_exact2d_backward"
        | "upsample_bilinear2d_backward"
        | "upsample_bicubic2d_backward" => Merge(4, Some(2)),
        "upsample_nearest3d_backward" | "_upsample_nearest_exact3d_backward" | "upsample_trilinear3d_backward" => {
            Merge(5, Some(2))
        }
        _ => return None,
    })
}

/// `[B, N, ..]` as `[B*N, ..]`.
pub(super) fn fold(t: &Tensor) -> Result<Tensor> {
    ops::flatten(t, 0, 1)
}

/// `[B*N, ..]` as `[B, N, ..]`.
pub(super) fn unfold(t: &Tensor, size: usize) -> Result<Tensor> {
    ops::unflatten(t, 0, &[SymInt::from(size), SymInt::from(-1)])
}

pub(super) fn run(call: &Call<'_>, ndim: usize, sizes: Option<usize>) -> Result<Outs> {
    // Without a batch of its own, ours takes its place.
    let merged = call.tensor(0)?.ndim() >= ndim;
    let mut values = call.values(|b| if merged { fold(&b.full(call.size)?) } else { b.full(call.size) })?;
    if let Some(k) = sizes {
        let mut list = call.ints(k).unwrap_or_default();
        if let Some(n) = list.first_mut() {
            *n *= call.size as i64;
        }
        values[k] = Value::Ints(list.into_iter().map(SymInt::from).collect());
    }
    dispatch::call(call.op, &values)?
        .into_iter()
        .map(|v| {
            let value = match v {
                Value::Tensor(t) if merged => Value::Tensor(unfold(&t, call.size)?),
                other => other,
            };
            Ok(Out { value, dim: Some(0) })
        })
        .collect()
}
