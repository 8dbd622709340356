//! Fake quantization: values rounded to a grid of integers and back, with gradients that pass through the rounding.
//!
//! Rounding has zero slope, so results are computed without history and get the gradient that training assumes: that of
//! the identity where a value is inside the grid (and of scale and zero point where those are learned).

use crate::autograd::NoGrad;
use crate::ops::arith::{add, div, mul, sub};
use crate::ops::formulas::{self, zero_where};
use crate::ops::shape::{need_float, wrap_dim};
use crate::{DType, Error, Result, Scalar, Tensor, ops};

/// The grid: scale and zero point broadcast with the values.
struct Grid {
    scale: Tensor,
    zero: Tensor,
    min: i64,
    max: i64,
}

impl Grid {
    fn new(op: &'static str, values: &Tensor, scale: Tensor, zero: Tensor, min: i64, max: i64) -> Result<Grid> {
        need_float(op, values.dtype())?;
        if min > max {
            return Err(Error::argument(op, format!("quant_min {min} exceeds quant_max {max}")));
        }
        Ok(Grid { scale, zero: formulas::cast(&zero, values.dtype())?, min, max })
    }

    /// Positions on the grid before they are bounded.
    fn places(&self, values: &Tensor) -> Result<Tensor> {
        let steps = ops::round(&mul(values, &ops::reciprocal(&formulas::cast(&self.scale, DType::F32)?)?)?)?;
        formulas::cast(&add(&steps, &self.zero)?, values.dtype())
    }

    /// What the values become, and which of them are inside the grid.
    fn snapped(&self, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let places = self.places(values)?;
        let (min, max) = (Scalar::Int(self.min), Scalar::Int(self.max));
        let inside = ops::logical_and(&ops::ge_scalar(&places, min)?, &ops::le_scalar(&places, max)?)?;
        let bounded = ops::clamp(&places, Some(min), Some(max))?;
        // Grids are single precision, whatever the values are.
        let single = |t: &Tensor| formulas::cast(t, DType::F32);
        let snapped = mul(&single(&sub(&bounded, &self.zero)?)?, &single(&self.scale)?)?;
        Ok((formulas::cast(&snapped, values.dtype())?, inside))
    }
}

/// A zero with the slope of `t` in it, times `factor`.
fn slope_of(t: &Tensor, factor: &Tensor) -> Result<Tensor> {
    mul(&sub(t, &ops::detach(t)?)?, factor)
}

/// `values` with the gradient of `t` where `inside`.
fn through(values: &Tensor, t: &Tensor, inside: &Tensor) -> Result<Tensor> {
    let still = sub(t, &ops::detach(t)?)?;
    add(values, &zero_where(&ops::logical_not(inside)?, &still)?)
}

fn with_mask(t: &Tensor, grid: &Grid) -> Result<(Tensor, Tensor)> {
    let (values, inside) = {
        let _plain = NoGrad::new();
        grid.snapped(&ops::detach(t)?)?
    };
    Ok((through(&values, t, &inside)?, inside))
}

fn number(value: f64, like: &Tensor) -> Result<Tensor> {
    ops::full(&[], Scalar::Float(value), Some(like.dtype()), Some(like.device()))
}

pub(crate) fn per_tensor_cachemask(
    self_: &Tensor,
    scale: f64,
    zero_point: i64,
    quant_min: i64,
    quant_max: i64,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "fake_quantize_per_tensor_affine";
    need_float(OP, self_.dtype())?;
    if !(quant_min..=quant_max).contains(&zero_point) {
        let m = format!("expected a zero point from {quant_min} to {quant_max}, found {zero_point}");
        return Err(Error::argument(OP, m));
    }
    let (scale, zero) = (number(scale, self_)?, number(zero_point as f64, self_)?);
    with_mask(self_, &Grid::new(OP, self_, scale, zero, quant_min, quant_max)?)
}

pub(crate) fn per_tensor(
    self_: &Tensor,
    scale: f64,
    zero_point: i64,
    quant_min: i64,
    quant_max: i64,
) -> Result<Tensor> {
    Ok(per_tensor_cachemask(self_, scale, zero_point, quant_min, quant_max)?.0)
}

