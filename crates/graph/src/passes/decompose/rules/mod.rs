//! Rules: what an op is made of, in ops that PyTorch's export keeps (`golden/core_aten.json`).
//!
//! A rule gives the same numbers up to rounding. An op without a rule stays as it is.

mod backward;
mod elementwise;
mod indexing;
mod resize;

use super::emit::Emit;
use firebrand_core::dispatch::{Args, Outputs, Value};
use firebrand_core::{DType, Error, Result, Scalar, Tensor};
use smallvec::smallvec;
use std::f64::consts::{LN_2, PI};

/// Ops of one result.
type Family = fn(&Emit<'_>, &str, &Args<'_>) -> Result<Option<Tensor>>;
const FAMILIES: [Family; 9] = [
    views,
    creation,
    pointwise,
    reductions,
    losses,
    elementwise::apply,
    indexing::apply,
    resize::apply,
    backward::apply,
];

/// The results of an op by its rule; none if it has none.
pub(super) fn apply(e: &Emit<'_>, op: &str, a: &Args<'_>) -> Result<Option<Outputs>> {
    let Some(name) = op.strip_prefix("aten::") else { return Ok(None) };
    for family in FAMILIES {
        if let Some(t) = family(e, name, a)? {
            return Ok(Some(smallvec![Value::Tensor(t)]));
        }
    }
    match several(e, name, a)? {
        Some(outputs) => Ok(Some(outputs)),
        None => backward::several(e, name, a),
    }
}

/// A dimension counted from the front.
fn wrap(dim: i64, ndim: usize) -> i64 {
    if dim < 0 { dim + ndim.max(1) as i64 } else { dim }
}

fn views(e: &Emit<'_>, name: &str, a: &Args<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match name {
        "t" => {
            let x = a.tensor(0, "self")?;
            if x.ndim() < 2 { e.unary("alias", x)? } else { e.permute(x, &[1, 0])? }
        }
        "transpose.int" => {
            let x = a.tensor(0, "self")?;
            let mut order: Vec<i64> = (0..x.ndim() as i64).collect();
            if order.is_empty() {
                return Ok(Some(e.unary("alias", x)?));
            }
            let [i, j] = [a.int(1, "dim0")?, a.int(2, "dim1")?].map(|d| wrap(d, x.ndim()) as usize);
            order.swap(i, j);
            e.permute(x, &order)?
        }
        "squeeze" => {
            let x = a.tensor(0, "self")?;
            let ones: Vec<i64> = (0..x.ndim()).filter(|&d| x.shape()[d] == 1).map(|d| d as i64).collect();
            e.op("squeeze.dims", &[x.into(), ones[..].into()])?
        }
        "squeeze.dim" => e.op("squeeze.dims", &[a.tensor(0, "self")?.into(), [a.int(1, "dim")?][..].into()])?,
        "_unsafe_view" => e.op("view", a.values())?,
        "detach" => e.unary("alias", a.tensor(0, "self")?)?,
        "stack" => {
            let (tensors, dim) = (a.tensors(0, "tensors")?, a.opt_int(1, "dim")?.unwrap_or(0));
            let ndim = tensors.first().map_or(0, Tensor::ndim) + 1;
            let dim = wrap(dim, ndim);
            let rows = tensors.iter().map(|t| e.op("unsqueeze", &[t.into(), dim.into()]));
            e.op("cat", &[rows.collect::<Result<Vec<_>>>()?.into(), dim.into()])?
        }
        _ => return Ok(None),
    }))
}

