//! Gradients that are separate ops in PyTorch. They are composed of other ops, so they can be differentiated again.

use crate::ops::arith::{add, div, mul, neg, sub};
use crate::ops::formulas::{self, sym, zero_where};
use crate::ops::shape::{self, wrap_dim};
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops};

// ---- activations

pub(crate) fn logit_backward(grad_output: &Tensor, self_: &Tensor, eps: Option<f64>) -> Result<Tensor> {
    formulas::logit_backward(grad_output, self_, eps)
}

pub(crate) fn gelu_backward(grad: &Tensor, self_: &Tensor) -> Result<Tensor> {
    ops::gelu_backward(grad, self_, "none")
}

/// The tangent of `glu`.
pub(crate) fn glu_jvp(glu: &Tensor, x: &Tensor, dx: &Tensor, dim: i64) -> Result<Tensor> {
    shape::glu("glu_jvp", x, dim)?;
    let d = wrap_dim("glu_jvp", dim, x.ndim())?;
    let half = x.shape()[d] / 2;
    let part = |t: &Tensor, k: usize| ops::narrow(t, d as i64, (k * half).into(), half.into());
    let s = ops::sigmoid(&part(x, 1)?)?;
    add(&mul(&part(dx, 0)?, &s)?, &mul(&mul(glu, &sub(&1.0, &s)?)?, &part(dx, 1)?)?)
}

/// The tangent of `glu_backward`: of `g s` and `g a s (1 - s)` with `s = sigmoid(b)`.
pub(crate) fn glu_backward_jvp(
    _grad_x: &Tensor,
    grad_glu: &Tensor,
    x: &Tensor,
    dgrad_glu: &Tensor,
    dx: &Tensor,
    dim: i64,
) -> Result<Tensor> {
    shape::glu("glu_backward_jvp", x, dim)?;
    let d = wrap_dim("glu_backward_jvp", dim, x.ndim())?;
    let half = x.shape()[d] / 2;
    let part = |t: &Tensor, k: usize| ops::narrow(t, d as i64, (k * half).into(), half.into());
    let (a, b, da, db) = (part(x, 0)?, part(x, 1)?, part(dx, 0)?, part(dx, 1)?);
    let s = ops::sigmoid(&b)?;
    let slope = mul(&s, &sub(&1.0, &s)?)?;
    let ds = mul(&slope, &db)?;
    let first = add(&mul(dgrad_glu, &s)?, &mul(grad_glu, &ds)?)?;
    let by_input = mul(grad_glu, &add(&mul(&da, &slope)?, &mul(&mul(&a, &ds)?, &sub(&1.0, &mul(&2.0, &s)?)?)?)?)?;
    let second = add(&mul(dgrad_glu, &mul(&a, &slope)?)?, &by_input)?;
    ops::cat(&[first, second], d as i64)
}

pub(crate) fn rrelu_with_noise_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    noise: &Tensor,
    lower: Scalar,
    upper: Scalar,
    training: bool,
    self_is_result: bool,
) -> Result<Tensor> {
    if training {
        return mul(noise, grad_output);
    }
    let slope = Scalar::Float((lower.to_f64() + upper.to_f64()) / 2.0);
    ops::leaky_relu_backward(grad_output, self_, slope, self_is_result)
}

/// Gradients of input and slopes.
pub(crate) fn prelu_kernel_backward(grad_output: &Tensor, self_: &Tensor, weight: &Tensor) -> Result<(Tensor, Tensor)> {
    let positive = ops::gt_scalar(self_, Scalar::Int(0))?;
    let scaled = mul(weight, grad_output)?;
    Ok((ops::where_self(&positive, grad_output, &scaled)?, zero_where(&positive, &mul(self_, grad_output)?)?))
}

pub(crate) fn masked_softmax_backward(
    grad_output: &Tensor,
    output: &Tensor,
    mask: &Tensor,
    dim: Option<i64>,
) -> Result<Tensor> {
    let mask = ops::expand(mask, &output.sym_sizes(), false)?;
    let weighted = zero_where(&mask, &mul(grad_output, output)?)?;
    let total = ops::sum_dim(&weighted, Some(&[dim.unwrap_or(-1)]), true, None)?;
    zero_where(&mask, &sub(&weighted, &mul(output, &total)?)?)
}

