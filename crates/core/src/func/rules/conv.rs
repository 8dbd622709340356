//! Convolutions: a batch of images joins the images; a batch of filters becomes groups.

use super::merge::{fold, unfold};
use super::{Batched, Call, Out, Outs, one};
use crate::dispatch::{self, Op, Value};
use crate::sym::{SymInt, SymInts};
use crate::{Result, Tensor, ops};
use smallvec::{SmallVec, smallvec};

const GROUPS: usize = 8;

/// `[B, N, C, ..]` as `[N, B*C, ..]`.
pub(super) fn into_channels(t: &Tensor) -> Result<Tensor> {
    ops::flatten(&ops::movedim(t, 0, 1)?, 1, 2)
}

/// `[N, B*C, ..]` with the batch of its own at dimension 1.
pub(super) fn from_channels(t: &Tensor, size: usize) -> Result<Tensor> {
    ops::unflatten(t, 1, &[SymInt::from(size), SymInt::from(-1)])
}

/// The plain arguments of the op with as many groups more as the batch has samples.
fn grouped(call: &Call<'_>, groups: usize) -> SmallVec<[Value; 6]> {
    let mut values: SmallVec<[Value; 6]> = (0..call.args.len()).map(|k| call.plain(k)).collect();
    values[groups] = (call.int(groups).unwrap_or(1) * call.size as i64).into();
    values
}

pub(crate) fn convolution(call: &Call<'_>) -> Result<Outs> {
    let (x, w, bias) = (call.tensor(0)?, call.tensor(1)?, call.opt_tensor(2));
    let size = call.size;
    let mut values = grouped(call, GROUPS);
    let (out, dim) = if w.dim.is_none() {
        values[0] = fold(&x.full(size)?)?.into();
        values[1] = w.value.clone().into();
        values[GROUPS] = call.plain(GROUPS);
        (unfold(&dispatch::one_tensor(dispatch::call(call.op, &values)?)?, size)?, 0)
    } else if x.dim.is_none() && call.int(GROUPS) == Some(1) && !call.bool(6) {
        // One input, many filters: just more filters.
        values[0] = x.value.clone().into();
        values[1] = fold(&w.front()?)?.into();
        values[GROUPS] = call.plain(GROUPS);
        (from_channels(&dispatch::one_tensor(dispatch::call(call.op, &values)?)?, size)?, 1)
    } else {
        values[0] = into_channels(&x.full(size)?)?.into();
        values[1] = fold(&w.full(size)?)?.into();
        (from_channels(&dispatch::one_tensor(dispatch::call(call.op, &values)?)?, size)?, 1)
    };
    let Some(bias) = bias else { return one(out, dim) };
    one(ops::add(&out, &shaped_bias(bias, dim, out.ndim())?, 1i64.into())?, dim)
}

/// A bias that broadcasts to an output of `ndim` dimensions with the batch at `dim` (0 or 1) and channels at 2.
fn shaped_bias(bias: &Batched, dim: usize, ndim: usize) -> Result<Tensor> {
    let channels = bias.sizes()[0];
    let mut sizes: SymInts = smallvec![SymInt::from(1); ndim];
    sizes[2] = channels.into();
    if bias.dim.is_some() {
        sizes[dim] = bias.front()?.shape()[0].into();
    }
    ops::reshape(&bias.front()?, &sizes)
}

/// Per-sample gradients of filters are one convolution with a group a sample.
pub(crate) fn backward(call: &Call<'_>) -> Result<Outs> {
    let (g, x, w) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let size = call.size;
    let wanted: [bool; 3] = match call.plain(10) {
        Value::Bools(v) if v.len() == 3 => [v[0], v[1], v[2]],
        _ => [true; 3],
    };
    let none = || Out { value: Value::None, dim: None };
    let mut outs: Outs = smallvec![none(), none(), none()];
    let masked = |values: &mut SmallVec<[Value; 6]>, mask: [bool; 3]| -> Result<SmallVec<[Value; 3]>> {
        values[3] = Value::None;
        values[10] = Value::Bools(mask.to_vec());
        Ok(dispatch::call(Op::CONVOLUTION_BACKWARD, values)?.into_iter().collect())
    };
    let groups_at = 9;
    let grad_input_alone = wanted[0] && w.dim.is_none();
    if grad_input_alone {
        // The same filters for all: samples are more images.
        let mut values = grouped(call, groups_at);
        values[groups_at] = call.plain(groups_at);
        values[0] = fold(&g.full(size)?)?.into();
        values[1] = fold(&x.full(size)?)?.into();
        values[2] = w.value.clone().into();
        if let Some(Value::Tensor(t)) = masked(&mut values, [true, false, false])?.into_iter().next() {
            outs[0] = Out { value: unfold(&t, size)?.into(), dim: Some(0) };
        }
    }
    let rest = [wanted[0] && !grad_input_alone, wanted[1], false];
    if rest[0] || rest[1] {
        let mut values = grouped(call, groups_at);
        values[0] = into_channels(&g.full(size)?)?.into();
        values[1] = into_channels(&x.full(size)?)?.into();
        values[2] = fold(&w.full(size)?)?.into();
        let found = masked(&mut values, rest)?;
        if let (true, Some(Value::Tensor(t))) = (rest[0], found.first()) {
            outs[0] = Out { value: from_channels(t, size)?.into(), dim: Some(1) };
        }
        if let (true, Some(Value::Tensor(t))) = (rest[1], found.get(1)) {
            outs[1] = Out { value: unfold(t, size)?.into(), dim: Some(0) };
        }
    }
    if wanted[2] {
        let g = g.full(size)?;
        let dims: Vec<i64> = (1..g.ndim() as i64).filter(|&d| d != 2).collect();
        outs[2] = Out { value: ops::sum_dim(&g, Some(&dims), false, None)?.into(), dim: Some(0) };
    }
    // What was not requested is an empty tensor, as without a batch.
    for out in outs.iter_mut().filter(|o| matches!(o.value, Value::None)) {
        out.value = ops::new_zeros(&g.value, &[SymInt::from(0)], None, None)?.into();
    }
    Ok(outs)
}
