//! Ops whose first dimension is already a batch: the two are merged.

use super::{Call, Out, Outs};
use crate::dispatch::{self, Value};
use crate::sym::SymInt;
use crate::{Result, Tensor, ops};

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