// ---- losses

/// `n` of a mean, 1 of anything else.
fn count(reduction: i64, n: usize) -> f64 {
    if reduction == 1 { n as f64 } else { 1.0 }
}

pub(crate) fn soft_margin_loss_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    target: &Tensor,
    reduction: i64,
) -> Result<Tensor> {
    let slope = neg(&mul(target, &ops::sigmoid(&neg(&mul(target, self_)?)?)?)?)?;
    mul(&div(&slope, &count(reduction, self_.numel()))?, grad_output)
}

/// One gradient per sample, in a shape that broadcasts with its classes.
fn per_sample(grad_output: &Tensor, input: &Tensor, reduction: i64) -> Result<Tensor> {
    if reduction == 0 && input.ndim() == 2 { ops::unsqueeze(grad_output, -1) } else { Ok(grad_output.clone()) }
}

/// True where a column is the class that a row of `target` names.
fn is_class(target: &Tensor, classes: usize) -> Result<Tensor> {
    let columns = ops::arange(Scalar::Int(classes as i64), None, Some(target.device()))?;
    ops::eq(&ops::unsqueeze(target, -1)?, &columns)
}

pub(crate) fn multi_margin_loss_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    target: &Tensor,
    p: Scalar,
    margin: Scalar,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    const OP: &str = "multi_margin_loss_backward";
    let classes = *self_.shape().last().unwrap_or(&1);
    let fits = matches!(self_.ndim(), 1 | 2) && target.numel() == self_.numel() / classes.max(1);
    if !fits || !(p.equals(1.0) || p.equals(2.0)) || weight.is_some_and(|w| w.shape() != [classes]) {
        let m = format!(
            "expected scores of classes, one target per sample, an order of 1 or 2 and one weight per class; found {:?} and {:?}",
            self_.shape(),
            target.shape()
        );
        return Err(Error::argument(OP, m));
    }
    let own = is_class(&ops::reshape(target, &sym(&self_.shape()[..self_.ndim() - 1]))?, classes)?;
    let others = ops::logical_not(&own)?;
    let over = |t: &Tensor| ops::sum_dim(t, Some(&[-1]), true, None);
    let score = over(&zero_where(&others, self_)?)?;
    let lead = ops::add_scalar(&sub(self_, &score)?, margin, Scalar::Int(1))?;
    let mut each = match p.equals(2.0) {
        true => mul(&2.0, &lead)?,
        false => ops::ones_like(&lead, None, None, None)?,
    };
    if let Some(w) = weight {
        each = mul(&each, &over(&zero_where(&others, w)?)?)?;
    }
    let idle = ops::logical_or(&own, &ops::le_scalar(&lead, Scalar::Int(0))?)?;
    let each = zero_where(&idle, &div(&each, &(classes as f64 * count(reduction, self_.numel() / classes)))?)?;
    let to_own = zero_where(&others, &ops::expand(&over(&each)?, &self_.sym_sizes(), false)?)?;
    mul(&sub(&each, &to_own)?, &per_sample(grad_output, self_, reduction)?)
}

/// What a loss of several classes a sample sees: which targets count `[.., n]`, what each names `[.., n, classes]`, and
/// which classes are named at all `[.., classes]`.
fn named(target: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let classes = *target.shape().last().unwrap_or(&1);
    let valid = ops::to_dtype(
        &ops::cumprod(&ops::ge_scalar(target, Scalar::Int(0))?, -1, None)?,
        DType::Bool,
        false,
        false,
        None,
    )?;
    let named = ops::logical_and(&is_class(target, classes)?, &ops::unsqueeze(&valid, -1)?)?;
    let any = ops::any_dim(&named, -2, false)?;
    Ok((valid, named, any))
}