/// One element as a tensor without dimensions and without history.
fn single(op: &'static str, t: &Tensor) -> Result<Tensor> {
    if t.numel() != 1 {
        return Err(Error::argument(op, format!("expected one element, found shape {:?}", t.shape())));
    }
    ops::reshape(&ops::detach(t)?, &[])
}

pub(crate) fn per_tensor_cachemask_tensors(
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    fake_quant_enabled: &Tensor,
    quant_min: i64,
    quant_max: i64,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "fake_quantize_per_tensor_affine";
    let (scale, zero) = (single(OP, scale)?, single(OP, zero_point)?);
    let (values, inside) = {
        let _plain = NoGrad::new();
        let (values, inside) =
            Grid::new(OP, self_, scale, zero, quant_min, quant_max)?.snapped(&ops::detach(self_)?)?;
        let off = ops::eq_scalar(&single(OP, fake_quant_enabled)?, Scalar::Int(0))?;
        (ops::where_self(&off, &ops::detach(self_)?, &values)?, ops::logical_or(&inside, &off)?)
    };
    Ok((through(&values, self_, &inside)?, inside))
}

pub(crate) fn per_tensor_tensors(
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    quant_min: i64,
    quant_max: i64,
) -> Result<Tensor> {
    let on = ops::ones(&[1.into()], Some(DType::I64), Some(self_.device()))?;
    Ok(per_tensor_cachemask_tensors(self_, scale, zero_point, &on, quant_min, quant_max)?.0)
}

/// One number per index of `axis`, in a shape that broadcasts with the values.
fn along(op: &'static str, t: &Tensor, values: &Tensor, axis: i64) -> Result<Tensor> {
    let axis = wrap_dim(op, axis, values.ndim())?;
    let sizes: Vec<_> = (0..values.ndim()).map(|k| if k == axis { t.numel() } else { 1 }).collect();
    if t.ndim() != 1 || Some(&t.numel()) != values.shape().get(axis) {
        let m =
            format!("expected one number per index of dimension {axis} of {:?}, found {:?}", values.shape(), t.shape());
        return Err(Error::argument(op, m));
    }
    ops::reshape(t, &formulas::sym(&sizes))
}

pub(crate) fn per_channel_cachemask(
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    axis: i64,
    quant_min: i64,
    quant_max: i64,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "fake_quantize_per_channel_affine";
    let wide = |t: &Tensor| along(OP, &ops::detach(t)?, self_, axis);
    with_mask(self_, &Grid::new(OP, self_, wide(scale)?, wide(zero_point)?, quant_min, quant_max)?)
}

pub(crate) fn per_channel(
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    axis: i64,
    quant_min: i64,
    quant_max: i64,
) -> Result<Tensor> {
    Ok(per_channel_cachemask(self_, scale, zero_point, axis, quant_min, quant_max)?.0)
}

/// `grad` where the value was inside the grid.
pub(crate) fn cachemask_backward(grad: &Tensor, mask: &Tensor) -> Result<Tensor> {
    if mask.dtype() != DType::Bool || mask.shape() != grad.shape() {
        let m = format!("expected a bool mask of shape {:?}, found {} {:?}", grad.shape(), mask.dtype(), mask.shape());
        return Err(Error::argument("fake_quantize_affine_cachemask_backward", m));
    }
    mul(grad, mask)
}

/// A zero point that is learned: rounded, and kept on the grid.
fn bounded_zero(zero: &Tensor, min: i64, max: i64) -> Result<Tensor> {
    let rounded = ops::floor(&add(zero, &0.5)?)?;
    ops::clamp(&rounded, Some(Scalar::Int(min)), Some(Scalar::Int(max)))
}

/// The slope of each result in scale and zero point, as training assumes them.
fn learned_slopes(t: &Tensor, grid: &Grid) -> Result<(Tensor, Tensor, Tensor)> {
    let (snapped, inside) = grid.snapped(t)?;
    let below = ops::lt_scalar(&grid.places(t)?, Scalar::Int(grid.min))?;
    let end = |v: i64| sub(&(v as f64), &grid.zero);
    let outside = ops::where_self(&below, &end(grid.min)?, &end(grid.max)?)?;
    let by_scale = ops::where_self(&inside, &div(&sub(&snapped, t)?, &grid.scale)?, &outside)?;
    let by_zero = zero_where(&inside, &ops::expand(&ops::neg(&grid.scale)?, &t.sym_sizes(), false)?)?;
    Ok((formulas::cast(&by_scale, t.dtype())?, formulas::cast(&by_zero, t.dtype())?, inside))
}

