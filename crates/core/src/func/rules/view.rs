//! Views and shapes: the same view of every sample.

use super::{Batched, Call, Out, Outs, all, one, with_batch};
use crate::dispatch::{self, Op, Value};
use crate::ops::shape::wrap_dim;
use crate::sym::{SymInt, SymInts};
use crate::{Result, Tensor, ops};
use smallvec::{SmallVec, smallvec};

/// Sizes given as an argument, with the batch in front.
fn batch_sizes(call: &Call<'_>, k: usize) -> SymInts {
    let sizes = call.ints(k).unwrap_or_default();
    std::iter::once(call.size as i64).chain(sizes).map(SymInt::from).collect()
}

pub(crate) fn view(call: &Call<'_>) -> Result<Outs> {
    let values: [Value; 2] = [call.tensor(0)?.front()?.into(), Value::Ints(batch_sizes(call, 1))];
    Ok(all(dispatch::call(call.op, &values)?, Some(0)))
}

/// The parts of each number are neighbors in every sample; with the batch between them they are copied first.
pub(crate) fn view_as_complex(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    if b.ndim() == 0 {
        return Err(crate::Error::argument("view_as_complex", "expected at least one dimension, found shape []"));
    }
    one(ops::view_as_complex(&b.front()?)?, 0)
}

pub(crate) fn t(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    let x = b.front()?;
    match b.ndim() {
        2 => one(ops::transpose(&x, 1, 2)?, 0),
        0 | 1 => one(ops::alias(&x)?, 0),
        n => Err(crate::Error::argument("t", format!("expected at most 2 dimensions, found {n}"))),
    }
}

pub(crate) fn permute(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    let mut dims: SmallVec<[i64; 6]> = smallvec![0];
    for d in call.ints(1).unwrap_or_default() {
        dims.push(wrap_dim("permute", d, b.ndim())? as i64 + 1);
    }
    one(ops::permute(&b.front()?, &dims)?, 0)
}

/// The tensor with ones between the batch and a sample, so that a sample has `ndim` dimensions.
fn widened(b: &Batched, ndim: usize) -> Result<Tensor> {
    let x = b.front()?;
    let (batch, rest) = x.shape().split_first().expect("it has a batch");
    let ones = ndim.saturating_sub(rest.len());
    let sizes: SmallVec<[usize; 6]> = std::iter::repeat_n(1, ones).chain(rest.iter().copied()).collect();
    ops::view(&x, &with_batch(*batch, &sizes))
}

pub(crate) fn expand(call: &Call<'_>) -> Result<Outs> {
    let sizes = batch_sizes(call, 1);
    let x = widened(call.tensor(0)?, sizes.len() - 1)?;
    one(ops::expand(&x, &sizes, false)?, 0)
}

pub(crate) fn repeat(call: &Call<'_>) -> Result<Outs> {
    let times = call.ints(1).unwrap_or_default();
    let x = widened(call.tensor(0)?, times.len())?;
    let times: SymInts = std::iter::once(1).chain(times).map(SymInt::from).collect();
    one(ops::repeat(&x, &times)?, 0)
}

pub(crate) fn unsqueeze(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    let d = wrap_dim("unsqueeze", call.int(1).unwrap_or(0), b.ndim() + 1)? as i64;
    one(ops::unsqueeze(&b.front()?, d + 1)?, 0)
}

pub(crate) fn squeeze(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    let dims: Vec<i64> = (0..b.ndim()).filter(|&k| b.sizes()[k] == 1).map(|k| k as i64 + 1).collect();
    one(ops::squeeze_dims(&b.front()?, &dims)?, 0)
}

/// A sample's strides are those of the tensor below, so the batch keeps its own stride beside the requested ones.
pub(crate) fn as_strided(call: &Call<'_>) -> Result<Outs> {
    let x = call.tensor(0)?.front()?;
    let strides = call.ints(2).unwrap_or_default();
    let strides: SymInts = std::iter::once(x.layout().strides()[0] as i64).chain(strides).map(SymInt::from).collect();
    let offset = call.int(3).map_or(x.layout().offset() as i64, |o| o);
    one(ops::as_strided(&x, &batch_sizes(call, 1), &strides, Some(offset.into()))?, 0)
}