pub(crate) fn multilabel_margin_loss_forward(
    self_: &Tensor,
    target: &Tensor,
    reduction: i64,
) -> Result<(Tensor, Tensor)> {
    let output = ops::multilabel_margin_loss(self_, target, reduction)?;
    let (_, _, chosen) = named(&if target.ndim() == 0 { ops::unsqueeze(target, 0)? } else { target.clone() })?;
    Ok((output, formulas::cast(&ops::reshape(&chosen, &target.sym_sizes())?, self_.dtype())?))
}

pub(crate) fn multilabel_margin_loss_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    target: &Tensor,
    reduction: i64,
    is_target: &Tensor,
) -> Result<Tensor> {
    let classes = *self_.shape().last().unwrap_or(&1);
    if !matches!(self_.ndim(), 1 | 2) || target.shape() != self_.shape() || is_target.shape() != self_.shape() {
        let m = format!("expected scores and targets of one shape, found {:?} and {:?}", self_.shape(), target.shape());
        return Err(Error::argument("multilabel_margin_loss_backward", m));
    }
    let (valid, named, _) = named(target)?;
    let (wide, unnamed) = (ops::unsqueeze(self_, -2)?, ops::logical_not(&named)?);
    let scores = ops::sum_dim(&zero_where(&unnamed, &wide)?, Some(&[-1]), true, None)?;
    let lead = add(&sub(&wide, &scores)?, &1.0)?;
    // Pairs [target, class] that do not keep their distance.
    let active = ops::logical_and(&ops::gt_scalar(&lead, Scalar::Int(0))?, &ops::unsqueeze(&valid, -1)?)?;
    let other = ops::unsqueeze(&ops::eq_scalar(is_target, Scalar::Int(0))?, -2)?;
    let active = formulas::cast(&ops::logical_and(&active, &other)?, self_.dtype())?;
    let to_others = ops::sum_dim(&active, Some(&[-2]), false, None)?;
    let pulls = ops::sum_dim(&active, Some(&[-1]), true, None)?;
    let to_targets = ops::sum_dim(&mul(&formulas::cast(&named, self_.dtype())?, &pulls)?, Some(&[-2]), false, None)?;
    let scale = classes as f64 * count(reduction, self_.numel() / classes.max(1));
    mul(&div(&sub(&to_others, &to_targets)?, &scale)?, &per_sample(grad_output, self_, reduction)?)
}

// ---- distances

/// The slope of a norm of differences: of each difference, given the norm of its row.
fn norm_slope(apart: &Tensor, distance: &Tensor, p: f64) -> Result<Tensor> {
    let sign = ops::sgn(apart)?;
    let size = ops::abs(apart)?;
    let wide = ops::unsqueeze(distance, -1)?;
    if p == 0.0 {
        return ops::zeros_like(apart, None, None, None);
    }
    if p == 1.0 {
        return Ok(sign);
    }
    if p.is_infinite() {
        return mul(&sign, &formulas::cast(&ops::eq(&size, &wide)?, apart.dtype())?);
    }
    let power = |t: &Tensor| ops::pow_scalar(t, Scalar::Float(p - 1.0));
    let still = ops::eq_scalar(&wide, Scalar::Int(0))?;
    let none = ops::eq_scalar(&size, Scalar::Int(0))?;
    // Zeros would be infinite in a negative power: they are ones until the end.
    let size = ops::masked_fill(&size, &none, Scalar::Int(1))?;
    let slope = div(&mul(&sign, &power(&size)?)?, &power(&ops::masked_fill(&wide, &still, Scalar::Int(1))?)?)?;
    zero_where(&still, &slope)
}

pub(crate) fn cdist_backward(grad_output: &Tensor, x1: &Tensor, x2: &Tensor, p: f64, cdist: &Tensor) -> Result<Tensor> {
    let apart = sub(&ops::unsqueeze(x1, -2)?, &ops::unsqueeze(x2, -3)?)?;
    let slope = norm_slope(&apart, cdist, p)?;
    ops::sum_dim(&mul(&ops::unsqueeze(grad_output, -1)?, &slope)?, Some(&[-2]), false, None)
}

