//! Decomposition rules: an op expressed in ops that PyTorch's export keeps (`golden/core_aten.json`).
//!
//! A rule gives the same values up to rounding. An op has one if its record says so (`decomposition` in
//! `schema/README.md`); a test holds the two together.
#![deny(unreachable_patterns)] // a second rule for an op

mod backward;
mod elementwise;
mod indexing;
mod resize;
#[cfg(test)]
mod tests;

use super::emit::Emit;
use firebrand_core::dispatch::{Args, Op, Outputs, Value};
use firebrand_core::{DType, Error, Result, Scalar, Tensor};
use smallvec::smallvec;
use std::f64::consts::{LN_2, PI};

/// Ops of one result.
type Family = fn(&Emit<'_>, Op, &Args<'_>) -> Result<Option<Tensor>>;
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

/// Ops of several results.
type Several = fn(&Emit<'_>, Op, &Args<'_>) -> Result<Option<Outputs>>;
const OF_SEVERAL: [Several; 2] = [several, backward::several];

/// The results of an op by its rule; none if it has none.
pub(super) fn apply(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Outputs>> {
    for family in FAMILIES {
        if let Some(t) = family(e, op, a)? {
            return Ok(Some(smallvec![Value::Tensor(t)]));
        }
    }
    for family in OF_SEVERAL {
        if let Some(outputs) = family(e, op, a)? {
            return Ok(Some(outputs));
        }
    }
    Ok(None)
}

/// A dimension counted from the front.
fn wrap(dim: i64, ndim: usize) -> i64 {
    if dim < 0 { dim + ndim.max(1) as i64 } else { dim }
}

fn views(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        Op::T => {
            let x = a.tensor(0, "self")?;
            if x.ndim() < 2 { e.unary(Op::ALIAS, x)? } else { e.permute(x, &[1, 0])? }
        }
        Op::TRANSPOSE_INT => {
            let x = a.tensor(0, "self")?;
            let mut order: Vec<i64> = (0..x.ndim() as i64).collect();
            if order.is_empty() {
                return Ok(Some(e.unary(Op::ALIAS, x)?));
            }
            let [i, j] = [a.int(1, "dim0")?, a.int(2, "dim1")?].map(|d| wrap(d, x.ndim()) as usize);
            order.swap(i, j);
            e.permute(x, &order)?
        }
        Op::SQUEEZE => {
            let x = a.tensor(0, "self")?;
            let ones: Vec<i64> = (0..x.ndim()).filter(|&d| x.shape()[d] == 1).map(|d| d as i64).collect();
            e.op(Op::SQUEEZE_DIMS, &[x.into(), ones[..].into()])?
        }
        Op::SQUEEZE_DIM => e.op(Op::SQUEEZE_DIMS, &[a.tensor(0, "self")?.into(), [a.int(1, "dim")?][..].into()])?,
        Op::_UNSAFE_VIEW => e.op(Op::VIEW, a.values())?,
        Op::DETACH => e.unary(Op::ALIAS, a.tensor(0, "self")?)?,
        Op::STACK => {
            let (tensors, dim) = (a.tensors(0, "tensors")?, a.opt_int(1, "dim")?.unwrap_or(0));
            let ndim = tensors.first().map_or(0, Tensor::ndim) + 1;
            let dim = wrap(dim, ndim);
            let rows = tensors.iter().map(|t| e.op(Op::UNSQUEEZE, &[t.into(), dim.into()]));
            e.op(Op::CAT, &[rows.collect::<Result<Vec<_>>>()?.into(), dim.into()])?
        }
        _ => return Ok(None),
    }))
}

