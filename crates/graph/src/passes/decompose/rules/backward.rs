//! Derivatives: of activations, losses, softmax and normalizations.

use super::super::emit::Emit;
use super::wrap;
use firebrand_core::dispatch::{Args, Op, Outputs, Value};
use firebrand_core::{Result, Scalar, Tensor};
use smallvec::smallvec;
use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

pub(super) fn apply(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let g = || a.tensor(0, "grad_output");
    let x = || a.tensor(1, "self");
    let scalar = |k: usize| Ok::<_, firebrand_core::Error>(a.scalar(k, "value")?.to_f64());
    Ok(Some(match op {
        Op::SIGMOID_BACKWARD => e.mul(g()?, &e.mul(x()?, &e.rsub(1, x()?)?)?)?,
        Op::TANH_BACKWARD => e.mul(g()?, &e.rsub(1, &e.mul(x()?, x()?)?)?)?,
        Op::THRESHOLD_BACKWARD => e.choose_or(&e.compare(Op::GT_SCALAR, x()?, a.scalar(2, "threshold")?)?, g()?, 0)?,
        Op::LEAKY_RELU_BACKWARD => {
            e.choose(&e.compare(Op::GT_SCALAR, x()?, 0)?, g()?, &e.scale(g()?, a.scalar(2, "slope")?)?)?
        }
        Op::ELU_BACKWARD => {
            let (alpha, scale, inner) = (scalar(1)?, scalar(2)?, scalar(3)?);
            let t = a.tensor(5, "self_or_result")?;
            // The result below zero is scale·alpha·(eˣ - 1), so its slope is the result plus scale·alpha.
            let below = match a.bool(4, "is_result")? {
                true => e.scale(&e.mul(g()?, &e.plus(t, alpha * scale)?)?, inner)?,
                false => e.scale(&e.mul(g()?, &e.unary(Op::EXP, &e.scale(t, inner)?)?)?, inner * alpha * scale)?,
            };
            e.choose(&e.compare(Op::GT_SCALAR, t, 0)?, &e.scale(g()?, scale)?, &below)?
        }
        Op::GELU_BACKWARD => e.mul(g()?, &gelu_slope(e, x()?, a.opt_str(2, "approximate")? == Some("tanh"))?)?,
        Op::SILU_BACKWARD => {
            let s = e.unary(Op::SIGMOID, x()?)?;
            let slope = e.mul(&s, &e.plus(&e.mul(x()?, &e.rsub(1, &s)?)?, 1)?)?;
            e.mul(g()?, &slope)?
        }
        Op::SOFTPLUS_BACKWARD => {
            let scaled = e.scale(x()?, a.scalar(2, "beta")?)?;
            let curved = e.mul(g()?, &e.unary(Op::SIGMOID, &scaled)?)?;
            e.choose(&e.compare(Op::GT_SCALAR, &scaled, a.scalar(3, "threshold")?)?, g()?, &curved)?
        }
        Op::MISH_BACKWARD => {
            let (s, t) = (e.unary(Op::SIGMOID, x()?)?, e.unary(Op::TANH, &super::softplus(e, x()?, 1.0, 20.0)?)?);
            let bend = e.mul(&e.mul(x()?, &s)?, &e.rsub(1, &e.mul(&t, &t)?)?)?;
            e.mul(g()?, &e.add(&t, &bend)?)?
        }
        Op::HARDSIGMOID_BACKWARD => {
            let inside = e.both(&e.compare(Op::GT_SCALAR, x()?, -3)?, &e.compare(Op::LT_SCALAR, x()?, 3)?)?;
            e.choose_or(&inside, &e.scale(g()?, 1.0 / 6.0)?, 0)?
        }
        Op::HARDSWISH_BACKWARD => {
            let middle = e.mul(g()?, &e.plus(&e.scale(x()?, 1.0 / 3.0)?, 0.5)?)?;
            let upper = e.choose(&e.compare(Op::LT_SCALAR, x()?, 3)?, &middle, g()?)?;
            e.choose_or(&e.compare(Op::GT_SCALAR, x()?, -3)?, &upper, 0)?
        }
        Op::HARDTANH_BACKWARD => {
            let above = e.compare(Op::GT_SCALAR, x()?, a.scalar(2, "min_val")?)?;
            let inside = e.both(&above, &e.compare(Op::LT_SCALAR, x()?, a.scalar(3, "max_val")?)?)?;
            e.choose_or(&inside, g()?, 0)?
        }
        Op::GLU_BACKWARD => {
            let (x, dim) = (x()?, wrap(a.int(2, "dim")?, x()?.ndim()));
            let half = x.shape()[dim as usize] as i64 / 2;
            let (first, second) = (e.slice(x, dim, 0, half)?, e.slice(x, dim, half, 2 * half)?);
            let s = e.unary(Op::SIGMOID, &second)?;
            let left = e.mul(g()?, &s)?;
            let right = e.mul(&e.mul(&left, &first)?, &e.rsub(1, &s)?)?;
            e.cat(vec![left, right], dim)?
        }
        Op::LOG_SIGMOID_BACKWARD => {
            // The forward pass has left z = e^-|x|: the slope is z / (1 + z) above zero, and one less that below.
            let z = a.tensor(2, "buffer")?;
            let z = if z.numel() == 0 {
                e.unary(Op::EXP, &e.unary(Op::NEG, &e.unary(Op::ABS, x()?)?)?)?
            } else {
                z.clone()
            };
            let share = e.div(&z, &e.plus(&z, 1)?)?;
            let slope = e.choose(&e.compare(Op::LT_SCALAR, x()?, 0)?, &e.rsub(1, &share)?, &share)?;
            e.mul(g()?, &slope)?
        }
        Op::NATIVE_DROPOUT_BACKWARD => {
            let kept = e.cast(a.tensor(1, "mask")?, g()?.dtype())?;
            e.mul(g()?, &e.scale(&kept, a.float(2, "scale")?)?)?
        }
        Op::_SOFTMAX_BACKWARD_DATA => {
            let (y, dim) = (a.tensor(1, "output")?, a.int(2, "dim")?);
            let product = e.mul(g()?, y)?;
            let rest = e.mul(y, &e.sum(&product, &[dim], true, None)?)?;
            e.cast(&e.sub(&product, &rest)?, a.dtype(3, "input_dtype")?)?
        }
        Op::_LOG_SOFTMAX_BACKWARD_DATA => {
            let (y, dim) = (a.tensor(1, "output")?, a.int(2, "dim")?);
            let rest = e.mul(&e.unary(Op::EXP, y)?, &e.sum(g()?, &[dim], true, None)?)?;
            e.cast(&e.sub(g()?, &rest)?, a.dtype(3, "input_dtype")?)?
        }
        Op::NLL_LOSS_BACKWARD | Op::NLL_LOSS2D_BACKWARD => nll_loss(e, a)?,
        _ => return losses(e, op, a),
    }))
}

