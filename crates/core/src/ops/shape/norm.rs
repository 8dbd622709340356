//! Shape functions of normalization layers and of their derivatives.
//!
//! A gradient that is not needed is a tensor without elements.

use super::need_float;
use crate::layout::Dims;
use crate::{DType, Error, Result, Spec, SymInt, Tensor};

/// The dtype of factors and statistics: the input's, or f32 beside a half type.
fn factor_type(op: &'static str, input: &Tensor, factors: &[Option<&Tensor>]) -> Result<DType> {
    need_float(op, input.dtype())?;
    let half = matches!(input.dtype(), DType::F16 | DType::BF16);
    let mut found = input.dtype();
    for f in factors.iter().flatten() {
        if f.dtype() != input.dtype() && !(half && f.dtype() == DType::F32) {
            let m =
                format!("the input is {}, a weight or statistic is {}; convert one of them", input.dtype(), f.dtype());
            return Err(Error::argument(op, m));
        }
        if f.dtype() == DType::F32 {
            found = DType::F32;
        }
    }
    Ok(found)
}

fn same_shape(op: &'static str, what: &str, t: Option<&Tensor>, sizes: &[usize]) -> Result<()> {
    match t {
        Some(t) if t.shape() != sizes => {
            Err(Error::argument(op, format!("{what} should have shape {sizes:?}, found {:?}", t.shape())))
        }
        _ => Ok(()),
    }
}

fn wanted(wanted: bool, sizes: &[usize], dtype: DType, like: &Tensor) -> Result<Spec> {
    Spec::new(if wanted { sizes } else { &[0] }, dtype, like.device())
}

// ---- layer norm

/// The sizes normalized together, checked against the input: a trailing part of its shape.
pub(crate) fn trailing(op: &'static str, input: &Tensor, normalized: &[SymInt]) -> Result<Dims> {
    let sizes: Option<Dims> = normalized.iter().map(|n| n.to_usize()).collect();
    match sizes {
        Some(s) if !s.is_empty() && input.shape().ends_with(&s) => Ok(s),
        _ => Err(Error::argument(
            op,
            format!(
                "normalized_shape {normalized:?} should be the end of the input's shape {:?}, at least one dimension",
                input.shape()
            ),
        )),
    }
}

/// `native_layer_norm`: the result, the means and the reciprocal deviations.
pub(crate) fn native_layer_norm(
    op: &'static str,
    input: &Tensor,
    normalized_shape: &[SymInt],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    _eps: f64,
) -> Result<(Spec, Spec, Spec)> {
    let inner = trailing(op, input, normalized_shape)?;
    same_shape(op, "weight", weight, &inner)?;
    same_shape(op, "bias", bias, &inner)?;
    let dtype = factor_type(op, input, &[weight, bias])?;
    let device = input.device();
    let lead = input.ndim() - inner.len();
    let sizes: Dims = (0..input.ndim()).map(|k| if k < lead { input.shape()[k] } else { 1 }).collect();
    let stats = Spec::new(&sizes, dtype, device)?;
    Ok((Spec::new(input.shape(), input.dtype(), device)?, stats.clone(), stats))
}

/// `native_layer_norm_backward`.
pub(crate) fn native_layer_norm_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    normalized_shape: &[SymInt],
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    output_mask: [bool; 3],
) -> Result<(Spec, Spec, Spec)> {
    let inner = trailing(op, input, normalized_shape)?;
    same_shape(op, "the gradient", Some(grad), input.shape())?;
    same_shape(op, "weight", weight, &inner)?;
    let dtype = factor_type(op, input, &[weight, bias])?;
    let rows = input.shape()[..input.ndim() - inner.len()].iter().product::<usize>();
    if mean.numel() != rows || rstd.numel() != rows {
        let m = format!("expected {rows} means and deviations, found {} and {}", mean.numel(), rstd.numel());
        return Err(Error::argument(op, m));
    }
    Ok((
        wanted(output_mask[0], input.shape(), input.dtype(), input)?,
        wanted(output_mask[1], &inner, dtype, input)?,
        wanted(output_mask[2], &inner, dtype, input)?,
    ))
}

// ---- batch norm

/// Number of channels, after checking that everything has one element a channel.
fn channels(op: &'static str, input: &Tensor, vectors: &[(&str, Option<&Tensor>)]) -> Result<usize> {
    let Some(&c) = input.shape().get(1) else {
        let m = format!("expected an input of samples, channels and more, found shape {:?}", input.shape());
        return Err(Error::argument(op, m));
    };
    for (what, v) in vectors {
        same_shape(op, what, *v, &[c])?;
    }
    Ok(c)
}