/// Ops with several results.
fn several(e: &Emit<'_>, name: &str, a: &Args<'_>) -> Result<Option<Outputs>> {
    let x = a.tensor(0, "self");
    Ok(Some(match name {
        "split.Tensor" | "unsafe_split.Tensor" => {
            let (x, size, dim) = (x?, a.int(1, "split_size")?, a.opt_int(2, "dim")?.unwrap_or(0));
            let total = x.shape().get(wrap(dim, x.ndim()) as usize).map_or(1, |&n| n as i64);
            let whole = if size > 0 { total / size } else { 0 };
            let mut parts = vec![size; whole as usize];
            if total == 0 || (size > 0 && total % size > 0) {
                parts.push(total - whole * size);
            }
            e.all("split_with_sizes", &[x.into(), parts[..].into(), dim.into()])?
        }
        "unbind.int" => {
            let (x, dim) = (x?, a.opt_int(1, "dim")?.unwrap_or(0));
            let count = x.shape().get(wrap(dim, x.ndim()) as usize).copied().unwrap_or(0);
            let rows = (0..count as i64).map(|i| e.op("select.int", &[x.into(), dim.into(), i.into()]));
            smallvec![Value::Tensors(rows.collect::<Result<Vec<_>>>()?)]
        }
        "aminmax" => {
            let (x, keep) = (x?, a.opt_bool(2, "keepdim")?.unwrap_or(false));
            let dims: Vec<i64> = a.opt_int(1, "dim")?.into_iter().collect();
            let one = |name: &str| e.op(name, &[x.into(), dims[..].into(), keep.into()]).map(Value::Tensor);
            smallvec![one("amin")?, one("amax")?]
        }
        "std_mean.correction" => {
            let args = a.values();
            let mean = e.op("mean.dim", &[x?.into(), dims_of(a, 1)?[..].into(), a.opt_bool(3, "keepdim")?.into()])?;
            let variance = e.op("var.correction", args)?;
            smallvec![Value::Tensor(e.unary("sqrt", &variance)?), Value::Tensor(mean)]
        }
        "nll_loss_forward" | "nll_loss2d_forward" => {
            let (loss, weight) = nll_loss(e, a)?;
            smallvec![Value::Tensor(loss), Value::Tensor(weight)]
        }
        "log_sigmoid_forward" => {
            let x = x?;
            let rest = e.unary("exp", &e.unary("neg", &e.unary("abs", x)?)?)?;
            let zero = e.scalar_tensor(0.0, x)?;
            let y = e.sub(&e.op("minimum", &[(&zero).into(), x.into()])?, &e.unary("log1p", &rest)?)?;
            // The second result is scratch space of its derivative.
            smallvec![Value::Tensor(y), Value::Tensor(rest)]
        }
        _ => return Ok(None),
    }))
}

/// The dimensions of a reduction; none given means all.
fn dims_of(a: &Args<'_>, k: usize) -> Result<Vec<i64>> {
    Ok(a.opt_ints(k, "dim")?.unwrap_or_default())
}

fn creation(e: &Emit<'_>, name: &str, a: &Args<'_>) -> Result<Option<Tensor>> {
    let given = |k: usize| a.values().get(k).cloned().unwrap_or(Value::None);
    let full = |size: Value, value: Scalar, rest: [Value; 4]| {
        let [dtype, layout, device, pin] = rest;
        let dtype = if matches!(dtype, Value::None) { DType::F32.into() } else { dtype };
        e.op("full", &[size, value.into(), dtype, layout, device, pin])
    };
    let like = |x: &Tensor, value: Scalar| {
        let mut args = vec![x.into(), value.into()];
        args.extend((1..6).map(given));
        e.op("full_like", &args)
    };
    let new = |value: Scalar, from: usize| {
        let x = a.tensor(0, "self")?;
        let dtype = if a.is_none(from) { x.dtype().into() } else { given(from) };
        let device = if a.is_none(from + 2) { x.device().into() } else { given(from + 2) };
        full(given(1), value, [dtype, given(from + 1), device, given(from + 3)])
    };
    Ok(Some(match name {
        "zeros" => full(given(0), 0.into(), [1, 2, 3, 4].map(given))?,
        "ones" => full(given(0), 1.into(), [1, 2, 3, 4].map(given))?,
        "zeros_like" => like(a.tensor(0, "self")?, 0.into())?,
        "ones_like" => like(a.tensor(0, "self")?, 1.into())?,
        "new_zeros" => new(0.into(), 2)?,
        "new_ones" => new(1.into(), 2)?,
        "new_full" => new(a.scalar(2, "fill_value")?, 3)?,
        "arange" => {
            let mut args = vec![Scalar::Int(0).into(), a.scalar(0, "end")?.into(), Scalar::Int(1).into()];
            args.extend((1..5).map(given));
            e.op("arange.start_step", &args)?
        }
        "arange.start" => {
            let mut args = vec![a.scalar(0, "start")?.into(), a.scalar(1, "end")?.into(), Scalar::Int(1).into()];
            args.extend((2..6).map(given));
            e.op("arange.start_step", &args)?
        }
        _ => return Ok(None),
    }))
}