/// The slope of x·Φ(x), or of its approximation by tanh.
fn gelu_slope(e: &Emit<'_>, x: &Tensor, by_tanh: bool) -> Result<Tensor> {
    if by_tanh {
        let (outer, cubic) = (SQRT_2 * FRAC_2_SQRT_PI * 0.5, 0.044715);
        let square = e.mul(x, x)?;
        let inner = e.scale(&e.mul(x, &e.plus(&e.scale(&square, cubic)?, 1)?)?, outer)?;
        let t = e.unary(Op::TANH, &inner)?;
        let bend = e.scale(&e.plus(&e.scale(&square, 3.0 * cubic)?, 1)?, outer)?;
        let right = e.mul(&e.mul(x, &e.rsub(1, &e.mul(&t, &t)?)?)?, &bend)?;
        return e.scale(&e.add(&e.plus(&t, 1)?, &right)?, 0.5);
    }
    let below = e.scale(&e.plus(&e.unary(Op::ERF, &e.scale(x, 1.0 / SQRT_2)?)?, 1)?, 0.5)?;
    let density = e.scale(&e.unary(Op::EXP, &e.scale(&e.mul(x, x)?, -0.5)?)?, 1.0 / (2.0 * PI).sqrt())?;
    e.add(&below, &e.mul(x, &density)?)
}