pub(crate) fn as_strided_scatter(call: &Call<'_>) -> Result<Outs> {
    let (b, src) = (call.tensor(0)?, call.tensor(1)?.full(call.size)?);
    let x = ops::contiguous(&b.full(call.size)?, Default::default())?;
    let strides = call.ints(3).unwrap_or_default();
    let strides: SymInts = std::iter::once(x.layout().strides()[0] as i64).chain(strides).map(SymInt::from).collect();
    let offset = call.int(4).map(SymInt::from);
    one(ops::as_strided_scatter(&x, &src, &batch_sizes(call, 2), &strides, offset)?, 0)
}

fn list<'a>(call: &'a Call<'_>) -> Result<&'a [Batched]> {
    match call.arg(0) {
        super::Arg::List(l) => Ok(l),
        _ => Err(crate::Error::argument("vmap", format!("{:?} should get a list of tensors", call.op))),
    }
}

pub(crate) fn cat(call: &Call<'_>) -> Result<Outs> {
    // Empty vectors may stand among tensors of any shape, as ever.
    let parts: Vec<&Batched> = list(call)?.iter().filter(|b| b.sizes()[..] != [0]).collect();
    let parts = if parts.is_empty() { list(call)?.iter().collect() } else { parts };
    let ndim = parts.first().map_or(0, |b| b.ndim());
    let d = wrap_dim("cat", call.int(1).unwrap_or(0), ndim)? as i64 + 1;
    let parts = parts.iter().map(|b| b.full(call.size)).collect::<Result<Vec<_>>>()?;
    one(ops::cat(&parts, d)?, 0)
}

pub(crate) fn stack(call: &Call<'_>) -> Result<Outs> {
    let parts = list(call)?;
    let ndim = parts.first().map_or(0, |b| b.ndim());
    let d = wrap_dim("stack", call.int(1).unwrap_or(0), ndim + 1)? as i64 + 1;
    let parts = parts.iter().map(|b| b.full(call.size)).collect::<Result<Vec<_>>>()?;
    one(ops::stack(&parts, d)?, 0)
}

pub(crate) fn roll(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    let x = b.front()?;
    let shifts: SymInts = call.ints(1).unwrap_or_default().into_iter().map(SymInt::from).collect();
    let dims = call.ints(2).unwrap_or_default();
    if dims.is_empty() {
        let flat = ops::roll(&ops::flatten(&ops::unsqueeze(&x, 1)?, 1, -1)?, &shifts, &[1])?;
        return one(ops::reshape(&flat, &with_batch(call.size, &b.sizes()))?, 0);
    }
    let dims = dims.iter().map(|&d| Ok(wrap_dim("roll", d, b.ndim())? as i64 + 1)).collect::<Result<Vec<_>>>()?;
    one(ops::roll(&x, &shifts, &dims)?, 0)
}

pub(crate) fn new_like(call: &Call<'_>) -> Result<Outs> {
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[1] = Value::Ints(batch_sizes(call, 1));
    Ok(all(dispatch::call(call.op, &values)?, Some(0)))
}

pub(crate) fn new_empty_strided(call: &Call<'_>) -> Result<Outs> {
    let (sizes, strides) = (call.ints(1).unwrap_or_default(), call.ints(2).unwrap_or_default());
    let reach = sizes.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum::<i64>();
    let span = if sizes.contains(&0) { 0 } else { 1 + reach };
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[1] = Value::Ints(batch_sizes(call, 1));
    values[2] = Value::Ints(std::iter::once(span).chain(strides).map(SymInt::from).collect());
    Ok(all(dispatch::call(call.op, &values)?, Some(0)))
}

/// Questions about a tensor are answered by any sample of it.
pub(crate) fn describe(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    call.need(call.size > 0, || "a batch of no samples has no sample to describe".to_string())?;
    let sample = ops::select(&b.front()?, 0, 0.into())?;
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[0] = if call.op == Op::SYM_STORAGE_OFFSET { b.value.clone() } else { sample }.into();
    let outs = dispatch::call(call.op, &values)?;
    Ok(outs.into_iter().map(|value| Out { value, dim: None }).collect())
}