fn pointwise(e: &Emit<'_>, name: &str, a: &Args<'_>) -> Result<Option<Tensor>> {
    let x = || a.tensor(0, "self");
    let y = || a.tensor(1, "other");
    let scalar = |k: usize, default: f64| Ok::<_, Error>(a.opt_scalar(k, "value")?.unwrap_or(Scalar::Float(default)));
    let scaled = |t: &Tensor, s: Scalar| if s.to_f64() == 1.0 { Ok(t.clone()) } else { e.mul(t, &e.number(s)?) };
    Ok(Some(match name {
        "rsub.Tensor" => e.op("sub.Tensor", &[y()?.into(), x()?.into(), scalar(2, 1.0)?.into()])?,
        "rsub.Scalar" => {
            let number = e.number(a.scalar(1, "other")?)?;
            e.op("sub.Tensor", &[number.into(), x()?.into(), scalar(2, 1.0)?.into()])?
        }
        "floor_divide" => e.op("div.Tensor_mode", &[x()?.into(), y()?.into(), "floor".into()])?,
        "addcmul" => {
            let product = e.mul(y()?, a.tensor(2, "tensor2")?)?;
            e.add(x()?, &scaled(&product, scalar(3, 1.0)?)?)?
        }
        "addcdiv" => {
            let quotient = e.div(y()?, a.tensor(2, "tensor2")?)?;
            e.add(x()?, &scaled(&quotient, scalar(3, 1.0)?)?)?
        }
        "lerp.Scalar" => {
            let (start, end, w) = (x()?, y()?, a.scalar(2, "weight")?.to_f64());
            let way = e.sub(end, start)?;
            // From the nearer end, so that the ends themselves are exact.
            if w.abs() < 0.5 {
                e.add(start, &e.mul(&way, &e.number(w)?)?)?
            } else {
                e.sub(end, &e.mul(&way, &e.number(1.0 - w)?)?)?
            }
        }
        "sgn" if x()?.is_complex() => {
            let size = e.unary("abs", x()?)?;
            let zero = e.compare("eq.Scalar", &size, 0)?;
            e.choose(&zero, &e.scalar_tensor(0, x()?)?, &e.div(x()?, &size)?)?
        }
        "sgn" => e.unary("sign", x()?)?,
        "frac" => e.sub(x()?, &e.unary("trunc", x()?)?)?,
        "deg2rad" => e.mul(x()?, &e.number(PI / 180.0)?)?,
        "rad2deg" => e.mul(x()?, &e.number(180.0 / PI)?)?,
        "isposinf" => e.compare("eq.Scalar", x()?, f64::INFINITY)?,
        "isneginf" => e.compare("eq.Scalar", x()?, f64::NEG_INFINITY)?,
        "clamp_min" => e.op("clamp", &[x()?.into(), a.scalar(1, "min")?.into()])?,
        "clamp_max" => e.op("clamp", &[x()?.into(), Value::None, a.scalar(1, "max")?.into()])?,
        "clamp_min.Tensor" => e.op("clamp.Tensor", &[x()?.into(), y()?.into()])?,
        "clamp_max.Tensor" => e.op("clamp.Tensor", &[x()?.into(), Value::None, y()?.into()])?,
        "silu" => e.mul(x()?, &e.unary("sigmoid", x()?)?)?,
        "softplus" => softplus(e, x()?, scalar(1, 1.0)?.to_f64(), scalar(2, 20.0)?.to_f64())?,
        "mish" => e.mul(x()?, &e.unary("tanh", &softplus(e, x()?, 1.0, 20.0)?)?)?,
        "hardsigmoid" => hard_sigmoid(e, x()?)?,
        "hardswish" => e.mul(x()?, &hard_sigmoid(e, x()?)?)?,
        "celu" => {
            let (x, alpha) = (x()?, scalar(1, 1.0)?.to_f64());
            let below = e.mul(&e.unary("expm1", &e.div(x, &e.number(alpha)?)?)?, &e.number(alpha)?)?;
            e.choose(&e.compare("gt.Scalar", x, 0)?, x, &below)?
        }
        "hardshrink" => {
            let (x, bound) = (x()?, scalar(1, 0.5)?);
            let small = e.compare("le.Scalar", &e.unary("abs", x)?, bound)?;
            e.choose(&small, &e.scalar_tensor(0, x)?, x)?
        }
        "threshold" => {
            let (x, bound, value) = (x()?, a.scalar(1, "threshold")?, a.scalar(2, "value")?);
            e.choose(&e.compare("le.Scalar", x, bound)?, &e.scalar_tensor(value, x)?, x)?
        }
        "_prelu_kernel" => e.choose(&e.compare("gt.Scalar", x()?, 0)?, x()?, &e.mul(a.tensor(1, "weight")?, x()?)?)?,
        "glu" => {
            let (x, dim) = (x()?, a.opt_int(1, "dim")?.unwrap_or(-1));
            let half = x.shape().get(wrap(dim, x.ndim()) as usize).copied().unwrap_or(0) as i64 / 2;
            let part = |from: i64| e.op("slice.Tensor", &[x.into(), dim.into(), from.into(), (from + half).into()]);
            e.mul(&part(0)?, &e.unary("sigmoid", &part(half)?)?)?
        }
        "logaddexp" | "logaddexp2" => {
            // log(eᵃ + eᵇ) = max + log1p(e^-|a-b|), to base 2 alike.
            let (a, b) = (x()?, y()?);
            let apart = e.unary("neg", &e.unary("abs", &e.sub(a, b)?)?)?;
            let apart = if name == "logaddexp2" { e.mul(&apart, &e.number(LN_2)?)? } else { apart };
            let rest = e.unary("log1p", &e.unary("exp", &apart)?)?;
            let rest = if name == "logaddexp2" { e.div(&rest, &e.number(LN_2)?)? } else { rest };
            let sum = e.add(&e.op("maximum", &[a.into(), b.into()])?, &rest)?;
            // Equal infinities have no distance.
            let same = e.op("eq.Tensor", &[a.into(), b.into()])?;
            let infinite = e.op("logical_and", &[e.unary("isinf", a)?.into(), same.into()])?;
            e.choose(&infinite, a, &sum)?
        }
        "masked_fill.Scalar" => {
            let value = e.scalar_tensor(a.scalar(2, "value")?, x()?)?;
            e.choose(a.tensor(1, "mask")?, &value, x()?)?
        }
        "masked_fill.Tensor" => e.choose(a.tensor(1, "mask")?, a.tensor(2, "value")?, x()?)?,
        "fill.Tensor" => e.op("copy", &[x()?.into(), a.tensor(1, "value")?.into()])?,
        _ => return Ok(None),
    }))
}