/// Grid and slopes, without history, of parameters that broadcast with the values.
fn learned(
    op: &'static str,
    t: &Tensor,
    scale: &Tensor,
    zero: &Tensor,
    min: i64,
    max: i64,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let _plain = NoGrad::new();
    let (t, scale, zero) = (ops::detach(t)?, ops::detach(scale)?, bounded_zero(&ops::detach(zero)?, min, max)?);
    let grid = Grid::new(op, &t, scale, zero, min, max)?;
    let (by_scale, by_zero, inside) = learned_slopes(&t, &grid)?;
    Ok((grid.snapped(&t)?.0, by_scale, by_zero, inside))
}

fn learnable(
    op: &'static str,
    t: &Tensor,
    (scale, zero): (&Tensor, &Tensor),
    min: i64,
    max: i64,
    grad_factor: f64,
) -> Result<Tensor> {
    let (values, by_scale, by_zero, inside) = learned(op, t, scale, zero, min, max)?;
    let out = through(&values, t, &inside)?;
    let out = add(&out, &slope_of(scale, &mul(&by_scale, &grad_factor)?)?)?;
    add(&out, &slope_of(zero, &mul(&by_zero, &grad_factor)?)?)
}

pub(crate) fn learnable_per_tensor(
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    quant_min: i64,
    quant_max: i64,
    grad_factor: f64,
) -> Result<Tensor> {
    const OP: &str = "_fake_quantize_learnable_per_tensor_affine";
    learnable(OP, self_, (scale, zero_point), quant_min, quant_max, grad_factor)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn learnable_per_channel(
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    axis: i64,
    quant_min: i64,
    quant_max: i64,
    grad_factor: f64,
) -> Result<Tensor> {
    const OP: &str = "_fake_quantize_learnable_per_channel_affine";
    let (scale, zero) = (along(OP, scale, self_, axis)?, along(OP, zero_point, self_, axis)?);
    learnable(OP, self_, (&scale, &zero), quant_min, quant_max, grad_factor)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn learnable_per_tensor_backward(
    grad: &Tensor,
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    quant_min: i64,
    quant_max: i64,
    grad_factor: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "_fake_quantize_learnable_per_tensor_affine_backward";
    let (_, by_scale, by_zero, inside) = learned(OP, self_, scale, zero_point, quant_min, quant_max)?;
    let total = |slope: &Tensor, like: &Tensor| {
        ops::reshape(&mul(&ops::sum(&mul(grad, slope)?, None)?, &grad_factor)?, &like.sym_sizes())
    };
    Ok((zero_where(&ops::logical_not(&inside)?, grad)?, total(&by_scale, scale)?, total(&by_zero, zero_point)?))
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn learnable_per_channel_backward(
    grad: &Tensor,
    self_: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    axis: i64,
    quant_min: i64,
    quant_max: i64,
    grad_factor: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "_fake_quantize_learnable_per_channel_affine_backward";
    let (wide_scale, wide_zero) = (along(OP, scale, self_, axis)?, along(OP, zero_point, self_, axis)?);
    let (_, by_scale, by_zero, inside) = learned(OP, self_, &wide_scale, &wide_zero, quant_min, quant_max)?;
    let axis = wrap_dim(OP, axis, self_.ndim())?;
    let others: Vec<i64> = (0..self_.ndim()).filter(|d| *d != axis).map(|d| d as i64).collect();
    let total = |slope: &Tensor| {
        let each = mul(grad, slope)?;
        let sum = if others.is_empty() { each } else { ops::sum_dim(&each, Some(&others), false, None)? };
        mul(&sum, &grad_factor)
    };
    Ok((zero_where(&ops::logical_not(&inside)?, grad)?, total(&by_scale)?, total(&by_zero)?))
}
