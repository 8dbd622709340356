//! More elementwise functions, factories, and weighted losses.

use super::super::emit::Emit;
use firebrand_core::dispatch::{Args, Op, Value};
use firebrand_core::{DType, Result, Scalar, Tensor};
use std::f64::consts::PI;

pub(super) fn apply(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let x = || a.tensor(0, "self");
    Ok(Some(match op {
        Op::XLOGY_TENSOR => xlogy(e, x()?, a.tensor(1, "other")?)?,
        Op::XLOGY_SCALAR_SELF => {
            let other = a.tensor(1, "other")?;
            xlogy(e, &e.scalar_tensor(a.scalar(0, "self")?, &e.unary(Op::LOG, other)?)?, other)?
        }
        Op::XLOGY_SCALAR_OTHER => {
            let other = e.op(Op::SCALAR_TENSOR, &[a.scalar(1, "other")?.into(), float_of(x()?).into()])?;
            xlogy(e, x()?, &other)?
        }
        Op::LOGIT => {
            let x = match a.opt_float(1, "eps")? {
                // Above one half the bounds cross; then what is not below the lower one becomes the upper one.
                Some(eps) if eps > 0.5 => {
                    let x = x()?;
                    let below = e.compare(Op::LT_SCALAR, x, eps)?;
                    let [low, high] = [eps, 1.0 - eps].map(Scalar::Float);
                    let least = e.op(Op::CLAMP_MAX, &[x.into(), high.into()])?;
                    e.choose(&below, &e.scalar_tensor(low, &least)?, &least)?
                }
                Some(eps) if eps >= 0.0 => {
                    let ends = [eps, 1.0 - eps].map(|v| Value::from(Scalar::Float(v)));
                    e.op(Op::CLAMP, &[x()?.into(), ends[0].clone(), ends[1].clone()])?
                }
                _ => x()?.clone(),
            };
            e.unary(Op::LOG, &e.div(&x, &e.rsub(1, &x)?)?)?
        }
        Op::NAN_TO_NUM => nan_to_num(e, x()?, a)?,
        Op::LERP_TENSOR => {
            let (start, end, weight) = (x()?, a.tensor(1, "end")?, a.tensor(2, "weight")?);
            // From the nearer end, so that the ends themselves are exact.
            let near = e.compare(Op::LT_SCALAR, &e.unary(Op::ABS, weight)?, 0.5)?;
            let share = e.choose(&near, weight, &e.plus(weight, -1)?)?;
            e.add(&e.choose(&near, start, end)?, &e.mul(&share, &e.sub(end, start)?)?)?
        }
        Op::HEAVISIDE => {
            let (x, values) = (x()?, a.tensor(1, "values")?);
            let above = e.cast(&e.compare(Op::GT_SCALAR, x, 0)?, x.dtype())?;
            e.choose(&e.compare(Op::EQ_SCALAR, x, 0)?, values, &above)?
        }
        Op::SINC => {
            let turned = e.scale(x()?, PI)?;
            let wave = e.div(&e.unary(Op::SIN, &turned)?, &turned)?;
            e.choose(&e.compare(Op::EQ_SCALAR, x()?, 0)?, &e.scalar_tensor(1, &wave)?, &wave)?
        }
        Op::SOFTSHRINK => {
            let (x, bound) = (x()?, a.opt_scalar(1, "lambd")?.unwrap_or(Scalar::Float(0.5)));
            let beyond = e.compare(Op::GT_SCALAR, &e.unary(Op::ABS, x)?, bound)?;
            let shrunk = e.sub(x, &e.scale(&e.unary(Op::SIGN, x)?, bound)?)?;
            e.choose(&beyond, &shrunk, &e.scale(x, 0)?)?
        }
        Op::ISFINITE => {
            let either = e.op(Op::LOGICAL_OR, &[e.unary(Op::ISNAN, x()?)?.into(), e.unary(Op::ISINF, x()?)?.into()])?;
            e.unary(Op::LOGICAL_NOT, &either)?
        }
        Op::FLOOR_DIVIDE_SCALAR => {
            let by = e.number(a.scalar(1, "other")?)?;
            e.op(Op::DIV_TENSOR_MODE, &[x()?.into(), by.into(), "floor".into()])?
        }
        Op::ISIN_TENSOR_TENSOR => {
            let tests = e.reshape(a.tensor(1, "test_elements")?, &[-1])?;
            let equal = e.op(Op::EQ_TENSOR, &[e.unsqueeze(x()?, -1)?.into(), tests.into()])?;
            let found = e.op(Op::ANY_DIM, &[equal.into(), (-1i64).into()])?;
            if a.opt_bool(3, "invert")?.unwrap_or(false) { e.unary(Op::LOGICAL_NOT, &found)? } else { found }
        }
        Op::BERNOULLI => {
            let drawn = e.unary(Op::RAND_LIKE, x()?)?;
            e.cast(&e.op(Op::LT_TENSOR, &[drawn.into(), x()?.into()])?, x()?.dtype())?
        }
        Op::FILL_SCALAR => e.op(Op::FULL_LIKE, &[x()?.into(), a.scalar(1, "value")?.into()])?,
        Op::ZERO => e.op(Op::FULL_LIKE, &[x()?.into(), Scalar::Int(0).into()])?,
        Op::_SAFE_SOFTMAX => {
            let (dim, dtype) = (a.int(1, "dim")?, a.opt_dtype(2, "dtype")?);
            let x = &dtype.map_or(Ok(x()?.clone()), |d| e.cast(x()?, d))?;
            // A row of nothing but minus infinity has no shares; put aside first, it has no gradient of nothing either.
            let some = e.compare(Op::NE_SCALAR, x, f64::NEG_INFINITY)?;
            let some = e.op(Op::ANY_DIM, &[some.into(), dim.into(), true.into()])?;
            let shares = e.op(Op::_SOFTMAX, &[e.choose_or(&some, x, 0)?.into(), dim.into(), false.into()])?;
            e.choose_or(&some, &shares, 0)?
        }
        Op::BINARY_CROSS_ENTROPY => {
            let (x, y) = (x()?, a.tensor(1, "target")?);
            let floor = e.scalar_tensor(-100, x)?;
            let log = |t: Tensor| e.op(Op::MAXIMUM, &[t.into(), (&floor).into()]);
            let miss = e.mul(&e.plus(y, -1)?, &log(e.unary(Op::LOG1P, &e.unary(Op::NEG, x)?)?)?)?;
            let loss = e.sub(&miss, &e.mul(y, &log(e.unary(Op::LOG, x)?)?)?)?;
            weighted(e, loss, a, 2, 3)?
        }
        Op::BINARY_CROSS_ENTROPY_WITH_LOGITS => {
            let (x, y) = (x()?, a.tensor(1, "target")?);
            // log(1 + e^-x) = max(-x, 0) + log1p(e^-|x|), times the weight of positives where they are.
            let above = e.op(Op::CLAMP, &[e.unary(Op::NEG, x)?.into(), Scalar::Int(0).into()])?;
            let small = e.unary(Op::LOG1P, &e.unary(Op::EXP, &e.unary(Op::NEG, &e.unary(Op::ABS, x)?)?)?)?;
            let rest = e.add(&above, &small)?;
            let rest = match a.opt_tensor(3, "pos_weight")? {
                Some(w) => e.mul(&e.plus(&e.mul(&e.plus(w, -1)?, y)?, 1)?, &rest)?,
                None => rest,
            };
            weighted(e, e.add(&e.mul(&e.rsub(1, y)?, x)?, &rest)?, a, 2, 4)?
        }
        _ => return creation(e, op, a),
    }))
}

