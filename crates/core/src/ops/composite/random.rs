//! Dropout in its variants, and normals with parameters in tensors.

use crate::dispatch::MemoryFormat;
use crate::layout::Dims;
use crate::ops::cpu::random::{need_probability, need_std, standard_normal};
use crate::ops::formulas::sym;
use crate::ops::shape;
use crate::{DType, Device, Error, Result, Scalar, SymInt, Tensor, ops, state};

/// Ones with probability `p`, zeros otherwise, in the place of `empty`'s elements.
fn drawn(empty: Tensor, p: f64) -> Result<Tensor> {
    if state::is(state::LEVEL) {
        // Inside `vmap` samples may differ, which what is written in place could not.
        return ops::bernoulli_p(&empty, p);
    }
    ops::bernoulli_(&empty, p)?;
    Ok(empty)
}

/// What elements are multiplied with: 0, or `scale` where they are kept.
fn noise(input: &Tensor, sizes: &[usize], p: f64, scale: f64) -> Result<Tensor> {
    let empty = ops::new_empty(input, &sym(sizes), Some(input.dtype().to_real()), None)?;
    let kept = drawn(empty, 1.0 - p)?;
    if scale == 1.0 { Ok(kept) } else { ops::div_scalar(&kept, Scalar::Float(scale)) }
}

pub(crate) fn dropout(input: &Tensor, p: f64, train: bool) -> Result<Tensor> {
    need_probability("dropout", p)?;
    if p == 0.0 || !train || input.numel() == 0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        return ops::mul(input, &ops::new_zeros(input, &[], None, None)?);
    }
    let kept = drawn(ops::empty_like(input, Some(input.dtype().to_real()), None, None)?, 1.0 - p)?;
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

/// Standard normals; inside `vmap` those of the samples differ, or are the same for all that are not batched.
fn normals(like: &Tensor, sizes: &[usize], batched: bool) -> Result<Tensor> {
    if !state::is(state::LEVEL) {
        return standard_normal(like, sizes);
    }
    crate::func::level::need_different("normal", batched)?;
    ops::randn(&sym(sizes), Some(like.dtype()), Some(like.device()))
}

pub(crate) fn normal_tensor_float(mean: &Tensor, std: f64) -> Result<Tensor> {
    need_std("normal", std)?;
    let z = ops::mul_scalar(&normals(mean, mean.shape(), mean.is_batched())?, Scalar::Float(std))?;
    ops::add(&z, &ops::detach(mean)?, Scalar::Int(1))
}

fn need_stds(std: &Tensor) -> Result<()> {
    if std.is_meta() || std.is_batched() {
        return Ok(()); // nothing that could be looked at
    }
    let negative = ops::any(&ops::lt_scalar(std, Scalar::Int(0))?)?.try_item::<bool>()?;
    need_std("normal", if negative { -1.0 } else { 0.0 })
}

pub(crate) fn normal_float_tensor(mean: f64, std: &Tensor) -> Result<Tensor> {
    need_stds(std)?;
    let z = ops::mul(&normals(std, std.shape(), std.is_batched())?, &ops::detach(std)?)?;
    ops::add_scalar(&z, Scalar::Float(mean), Scalar::Int(1))
}

pub(crate) fn normal_tensor_tensor(mean: &Tensor, std: &Tensor) -> Result<Tensor> {
    need_stds(std)?;
    let sizes = shape::broadcast("normal", mean.shape(), std.shape())?;
    let z = ops::mul(&normals(mean, &sizes, mean.is_batched() || std.is_batched())?, &ops::detach(std)?)?;
    ops::add(&z, &ops::detach(mean)?, Scalar::Int(1))
}

// ---- the same draws under other names; the thread's generator is the one that is meant

pub(crate) fn rand(size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    ops::rand(size, dtype, device)
}

pub(crate) fn randn(size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    ops::randn(size, dtype, device)
}

pub(crate) fn randperm(n: SymInt, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    ops::randperm(n, dtype, device)
}

pub(crate) fn randint(high: SymInt, size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    ops::randint(high, size, dtype, device)
}

pub(crate) fn randint_low(
    low: SymInt,
    high: SymInt,
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    ops::randint_low(low, high, size, dtype, device)
}

pub(crate) fn rand_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    ops::rand_like(self_, dtype, device, format)
}

pub(crate) fn randn_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    ops::randn_like(self_, dtype, device, format)
}

pub(crate) fn randint_like(
    self_: &Tensor,
    high: SymInt,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    ops::randint_like(self_, high, dtype, device, format)
}

pub(crate) fn randint_like_low(
    self_: &Tensor,
    low: SymInt,
    high: SymInt,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    ops::randint_like_low(self_, low, high, dtype, device, format)
}

/// The bound in a tensor.
pub(crate) fn randint_like_tensor(
    self_: &Tensor,
    high: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let high = ops::item(high)?.to_i64();
    ops::randint_like(self_, high.into(), dtype, device, format)
}

/// Samples of a Dirichlet distribution: gamma samples, divided by their sum along the last dimension.
pub(crate) fn sample_dirichlet(self_: &Tensor) -> Result<Tensor> {
    let dtype = self_.dtype();
    let gammas = ops::_standard_gamma(&ops::formulas::cast(&ops::detach(self_)?, DType::F64)?)?;
    let shares = ops::div(&gammas, &ops::sum_dim(&gammas, Some(&[-1]), true, None)?)?;
    // Neither 0 nor 1: logarithms of both are taken.
    let (least, most) = match dtype {
        DType::F64 => (f64::MIN_POSITIVE, 1f64.next_down()),
        _ => (f64::from(f32::MIN_POSITIVE), f64::from(1f32.next_down())),
    };
    ops::formulas::cast(&ops::clamp(&shares, Some(Scalar::Float(least)), Some(Scalar::Float(most)))?, dtype)
}
