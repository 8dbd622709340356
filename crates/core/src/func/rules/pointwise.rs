//! Pointwise ops and everything else that broadcasts: the batch goes in front of dimensions aligned at the end.

use super::{Batched, Call, Out, Outs, all};
use crate::dispatch::{self, MemoryFormat, Op, Value};
use crate::sym::{SymInt, SymInts};
use crate::{DType, Error, ErrorKind, Result, Tensor, ops};
use smallvec::{SmallVec, smallvec};

/// The tensor with the batch in front and ones behind it, up to `ndim` dimensions of a sample.
fn aligned(b: &Batched, ndim: usize) -> Result<Tensor> {
    let front = b.front()?;
    if b.dim.is_none() || b.ndim() >= ndim {
        return Ok(front);
    }
    let mut sizes: SymInts = smallvec![SymInt::from(front.shape()[0])];
    sizes.extend(std::iter::repeat_n(SymInt::from(1), ndim - b.ndim()));
    sizes.extend(front.shape()[1..].iter().map(|&n| SymInt::from(n)));
    // A view: splitting off ones never moves anything.
    ops::view(&front, &sizes)
}

/// A sample of no dimensions is weak in type promotion; with the batch it has one and would count fully.
fn weaken(b: &Batched, others: &[&Batched]) -> Result<Option<Batched>> {
    // A truth value yields to everything anyway, and a condition must stay one.
    if b.dim.is_none() || b.ndim() > 0 || b.value.dtype() == DType::Bool {
        return Ok(None);
    }
    let kind = |t: &Tensor| match t.dtype() {
        d if d.is_integer() => 1,
        d if d.is_floating_point() => 2,
        d if d.is_complex() => 3,
        _ => 0u8,
    };
    let strong = others.iter().filter(|o| o.ndim() > 0).map(|o| &o.value).max_by_key(|t| kind(t));
    match strong {
        Some(s) if s.dtype() != b.value.dtype() && kind(s) >= kind(&b.value) => {
            Ok(Some(Batched { value: ops::formulas::cast(&b.value, s.dtype())?, dim: b.dim }))
        }
        _ => Ok(None),
    }
}

fn tensors<'a>(call: &'a Call<'_>) -> SmallVec<[&'a Batched; 4]> {
    (0..call.args.len()).filter_map(|k| call.opt_tensor(k)).collect()
}

fn broadcast(call: &Call<'_>, promotes: bool) -> Result<SmallVec<[Value; 6]>> {
    let list = tensors(call);
    let ndim = list.iter().map(|b| b.ndim()).max().unwrap_or(0);
    let mixed = promotes && list.iter().any(|b| b.value.dtype() != list[0].value.dtype());
    // Where all samples are of no dimensions, one that is the same for all counts as much as those that have the batch.
    let equal = |b: &Batched| mixed && ndim == 0 && b.dim.is_none() && !b.value.is_wrapped_number();
    call.values(|b| match if mixed { weaken(b, &list)? } else { None } {
        Some(weak) => aligned(&weak, ndim),
        None if equal(b) => ops::unsqueeze(&b.value, 0),
        None => aligned(b, ndim),
    })
}

/// Formats of channels are those of whole tensors; a sample has no place for them.
pub(crate) fn need_plain_format(op: &str, format: MemoryFormat) -> Result<()> {
    if matches!(format, MemoryFormat::Preserve | MemoryFormat::Contiguous) {
        return Ok(());
    }
    let message = format!("{op}: the memory format of a batched tensor is preserved or contiguous, found {format:?}");
    Err(ErrorKind::Vmap { message }.into())
}

pub(super) fn run(call: &Call<'_>) -> Result<Outs> {
    let list = tensors(call);
    if let (Op::CLONE, [x], Value::MemoryFormat(MemoryFormat::Contiguous)) = (call.op, &list[..], call.plain(1)) {
        // Every sample in row-major order: the batch must come first.
        return super::one(ops::clone(&x.front()?, Some(MemoryFormat::Contiguous))?, 0);
    }
    if let (Op::CLONE, Value::MemoryFormat(format)) = (call.op, call.plain(1)) {
        need_plain_format("clone", format)?;
    }
    if let [one] = list[..] {
        // One tensor: its batch stays where it is.
        let values = call.values(|b| Ok(b.value.clone()))?;
        return Ok(all(dispatch::call(call.op, &values)?, one.dim));
    }
    Ok(all(dispatch::call(call.op, &broadcast(call, true)?)?, Some(0)))
}

/// Pointwise in place: the target has the batch (the caller has checked) and all of its dimensions.
pub(super) fn run_in_place(call: &Call<'_>) -> Result<Outs> {
    let target = call.tensor(0)?;
    if let Some(wide) = tensors(call).iter().find(|b| b.ndim() > target.ndim()) {
        return Err(Error::argument(
            "vmap",
            format!("{:?}: {:?} does not fit into {:?}", call.op, wide.sizes(), target.sizes()),
        ));
    }
    if call.op == Op::FILL__TENSOR {
        let value = call.tensor(1)?;
        ops::copy_(&target.front()?, &aligned(value, target.ndim())?, false)?;
        return Ok(smallvec![]);
    }
    dispatch::call(call.op, &broadcast(call, call.op != Op::COPY_)?)?;
    Ok(smallvec![])
}

/// The boundaries are sorted along their only dimension; they must be the same for all.
pub(crate) fn bucketize(call: &Call<'_>) -> Result<Outs> {
    if call.tensor(1)?.dim.is_some() {
        return super::sample_by_sample(call);
    }
    let values = call.values(|b| Ok(b.value.clone()))?;
    Ok(all(dispatch::call(call.op, &values)?, call.tensor(0)?.dim))
}

pub(crate) fn fill(call: &Call<'_>) -> Result<Outs> {
    let (like, value) = (call.tensor(0)?.full(call.size)?, call.tensor(1)?);
    let value = ops::formulas::cast(&aligned(value, call.tensor(0)?.ndim())?, like.dtype())?;
    let value = ops::clone(&ops::formulas::expand_to(&value, like.shape())?, None)?;
    Ok(smallvec![Out { value: Value::Tensor(value), dim: Some(0) }])
}

/// Where a mask says so, one number a sample.
pub(crate) fn masked_fill(call: &Call<'_>) -> Result<Outs> {
    let ndim = call.tensor(0)?.ndim().max(call.tensor(1)?.ndim());
    let (x, mask) = (aligned(call.tensor(0)?, ndim)?, aligned(call.tensor(1)?, ndim)?);
    let value = ops::formulas::cast(&aligned(call.tensor(2)?, ndim)?, x.dtype())?;
    super::one(ops::where_self(&mask, &value, &x)?, 0)
}

/// Ops whose tensors have one shape and do not broadcast.
pub(crate) fn same_shape(call: &Call<'_>) -> Result<Outs> {
    Ok(all(dispatch::call(call.op, &call.full()?)?, Some(0)))
}
