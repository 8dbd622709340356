//! Ops that take dimensions: the batch goes in front and every dimension is shifted by one.

use super::{Call, Out, Outs};
use crate::dispatch::{self, Op, Value};
use crate::ops::shape::wrap_dim;
use crate::sym::SymInt;
use crate::{Result, Tensor, ops};
use smallvec::smallvec;

/// A dimension of a sample as one of the tensor with the batch in front. A sample of no dimensions counts as one.
fn shifted(dim: i64, ndim: usize) -> Result<i64> {
    Ok(wrap_dim("vmap", dim, ndim)? as i64 + 1)
}

pub(super) fn run(call: &Call<'_>, sizes: Option<usize>, dims: &[usize]) -> Result<Outs> {
    // Dimensions are those of the widest sample: index and source may be numbers where it is a vector of one.
    let ndim = match sizes {
        Some(k) => call.ints(k).map_or(0, |s| s.len()),
        None => call.tensor(0)?.ndim(),
    };
    let flat = ndim == 0 && !dims.is_empty();
    if flat && call.op == Op::TRANSPOSE_INT {
        // There is nothing to swap: the samples are what they were.
        dims.iter().try_for_each(|&k| shifted(call.int(k).unwrap_or(0), 1).map(drop))?;
        let b = call.tensor(0)?;
        return Ok(smallvec![Out { value: b.value.clone().into(), dim: b.dim }]);
    }
    let mut values = call.values(|b| {
        let t = b.full(call.size)?;
        if flat && b.ndim() == 0 { ops::unsqueeze(&t, 1) } else { Ok(t) }
    })?;
    for &k in dims {
        let default = matches!(call.plain(k), Value::None);
        let shift = |d: i64| shifted(d, ndim.max(1));
        values[k] = match &values[k] {
            Value::Ints(list) => {
                let list = list.iter().map(|d| shift(d.int()).map(SymInt::from)).collect::<Result<_>>()?;
                Value::Ints(list)
            }
            _ if default => shift(-1)?.into(),
            _ => shift(call.int(k).unwrap_or(0))?.into(),
        };
    }
    if let Some(k) = sizes {
        let list = call.ints(k).unwrap_or_default();
        let list = std::iter::once(call.size as i64).chain(list).map(SymInt::from).collect();
        values[k] = Value::Ints(list);
    }
    // Windows of a number are vectors.
    let kept = if call.op == Op::UNFOLD { 3 } else { 2 };
    let down = |t: Tensor| if flat && t.ndim() == kept { ops::squeeze_dim(&t, 1) } else { Ok(t) };
    dispatch::call(call.op, &values)?
        .into_iter()
        .map(|v| {
            let value = match v {
                Value::Tensor(t) => Value::Tensor(down(t)?),
                other => other,
            };
            Ok(Out { value, dim: Some(0) })
        })
        .collect()
}
