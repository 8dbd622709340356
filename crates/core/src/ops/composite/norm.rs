//! Normalization as users call it, composed of the native ops.

use crate::autograd::NoGrad;
use crate::ops::formulas::{cast, sym};
use crate::ops::shape::wrap_dim;
use crate::{DType, Device, Error, Result, Scalar, Spec, SymInt, Tensor, ops};

pub(crate) fn layer_norm(
    input: &Tensor,
    normalized_shape: &[SymInt],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    _cudnn_enable: bool,
) -> Result<Tensor> {
    Ok(ops::native_layer_norm(input, normalized_shape, weight, bias, eps)?.0)
}

/// `x / sqrt(mean(x^2) + eps) * weight` over trailing dimensions; half types are computed in f32. Complex numbers
/// are squared, not their magnitudes, as PyTorch does.
pub(crate) fn rms_norm(
    input: &Tensor,
    normalized_shape: &[SymInt],
    weight: Option<&Tensor>,
    eps: Option<f64>,
) -> Result<Tensor> {
    const OP: &str = "rms_norm";
    let inner = ops::shape::trailing(OP, input, normalized_shape)?;
    if let Some(w) = weight.filter(|w| w.shape() != &inner[..]) {
        return Err(Error::argument(OP, format!("weight should have shape {inner:?}, found {:?}", w.shape())));
    }
    let wide = match input.dtype() {
        wide @ (DType::F64 | DType::C64 | DType::C128) => wide,
        _ => DType::F32,
    };
    let eps = eps.unwrap_or(if wide.to_real() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) });
    let x = cast(input, wide)?;
    let dims: Vec<i64> = (1..=inner.len() as i64).map(|k| -k).collect();
    let square = ops::mean_dim(&ops::mul(&x, &x)?, Some(&dims), true, None)?;
    let scale = ops::reciprocal(&ops::sqrt(&ops::add_scalar(&square, Scalar::Float(eps), Scalar::Int(1))?)?)?;
    let normal = ops::mul(&x, &scale)?;
    let out = match weight {
        Some(w) => ops::mul(&normal, w)?,
        None => normal,
    };
    cast(&out, input.dtype())
}

pub(crate) fn group_norm(
    input: &Tensor,
    num_groups: i64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    _cudnn_enabled: bool,
) -> Result<Tensor> {
    let [n, c, ..] = *input.shape() else {
        let m = format!("expected samples, channels and more, found shape {:?}", input.shape());
        return Err(Error::argument("group_norm", m));
    };
    let rest: usize = input.shape()[2..].iter().product();
    if c == 0 || rest == 0 {
        let m = format!("expected channels and elements in them, found shape {:?}", input.shape());
        return Err(Error::argument("group_norm", m));
    }
    Ok(ops::native_group_norm(input, weight, bias, n.into(), c.into(), rest.into(), num_groups, eps)?.0)
}

pub(crate) fn batch_norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
    _cudnn_enabled: bool,
) -> Result<Tensor> {
    // Of nothing, there are no channels to check.
    if input.numel() == 0 && input.ndim() < 2 {
        let first = |v: &Tensor| ops::select(v, 0, 0.into());
        let mut out = ops::clone(input, None)?;
        if let Some(w) = weight.filter(|w| w.numel() > 0) {
            out = ops::mul(&out, &first(w)?)?;
        }
        if let Some(b) = bias.filter(|b| b.numel() > 0) {
            out = ops::add(&out, &first(b)?, Scalar::Int(1))?;
        }
        return Ok(out);
    }
    Ok(ops::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)?.0)
}

/// Copies of running statistics, for forms that must not write to the originals, or only visibly.
fn copies(mean: &Tensor, var: &Tensor) -> Result<(Tensor, Tensor)> {
    let _plain = NoGrad::new();
    Ok((ops::clone(mean, None)?, ops::clone(var, None)?))
}

pub(crate) fn native_batch_norm_legit(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, v) = copies(running_mean, running_var)?;
    let out = ops::native_batch_norm(input, weight, bias, Some(&m), Some(&v), training, momentum, eps)?;
    if training {
        let _plain = NoGrad::new();
        ops::copy_(running_mean, &m, false)?;
        ops::copy_(running_var, &v, false)?;
    }
    Ok(out)
}

pub(crate) fn native_batch_norm_legit_no_stats(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    ops::native_batch_norm(input, weight, bias, None, None, training, momentum, eps)
}

pub(crate) fn native_batch_norm_legit_no_training(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    ops::native_batch_norm(input, weight, bias, Some(running_mean), Some(running_var), false, momentum, eps)
}