/// The float type that functions of integers give.
fn float_of(x: &Tensor) -> DType {
    if x.is_floating_point() { x.dtype() } else { DType::F32 }
}

/// A loss with an optional weight, reduced (0 none, 1 mean, 2 sum).
fn weighted(e: &Emit<'_>, loss: Tensor, a: &Args<'_>, weight: usize, reduction: usize) -> Result<Tensor> {
    let loss = match a.opt_tensor(weight, "weight")? {
        Some(w) => e.mul(&loss, w)?,
        None => loss,
    };
    match a.opt_int(reduction, "reduction")?.unwrap_or(1) {
        1 => e.unary(Op::MEAN, &loss),
        2 => e.sum(&loss, &[], false, None),
        _ => Ok(loss),
    }
}

/// `x·log(y)`, zero where `x` is.
fn xlogy(e: &Emit<'_>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let product = e.mul(x, &e.unary(Op::LOG, y)?)?;
    let some = e.choose(&e.compare(Op::EQ_SCALAR, x, 0)?, &e.scalar_tensor(0, &product)?, &product)?;
    e.choose(&e.unary(Op::ISNAN, y)?, &e.scalar_tensor(f64::NAN, &product)?, &some)
}

fn nan_to_num(e: &Emit<'_>, x: &Tensor, a: &Args<'_>) -> Result<Tensor> {
    if !x.is_floating_point() {
        return e.unary(Op::CLONE, x);
    }
    let largest = match x.dtype() {
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        DType::BF16 => f64::from_bits(0x47ef_e000_0000_0000),
        _ => f64::from(f32::MAX),
    };
    let given = |k: usize, default: f64| Ok::<_, firebrand_core::Error>(a.opt_float(k, "value")?.unwrap_or(default));
    let replace = |t: &Tensor, here: Tensor, value: f64| e.choose(&here, &e.scalar_tensor(value, x)?, t);
    let t = replace(x, e.unary(Op::ISNAN, x)?, given(1, 0.0)?)?;
    let t = replace(&t, e.compare(Op::EQ_SCALAR, x, f64::INFINITY)?, given(2, largest)?)?;
    replace(&t, e.compare(Op::EQ_SCALAR, x, f64::NEG_INFINITY)?, given(3, -largest)?)
}

