//! Activations that are others with fixed numbers, or a preparation before one kernel.

use crate::ops;
use crate::sym::SymInts;
use crate::{Error, Result, Scalar, Tensor};

/// `hardtanh` from 0 to 6.
pub(crate) fn relu6(a: &Tensor) -> Result<Tensor> {
    ops::hardtanh(a, Scalar::Int(0), Scalar::Int(6))
}

/// `hardtanh_` from 0 to 6.
pub(crate) fn relu6_(a: &Tensor) -> Result<&Tensor> {
    ops::hardtanh_(a, Scalar::Int(0), Scalar::Int(6))
}

/// The numbers with which activations keep mean 0 and variance 1 from layer to layer.
const SELU_ALPHA: Scalar = Scalar::Float(1.6732632423543772848170429916717);
const SELU_SCALE: Scalar = Scalar::Float(1.0507009873554804934193349852946);

/// `elu` with the self-normalising numbers.
pub(crate) fn selu(a: &Tensor) -> Result<Tensor> {
    ops::elu(a, SELU_ALPHA, SELU_SCALE, Scalar::Int(1))
}

/// `elu_` with the self-normalising numbers.
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
        let m = format!("the weight has one dimension at most, found shape {:?}", weight.shape());
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
