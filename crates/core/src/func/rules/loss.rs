//! Losses with a reduction inside: element by element first, then reduced over each sample.

use super::{Batched, Call, Out, Outs, all};
use crate::dispatch::{self, Value};
use crate::sym::SymInt;
use crate::{Result, Scalar, Tensor, ops};
use smallvec::{SmallVec, smallvec};

const MEAN: i64 = 1;
const SUM: i64 = 2;

/// Dimensions of the widest sample.
fn widest(call: &Call<'_>) -> usize {
    (0..call.args.len()).filter_map(|k| call.opt_tensor(k)).map(Batched::ndim).max().unwrap_or(0)
}

/// Tensors with the batch in front, aligned at the end: all have it, for losses do not broadcast everything.
fn aligned(call: &Call<'_>, ndim: usize) -> Result<SmallVec<[Value; 6]>> {
    call.values(|b| {
        let mut t = b.full(call.size)?;
        while t.ndim() < ndim + 1 {
            t = ops::unsqueeze(&t, 1)?;
        }
        Ok(t)
    })
}

fn reduced(t: &Tensor, reduction: i64) -> Result<Tensor> {
    if t.ndim() == 1 {
        return Ok(t.clone());
    }
    let dims: SmallVec<[i64; 6]> = (1..t.ndim() as i64).collect();
    match reduction {
        MEAN => ops::mean_dim(t, Some(&dims), false, None),
        SUM => ops::sum_dim(t, Some(&dims), false, None),
        _ => Ok(t.clone()),
    }
}

pub(crate) fn forward(call: &Call<'_>) -> Result<Outs> {
    let (ndim, reduction) = (widest(call), call.position("reduction")?);
    let mut values = aligned(call, ndim)?;
    values[reduction] = 0i64.into();
    let each = dispatch::one_tensor(dispatch::call(call.op, &values)?)?;
    super::one(reduced(&each, call.int(reduction).unwrap_or(MEAN))?, 0)
}

pub(crate) fn backward(call: &Call<'_>) -> Result<Outs> {
    let (ndim, reduction) = (widest(call), call.position("reduction")?);
    let mut values = aligned(call, ndim)?;
    values[reduction] = 0i64.into();
    if call.int(reduction).unwrap_or(MEAN) == MEAN
        && let Value::Tensor(g) = &values[0]
    {
        let n: usize = call.tensor(1)?.sizes().iter().product();
        values[0] = ops::div_scalar(g, Scalar::Int(n.max(1) as i64))?.into();
    }
    Ok(all(dispatch::call(call.op, &values)?, Some(0)))
}

/// What both directions of the negative log likelihood need: weights of the targets (zero where ignored), safe targets.
struct Nll {
    /// `[B, .., C, ..]`
    input: Tensor,
    /// Where the classes are.
    class: i64,
    /// Targets with a class dimension of one, ignored ones replaced.
    target: Tensor,
    weight: Tensor,
}

/// Arguments as forward has them from `at` on: input, target, weight, reduction, `ignore_index`.
fn prepare(call: &Call<'_>, at: usize) -> Result<Nll> {
    let input = call.tensor(at)?.full(call.size)?;
    let class = if call.tensor(at)?.ndim() == 1 { 1 } else { 2 };
    let target = ops::unsqueeze(&call.tensor(at + 1)?.full(call.size)?, class)?;
    let ignore = call.int(at + 4).unwrap_or(-100);
    let kept = ops::ne_scalar(&target, Scalar::Int(ignore))?;
    let target = ops::mul(&target, &kept)?;
    let kept = ops::formulas::cast(&kept, input.dtype())?;
    let weight = match call.opt_tensor(at + 2) {
        None => kept,
        Some(w) => {
            // [B, C] -> [B, 1.., C, 1..], repeated to the input's shape.
            let mut sizes = vec![1usize; input.ndim()];
            sizes[class as usize] = w.sizes()[0];
            let mut w = w.front()?;
            if call.opt_tensor(at + 2).is_some_and(|w| w.dim.is_some()) {
                sizes[0] = call.size;
            }
            w = ops::reshape(&w, &ops::formulas::sym(&sizes))?;
            let w = ops::formulas::expand_to(&w, input.shape())?;
            ops::mul(&ops::gather(&w, class, &target, false)?, &kept)?
        }
    };
    Ok(Nll { input, class, target, weight })
}

pub(crate) fn nll(call: &Call<'_>) -> Result<Outs> {
    let n = prepare(call, 0)?;
    let reduction = call.int(3).unwrap_or(MEAN);
    let picked = ops::gather(&n.input, n.class, &n.target, false)?;
    let each = ops::squeeze_dim(&ops::neg(&ops::mul(&picked, &n.weight)?)?, n.class)?;
    let weights = ops::squeeze_dim(&n.weight, n.class)?;
    let total = reduced(&weights, SUM)?;
    let (loss, total) = match reduction {
        MEAN => (ops::div(&reduced(&each, SUM)?, &total)?, total),
        SUM => (reduced(&each, SUM)?, total),
        // Nothing divides by it then: zero, as without a batch.
        _ => (each, ops::new_zeros(&weights, &[call.size.into()], None, None)?),
    };
    let out = |t: Tensor| Out { value: Value::Tensor(t), dim: Some(0) };
    Ok(smallvec![out(loss), out(total)])
}

pub(crate) fn nll_backward(call: &Call<'_>) -> Result<Outs> {
    let n = prepare(call, 1)?;
    let reduction = call.int(4).unwrap_or(MEAN);
    let g = call.tensor(0)?;
    let mut scale = g.full(call.size)?;
    if reduction == MEAN {
        scale = ops::div(&scale, &call.tensor(6)?.full(call.size)?)?;
    }
    let scale = if reduction == MEAN || reduction == SUM {
        let ones: Vec<SymInt> =
            std::iter::once(call.size).chain(vec![1; n.input.ndim() - 1]).map(SymInt::from).collect();
        ops::reshape(&scale, &ones)?
    } else {
        ops::unsqueeze(&scale, n.class)?
    };
    let source = ops::neg(&ops::mul(&scale, &n.weight)?)?;
    let source = ops::formulas::expand_to(&source, n.target.shape())?;
    let zeros = ops::zeros_like(&n.input, None, None, None)?;
    super::one(ops::scatter(&zeros, n.class, &n.target, &source)?, 0)
}
