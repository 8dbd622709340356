//! Ops that name dimensions: the batch goes in front and every dimension counts one up.

use super::{Call, Out, Outs, Rule};
use crate::dispatch::{self, Op, Value};
use crate::ops::shape::wrap_dim;
use crate::sym::SymInt;
use crate::{Result, Tensor, ops};

/// Which arguments of an op name dimensions of its tensors, and where sizes of a sample are given.
pub(super) fn rule(name: &str) -> Option<Rule> {
    use Rule::{Along, Sized};
    Some(match name {
        "cumsum"
        | "cumprod"
        | "cummax"
        | "cummin"
        | "logcumsumexp"
        | "_softmax"
        | "_log_softmax"
        | "_safe_softmax"
        | "glu"
        | "sort"
        | "flip"
        | "max.dim"
        | "min.dim"
        | "any.dim"
        | "all.dim"
        | "prod.dim_int"
        | "median.dim"
        | "nanmedian.dim"
        | "mode"
        | "logsumexp"
        | "gather"
        | "scatter.src"
        | "scatter.value"
        | "scatter_add"
        | "scatter_reduce.two"
        | "count_nonzero.dim_IntList"
        | "unfold"
        | "squeeze.dim"
        | "squeeze.dims"
        | "select.int"
        | "slice.Tensor"
        | "unbind.int"
        | "_fft_c2c"
        | "_fft_r2c"
        | "_fft_c2r" => Along(&[1]),
        "sort.stable"
        | "topk"
        | "kthvalue"
        | "_softmax_backward_data"
        | "_log_softmax_backward_data"
        | "glu_backward"
        | "split.Tensor"
        | "split_with_sizes"
        | "unsafe_split.Tensor"
        | "norm.ScalarOpt_dim"
        | "slice_scatter"
        | "select_scatter" => Along(&[2]),
        "transpose.int" => Along(&[1, 2]),
        "diagonal" => Along(&[2, 3]),
        "diagonal_scatter" => Along(&[3, 4]),
        "tril" | "triu" | "constant_pad_nd" | "view_as_real" => Along(&[]),
        "slice_backward" | "select_backward" | "unfold_backward" => Sized(1, &[2]),
        "diagonal_backward" => Sized(1, &[3, 4]),
        _ => return None,
    })
}

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
