//! Reductions: over the dimensions asked for, or over all of a sample, never over the batch.

use super::{Call, Out, Outs, Rule, all, one};
use crate::dispatch::{self, Op, Value};
use crate::ops::shape::wrap_dim;
use crate::sym::SymInt;
use crate::{Error, Result, Tensor, ops};

pub(super) fn rule(name: &str) -> Option<Rule> {
    use Rule::Own;
    Some(match name {
        "sum" => Own(|c| over_all(c, "aten::sum.dim_IntList", &[1], &[2, 3])),
        "mean" => Own(|c| over_all(c, "aten::mean.dim", &[1], &[2, 3])),
        "any" => Own(|c| over_all(c, "aten::any.dims", &[], &[])),
        "all" => Own(|c| over_all(c, "aten::all.dims", &[], &[])),
        "max" => Own(|c| over_all(c, "aten::amax", &[], &[])),
        "min" => Own(|c| over_all(c, "aten::amin", &[], &[])),
        "sum.dim_IntList"
        | "mean.dim"
        | "nansum"
        | "amax"
        | "amin"
        | "any.dims"
        | "all.dims"
        | "var.correction"
        | "std.correction"
        | "var_mean.correction"
        | "std_mean.correction" => Own(|c| dims(c, 1)),
        "linalg_vector_norm" => Own(|c| dims(c, 2)),
        "prod" => Own(|c| flat(c, |x| ops::prod_dim(x, 1, false, c.dtype(1)))),
        "median" => Own(|c| flat(c, |x| Ok(ops::median_dim(x, 1, false)?.0))),
        "nanmedian" => Own(|c| flat(c, |x| Ok(ops::nanmedian_dim(x, 1, false)?.0))),
        "norm.Scalar" => Own(norm),
        "argmax" | "argmin" | "aminmax" | "count_nonzero" => Own(maybe_dim),
        "trace" => Own(trace),
        "equal" => Own(equal),
        _ => return None,
    })
}

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

/// A reduction of everything by its form with dimensions. `from` are arguments to hand on, `to` where they go.
fn over_all(call: &Call<'_>, with_dims: &str, from: &[usize], to: &[usize]) -> Result<Outs> {
    let op = Op::from_name(with_dims).ok_or_else(|| Error::argument("vmap", format!("no op {with_dims}")))?;
    let mut values: Vec<Value> = vec![at_least_one(call)?.into(), every(call.tensor(0)?.ndim())];
    if let (Some(&k), Some(&at)) = (from.first(), to.last()) {
        values.push(Value::Bool(false));
        values.resize(at, Value::None);
        values.push(call.plain(k));
    }
    Ok(all(dispatch::call(op, &values)?, Some(0)))
}

/// A reduction over a list of dimensions at argument `k`; none or an empty list means all.
fn dims(call: &Call<'_>, k: usize) -> Result<Outs> {
    let b = call.tensor(0)?;
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

fn norm(call: &Call<'_>) -> Result<Outs> {
    let values: [Value; 4] =
        [rows(call)?.into(), call.plain(1), Value::Ints(smallvec::smallvec![SymInt::from(1)]), false.into()];
    Ok(all(dispatch::call(Op::NORM_SCALAROPT_DIM, &values)?, Some(0)))
}

/// One optional dimension, then maybe `keepdim`: without a dimension a sample counts as a vector.
fn maybe_dim(call: &Call<'_>) -> Result<Outs> {
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

fn trace(call: &Call<'_>) -> Result<Outs> {
    let diagonal = ops::diagonal(&call.tensor(0)?.front()?, 0, 1, 2)?;
    one(ops::sum_dim(&diagonal, Some(&[1]), false, None)?, 0)
}

fn equal(_: &Call<'_>) -> Result<Outs> {
    Err(crate::ErrorKind::BatchedData { op: "equal" }.into())
}
