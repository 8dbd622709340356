//! Reductions: over the requested dimensions, or over all of a sample, never over the batch.

use super::{Call, Out, Outs, all, one};
use crate::dispatch::{self, Op, Value};
use crate::ops::shape::wrap_dim;
use crate::sym::SymInt;
use crate::{Result, Tensor, ops};

impl Call<'_> {
    fn dtype(&self, k: usize) -> Option<crate::DType> {
        match self.plain(k) {
            Value::DType(d) => Some(d),
            _ => None,
        }
    }
}

/// All dimensions of a sample, as those of the tensor with the batch in front; for a sample of none, a dummy one.
fn every(ndim: usize) -> Value {
    Value::Ints((1..=ndim.max(1)).map(SymInt::from).collect())
}

/// A sample has at least one dimension afterwards.
fn at_least_one(call: &Call<'_>) -> Result<Tensor> {
    let b = call.tensor(0)?;
    if b.ndim() == 0 { ops::unsqueeze(&b.front()?, 1) } else { b.front() }
}

/// A reduction of everything by its form with dimensions; arguments of one name are handed on.
fn over_all(call: &Call<'_>, with_dims: Op) -> Result<Outs> {
    let (from, to) = (call.op.schema(), with_dims.schema());
    let mut values: Vec<Value> = vec![at_least_one(call)?.into(), every(call.tensor(0)?.ndim())];
    let handed_on = to.args[2..].iter().map(|a| from.position(a.name).map_or(Value::None, |k| call.plain(k)));
    values.extend(handed_on);
    Ok(all(dispatch::call(with_dims, &values)?, Some(0)))
}

pub(crate) fn sum(call: &Call<'_>) -> Result<Outs> {
    over_all(call, Op::SUM_DIM_INTLIST)
}

pub(crate) fn mean(call: &Call<'_>) -> Result<Outs> {
    over_all(call, Op::MEAN_DIM)
}

pub(crate) fn any(call: &Call<'_>) -> Result<Outs> {
    over_all(call, Op::ANY_DIMS)
}

pub(crate) fn all_of(call: &Call<'_>) -> Result<Outs> {
    over_all(call, Op::ALL_DIMS)
}

pub(crate) fn max(call: &Call<'_>) -> Result<Outs> {
    over_all(call, Op::AMAX)
}

pub(crate) fn min(call: &Call<'_>) -> Result<Outs> {
    over_all(call, Op::AMIN)
}

/// A reduction over the list of dimensions called `dim`; none or an empty list means all.
pub(crate) fn dims(call: &Call<'_>) -> Result<Outs> {
    let (b, k) = (call.tensor(0)?, call.position("dim")?);
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    values[0] = at_least_one(call)?.into();
    values[k] = match call.ints(k) {
        Some(list) if !list.is_empty() => {
            let shift = |&d: &i64| Ok(SymInt::from(wrap_dim("vmap", d, b.ndim())? + 1));
            Value::Ints(list.iter().map(shift).collect::<Result<_>>()?)
        }
        _ => every(b.ndim()),
    };
    let scalar = b.ndim() == 0;
    let outs = dispatch::call(call.op, &values)?.into_iter().map(|v| match v {
        Value::Tensor(t) if scalar && t.ndim() == 2 => Ok(Value::Tensor(ops::squeeze_dim(&t, 1)?)),
        other => Ok(other),
    });
    Ok(all(outs.collect::<Result<_>>()?, Some(0)))
}

/// The tensor as a batch of vectors.
fn rows(call: &Call<'_>) -> Result<Tensor> {
    ops::flatten(&at_least_one(call)?, 1, -1)
}

fn flat(call: &Call<'_>, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Outs> {
    one(f(&rows(call)?)?, 0)
}

pub(crate) fn prod(call: &Call<'_>) -> Result<Outs> {
    flat(call, |x| ops::prod_dim(x, 1, false, call.dtype(1)))
}

pub(crate) fn median(call: &Call<'_>) -> Result<Outs> {
    flat(call, |x| Ok(ops::median_dim(x, 1, false)?.0))
}

pub(crate) fn nanmedian(call: &Call<'_>) -> Result<Outs> {
    flat(call, |x| Ok(ops::nanmedian_dim(x, 1, false)?.0))
}

pub(crate) fn norm(call: &Call<'_>) -> Result<Outs> {
    let values: [Value; 4] =
        [rows(call)?.into(), call.plain(1), Value::Ints(smallvec::smallvec![SymInt::from(1)]), false.into()];
    Ok(all(dispatch::call(Op::NORM_SCALAROPT_DIM, &values)?, Some(0)))
}

/// One optional dimension, then maybe `keepdim`: without a dimension a sample counts as a vector.
pub(crate) fn maybe_dim(call: &Call<'_>) -> Result<Outs> {
    let b = call.tensor(0)?;
    let mut values = call.values(|b| Ok(b.value.clone()))?;
    let keepdim = call.bool(2);
    let ones = match call.int(1) {
        Some(d) => {
            values[0] = at_least_one(call)?.into();
            values[1] = (wrap_dim("vmap", d, b.ndim())? as i64 + 1).into();
            None
        }
        None => {
            values[0] = rows(call)?.into();
            values[1] = 1i64.into();
            if values.len() > 2 {
                values[2] = false.into();
            }
            keepdim.then(|| super::with_batch(call.size, &vec![1; b.ndim()]))
        }
    };
    let outs = dispatch::call(call.op, &values)?;
    outs.into_iter()
        .map(|v| {
            let value = match (v, &ones) {
                (Value::Tensor(t), Some(sizes)) => Value::Tensor(ops::reshape(&t, sizes)?),
                (Value::Tensor(t), None) if b.ndim() == 0 && t.ndim() == 2 => Value::Tensor(ops::squeeze_dim(&t, 1)?),
                (other, _) => other,
            };
            Ok(Out { value, dim: Some(0) })
        })
        .collect()
}

pub(crate) fn trace(call: &Call<'_>) -> Result<Outs> {
    let diagonal = ops::diagonal(&call.tensor(0)?.front()?, 0, 1, 2)?;
    one(ops::sum_dim(&diagonal, Some(&[1]), false, None)?, 0)
}

pub(crate) fn equal(_: &Call<'_>) -> Result<Outs> {
    Err(crate::ErrorKind::BatchedData { op: "equal" }.into())
}
