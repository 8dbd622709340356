//! Normalizations: statistics per sample, affine parameters apart so that each sample may have its own.

use super::conv::{from_channels, into_channels};
use super::merge::{fold, unfold};
use super::{Batched, Call, Out, Outs, with_batch};
use crate::dispatch::{self, Op, Value};
use crate::sym::{SymInt, SymInts};
use crate::{ErrorKind, Result, Tensor, ops};
use smallvec::{SmallVec, smallvec};

fn out(t: Tensor, dim: usize) -> Out {
    Out { value: Value::Tensor(t), dim: Some(dim) }
}

fn three(o: dispatch::Outputs) -> Result<[Tensor; 3]> {
    dispatch::tensors::<3>(o)
}

fn mask(call: &Call<'_>, k: usize) -> [bool; 3] {
    match call.plain(k) {
        Value::Bools(v) if v.len() == 3 => [v[0], v[1], v[2]],
        _ => [true; 3],
    }
}

fn sum_over(t: &Tensor, dims: impl Iterator<Item = usize>) -> Result<Tensor> {
    let dims: SmallVec<[i64; 6]> = dims.map(|d| d as i64).collect();
    if dims.is_empty() { Ok(t.clone()) } else { ops::sum_dim(t, Some(&dims), false, None) }
}

fn empty(like: &Tensor) -> Result<Tensor> {
    ops::new_zeros(like, &[SymInt::from(0)], None, None)
}

// ---- layer norm: the batch is one more leading dimension

/// A parameter of a sample's last dimensions, aligned with a tensor of `ndim` dimensions whose first is the batch.
fn trailing(p: &Batched, ndim: usize) -> Result<Tensor> {
    let mut t = p.front()?;
    while p.dim.is_some() && t.ndim() < ndim {
        t = ops::unsqueeze(&t, 1)?;
    }
    Ok(t)
}

pub(crate) fn layer_norm(call: &Call<'_>) -> Result<Outs> {
    let x = call.tensor(0)?.full(call.size)?;
    let (w, b) = (call.opt_tensor(2), call.opt_tensor(3));
    let shared = |p: Option<&Batched>| p.is_none_or(|p| p.dim.is_none());
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[0] = x.clone().into();
    if shared(w) && shared(b) {
        return Ok(three(dispatch::call(call.op, &values)?)?.into_iter().map(|t| out(t, 0)).collect());
    }
    values[2] = Value::None;
    values[3] = Value::None;
    let [mut y, mean, rstd] = three(dispatch::call(call.op, &values)?)?;
    if let Some(w) = w {
        y = ops::mul(&y, &trailing(w, x.ndim())?)?;
    }
    if let Some(b) = b {
        y = ops::add(&y, &trailing(b, x.ndim())?, 1i64.into())?;
    }
    Ok(smallvec![out(y, 0), out(mean, 0), out(rstd, 0)])
}

pub(crate) fn layer_norm_backward(call: &Call<'_>) -> Result<Outs> {
    let (g, x) = (call.tensor(0)?.full(call.size)?, call.tensor(1)?.full(call.size)?);
    let (mean, rstd) = (call.tensor(3)?.full(call.size)?, call.tensor(4)?.full(call.size)?);
    let normalized = call.ints(2).unwrap_or_default().len();
    let wanted = mask(call, 7);
    let lead = 1..x.ndim() - normalized;
    let mut outs: Outs = smallvec![out(empty(&x)?, 0), out(empty(&x)?, 0), out(empty(&x)?, 0)];
    outs.iter_mut().for_each(|o| o.dim = None);
    if wanted[0] {
        let w = call.opt_tensor(5);
        let scaled = match w {
            Some(w) => ops::mul(&g, &trailing(w, x.ndim())?)?,
            None => g.clone(),
        };
        let mut values = call.values(|b| Ok(b.value.clone()))?;
        values[0] = ops::formulas::cast(&scaled, g.dtype())?.into();
        values[1] = x.clone().into();
        values[3] = mean.clone().into();
        values[4] = rstd.clone().into();
        values[5] = Value::None;
        values[6] = Value::None;
        values[7] = Value::Bools(vec![true, false, false]);
        if let Some(Value::Tensor(t)) = dispatch::call(call.op, &values)?.into_iter().next() {
            outs[0] = out(t, 0);
        }
    }
    if wanted[1] {
        let hat = ops::mul(&ops::sub(&x, &mean, 1i64.into())?, &rstd)?;
        outs[1] = out(sum_over(&ops::mul(&g, &hat)?, lead.clone())?, 0);
    }
    if wanted[2] {
        outs[2] = out(sum_over(&g, lead)?, 0);
    }
    Ok(outs)
}

// ---- group norm: samples are more images

/// A parameter per channel, aligned with `[B, N, C, ..]`.
fn per_channel(p: &Batched, ndim: usize) -> Result<Tensor> {
    let mut sizes: SymInts = smallvec![SymInt::from(1); ndim];
    sizes[2] = p.sizes()[0].into();
    if p.dim.is_some() {
        sizes[0] = p.front()?.shape()[0].into();
    }
    ops::reshape(&p.front()?, &sizes)
}

pub(crate) fn group_norm(call: &Call<'_>) -> Result<Outs> {
    let x = call.tensor(0)?.full(call.size)?;
    let (w, b) = (call.opt_tensor(1), call.opt_tensor(2));
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[0] = fold(&x)?.into();
    values[1] = Value::None;
    values[2] = Value::None;
    values[3] = (call.int(3).unwrap_or(1) * call.size as i64).into();
    let [y, mean, rstd] = three(dispatch::call(call.op, &values)?)?;
    let mut y = unfold(&y, call.size)?;
    if let Some(w) = w {
        y = ops::mul(&y, &per_channel(w, y.ndim())?)?;
    }
    if let Some(b) = b {
        y = ops::add(&y, &per_channel(b, y.ndim())?, 1i64.into())?;
    }
    Ok(smallvec![out(y, 0), out(unfold(&mean, call.size)?, 0), out(unfold(&rstd, call.size)?, 0)])
}