/// `log(1 + e^(βx)) / β`, linear where that overflows.
fn softplus(e: &Emit<'_>, x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    let scaled = e.mul(x, &e.number(beta)?)?;
    // What is not taken must not overflow: its gradient would be nothing times infinity.
    let bounded = e.op("clamp", &[(&scaled).into(), Value::None, Scalar::Float(threshold).into()])?;
    let curved = e.div(&e.unary("log1p", &e.unary("exp", &bounded)?)?, &e.number(beta)?)?;
    e.choose(&e.compare("gt.Scalar", &scaled, threshold)?, x, &curved)
}

/// `clamp(x + 3, 0, 6) / 6`
fn hard_sigmoid(e: &Emit<'_>, x: &Tensor) -> Result<Tensor> {
    let shifted = e.add(x, &e.number(3)?)?;
    let clamped = e.op("clamp", &[shifted.into(), Scalar::Int(0).into(), Scalar::Int(6).into()])?;
    e.div(&clamped, &e.number(6)?)
}

/// That not any is, in the type that `x` asks for: bytes stay bytes.
fn as_truth(e: &Emit<'_>, any: &Tensor, x: &Tensor) -> Result<Tensor> {
    let all = e.unary("logical_not", any)?;
    if x.dtype() == DType::U8 { e.cast(&all, DType::U8) } else { Ok(all) }
}