/// Ops with several results.
fn several(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Outputs>> {
    let x = a.tensor(0, "self");
    Ok(Some(match op {
        Op::SPLIT_TENSOR | Op::UNSAFE_SPLIT_TENSOR => {
            let (x, size, dim) = (x?, a.int(1, "split_size")?, a.opt_int(2, "dim")?.unwrap_or(0));
            let total = x.shape().get(wrap(dim, x.ndim()) as usize).map_or(1, |&n| n as i64);
            let whole = if size > 0 { total / size } else { 0 };
            let mut parts = vec![size; whole as usize];
            if total == 0 || (size > 0 && total % size > 0) {
                parts.push(total - whole * size);
            }
            e.all(Op::SPLIT_WITH_SIZES, &[x.into(), parts[..].into(), dim.into()])?
        }
        Op::UNSAFE_SPLIT_WITH_SIZES => {
            let (x, parts, dim) = (x?, a.ints(1, "split_sizes")?, a.opt_int(2, "dim")?.unwrap_or(0));
            e.all(Op::SPLIT_WITH_SIZES, &[x.into(), parts[..].into(), dim.into()])?
        }
        Op::UNBIND_INT => {
            let (x, dim) = (x?, a.opt_int(1, "dim")?.unwrap_or(0));
            let count = x.shape().get(wrap(dim, x.ndim()) as usize).copied().unwrap_or(0);
            let rows = (0..count as i64).map(|i| e.op(Op::SELECT_INT, &[x.into(), dim.into(), i.into()]));
            smallvec![Value::Tensors(rows.collect::<Result<Vec<_>>>()?)]
        }
        Op::AMINMAX => {
            let (x, keep) = (x?, a.opt_bool(2, "keepdim")?.unwrap_or(false));
            let dims: Vec<i64> = a.opt_int(1, "dim")?.into_iter().collect();
            let one = |op: Op| e.op(op, &[x.into(), dims[..].into(), keep.into()]).map(Value::Tensor);
            smallvec![one(Op::AMIN)?, one(Op::AMAX)?]
        }
        Op::STD_MEAN_CORRECTION => {
            let args = a.values();
            let mean = e.op(Op::MEAN_DIM, &[x?.into(), dims_of(a, 1)?[..].into(), a.opt_bool(3, "keepdim")?.into()])?;
            let variance = e.op(Op::VAR_CORRECTION, args)?;
            smallvec![Value::Tensor(e.unary(Op::SQRT, &variance)?), Value::Tensor(mean)]
        }
        Op::NLL_LOSS_FORWARD | Op::NLL_LOSS2D_FORWARD => {
            let (loss, weight) = nll_loss(e, a)?;
            smallvec![Value::Tensor(loss), Value::Tensor(weight)]
        }
        Op::LOG_SIGMOID_FORWARD => {
            let x = x?;
            let rest = e.unary(Op::EXP, &e.unary(Op::NEG, &e.unary(Op::ABS, x)?)?)?;
            let zero = e.scalar_tensor(0.0, x)?;
            let y = e.sub(&e.op(Op::MINIMUM, &[(&zero).into(), x.into()])?, &e.unary(Op::LOG1P, &rest)?)?;
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

fn creation(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let given = |k: usize| a.values().get(k).cloned().unwrap_or(Value::None);
    let full = |size: Value, value: Scalar, rest: [Value; 4]| {
        let [dtype, layout, device, pin] = rest;
        let dtype = if matches!(dtype, Value::None) { DType::F32.into() } else { dtype };
        e.op(Op::FULL, &[size, value.into(), dtype, layout, device, pin])
    };
    let like = |x: &Tensor, value: Scalar| {
        let mut args = vec![x.into(), value.into()];
        args.extend((1..6).map(given));
        e.op(Op::FULL_LIKE, &args)
    };
    let new = |value: Scalar, from: usize| {
        let x = a.tensor(0, "self")?;
        let dtype = if a.is_none(from) { x.dtype().into() } else { given(from) };
        let device = if a.is_none(from + 2) { x.device().into() } else { given(from + 2) };
        full(given(1), value, [dtype, given(from + 1), device, given(from + 3)])
    };
    Ok(Some(match op {
        Op::ZEROS => full(given(0), 0.into(), [1, 2, 3, 4].map(given))?,
        Op::ONES => full(given(0), 1.into(), [1, 2, 3, 4].map(given))?,
        Op::ZEROS_LIKE => like(a.tensor(0, "self")?, 0.into())?,
        Op::ONES_LIKE => like(a.tensor(0, "self")?, 1.into())?,
        Op::NEW_ZEROS => new(0.into(), 2)?,
        Op::NEW_ONES => new(1.into(), 2)?,
        Op::NEW_FULL => new(a.scalar(2, "fill_value")?, 3)?,
        Op::ARANGE => {
            let mut args = vec![Scalar::Int(0).into(), a.scalar(0, "end")?.into(), Scalar::Int(1).into()];
            args.extend((1..5).map(given));
            e.op(Op::ARANGE_START_STEP, &args)?
        }
        Op::ARANGE_START => {
            let mut args = vec![a.scalar(0, "start")?.into(), a.scalar(1, "end")?.into(), Scalar::Int(1).into()];
            args.extend((2..6).map(given));
            e.op(Op::ARANGE_START_STEP, &args)?
        }
        _ => return Ok(None),
    }))
}

fn pointwise(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let x = || a.tensor(0, "self");
    let y = || a.tensor(1, "other");
    let scalar = |k: usize, default: f64| Ok::<_, Error>(a.opt_scalar(k, "value")?.unwrap_or(Scalar::Float(default)));
    let scaled = |t: &Tensor, s: Scalar| if s.to_f64() == 1.0 { Ok(t.clone()) } else { e.mul(t, &e.number(s)?) };
    Ok(Some(match op {
        Op::RSUB_TENSOR => e.op(Op::SUB_TENSOR, &[y()?.into(), x()?.into(), scalar(2, 1.0)?.into()])?,
        Op::RSUB_SCALAR => {
            let number = e.number(a.scalar(1, "other")?)?;
            e.op(Op::SUB_TENSOR, &[number.into(), x()?.into(), scalar(2, 1.0)?.into()])?
        }
        Op::FLOOR_DIVIDE => e.op(Op::DIV_TENSOR_MODE, &[x()?.into(), y()?.into(), "floor".into()])?,
        Op::ADDCMUL => {
            let product = e.mul(y()?, a.tensor(2, "tensor2")?)?;
            e.add(x()?, &scaled(&product, scalar(3, 1.0)?)?)?
        }
        Op::ADDCDIV => {
            let quotient = e.div(y()?, a.tensor(2, "tensor2")?)?;
            e.add(x()?, &scaled(&quotient, scalar(3, 1.0)?)?)?
        }
        Op::LERP_SCALAR => {
            let (start, end, w) = (x()?, y()?, a.scalar(2, "weight")?.to_f64());
            let way = e.sub(end, start)?;
            // From the nearer end, so that the ends themselves are exact.
            if w.abs() < 0.5 {
                e.add(start, &e.mul(&way, &e.number(w)?)?)?
            } else {
                e.sub(end, &e.mul(&way, &e.number(1.0 - w)?)?)?
            }
        }
        Op::SGN if x()?.is_complex() => {
            let size = e.unary(Op::ABS, x()?)?;
            let zero = e.compare(Op::EQ_SCALAR, &size, 0)?;
            e.choose(&zero, &e.scalar_tensor(0, x()?)?, &e.div(x()?, &size)?)?
        }
        Op::SGN => e.unary(Op::SIGN, x()?)?,
        Op::FRAC => e.sub(x()?, &e.unary(Op::TRUNC, x()?)?)?,
        Op::DEG2RAD => e.mul(x()?, &e.number(PI / 180.0)?)?,
        Op::RAD2DEG => e.mul(x()?, &e.number(180.0 / PI)?)?,
        Op::ISPOSINF => e.compare(Op::EQ_SCALAR, x()?, f64::INFINITY)?,
        Op::ISNEGINF => e.compare(Op::EQ_SCALAR, x()?, f64::NEG_INFINITY)?,
        Op::CLAMP_MIN => e.op(Op::CLAMP, &[x()?.into(), a.scalar(1, "min")?.into()])?,
        Op::CLAMP_MAX => e.op(Op::CLAMP, &[x()?.into(), Value::None, a.scalar(1, "max")?.into()])?,
        Op::CLAMP_MIN_TENSOR => e.op(Op::CLAMP_TENSOR, &[x()?.into(), y()?.into()])?,
        Op::CLAMP_MAX_TENSOR => e.op(Op::CLAMP_TENSOR, &[x()?.into(), Value::None, y()?.into()])?,
        Op::SILU => e.mul(x()?, &e.unary(Op::SIGMOID, x()?)?)?,
        Op::SOFTPLUS => softplus(e, x()?, scalar(1, 1.0)?.to_f64(), scalar(2, 20.0)?.to_f64())?,
        Op::MISH => e.mul(x()?, &e.unary(Op::TANH, &softplus(e, x()?, 1.0, 20.0)?)?)?,
        Op::HARDSIGMOID => hard_sigmoid(e, x()?)?,
        Op::HARDSWISH => e.mul(x()?, &hard_sigmoid(e, x()?)?)?,
        Op::CELU => {
            let (x, alpha) = (x()?, scalar(1, 1.0)?.to_f64());
            let below = e.mul(&e.unary(Op::EXPM1, &e.div(x, &e.number(alpha)?)?)?, &e.number(alpha)?)?;
            e.choose(&e.compare(Op::GT_SCALAR, x, 0)?, x, &below)?
        }
        Op::HARDSHRINK => {
            let (x, bound) = (x()?, scalar(1, 0.5)?);
            let small = e.compare(Op::LE_SCALAR, &e.unary(Op::ABS, x)?, bound)?;
            e.choose(&small, &e.scalar_tensor(0, x)?, x)?
        }
        Op::THRESHOLD => {
            let (x, bound, value) = (x()?, a.scalar(1, "threshold")?, a.scalar(2, "value")?);
            e.choose(&e.compare(Op::LE_SCALAR, x, bound)?, &e.scalar_tensor(value, x)?, x)?
        }
        Op::_PRELU_KERNEL => {
            e.choose(&e.compare(Op::GT_SCALAR, x()?, 0)?, x()?, &e.mul(a.tensor(1, "weight")?, x()?)?)?
        }
        Op::GLU => {
            let (x, dim) = (x()?, a.opt_int(1, "dim")?.unwrap_or(-1));
            let half = x.shape().get(wrap(dim, x.ndim()) as usize).copied().unwrap_or(0) as i64 / 2;
            let part = |from: i64| e.op(Op::SLICE_TENSOR, &[x.into(), dim.into(), from.into(), (from + half).into()]);
            e.mul(&part(0)?, &e.unary(Op::SIGMOID, &part(half)?)?)?
        }
        Op::LOGADDEXP if x()?.is_complex() => {
            // The one with the larger real part, and what the other adds to it.
            let (a, b) = (x()?, y()?);
            let (p, q) = (real_part(e, a)?, real_part(e, b)?);
            let less = e.op(Op::LT_TENSOR, &[(&p).into(), (&q).into()])?;
            let (low, high) = (e.choose(&less, a, b)?, e.choose(&less, b, a)?);
            let sum = e.add(&high, &e.unary(Op::LOG1P, &e.unary(Op::EXP, &e.sub(&low, &high)?)?)?)?;
            // Two that have nothing to add are at no distance.
            let nothing = e.compare(Op::EQ_SCALAR, &p, f64::NEG_INFINITY)?;
            let same = e.op(Op::EQ_TENSOR, &[(&p).into(), (&q).into()])?;
            e.choose(&e.op(Op::LOGICAL_AND, &[nothing.into(), same.into()])?, &low, &sum)?
        }
        Op::LOGADDEXP | Op::LOGADDEXP2 => {
            // log(eᵃ + eᵇ) = max + log1p(e^-|a-b|), to base 2 alike.
            let (a, b) = (x()?, y()?);
            let apart = e.unary(Op::NEG, &e.unary(Op::ABS, &e.sub(a, b)?)?)?;
            let apart = if op == Op::LOGADDEXP2 { e.mul(&apart, &e.number(LN_2)?)? } else { apart };
            let rest = e.unary(Op::LOG1P, &e.unary(Op::EXP, &apart)?)?;
            let rest = if op == Op::LOGADDEXP2 { e.div(&rest, &e.number(LN_2)?)? } else { rest };
            let sum = e.add(&e.op(Op::MAXIMUM, &[a.into(), b.into()])?, &rest)?;
            // Equal infinities have no distance.
            let same = e.op(Op::EQ_TENSOR, &[a.into(), b.into()])?;
            let infinite = e.op(Op::LOGICAL_AND, &[e.unary(Op::ISINF, a)?.into(), same.into()])?;
            e.choose(&infinite, a, &sum)?
        }
        Op::MASKED_FILL_SCALAR => {
            let value = e.scalar_tensor(a.scalar(2, "value")?, x()?)?;
            e.choose(a.tensor(1, "mask")?, &value, x()?)?
        }
        Op::MASKED_FILL_TENSOR => e.choose(a.tensor(1, "mask")?, a.tensor(2, "value")?, x()?)?,
        Op::FILL_TENSOR => e.op(Op::COPY, &[x()?.into(), a.tensor(1, "value")?.into()])?,
        _ => return Ok(None),
    }))
}

/// `log(1 + e^(βx)) / β`, linear where that overflows.
fn softplus(e: &Emit<'_>, x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    let scaled = e.mul(x, &e.number(beta)?)?;
    // What is not taken must not overflow: its gradient would be nothing times infinity.
    let bounded = e.op(Op::CLAMP, &[(&scaled).into(), Value::None, Scalar::Float(threshold).into()])?;
    let curved = e.div(&e.unary(Op::LOG1P, &e.unary(Op::EXP, &bounded)?)?, &e.number(beta)?)?;
    e.choose(&e.compare(Op::GT_SCALAR, &scaled, threshold)?, x, &curved)
}

/// `clamp(x + 3, 0, 6) / 6`
fn hard_sigmoid(e: &Emit<'_>, x: &Tensor) -> Result<Tensor> {
    let shifted = e.add(x, &e.number(3)?)?;
    let clamped = e.op(Op::CLAMP, &[shifted.into(), Scalar::Int(0).into(), Scalar::Int(6).into()])?;
    e.div(&clamped, &e.number(6)?)
}

/// That not any is, in the type that `x` asks for: bytes stay bytes.
fn as_truth(e: &Emit<'_>, any: &Tensor, x: &Tensor) -> Result<Tensor> {
    let all = e.unary(Op::LOGICAL_NOT, any)?;
    if x.dtype() == DType::U8 { e.cast(&all, DType::U8) } else { Ok(all) }
}

fn reductions(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let x = || a.tensor(0, "self");
    let dtype = |k: usize| match a.values().get(k) {
        Some(Value::DType(d)) => Some(*d),
        _ => None,
    };
    Ok(Some(match op {
        Op::SUM => e.sum(x()?, &[], false, dtype(1))?,
        Op::NANSUM => {
            let x = x()?;
            let numbers = e.choose(&e.unary(Op::ISNAN, x)?, &e.scalar_tensor(0, x)?, x)?;
            e.sum(&numbers, &dims_of(a, 1)?, a.opt_bool(2, "keepdim")?.unwrap_or(false), dtype(3))?
        }
        Op::ALL => as_truth(e, &e.unary(Op::ANY, &e.unary(Op::LOGICAL_NOT, x()?)?)?, x()?)?,
        Op::ALL_DIM | Op::ALL_DIMS => {
            let any = if op == Op::ALL_DIM { Op::ANY_DIM } else { Op::ANY_DIMS };
            let mut args = a.values().to_vec();
            args[0] = e.unary(Op::LOGICAL_NOT, x()?)?.into();
            as_truth(e, &e.op(any, &args)?, x()?)?
        }
        Op::COUNT_NONZERO | Op::COUNT_NONZERO_DIM_INTLIST => {
            let dims = match op {
                Op::COUNT_NONZERO => a.opt_int(1, "dim")?.into_iter().collect(),
                _ => dims_of(a, 1)?,
            };
            e.sum(&e.compare(Op::NE_SCALAR, x()?, 0)?, &dims, false, None)?
        }
        Op::STD_CORRECTION => e.unary(Op::SQRT, &e.op(Op::VAR_CORRECTION, a.values())?)?,
        Op::LINALG_VECTOR_NORM => {
            let dims = dims_of(a, 2)?;
            vector_norm(e, x()?, a.opt_scalar(1, "ord")?, &dims, a.opt_bool(3, "keepdim")?.unwrap_or(false), dtype(4))?
        }
        Op::NORM_SCALAR => vector_norm(e, x()?, a.opt_scalar(1, "p")?, &[], false, None)?,
        Op::NORM_SCALAROPT_DIM => {
            let keep = a.opt_bool(3, "keepdim")?.unwrap_or(false);
            vector_norm(e, x()?, a.opt_scalar(1, "p")?, &dims_of(a, 2)?, keep, None)?
        }
        Op::LOGSUMEXP => {
            let (x, dims, keep) = (x()?, dims_of(a, 1)?, a.opt_bool(2, "keepdim")?.unwrap_or(false));
            let real = if x.is_complex() { real_part(e, x)? } else { x.clone() };
            let largest = |keep: bool| e.op(Op::AMAX, &[(&real).into(), dims[..].into(), keep.into()]);
            let finite = |t: Tensor| {
                let infinite = e.compare(Op::EQ_SCALAR, &e.unary(Op::ABS, &t)?, f64::INFINITY)?;
                e.choose(&infinite, &e.scalar_tensor(0, &t)?, &t)
            };
            if x.numel() == 0 {
                return Ok(Some(e.unary(Op::LOG, &e.sum(&e.unary(Op::EXP, x)?, &dims, keep, None)?)?));
            }
            let powers = e.unary(Op::EXP, &e.sub(x, &finite(largest(true)?)?)?)?;
            e.add(&e.unary(Op::LOG, &e.sum(&powers, &dims, keep, None)?)?, &finite(largest(keep)?)?)?
        }
        Op::TRACE => e.sum(&e.unary(Op::DIAGONAL, x()?)?, &[], false, None)?,
        Op::MV => e.sum(&e.mul(x()?, a.tensor(1, "vec")?)?, &[1], false, None)?,
        Op::DOT => e.sum(&e.mul(x()?, a.tensor(1, "tensor")?)?, &[], false, None)?,
        Op::BADDBMM => {
            let product = e.op(Op::BMM, &[a.tensor(1, "batch1")?.into(), a.tensor(2, "batch2")?.into()])?;
            let scaled = |t: &Tensor, k: usize| match a.opt_scalar(k, "factor")? {
                Some(s) if s.to_f64() != 1.0 => e.mul(t, &e.number(s)?),
                _ => Ok(t.clone()),
            };
            e.add(&scaled(&product, 4)?, &scaled(x()?, 3)?)?
        }
        _ => return Ok(None),
    }))
}

/// The real parts of complex numbers.
fn real_part(e: &Emit<'_>, x: &Tensor) -> Result<Tensor> {
    e.op(Op::SELECT_INT, &[e.unary(Op::VIEW_AS_REAL, x)?.into(), (-1i64).into(), 0i64.into()])
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
        Some(dtype) if dtype != x.dtype() => e.op(Op::_TO_COPY, &[x.into(), dtype.into()])?,
        _ => x.clone(),
    };
    let power = |t: &Tensor, p: f64| e.op(Op::POW_TENSOR_SCALAR, &[t.into(), Scalar::Float(p).into()]);
    let order = order.map_or(2.0, |s| s.to_f64());
    if order == 0.0 {
        return e.sum(&e.compare(Op::NE_SCALAR, x, 0)?, dims, keep, Some(x.dtype()));
    }
    if order.is_infinite() {
        let extreme = if order > 0.0 { Op::AMAX } else { Op::AMIN };
        return e.op(extreme, &[e.unary(Op::ABS, x)?.into(), dims.into(), keep.into()]);
    }
    if order == 1.0 {
        return e.sum(&e.unary(Op::ABS, x)?, dims, keep, None);
    }
    let base = if order % 2.0 == 0.0 && !x.is_complex() { x.clone() } else { e.unary(Op::ABS, x)? };
    power(&e.sum(&power(&base, order)?, dims, keep, None)?, 1.0 / order)
}

/// Losses: what each pair gives, then the reduction (0 none, 1 mean, 2 sum).
fn losses(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let reduced = |t: &Tensor, k: usize| match a.opt_int(k, "reduction")?.unwrap_or(1) {
        1 => e.unary(Op::MEAN, t),
        2 => e.sum(t, &[], false, None),
        _ => Ok(t.clone()),
    };
    let pair = || Ok::<_, Error>((a.tensor(0, "self")?, a.tensor(1, "target")?));
    Ok(Some(match op {
        Op::MSE_LOSS => {
            let (x, y) = pair()?;
            let square = e.op(Op::POW_TENSOR_SCALAR, &[e.sub(x, y)?.into(), Scalar::Int(2).into()])?;
            reduced(&square, 2)?
        }
        Op::SMOOTH_L1_LOSS | Op::HUBER_LOSS => {
            let ((x, y), width) = (pair()?, a.opt_float(3, "beta")?.unwrap_or(1.0));
            let apart = e.unary(Op::ABS, &e.sub(x, y)?)?;
            if width == 0.0 {
                return Ok(Some(reduced(&apart, 2)?));
            }
            // x²/2 near, width·(x - width/2) far; smooth L1 is that over the width.
            let smooth = op == Op::SMOOTH_L1_LOSS;
            let half = e.mul(&e.mul(&apart, &apart)?, &e.number(0.5)?)?;
            let near = if smooth { e.div(&half, &e.number(width)?)? } else { half };
            let line = e.sub(&apart, &e.number(0.5 * width)?)?;
            let far = if smooth { line } else { e.mul(&line, &e.number(width)?)? };
            reduced(&e.choose(&e.compare(Op::LT_SCALAR, &apart, width)?, &near, &far)?, 2)?
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
    let counts = e.compare(Op::NE_SCALAR, target, ignored)?;
    let safe = e.choose(&counts, target, &e.scalar_tensor(0, target)?)?;
    let safe = e.op(Op::UNSQUEEZE, &[safe.into(), dim.into()])?;
    let pick = |t: &Tensor| {
        let picked = e.op(Op::GATHER, &[t.into(), dim.into(), (&safe).into()])?;
        e.op(Op::SQUEEZE_DIMS, &[picked.into(), [dim][..].into()])
    };
    let nothing = e.scalar_tensor(0, x)?;
    let weights = match a.opt_tensor(2, "weight")? {
        Some(w) => {
            let mut shape = vec![1; x.ndim()];
            shape[dim as usize] = w.numel() as i64;
            let sizes: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
            let rows = e.op(Op::VIEW, &[w.into(), shape[..].into()])?;
            Some(e.op(Op::EXPAND, &[rows.into(), sizes[..].into()])?)
        }
        None => None,
    };
    let terms = match &weights {
        Some(w) => pick(&e.mul(x, w)?)?,
        None => pick(x)?,
    };
    let terms = e.choose(&counts, &e.unary(Op::NEG, &terms)?, &nothing)?;
    if reduction == 0 && x.ndim() >= 2 {
        return Ok((terms, e.op(Op::FULL, &[[0i64; 0][..].into(), Scalar::Float(0.0).into(), x.dtype().into()])?));
    }
    let weight = match &weights {
        Some(w) => e.sum(&e.choose(&counts, &pick(w)?, &nothing)?, &[], false, None)?,
        None => e.op(Op::_TO_COPY, &[e.sum(&counts, &[], false, None)?.into(), x.dtype().into()])?,
    };
    let sum = e.sum(&terms, &[], false, None)?;
    Ok((if reduction == 1 { e.div(&sum, &weight)? } else { sum }, weight))
}