/// Tensors made from numbers; dtype, layout and device come last.
fn creation(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let given = |k: usize| a.values().get(k).cloned().unwrap_or(Value::None);
    let dtype = |k: usize| Ok::<_, firebrand_core::Error>(a.opt_dtype(k, "dtype")?.unwrap_or(DType::F32));
    let range = |count: i64, dtype: DType, device: Value| {
        let [from, to, step] = [0, count, 1].map(|n| Value::from(Scalar::Int(n)));
        e.op(Op::ARANGE_START_STEP, &[from, to, step, dtype.into(), Value::None, device])
    };
    Ok(Some(match op {
        Op::EMPTY_LIKE => {
            let x = a.tensor(0, "self")?;
            let sizes: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
            let dtype = a.opt_dtype(1, "dtype")?.unwrap_or(x.dtype());
            e.op(Op::EMPTY_MEMORY_FORMAT, &[sizes[..].into(), dtype.into(), Value::None, x.device().into()])?
        }
        Op::NEW_EMPTY => {
            let x = a.tensor(0, "self")?;
            let dtype = a.opt_dtype(2, "dtype")?.unwrap_or(x.dtype());
            e.op(Op::EMPTY_MEMORY_FORMAT, &[given(1), dtype.into(), Value::None, x.device().into()])?
        }
        Op::EYE | Op::EYE_M => {
            let (rows, options) = (a.int(0, "n")?, if op == Op::EYE { 1 } else { 2 });
            let columns = if op == Op::EYE { rows } else { a.int(1, "m")? };
            let device = given(options + 2);
            let down = e.unsqueeze(&range(rows, DType::I64, device.clone())?, -1)?;
            let same = e.op(Op::EQ_TENSOR, &[down.into(), range(columns, DType::I64, device)?.into()])?;
            e.cast(&same, dtype(options)?)?
        }
        Op::LINSPACE => {
            let (from, to, steps) = (a.scalar(0, "start")?, a.scalar(1, "end")?, a.int(2, "steps")?);
            let line = line(e, range(steps, line_type(dtype(3)?), given(5))?, from.to_f64(), to.to_f64(), steps)?;
            e.cast(&line, dtype(3)?)?
        }
        Op::LOGSPACE => {
            let (from, to, steps) = (a.scalar(0, "start")?, a.scalar(1, "end")?, a.int(2, "steps")?);
            let base = a.opt_float(3, "base")?.unwrap_or(10.0);
            let powers = line(e, range(steps, line_type(dtype(4)?), given(6))?, from.to_f64(), to.to_f64(), steps)?;
            e.cast(&e.op(Op::POW_SCALAR, &[Scalar::Float(base).into(), powers.into()])?, dtype(4)?)?
        }
        Op::HANN_WINDOW | Op::HANN_WINDOW_PERIODIC => {
            let options = if op == Op::HANN_WINDOW { 1 } else { 2 };
            let (length, periodic) = (a.int(0, "window_length")?, options == 1 || a.bool(1, "periodic")?);
            if length <= 1 {
                let (sizes, one) = ([length][..].into(), Scalar::Int(1).into());
                let args = [sizes, one, dtype(options)?.into(), Value::None, given(options + 2)];
                return e.op(Op::FULL, &args).map(Some);
            }
            let turn = 2.0 * PI / (if periodic { length } else { length - 1 }) as f64;
            let wave = e.unary(Op::COS, &e.scale(&range(length, dtype(options)?, given(options + 2))?, turn)?)?;
            e.plus(&e.scale(&wave, -0.5)?, 0.5)?
        }
        _ => return Ok(None),
    }))
}

/// What positions on a line are computed in.
fn line_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => DType::F32,
        _ => DType::F64,
    }
}

/// Equal steps from one number to another; each half from its own end, so that both are exact.
fn line(e: &Emit<'_>, positions: Tensor, from: f64, to: f64, steps: i64) -> Result<Tensor> {
    let step = if steps > 1 { (to - from) / (steps - 1) as f64 } else { 0.0 };
    let up = e.plus(&e.scale(&positions, step)?, from)?;
    let down = e.rsub(to, &e.scale(&e.rsub(steps - 1, &positions)?, step)?)?;
    let first_half = e.compare(Op::LT_SCALAR, &positions, Scalar::Float(steps as f64 / 2.0))?;
    e.choose(&first_half, &up, &down)
}