fn reductions(e: &Emit<'_>, name: &str, a: &Args<'_>) -> Result<Option<Tensor>> {
    let x = || a.tensor(0, "self");
    let dtype = |k: usize| match a.values().get(k) {
        Some(Value::DType(d)) => Some(*d),
        _ => None,
    };
    Ok(Some(match name {
        "sum" => e.sum(x()?, &[], false, dtype(1))?,
        "nansum" => {
            let x = x()?;
            let numbers = e.choose(&e.unary("isnan", x)?, &e.scalar_tensor(0, x)?, x)?;
            e.sum(&numbers, &dims_of(a, 1)?, a.opt_bool(2, "keepdim")?.unwrap_or(false), dtype(3))?
        }
        "all" => as_truth(e, &e.unary("any", &e.unary("logical_not", x()?)?)?, x()?)?,
        "all.dim" | "all.dims" => {
            let any = name.replacen("all", "any", 1);
            let mut args = a.values().to_vec();
            args[0] = e.unary("logical_not", x()?)?.into();
            as_truth(e, &e.op(&any, &args)?, x()?)?
        }
        "count_nonzero" | "count_nonzero.dim_IntList" => {
            let dims = match name {
                "count_nonzero" => a.opt_int(1, "dim")?.into_iter().collect(),
                _ => dims_of(a, 1)?,
            };
            e.sum(&e.compare("ne.Scalar", x()?, 0)?, &dims, false, None)?
        }
        "std.correction" => e.unary("sqrt", &e.op("var.correction", a.values())?)?,
        "linalg_vector_norm" => {
            let dims = dims_of(a, 2)?;
            vector_norm(e, x()?, a.opt_scalar(1, "ord")?, &dims, a.opt_bool(3, "keepdim")?.unwrap_or(false), dtype(4))?
        }
        "norm.Scalar" => vector_norm(e, x()?, a.opt_scalar(1, "p")?, &[], false, None)?,
        "norm.ScalarOpt_dim" => {
            let keep = a.opt_bool(3, "keepdim")?.unwrap_or(false);
            vector_norm(e, x()?, a.opt_scalar(1, "p")?, &dims_of(a, 2)?, keep, None)?
        }
        "logsumexp" => {
            let (x, dims, keep) = (x()?, dims_of(a, 1)?, a.opt_bool(2, "keepdim")?.unwrap_or(false));
            let largest = |keep: bool| e.op("amax", &[x.into(), dims[..].into(), keep.into()]);
            let finite = |t: Tensor| {
                let infinite = e.compare("eq.Scalar", &e.unary("abs", &t)?, f64::INFINITY)?;
                e.choose(&infinite, &e.scalar_tensor(0, &t)?, &t)
            };
            if x.numel() == 0 {
                return Ok(Some(e.unary("log", &e.sum(&e.unary("exp", x)?, &dims, keep, None)?)?));
            }
            let powers = e.unary("exp", &e.sub(x, &finite(largest(true)?)?)?)?;
            e.add(&e.unary("log", &e.sum(&powers, &dims, keep, None)?)?, &finite(largest(keep)?)?)?
        }
        "trace" => e.sum(&e.unary("diagonal", x()?)?, &[], false, None)?,
        "mv" => e.sum(&e.mul(x()?, a.tensor(1, "vec")?)?, &[1], false, None)?,
        "dot" => e.sum(&e.mul(x()?, a.tensor(1, "tensor")?)?, &[], false, None)?,
        "baddbmm" => {
            let product = e.op("bmm", &[a.tensor(1, "batch1")?.into(), a.tensor(2, "batch2")?.into()])?;
            let scaled = |t: &Tensor, k: usize| match a.opt_scalar(k, "factor")? {
                Some(s) if s.to_f64() != 1.0 => e.mul(t, &e.number(s)?),
                _ => Ok(t.clone()),
            };
            e.add(&scaled(&product, 4)?, &scaled(x()?, 3)?)?
        }
        _ => return Ok(None),
    }))
}

fn vector_norm(
    e: &Emit<'_>,
    x: &Tensor,
    order: Option<Scalar>,
    dims: &[i64],
    keep: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let x = &match dtype {
        Some(dtype) if dtype != x.dtype() => e.op("_to_copy", &[x.into(), dtype.into()])?,
        _ => x.clone(),
    };
    let power = |t: &Tensor, p: f64| e.op("pow.Tensor_Scalar", &[t.into(), Scalar::Float(p).into()]);
    let order = order.map_or(2.0, |s| s.to_f64());
    if order == 0.0 {
        return e.sum(&e.compare("ne.Scalar", x, 0)?, dims, keep, Some(x.dtype()));
    }
    if order.is_infinite() {
        let name = if order > 0.0 { "amax" } else { "amin" };
        return e.op(name, &[e.unary("abs", x)?.into(), dims.into(), keep.into()]);
    }
    if order == 1.0 {
        return e.sum(&e.unary("abs", x)?, dims, keep, None);
    }
    let base = if order % 2.0 == 0.0 && !x.is_complex() { x.clone() } else { e.unary("abs", x)? };
    power(&e.sum(&power(&base, order)?, dims, keep, None)?, 1.0 / order)
}