pub(crate) fn group_norm_backward(call: &Call<'_>) -> Result<Outs> {
    let (g, x) = (call.tensor(0)?.full(call.size)?, call.tensor(1)?.full(call.size)?);
    let (mean, rstd) = (call.tensor(2)?.full(call.size)?, call.tensor(3)?.full(call.size)?);
    let (n, c, groups) = (call.int(5).unwrap_or(1), call.int(6).unwrap_or(1), call.int(8).unwrap_or(1));
    let wanted = mask(call, 9);
    let mut outs: Outs = smallvec![out(empty(&x)?, 0), out(empty(&x)?, 0), out(empty(&x)?, 0)];
    outs.iter_mut().for_each(|o| o.dim = None);
    if wanted[0] {
        let scaled = match call.opt_tensor(4) {
            Some(w) => ops::mul(&g, &per_channel(w, g.ndim())?)?,
            None => g.clone(),
        };
        let mut values = call.values(|b| Ok(b.value.clone()))?;
        for (k, t) in [(0, &scaled), (1, &x), (2, &mean), (3, &rstd)] {
            values[k] = fold(t)?.into();
        }
        values[4] = Value::None;
        values[5] = (n * call.size as i64).into();
        values[9] = Value::Bools(vec![true, false, false]);
        if let Some(Value::Tensor(t)) = dispatch::call(call.op, &values)?.into_iter().next() {
            outs[0] = out(unfold(&t, call.size)?, 0);
        }
    }
    // [B, N, G, C/G, HxW]
    let split: Vec<i64> = vec![call.size as i64, n, groups, c / groups.max(1), -1];
    let split: SymInts = split.into_iter().map(SymInt::from).collect();
    let stats = |t: &Tensor| ops::unsqueeze(&ops::unsqueeze(t, -1)?, -1);
    let channels = |t: &Tensor| -> Result<Tensor> {
        ops::reshape(&sum_over(t, [1, 4].into_iter())?, &[call.size.into(), SymInt::from(c)])
    };
    if wanted[1] {
        let hat = ops::mul(&ops::sub(&ops::reshape(&x, &split)?, &stats(&mean)?, 1i64.into())?, &stats(&rstd)?)?;
        outs[1] = out(channels(&ops::mul(&ops::reshape(&g, &split)?, &hat)?)?, 0);
    }
    if wanted[2] {
        outs[2] = out(channels(&ops::reshape(&g, &split)?)?, 0);
    }
    Ok(outs)
}

// ---- batch norm: every sample has channels of its own

/// A vector per channel, or none or an empty one, for the channels of all samples.
fn all_channels(call: &Call<'_>, k: usize) -> Result<Value> {
    let Some(p) = call.opt_tensor(k) else { return Ok(Value::None) };
    if p.sizes()[..] == [0] {
        return Ok(p.value.clone().into());
    }
    Ok(ops::reshape(&p.full(call.size)?, &[SymInt::from(-1)])?.into())
}

pub(crate) fn batch_norm(call: &Call<'_>) -> Result<Outs> {
    let x = call.tensor(0)?.full(call.size)?;
    let training = call.bool(5);
    let tracks = |k: usize| call.opt_tensor(k).is_some_and(|r| r.dim.is_none());
    if training && (tracks(3) || tracks(4)) {
        return Err(ErrorKind::UnbatchedWrite {
            op: "batch norm in training mode (its running statistics)".to_string(),
        }
        .into());
    }
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[0] = into_channels(&x)?.into();
    for k in 1..5 {
        values[k] = all_channels(call, k)?;
    }
    let [y, mean, invstd] = three(dispatch::call(call.op, &values)?)?;
    if training {
        // Running statistics of each sample were updated in a copy.
        for k in [3, 4] {
            if let (Some(r), Value::Tensor(t)) = (call.opt_tensor(k), &values[k]) {
                ops::copy_(&r.front()?, &ops::reshape(t, &with_batch(call.size, &r.sizes()))?, false)?;
            }
        }
    }
    let vector = |t: &Tensor| -> Result<Out> {
        if t.numel() == 0 {
            return Ok(Out { value: Value::Tensor(t.clone()), dim: None });
        }
        Ok(out(unfold(t, call.size)?, 0))
    };
    Ok(smallvec![out(from_channels(&y, call.size)?, 1), vector(&mean)?, vector(&invstd)?])
}

pub(crate) fn batch_norm_backward(call: &Call<'_>) -> Result<Outs> {
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    for (k, v) in values.iter_mut().enumerate().take(2) {
        *v = into_channels(&call.tensor(k)?.full(call.size)?)?.into();
    }
    for k in 2..7 {
        values[k] = all_channels(call, k)?;
    }
    let wanted = mask(call, 9);
    let found = dispatch::call(Op::NATIVE_BATCH_NORM_BACKWARD, &values)?;
    let found = three(found)?;
    let mut outs = Outs::new();
    for (k, t) in found.iter().enumerate() {
        outs.push(match (wanted[k], k) {
            (false, _) => Out { value: Value::Tensor(t.clone()), dim: None },
            (true, 0) => out(from_channels(t, call.size)?, 1),
            (true, _) => out(unfold(t, call.size)?, 0),
        });
    }
    Ok(outs)
}