/// Losses of pairs: the slope of each, divided by their number for a mean.
fn losses(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    if !matches!(
        op,
        Op::MSE_LOSS_BACKWARD
            | Op::SMOOTH_L1_LOSS_BACKWARD
            | Op::HUBER_LOSS_BACKWARD
            | Op::BINARY_CROSS_ENTROPY_BACKWARD
    ) {
        return Ok(None);
    }
    let (g, x, y) = (a.tensor(0, "grad_output")?, a.tensor(1, "self")?, a.tensor(2, "target")?);
    let apart = e.sub(x, y)?;
    let (slope, reduction) = match op {
        Op::MSE_LOSS_BACKWARD => (e.scale(&apart, 2.0)?, a.int(3, "reduction")?),
        Op::BINARY_CROSS_ENTROPY_BACKWARD => {
            let spread = e.mul(x, &e.rsub(1, x)?)?;
            let spread = e.op(Op::CLAMP, &[spread.into(), Scalar::Float(1e-12).into()])?;
            let slope = e.div(&apart, &spread)?;
            let slope = match a.opt_tensor(3, "weight")? {
                Some(w) => e.mul(&slope, w)?,
                None => slope,
            };
            (slope, a.opt_int(4, "reduction")?.unwrap_or(1))
        }
        _ => {
            let (width, smooth) = (a.float(4, "width")?, op == Op::SMOOTH_L1_LOSS_BACKWARD);
            let sign = e.unary(Op::SIGN, &apart)?;
            let (near, far) = match smooth {
                true if width == 0.0 => (sign.clone(), sign),
                true => (e.scale(&apart, 1.0 / width)?, sign),
                false => (apart.clone(), e.scale(&sign, width)?),
            };
            let inside = e.compare(Op::LT_SCALAR, &e.unary(Op::ABS, &apart)?, width)?;
            (e.choose(&inside, &near, &far)?, a.int(3, "reduction")?)
        }
    };
    let count = if reduction == 1 { apart.numel() as f64 } else { 1.0 };
    Ok(Some(e.mul(&e.scale(&slope, 1.0 / count)?, g)?))
}

/// Minus the weight at the label of each place, nothing elsewhere.
fn nll_loss(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let (g, x, target) = (a.tensor(0, "grad_output")?, a.tensor(1, "self")?, a.tensor(2, "target")?);
    let (reduction, ignored) = (a.int(4, "reduction")?, a.int(5, "ignore_index")?);
    let dim = i64::from(x.ndim() >= 2);
    let g = if reduction == 1 { e.div(g, a.tensor(6, "total_weight")?)? } else { g.clone() };
    let target = e.unsqueeze(target, dim)?;
    let counts = e.compare(Op::NE_SCALAR, &target, ignored)?;
    let safe = e.choose_or(&counts, &target, 0)?;
    let sizes: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    let zeros = e.full(&sizes, 0, x)?;
    let marks = e.op(Op::SCATTER_VALUE, &[zeros.into(), dim.into(), safe.into(), Scalar::Float(-1.0).into()])?;
    let g = if g.ndim() > 0 && g.ndim() < x.ndim() { e.unsqueeze(&g, dim)? } else { g };
    let g = match a.opt_tensor(3, "weight")? {
        Some(w) => {
            let mut shape = vec![1; x.ndim()];
            shape[dim as usize] = w.numel() as i64;
            e.mul(&g, &e.view(w, &shape)?)?
        }
        None => g,
    };
    e.mul(&marks, &e.choose_or(&counts, &g, 0)?)
}

