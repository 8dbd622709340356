//! Activations that are special cases of others, or that preprocess their arguments for one kernel.

use crate::autograd::NoGrad;
use crate::sym::SymInts;
use crate::{Error, Result, Scalar, Tensor};
use crate::{generator, ops};

/// `hardtanh` from 0 to 6.
pub(crate) fn relu6(a: &Tensor) -> Result<Tensor> {
    ops::hardtanh(a, Scalar::Int(0), Scalar::Int(6))
}

/// `hardtanh_` from 0 to 6.
pub(crate) fn relu6_(a: &Tensor) -> Result<&Tensor> {
    ops::hardtanh_(a, Scalar::Int(0), Scalar::Int(6))
}

/// The numbers with which activations keep mean 0 and variance 1 from layer to layer.
const SELU_ALPHA: Scalar = Scalar::Float(1.673_263_242_354_377_2);
const SELU_SCALE: Scalar = Scalar::Float(1.050_700_987_355_480_5);

/// `elu` with the self-normalizing numbers.
pub(crate) fn selu(a: &Tensor) -> Result<Tensor> {
    ops::elu(a, SELU_ALPHA, SELU_SCALE, Scalar::Int(1))
}

/// `elu_` with the self-normalizing numbers.
pub(crate) fn selu_(a: &Tensor) -> Result<&Tensor> {
    ops::elu_(a, SELU_ALPHA, SELU_SCALE, Scalar::Int(1))
}

/// `log(sigmoid(a))`.
pub(crate) fn log_sigmoid(a: &Tensor) -> Result<Tensor> {
    Ok(ops::log_sigmoid_forward(a)?.0)
}

/// A learned slope below zero: one, or one for each channel.
pub(crate) fn prelu(a: &Tensor, weight: &Tensor) -> Result<Tensor> {
    const OP: &str = "prelu";
    if weight.ndim() > 1 {
        let m = format!("the weight must have at most one dimension, found shape {:?}", weight.shape());
        return Err(Error::argument(OP, m));
    }
    let channels = if a.ndim() > 1 { a.shape()[1] } else { 1 };
    if weight.numel() != 1 && (a.ndim() == 0 || weight.numel() != channels) {
        let m =
            format!("expected 1 or {channels} slopes for an input of shape {:?}, found {}", a.shape(), weight.numel());
        return Err(Error::argument(OP, m));
    }
    if weight.ndim() == 0 || a.ndim() == 0 {
        return ops::prelu_kernel(a, &ops::reshape(weight, &[])?);
    }
    let sizes: SymInts =
        (0..a.ndim()).map(|d| if d == 1.min(a.ndim() - 1) { weight.numel().into() } else { 1usize.into() }).collect();
    ops::prelu_kernel(a, &ops::reshape(weight, &sizes)?)
}

// ---- a random slope below zero

/// The slopes of one call: drawn for each element that is not positive, one for the others.
fn draw_slopes(op: &'static str, a: &Tensor, noise: &Tensor, lower: Scalar, upper: Scalar) -> Result<()> {
    if noise.shape() != a.shape() || noise.dtype() != a.dtype() {
        let m = format!(
            "the noise is {} {:?}, expected the input's {} {:?}",
            noise.dtype(),
            noise.shape(),
            a.dtype(),
            a.shape()
        );
        return Err(Error::argument(op, m));
    }
    if a.is_meta() {
        return Ok(());
    }
    let _plain = NoGrad::new();
    let (from, width) = (lower.to_f64(), upper.to_f64() - lower.to_f64());
    let mut slopes = a.try_to_vec::<f64>()?;
    generator::draw(|g| {
        for x in &mut slopes {
            *x = if *x <= 0.0 { g.uniform_f64().mul_add(width, from) } else { 1.0 };
        }
    });
    ops::copy_(noise, &Tensor::try_from_vec(slopes, a.shape())?, false)?;
    Ok(())
}

fn check_slopes(op: &'static str, a: &Tensor, lower: Scalar, upper: Scalar) -> Result<()> {
    ops::shape::need_float(op, a.dtype())?;
    if lower.to_f64() > upper.to_f64() {
        return Err(Error::argument(op, format!("lower ({lower}) must not exceed upper ({upper})")));
    }
    Ok(())
}

fn mean(lower: Scalar, upper: Scalar) -> Scalar {
    Scalar::Float((lower.to_f64() + upper.to_f64()) / 2.0)
}

/// In training a random slope for each element, which `noise` keeps; otherwise the mean slope.
pub(crate) fn rrelu_with_noise(
    a: &Tensor,
    noise: &Tensor,
    lower: Scalar,
    upper: Scalar,
    training: bool,
) -> Result<Tensor> {
    const OP: &str = "rrelu_with_noise";
    check_slopes(OP, a, lower, upper)?;
    if !training {
        return ops::leaky_relu(a, mean(lower, upper));
    }
    draw_slopes(OP, a, noise, lower, upper)?;
    ops::mul(a, noise)
}

/// As above; the slopes are a second result, and `noise` stays as it is.
pub(crate) fn rrelu_with_noise_functional(
    a: &Tensor,
    noise: &Tensor,
    lower: Scalar,
    upper: Scalar,
    training: bool,
) -> Result<(Tensor, Tensor)> {
    let noise = ops::clone(noise, None)?;
    Ok((rrelu_with_noise(a, &noise, lower, upper, training)?, noise))
}

/// As above, in place.
pub(crate) fn rrelu_with_noise_<'a>(
    a: &'a Tensor,
    noise: &Tensor,
    lower: Scalar,
    upper: Scalar,
    training: bool,
) -> Result<&'a Tensor> {
    const OP: &str = "rrelu_with_noise_";
    check_slopes(OP, a, lower, upper)?;
    if !training {
        return ops::leaky_relu_(a, mean(lower, upper));
    }
    draw_slopes(OP, a, noise, lower, upper)?;
    ops::mul_(a, noise)
}

/// Like [`rrelu_with_noise`], forgetting the noise.
pub(crate) fn rrelu(a: &Tensor, lower: Scalar, upper: Scalar, training: bool) -> Result<Tensor> {
    rrelu_with_noise(a, &ops::formulas::zeros_like_primal(a)?, lower, upper, training)
}

/// As above, in place.
pub(crate) fn rrelu_(a: &Tensor, lower: Scalar, upper: Scalar, training: bool) -> Result<&Tensor> {
    rrelu_with_noise_(a, &ops::formulas::zeros_like_primal(a)?, lower, upper, training)
}