/// Losses: what each pair gives, then the reduction (0 none, 1 mean, 2 sum).
fn losses(e: &Emit<'_>, name: &str, a: &Args<'_>) -> Result<Option<Tensor>> {
    let reduced = |t: &Tensor, k: usize| match a.opt_int(k, "reduction")?.unwrap_or(1) {
        1 => e.unary("mean", t),
        2 => e.sum(t, &[], false, None),
        _ => Ok(t.clone()),
    };
    let pair = || Ok::<_, Error>((a.tensor(0, "self")?, a.tensor(1, "target")?));
    Ok(Some(match name {
        "mse_loss" => {
            let (x, y) = pair()?;
            let square = e.op("pow.Tensor_Scalar", &[e.sub(x, y)?.into(), Scalar::Int(2).into()])?;
            reduced(&square, 2)?
        }
        "smooth_l1_loss" | "huber_loss" => {
            let ((x, y), width) = (pair()?, a.opt_float(3, "beta")?.unwrap_or(1.0));
            let apart = e.unary("abs", &e.sub(x, y)?)?;
            if width == 0.0 {
                return Ok(Some(reduced(&apart, 2)?));
            }
            // x²/2 near, width·(x - width/2) far; smooth L1 is that over the width.
            let smooth = name == "smooth_l1_loss";
            let half = e.mul(&e.mul(&apart, &apart)?, &e.number(0.5)?)?;
            let near = if smooth { e.div(&half, &e.number(width)?)? } else { half };
            let line = e.sub(&apart, &e.number(0.5 * width)?)?;
            let far = if smooth { line } else { e.mul(&line, &e.number(width)?)? };
            reduced(&e.choose(&e.compare("lt.Scalar", &apart, width)?, &near, &far)?, 2)?
        }
        _ => return Ok(None),
    }))
}

/// Negative log likelihood of the labels, and the weight that its mean divides by. Classes lie along dimension 1; a label
/// that is to be ignored counts for nothing.
fn nll_loss(e: &Emit<'_>, a: &Args<'_>) -> Result<(Tensor, Tensor)> {
    let (x, target) = (a.tensor(0, "self")?, a.tensor(1, "target")?);
    let (reduction, ignored) = (a.int(3, "reduction")?, a.int(4, "ignore_index")?);
    let dim = i64::from(x.ndim() >= 2);
    let counts = e.compare("ne.Scalar", target, ignored)?;
    let safe = e.choose(&counts, target, &e.scalar_tensor(0, target)?)?;
    let safe = e.op("unsqueeze", &[safe.into(), dim.into()])?;
    let pick = |t: &Tensor| {
        let picked = e.op("gather", &[t.into(), dim.into(), (&safe).into()])?;
        e.op("squeeze.dims", &[picked.into(), [dim][..].into()])
    };
    let nothing = e.scalar_tensor(0, x)?;
    let weights = match a.opt_tensor(2, "weight")? {
        Some(w) => {
            let mut shape = vec![1; x.ndim()];
            shape[dim as usize] = w.numel() as i64;
            let sizes: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
            let rows = e.op("view", &[w.into(), shape[..].into()])?;
            Some(e.op("expand", &[rows.into(), sizes[..].into()])?)
        }
        None => None,
    };
    let terms = match &weights {
        Some(w) => pick(&e.mul(x, w)?)?,
        None => pick(x)?,
    };
    let terms = e.choose(&counts, &e.unary("neg", &terms)?, &nothing)?;
    if reduction == 0 && x.ndim() >= 2 {
        return Ok((terms, e.op("full", &[[0i64; 0][..].into(), Scalar::Float(0.0).into(), x.dtype().into()])?));
    }
    let weight = match &weights {
        Some(w) => e.sum(&e.choose(&counts, &pick(w)?, &nothing)?, &[], false, None)?,
        None => e.op("_to_copy", &[e.sum(&counts, &[], false, None)?.into(), x.dtype().into()])?,
    };
    let sum = e.sum(&terms, &[], false, None)?;
    Ok((if reduction == 1 { e.div(&sum, &weight)? } else { sum }, weight))
}
