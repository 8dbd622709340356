//! Dropout in its variants, and normals with parameters in tensors.

use crate::layout::Dims;
use crate::ops::cpu::random::{need_probability, need_std, standard_normal};
use crate::ops::formulas::sym;
use crate::ops::shape;
use crate::{Error, Result, Scalar, Tensor, ops};

/// What elements are multiplied with: 0, or `scale` where they are kept.
fn noise(input: &Tensor, sizes: &[usize], p: f64, scale: f64) -> Result<Tensor> {
    let empty = ops::new_empty(input, &sym(sizes), None, None)?;
    ops::bernoulli_(&empty, 1.0 - p)?;
    if scale == 1.0 { Ok(empty) } else { ops::div_scalar(&empty, Scalar::Float(scale)) }
}

pub(crate) fn dropout(input: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    need_probability("dropout", p)?;
    if p == 0.0 || !train || input.numel() == 0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        return ops::mul(input, &ops::new_zeros(input, &[], None, None)?);
    }
    let kept = ops::empty_like(input, None, None, None)?;
    ops::bernoulli_(&kept, 1.0 - p)?;
    ops::mul(input, &ops::div_scalar(&kept, Scalar::Float(1.0 - p))?)
}

pub(crate) fn dropout_(self_: &Tensor, p: f64, train: bool) -> Result<&Tensor> {
    need_probability("dropout_", p)?;
    if p == 0.0 || !train || self_.numel() == 0 {
        return Ok(self_);
    }
    if p == 1.0 {
        return ops::mul_(self_, &ops::new_zeros(self_, &[], None, None)?);
    }
    ops::mul_(self_, &noise(self_, self_.shape(), p, 1.0 - p)?)
}

/// One number per sample and channel.
fn per_feature(op: &'static str, input: &Tensor) -> Result<Dims> {
    if input.ndim() < 2 {
        return Err(Error::argument(op, format!("needs at least 2 dimensions, found shape {:?}", input.shape())));
    }
    Ok((0..input.ndim()).map(|k| if k < 2 { input.shape()[k] } else { 1 }).collect())
}

pub(crate) fn feature_dropout(input: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    const OP: &str = "feature_dropout";
    need_probability(OP, p)?;
    if p == 0.0 || !train || input.numel() == 0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        return ops::mul(input, &ops::new_zeros(input, &[], None, None)?);
    }
    ops::mul(input, &noise(input, &per_feature(OP, input)?, p, 1.0 - p)?)
}

/// Keeps mean and variance of what `selu` gives: dropped elements become its lower limit.
fn alpha(input: &Tensor, sizes: &[usize], p: f64) -> Result<Tensor> {
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    let a = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let kept = noise(input, sizes, p, 1.0)?;
    let number = |v: f64| Scalar::Float(v);
    let one = Scalar::Int(1);
    let lower = ops::mul_scalar(&ops::add_scalar(&kept, number(-1.0), one)?, number(ALPHA * a))?;
    let lower = ops::add_scalar(&lower, number(ALPHA * a * p), one)?;
    ops::add(&ops::mul(input, &ops::mul_scalar(&kept, number(a))?)?, &lower, one)
}

pub(crate) fn alpha_dropout(input: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    need_probability("alpha_dropout", p)?;
    if p == 0.0 || !train || input.numel() == 0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        return ops::mul(input, &ops::new_zeros(input, &[], None, None)?);
    }
    alpha(input, input.shape(), p)
}

pub(crate) fn feature_alpha_dropout(input: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    const OP: &str = "feature_alpha_dropout";
    need_probability(OP, p)?;
    if p == 0.0 || !train || input.numel() == 0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        return ops::mul(input, &ops::new_zeros(input, &[], None, None)?);
    }
    alpha(input, &per_feature(OP, input)?, p)
}

pub(crate) fn normal_tensor_float(mean: &Tensor, std: f64) -> Result<Tensor> {
    need_std("normal", std)?;
    let z = ops::mul_scalar(&standard_normal(mean, mean.shape())?, Scalar::Float(std))?;
    ops::add(&z, &ops::detach(mean)?, Scalar::Int(1))
}

fn need_stds(std: &Tensor) -> Result<()> {
    if std.is_meta() {
        return Ok(()); // nothing to look at
    }
    let negative = ops::any(&ops::lt_scalar(std, Scalar::Int(0))?)?.try_item::<bool>()?;
    need_std("normal", if negative { -1.0 } else { 0.0 })
}

pub(crate) fn normal_float_tensor(mean: f64, std: &Tensor) -> Result<Tensor> {
    need_stds(std)?;
    let z = ops::mul(&standard_normal(std, std.shape())?, &ops::detach(std)?)?;
    ops::add_scalar(&z, Scalar::Float(mean), Scalar::Int(1))
}

pub(crate) fn normal_tensor_tensor(mean: &Tensor, std: &Tensor) -> Result<Tensor> {
    need_stds(std)?;
    let sizes = shape::broadcast("normal", mean.shape(), std.shape())?;
    let z = ops::mul(&standard_normal(mean, &sizes)?, &ops::detach(std)?)?;
    ops::add(&z, &ops::detach(mean)?, Scalar::Int(1))
}