/// Normalizations: gradients of the input, the weight and the bias; those that are not needed have no elements.
pub(super) fn several(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Outputs>> {
    let frame = match op {
        Op::NATIVE_LAYER_NORM_BACKWARD => layer_norm(e, a)?,
        Op::NATIVE_GROUP_NORM_BACKWARD => group_norm(e, a)?,
        Op::NATIVE_BATCH_NORM_BACKWARD => batch_norm(e, a)?,
        _ => return Ok(None),
    };
    let Frame { grad, x, hat, rstd, weight, over, beside, parameters, constant, mask, sizes } = frame;
    let nothing = || e.full(&[0], 0, &x);
    let scaled = match &weight {
        Some(w) => e.mul(&grad, w)?,
        None => grad.clone(),
    };
    let input = match (mask[0], constant) {
        (false, _) => nothing()?,
        (true, true) => e.mul(&scaled, &rstd)?,
        (true, false) => {
            // r·(v - mean(v) - h·mean(v·h))
            let count: i64 = over.iter().map(|&d| scaled.shape()[d as usize] as i64).product();
            let mean = |t: &Tensor| e.scale(&e.sum(t, &over, true, None)?, 1.0 / count as f64);
            let rest = e.mul(&hat, &mean(&e.mul(&scaled, &hat)?)?)?;
            e.mul(&rstd, &e.sub(&e.sub(&scaled, &mean(&scaled)?)?, &rest)?)?
        }
    };
    let input = if !mask[0] || input.shape() == x.shape() { input } else { e.view(&input, &sizes)? };
    let summed = |t: &Tensor| match beside.is_empty() {
        true => e.view(t, &parameters),
        false => e.view(&e.sum(t, &beside, true, None)?, &parameters),
    };
    let of_weight = if mask[1] { summed(&e.mul(&grad, &hat)?)? } else { nothing()? };
    let of_bias = if mask[2] { summed(&grad)? } else { nothing()? };
    Ok(Some(smallvec![Value::Tensor(input), Value::Tensor(of_weight), Value::Tensor(of_bias)]))
}

/// A normalization, in a shape in which everything broadcasts.
struct Frame {
    grad: Tensor,
    x: Tensor,
    /// The input with mean zero and variance one.
    hat: Tensor,
    rstd: Tensor,
    weight: Option<Tensor>,
    /// Dimensions that statistics are over.
    over: Vec<i64>,
    /// Dimensions that a weight is shared along.
    beside: Vec<i64>,
    /// The shape of weight and bias.
    parameters: Vec<i64>,
    /// Whether statistics are constants.
    constant: bool,
    mask: [bool; 3],
    /// The shape of the input.
    sizes: Vec<i64>,
}

fn sizes_of(x: &Tensor) -> Vec<i64> {
    x.shape().iter().map(|&n| n as i64).collect()
}

fn layer_norm(e: &Emit<'_>, a: &Args<'_>) -> Result<Frame> {
    let (grad, x) = (a.tensor(0, "grad_out")?, a.tensor(1, "input")?);
    let parameters = a.ints(2, "normalized_shape")?;
    let (mean, rstd) = (a.tensor(3, "mean")?, a.tensor(4, "rstd")?);
    let outer = (x.ndim() - parameters.len()) as i64;
    let hat = e.mul(&e.sub(x, mean)?, rstd)?;
    Ok(Frame {
        grad: grad.clone(),
        x: x.clone(),
        hat,
        rstd: rstd.clone(),
        weight: a.opt_tensor(5, "weight")?.cloned(),
        over: (outer..x.ndim() as i64).collect(),
        beside: (0..outer).collect(),
        parameters,
        constant: false,
        mask: a.bools(7, "output_mask")?,
        sizes: sizes_of(x),
    })
}

fn group_norm(e: &Emit<'_>, a: &Args<'_>) -> Result<Frame> {
    let x = a.tensor(1, "input")?;
    let [n, c, area, group] = [5, 6, 7, 8].map(|k| a.int(k, "size"));
    let (n, c, area, group) = (n?, c?, area?, group?);
    let shape = [n, group, c / group, area];
    let (grad, apart) = (e.reshape(a.tensor(0, "grad_out")?, &shape)?, e.reshape(x, &shape)?);
    let [mean, rstd] = [2, 3].map(|k| e.view(a.tensor(k, "statistic")?, &[n, group, 1, 1]));
    let (mean, rstd) = (mean?, rstd?);
    let weight = a.opt_tensor(4, "weight")?.map(|w| e.view(w, &[1, group, c / group, 1])).transpose()?;
    Ok(Frame {
        hat: e.mul(&e.sub(&apart, &mean)?, &rstd)?,
        grad,
        x: x.clone(),
        rstd,
        weight,
        over: vec![2, 3],
        beside: vec![0, 3],
        parameters: vec![c],
        constant: false,
        mask: a.bools(9, "output_mask")?,
        sizes: sizes_of(x),
    })
}

fn batch_norm(e: &Emit<'_>, a: &Args<'_>) -> Result<Frame> {
    let (grad, x, train) = (a.tensor(0, "grad_out")?, a.tensor(1, "input")?, a.bool(7, "train")?);
    let channels = x.shape()[1] as i64;
    let mut shape = vec![1; x.ndim()];
    shape[1] = channels;
    let (mean, rstd) = match train {
        true => (a.tensor(5, "save_mean")?.clone(), a.tensor(6, "save_invstd")?.clone()),
        false => {
            let widened = e.plus(a.tensor(4, "running_var")?, a.float(8, "eps")?)?;
            (a.tensor(3, "running_mean")?.clone(), e.unary(Op::RSQRT, &widened)?)
        }
    };
    let rstd = e.view(&rstd, &shape)?;
    let weight = a.opt_tensor(2, "weight")?.map(|w| e.view(w, &shape)).transpose()?;
    let others: Vec<i64> = (0..x.ndim() as i64).filter(|d| *d != 1).collect();
    Ok(Frame {
        hat: e.mul(&e.sub(x, &e.view(&mean, &shape)?)?, &rstd)?,
        grad: grad.clone(),
        x: x.clone(),
        rstd,
        weight,
        over: others.clone(),
        beside: others,
        parameters: vec![channels],
        constant: !train,
        mask: a.bools(9, "output_mask")?,
        sizes: sizes_of(x),
    })
}