pub(crate) fn pdist_backward(grad_output: &Tensor, self_: &Tensor, p: f64, pdist: &Tensor) -> Result<Tensor> {
    const OP: &str = "_pdist_backward";
    let &[rows, _] = self_.shape() else {
        return Err(Error::argument(OP, format!("expected a matrix, found shape {:?}", self_.shape())));
    };
    let pairs = ops::triu_indices(rows as i64, rows as i64, 1, None, Some(self_.device()))?;
    let (i, j) = (ops::select(&pairs, 0, 0.into())?, ops::select(&pairs, 0, 1.into())?);
    let apart = sub(&ops::index_select(self_, 0, &i)?, &ops::index_select(self_, 0, &j)?)?;
    let each = mul(&ops::unsqueeze(grad_output, -1)?, &norm_slope(&apart, pdist, p)?)?;
    let zeros = ops::zeros_like(&each, None, None, None)?;
    let zeros = ops::new_zeros(&zeros, &self_.sym_sizes(), None, None)?;
    ops::index_add(&ops::index_add(&zeros, 0, &i, &each, Scalar::Int(1))?, 0, &j, &each, Scalar::Int(-1))
}

/// Euclidean distances of all pairs of rows.
pub(crate) fn euclidean_dist(x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
    ops::_cdist_forward(x1, x2, 2.0, None)
}

// ---- places

/// Gradients of the largest elements of windows, added at the places they came from.
fn to_places(op: &'static str, grad_output: &Tensor, self_: &Tensor, indices: &Tensor, n: usize) -> Result<Tensor> {
    if self_.ndim() < n || indices.shape() != grad_output.shape() || grad_output.ndim() != self_.ndim() {
        let m = format!(
            "expected indices and gradients of one shape, found {:?} and {:?}",
            indices.shape(),
            grad_output.shape()
        );
        return Err(Error::argument(op, m));
    }
    let lead = &self_.shape()[..self_.ndim() - n];
    let flat =
        |t: &Tensor| ops::reshape(t, &sym(&[lead, &[t.numel() / lead.iter().product::<usize>().max(1)]].concat()));
    let zeros = ops::new_zeros(grad_output, &flat(self_)?.sym_sizes(), None, None)?;
    ops::reshape(&ops::scatter_add(&zeros, -1, &flat(indices)?, &flat(grad_output)?)?, &self_.sym_sizes())
}

pub(crate) fn fractional_max_pool2d_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    _kernel_size: &[i64],
    _output_size: &[i64],
    indices: &Tensor,
) -> Result<Tensor> {
    to_places("fractional_max_pool2d_backward", grad_output, self_, indices, 2)
}

pub(crate) fn fractional_max_pool3d_backward(
    grad_output: &Tensor,
    self_: &Tensor,
    _kernel_size: &[i64],
    _output_size: &[i64],
    indices: &Tensor,
) -> Result<Tensor> {
    to_places("fractional_max_pool3d_backward", grad_output, self_, indices, 3)
}

pub(crate) fn cummaxmin_backward(grad: &Tensor, input: &Tensor, indices: &Tensor, dim: i64) -> Result<Tensor> {
    ops::scatter_add(&ops::new_zeros(grad, &input.sym_sizes(), None, None)?, dim, indices, grad)
}

pub(crate) fn cumprod_backward(grad: &Tensor, input: &Tensor, dim: i64, output: &Tensor) -> Result<Tensor> {
    formulas::cumprod_backward(grad, input, dim, output)
}

pub(crate) fn value_selecting_reduction_backward(
    grad: &Tensor,
    dim: i64,
    indices: &Tensor,
    sizes: &[SymInt],
    keepdim: bool,
) -> Result<Tensor> {
    formulas::value_selecting_reduction_backward(grad, dim, indices, sizes, keepdim)
}

pub(crate) fn trace_backward(grad: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    if sizes.len() != 2 {
        return Err(Error::argument("trace_backward", format!("expected the sizes of a matrix, found {sizes:?}")));
    }
    formulas::trace_backward(grad, sizes)
}

