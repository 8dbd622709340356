//! Random ops: an error, the same values for every sample, or different ones.

use super::{Call, Out, Outs, all};
use crate::dispatch::{self, Op, Value};
use crate::func::vmap::Randomness;
use crate::sym::SymInt;
use crate::{ErrorKind, Result, ops};
use smallvec::smallvec;

/// Where a factory has its sizes.
fn sizes_at(op: Op) -> Option<usize> {
    op.schema().position("size")
}

pub(super) fn run(call: &Call<'_>) -> Result<Outs> {
    let name = call.op.name();
    match call.randomness {
        Randomness::Error => Err(ErrorKind::VmapRandomness { op: name.to_string() }.into()),
        Randomness::Same => same(call),
        Randomness::Different => {
            let mut values = call.full()?;
            if let Some(k) = sizes_at(call.op) {
                let sizes = call.ints(k).unwrap_or_default();
                values[k] = Value::Ints(std::iter::once(call.size as i64).chain(sizes).map(SymInt::from).collect());
            } else if call.opt_tensor(0).is_none() || call.op == Op::MULTINOMIAL {
                // A permutation, or draws from rows: each sample on its own.
                return each(call);
            }
            Ok(all(dispatch::call(call.op, &values)?, Some(0)))
        }
    }
}

/// One draw for all. What depends on a batched tensor draws for one sample and applies to each.
fn same(call: &Call<'_>) -> Result<Outs> {
    let Some(b) = call.opt_tensor(0).filter(|b| b.dim.is_some()) else {
        let values = call.values(|b| Ok(b.value.clone()))?;
        return Ok(all(dispatch::call(call.op, &values)?, None));
    };
    match call.op.name() {
        "aten::native_dropout" => {
            let x = b.front()?;
            let (p, train) = (float(call, 1), !matches!(call.plain(2), Value::Bool(false)));
            if !train {
                let kept = ops::ones_like(&x, Some(crate::DType::Bool), None, None)?;
                return Ok(smallvec![Out { value: x.into(), dim: Some(0) }, Out { value: kept.into(), dim: Some(0) }]);
            }
            let sample = ops::new_empty(&x, &x.sym_sizes()[1..], None, None)?;
            let mask = ops::to_dtype(&ops::bernoulli_p(&sample, 1.0 - p)?, crate::DType::Bool, false, false, None)?;
            let mask = ops::formulas::expand_to(&mask, x.shape())?;
            let scale = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
            let kept = ops::mul_scalar(&ops::mul(&x, &mask)?, scale.into())?;
            Ok(smallvec![Out { value: kept.into(), dim: Some(0) }, Out { value: mask.into(), dim: Some(0) }])
        }
        "aten::bernoulli" => {
            let x = b.front()?;
            let uniform = ops::new_empty(&x, &x.sym_sizes()[1..], None, None)?;
            let uniform = ops::rand_like(&uniform, None, None, None)?;
            let drawn = ops::formulas::cast(&ops::lt(&uniform, &x)?, x.dtype())?;
            Ok(smallvec![Out { value: drawn.into(), dim: Some(0) }])
        }
        "aten::multinomial" => Err(ErrorKind::Vmap {
            message: "multinomial of batched weights cannot draw the same for all; use Randomness::Different".into(),
        }
        .into()),
        "aten::rand_like"
        | "aten::randn_like"
        | "aten::randint_like"
        | "aten::randint_like.low_dtype"
        | "aten::bernoulli.p" => {
            // The numbers depend on the tensor's shape only.
            let x = b.front()?;
            let mut values = call.values(|b| Ok(b.value.clone()))?;
            values[0] = ops::new_empty(&x, &x.sym_sizes()[1..], None, None)?.into();
            Ok(all(dispatch::call(call.op, &values)?, None))
        }
        name => Err(ErrorKind::Vmap {
            message: format!("{name} of batched parameters cannot draw the same for all; use Randomness::Different"),
        }
        .into()),
    }
}

fn float(call: &Call<'_>, k: usize) -> f64 {
    match call.plain(k) {
        Value::Float(f) => f,
        Value::Scalar(s) => s.to_f64(),
        _ => 0.0,
    }
}

/// A draw for each sample, stacked.
fn each(call: &Call<'_>) -> Result<Outs> {
    let mut rows = Vec::with_capacity(call.size);
    for k in 0..call.size {
        let values = call.values(|b| match b.dim {
            Some(d) => ops::select(&b.value, d as i64, k.into()),
            None => Ok(b.value.clone()),
        })?;
        rows.push(dispatch::one_tensor(dispatch::call(call.op, &values)?)?);
    }
    super::one(ops::stack(&rows, 0)?, 0)
}