pub(crate) fn native_batch_norm_legit_functional(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor, Tensor, Tensor)> {
    let (m, v) = copies(running_mean, running_var)?;
    let (out, mean, invstd) = ops::native_batch_norm(input, weight, bias, Some(&m), Some(&v), training, momentum, eps)?;
    Ok((out, mean, invstd, m, v))
}

/// The empty buffer that other devices keep for the backward pass.
fn reserve(device: Device) -> Result<Tensor> {
    Tensor::try_empty(Spec::new(&[0], DType::U8, device)?)
}

pub(crate) fn batch_norm_with_update(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let (out, mean, invstd) =
        native_batch_norm_legit(input, weight, bias, running_mean, running_var, true, momentum, eps)?;
    Ok((out, mean, invstd, reserve(input.device())?))
}

pub(crate) fn batch_norm_with_update_functional(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: &Tensor,
    running_var: &Tensor,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)> {
    let (out, mean, invstd, m, v) =
        native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, true, momentum, eps)?;
    Ok((out, mean, invstd, reserve(input.device())?, m, v))
}

/// Batch norm of every sample by itself: samples become channels.
pub(crate) fn instance_norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    use_input_stats: bool,
    momentum: f64,
    eps: f64,
    cudnn_enabled: bool,
) -> Result<Tensor> {
    const OP: &str = "instance_norm";
    let [n, c, ..] = *input.shape() else {
        let m = format!("expected samples, channels and more, found shape {:?}", input.shape());
        return Err(Error::argument(OP, m));
    };
    for (what, t) in [("weight", weight), ("bias", bias), ("running_mean", running_mean), ("running_var", running_var)]
    {
        if let Some(t) = t.filter(|t| t.shape() != [c]) {
            return Err(Error::argument(OP, format!("{what} should have shape [{c}], found {:?}", t.shape())));
        }
    }
    if !use_input_stats && (running_mean.is_none() || running_var.is_none()) {
        return Err(Error::argument(OP, "running_mean and running_var are required unless use_input_stats is true"));
    }
    let repeated = |t: Option<&Tensor>| -> Result<Option<Tensor>> {
        let Some(t) = t else { return Ok(None) };
        let wide = ops::expand(&ops::unsqueeze(t, 0)?, &sym(&[n, c]), false)?;
        Ok(Some(ops::reshape(&wide, &sym(&[n * c]))?))
    };
    let fresh = |t: Option<&Tensor>| -> Result<Option<Tensor>> {
        let _plain = NoGrad::new();
        repeated(t)?.map(|t| ops::clone(&t, None)).transpose()
    };
    let (w, b) = (repeated(weight)?, repeated(bias)?);
    let (m, v) = (fresh(running_mean)?, fresh(running_var)?);
    let mut sizes = vec![1, n * c];
    sizes.extend_from_slice(&input.shape()[2..]);
    let flat = ops::reshape(input, &sym(&sizes))?;
    let (w, b) = (w.as_ref(), b.as_ref());
    let out = batch_norm(&flat, w, b, m.as_ref(), v.as_ref(), use_input_stats, momentum, eps, cudnn_enabled)?;
    if use_input_stats {
        let _plain = NoGrad::new();
        for (running, new) in [(running_mean, &m), (running_var, &v)] {
            if let (Some(r), Some(t)) = (running, new) {
                let mean = ops::mean_dim(&ops::view(t, &sym(&[n, c]))?, Some(&[0]), false, None)?;
                ops::copy_(r, &mean, false)?;
            }
        }
    }
    ops::reshape(&out, &input.sym_sizes())
}

/// A weight of given direction `v` and slice norms `g`, and the norms of the slices of `v`.
pub(crate) fn weight_norm_interface(v: &Tensor, g: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    let d = wrap_dim("_weight_norm", dim, v.ndim())?;
    let others: Vec<i64> = (0..v.ndim()).filter(|k| *k != d).map(|k| k as i64).collect();
    let norm = match others.is_empty() {
        true => ops::abs(v)?,
        false => ops::linalg_vector_norm(v, Scalar::Int(2), Some(&others), true, None)?,
    };
    let weight = ops::mul(v, &ops::div(g, &norm)?)?;
    Ok((weight, ops::detach(&norm)?))
}

pub(crate) fn weight_norm(v: &Tensor, g: &Tensor, dim: i64) -> Result<Tensor> {
    if dim == -1 {
        // As for `norm_except_dim`: no dimension is left out, there is one norm.
        return ops::mul(v, &ops::div(g, &super::reduce::norm_except_dim(v, 2, dim)?)?);
    }
    Ok(weight_norm_interface(v, g, dim)?.0)
}
