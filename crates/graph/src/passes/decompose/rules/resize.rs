//! Resizing by nearest and linear neighbors: positions are computed, elements taken by index.

use super::super::emit::Emit;
use firebrand_core::dispatch::{Args, Op, Value};
use firebrand_core::{DType, Result, Scalar, Tensor};

pub(super) fn apply(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match op {
        Op::UPSAMPLE_NEAREST1D | Op::UPSAMPLE_NEAREST2D | Op::UPSAMPLE_NEAREST3D => nearest(e, a, 0.0)?,
        Op::_UPSAMPLE_NEAREST_EXACT1D | Op::_UPSAMPLE_NEAREST_EXACT2D | Op::_UPSAMPLE_NEAREST_EXACT3D => {
            nearest(e, a, 0.5)?
        }
        Op::UPSAMPLE_LINEAR1D => linear(e, a)?,
        _ => return Ok(None),
    }))
}

/// `0, 1, … output - 1`, moved and scaled to positions of the input.
fn positions(e: &Emit<'_>, x: &Tensor, output: i64, shift: f64, scale: f64) -> Result<Tensor> {
    let precise = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let [from, to, step] = [0, output, 1].map(|n| Value::from(Scalar::Int(n)));
    let steps = e.op(Op::ARANGE_START_STEP, &[from, to, step, precise.into(), Value::None, x.device().into()])?;
    let moved = if shift == 0.0 { steps } else { e.plus(&steps, shift)? };
    e.scale(&moved, scale)
}

/// How many input elements lie between output elements, as the factor the caller gave or the sizes say.
fn step(input: i64, output: i64, factor: Option<f64>) -> f64 {
    factor.filter(|f| *f > 0.0).map_or(input as f64 / output as f64, |f| 1.0 / f)
}

fn nearest(e: &Emit<'_>, a: &Args<'_>, shift: f64) -> Result<Tensor> {
    let (x, sizes) = (a.tensor(0, "self")?, a.ints(1, "output_size")?);
    let mut indices = vec![None; 2];
    for (k, &output) in sizes.iter().enumerate() {
        let input = x.shape()[2 + k] as i64;
        let at = positions(e, x, output, shift, step(input, output, a.opt_float(2 + k, "scales")?))?;
        let whole = e.cast(&e.unary(Op::FLOOR, &at)?, DType::I64)?;
        let mut index = e.op(Op::CLAMP, &[whole.into(), Scalar::Int(0).into(), Scalar::Int(input - 1).into()])?;
        for _ in k + 1..sizes.len() {
            index = e.unsqueeze(&index, -1)?;
        }
        indices.push(Some(index));
    }
    e.index(x, indices)
}

fn linear(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let (x, output) = (a.tensor(0, "self")?, a.ints(1, "output_size")?[0]);
    let (input, align) = (x.shape()[2] as i64, a.bool(2, "align_corners")?);
    let at = if align {
        let scale = if output > 1 { (input - 1) as f64 / (output - 1) as f64 } else { 0.0 };
        positions(e, x, output, 0.0, scale)?
    } else {
        let middle = positions(e, x, output, 0.5, step(input, output, a.opt_float(3, "scales")?))?;
        e.op(Op::CLAMP, &[e.plus(&middle, -0.5)?.into(), Scalar::Float(0.0).into()])?
    };
    let below = e.unary(Op::FLOOR, &at)?;
    let index = |t: &Tensor| {
        let whole = e.cast(t, DType::I64)?;
        e.op(Op::CLAMP, &[whole.into(), Value::None, Scalar::Int(input - 1).into()])
    };
    let (low, high) = (index(&below)?, index(&e.plus(&below, 1.0)?)?);
    let way = e.cast(&e.sub(&at, &below)?, x.dtype())?;
    let take = |index: Tensor| e.index(x, vec![None, None, Some(index)]);
    let (first, second) = (take(low)?, take(high)?);
    e.add(&first, &e.mul(&e.sub(&second, &first)?, &way)?)
}