pub(crate) fn masked_select_backward(grad: &Tensor, input: &Tensor, mask: &Tensor) -> Result<Tensor> {
    formulas::masked_select_backward(grad, &input.sym_sizes(), mask)
}

pub(crate) fn masked_scatter_backward(grad_output: &Tensor, mask: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    formulas::masked_scatter_backward(grad_output, mask, sizes)
}

pub(crate) fn gather_backward(
    grad: &Tensor,
    self_: &Tensor,
    dim: i64,
    index: &Tensor,
    sparse_grad: bool,
) -> Result<Tensor> {
    formulas::gather_backward(grad, &self_.sym_sizes(), dim, index, sparse_grad)
}

pub(crate) fn embedding_backward(
    grad: &Tensor,
    indices: &Tensor,
    num_weights: SymInt,
    padding_idx: SymInt,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Result<Tensor> {
    formulas::embedding_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq, sparse)
}

// ---- norms, matrices, convolutions

/// Gradients of directions and lengths of `v g / |v|`, where `saved_norms` are the lengths of `v`.
pub(crate) fn weight_norm_backward(
    grad_w: &Tensor,
    saved_v: &Tensor,
    saved_g: &Tensor,
    saved_norms: &Tensor,
    dim: i64,
) -> Result<(Tensor, Tensor)> {
    let d = wrap_dim("_weight_norm_interface_backward", dim, saved_v.ndim())?;
    let others: Vec<i64> = (0..saved_v.ndim()).filter(|k| *k != d).map(|k| k as i64).collect();
    let mut along = mul(grad_w, saved_v)?;
    if !others.is_empty() {
        along = ops::sum_dim(&along, Some(&others), true, None)?;
    }
    let norms = ops::reshape(saved_norms, &along.sym_sizes())?;
    let lengths = ops::reshape(saved_g, &along.sym_sizes())?;
    let grad_g = ops::reshape(&div(&along, &norms)?, &saved_g.sym_sizes())?;
    let across = sub(grad_w, &mul(saved_v, &div(&along, &mul(&norms, &norms)?)?)?)?;
    Ok((mul(&div(&lengths, &norms)?, &across)?, grad_g))
}

pub(crate) fn matrix_exp_backward(self_: &Tensor, grad: &Tensor) -> Result<Tensor> {
    formulas::matrix_exp_differential(self_, grad, true)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn batch_norm_backward(
    grad_out: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_var: Option<&Tensor>,
    update: bool,
    eps: f64,
    output_mask: [bool; 3],
    _reserve: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    ops::native_batch_norm_backward(
        grad_out,
        input,
        Some(weight),
        running_mean,
        running_var,
        save_mean,
        save_var,
        update,
        eps,
        output_mask,
    )
}

/// What an op returns where nothing was requested.
fn undefined(like: &Tensor) -> Result<Tensor> {
    ops::new_zeros(like, &[0.into()], None, None)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn convolution_double_backward(
    gg_input: Option<&Tensor>,
    gg_weight: Option<&Tensor>,
    gg_bias: Option<&Tensor>,
    grad_output: &Tensor,
    weight: &Tensor,
    self_: &Tensor,
    stride: &[SymInt],
    padding: &[SymInt],
    dilation: &[SymInt],
    transposed: bool,
    output_padding: &[SymInt],
    groups: SymInt,
    output_mask: [bool; 3],
) -> Result<(Tensor, Tensor, Tensor)> {
    let grads = [gg_input.cloned(), gg_weight.cloned(), gg_bias.cloned()];
    let (to_grad, to_input, to_weight) = formulas::conv_double_backward(
        &grads,
        grad_output,
        self_,
        weight,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        [true; 3],
        output_mask,
    )?;
    let or_zeros = |t: Option<Tensor>, wanted: bool, like: &Tensor| match (t, wanted) {
        (Some(t), _) => Ok(t),
        (None, true) => ops::zeros_like(like, None, None, None),
        (None, false) => undefined(like),
    };
    let [g, i, w] = output_mask;
    Ok((or_zeros(to_grad, g, grad_output)?, or_zeros(to_input, i, self_)?, or_zeros(to_weight, w, weight)?))
}