/// `native_batch_norm`; without training no statistics are returned.
pub(crate) fn native_batch_norm(
    op: &'static str,
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    training: bool,
    _momentum: f64,
    _eps: f64,
) -> Result<(Spec, Spec, Spec)> {
    let vectors = [("weight", weight), ("bias", bias), ("running_mean", running_mean), ("running_var", running_var)];
    let c = channels(op, input, &vectors)?;
    if !training && (running_mean.is_none() || running_var.is_none()) {
        return Err(Error::argument(op, "running_mean and running_var are required unless training is true"));
    }
    let dtype = factor_type(op, input, &[weight, bias, running_mean, running_var])?;
    let stats = Spec::new(&[if training { c } else { 0 }], dtype, input.device())?;
    Ok((Spec::new(input.shape(), input.dtype(), input.device())?, stats.clone(), stats))
}

/// `native_batch_norm_backward`.
pub(crate) fn native_batch_norm_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    weight: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_invstd: Option<&Tensor>,
    train: bool,
    _eps: f64,
    output_mask: [bool; 3],
) -> Result<(Spec, Spec, Spec)> {
    same_shape(op, "the gradient", Some(grad), input.shape())?;
    let used = if train {
        [("save_mean", save_mean), ("save_invstd", save_invstd)]
    } else {
        [("running_mean", running_mean), ("running_var", running_var)]
    };
    let c = channels(op, input, &[("weight", weight), used[0], used[1]])?;
    if let Some((what, _)) = used.iter().find(|(_, t)| t.is_none()) {
        return Err(Error::argument(op, format!("{what} is required here")));
    }
    let dtype = factor_type(op, input, &[weight, used[0].1, used[1].1])?;
    Ok((
        wanted(output_mask[0], input.shape(), input.dtype(), input)?,
        wanted(output_mask[1], &[c], dtype, input)?,
        wanted(output_mask[2], &[c], dtype, input)?,
    ))
}

// ---- group norm

/// Samples, channels, the rest and groups, checked against the input.
pub(crate) fn groups(
    op: &'static str,
    input: &Tensor,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
) -> Result<[usize; 4]> {
    let sizes = (n.to_usize(), c.to_usize(), rest.to_usize(), usize::try_from(group).ok().filter(|&g| g > 0));
    let (Some(n), Some(c), Some(rest), Some(group)) = sizes else {
        return Err(Error::argument(op, "sizes must not be negative and there must be at least one group"));
    };
    if c % group != 0 {
        return Err(Error::argument(op, format!("{c} channels cannot be split into {group} equal groups")));
    }
    if [n, c, rest].iter().try_fold(1usize, |a, &b| a.checked_mul(b)) != Some(input.numel()) {
        let m = format!("{n} samples of {c} channels of {rest} elements are not the input's shape {:?}", input.shape());
        return Err(Error::argument(op, m));
    }
    Ok([n, c, rest, group])
}

/// `native_group_norm`.
pub(crate) fn native_group_norm(
    op: &'static str,
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
    _eps: f64,
) -> Result<(Spec, Spec, Spec)> {
    let [n, c, _, group] = groups(op, input, n, c, rest, group)?;
    same_shape(op, "weight", weight, &[c])?;
    same_shape(op, "bias", bias, &[c])?;
    let stats = Spec::new(&[n, group], factor_type(op, input, &[weight, bias])?, input.device())?;
    Ok((Spec::new(input.shape(), input.dtype(), input.device())?, stats.clone(), stats))
}

/// `native_group_norm_backward`.
pub(crate) fn native_group_norm_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
    output_mask: [bool; 3],
) -> Result<(Spec, Spec, Spec)> {
    let [n, c, _, group] = groups(op, input, n, c, rest, group)?;
    same_shape(op, "the gradient", Some(grad), input.shape())?;
    same_shape(op, "weight", weight, &[c])?;
    same_shape(op, "mean", Some(mean), &[n, group])?;
    same_shape(op, "rstd", Some(rstd), &[n, group])?;
    let dtype = factor_type(op, input, &[weight])?;
    Ok((
        wanted(output_mask[0], input.shape(), input.dtype(), input)?,
        wanted(output_mask[1], &[c], dtype, input)?,
        wanted(output_mask[2], &[c], dtype, input)?,
    ))
}
