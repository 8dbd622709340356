//! Second derivatives and tangents of layer, batch and group norm: one set of formulas for all three.
//!
//! All three write `h = (x - mean) * r` with statistics over some dimensions, and `h * weight + bias` with factors over
//! others; a [`Frame`] says which. The Jacobian of `h` is the symmetric projection
//! `P(v) = r * (v - mean(v) - h * mean(v * h))`; with constant statistics it is `r * v`.

use super::base::{cast, sym};
use crate::autograd::forward;
use crate::layout::Dims;
use crate::sym::{SymInt, SymInts};
use crate::{Result, Scalar, Tensor, ops, state};

/// How a norm sees its operands.
pub(crate) struct Frame {
    /// The input's sizes.
    sizes: SymInts,
    /// Sizes with which mean and deviation broadcast.
    stats: SymInts,
    /// Sizes with which the weight broadcasts.
    factor: SymInts,
    /// Dimensions of the statistics.
    over: &'static [i64],
    /// Dimensions over which gradients of factors are summed.
    spread: &'static [i64],
    /// Elements behind each statistic.
    count: usize,
    /// Whether the statistics are those of this input.
    live: bool,
}

/// The frame of layer norm: rows.
pub(crate) fn layer_frame(input: &Tensor, normalized_shape: &[SymInt]) -> Result<Frame> {
    let inner = ops::shape::trailing("layer_norm", input, normalized_shape)?;
    let d: usize = inner.iter().product();
    let rows: usize = input.shape()[..input.ndim() - inner.len()].iter().product();
    Ok(Frame {
        sizes: sym(&[rows, d]),
        stats: sym(&[rows, 1]),
        factor: sym(&[1, d]),
        over: &[1],
        spread: &[0],
        count: d,
        live: true,
    })
}

/// The frame of batch norm: channels.
pub(crate) fn batch_frame(input: &Tensor, train: bool) -> Result<Frame> {
    let (n, c) = (input.shape()[0], input.shape()[1]);
    let rest: usize = input.shape()[2..].iter().product();
    let channel = sym(&[1, c, 1]);
    Ok(Frame {
        sizes: sym(&[n, c, rest]),
        stats: channel.clone(),
        factor: channel,
        over: &[0, 2],
        spread: &[0, 2],
        count: n * rest,
        live: train,
    })
}

/// The frame of group norm: groups of channels.
pub(crate) fn group_frame(input: &Tensor, n: SymInt, c: SymInt, rest: SymInt, group: i64) -> Result<Frame> {
    let [n, c, rest, g] = ops::shape::groups("group_norm", input, n, c, rest, group)?;
    Ok(Frame {
        sizes: sym(&[n, g, c / g, rest]),
        stats: sym(&[n, g, 1, 1]),
        factor: sym(&[1, g, c / g, 1]),
        over: &[2, 3],
        spread: &[0, 3],
        count: c / g * rest,
        live: true,
    })
}

fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::mul(a, b)
}

fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::add(a, b, Scalar::Int(1))
}

fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::sub(a, b, Scalar::Int(1))
}

/// The sum of the terms that exist.
fn total(terms: impl IntoIterator<Item = Option<Tensor>>) -> Result<Option<Tensor>> {
    let mut sum: Option<Tensor> = None;
    for t in terms.into_iter().flatten() {
        sum = Some(match sum {
            Some(s) => add(&s, &t)?,
            None => t,
        });
    }
    Ok(sum)
}

/// An input in its frame, normalized.
struct Normal<'a> {
    frame: &'a Frame,
    h: Tensor,
    r: Tensor,
}

impl<'a> Normal<'a> {
    /// Statistics whose dependence on the input matters (a gradient of the result is needed) are recomputed; the
    /// small number under the root is what the given ones imply.
    fn new(frame: &'a Frame, x: &Tensor, mean: &Tensor, rstd: &Tensor) -> Result<Normal<'a>> {
        let wide = |t: &Tensor, sizes: &[SymInt]| cast(&ops::reshape(t, sizes)?, mean.dtype());
        let (mean, mut r) = (wide(mean, &frame.stats)?, wide(rstd, &frame.stats)?);
        // What lies below a wrapper may be differentiated too.
        let differentiated = (state::is(state::GRAD) && x.requires_grad())
            || (state::is(state::DUAL) && forward::any_tangent(&[x]))
            || state::is(state::LEVEL);
        let x = wide(x, &frame.sizes)?;
        let mut centred = sub(&x, &mean)?;
        if frame.live && differentiated {
            centred = sub(&x, &frame.mean(&x)?)?;
            let var = frame.mean(&mul(&centred, &centred)?)?;
            let eps = ops::detach(&sub(&ops::reciprocal(&mul(&r, &r)?)?, &var)?)?;
            r = ops::reciprocal(&ops::sqrt(&add(&var, &eps)?)?)?;
        }
        Ok(Normal { h: mul(&centred, &r)?, r, frame })
    }

    fn project(&self, v: &Tensor) -> Result<Tensor> {
        if !self.frame.live {
            return mul(&self.r, v);
        }
        let along = mul(&self.h, &self.frame.mean(&mul(v, &self.h)?)?)?;
        mul(&self.r, &sub(&sub(v, &self.frame.mean(v)?)?, &along)?)
    }
}

impl Frame {
    fn mean(&self, t: &Tensor) -> Result<Tensor> {
        ops::mean_dim(t, Some(self.over), true, None)
    }

    /// The sum over the dimensions that share a factor, in the shape of the factors.
    fn to_factor(&self, t: &Tensor, like: &[usize]) -> Result<Tensor> {
        ops::reshape(&ops::sum_dim(t, Some(self.spread), true, None)?, &sym(like))
    }

    fn input(&self, t: &Tensor, like: &Tensor) -> Result<Tensor> {
        cast(&ops::reshape(t, &self.sizes)?, like.dtype())
    }

    fn factor(&self, t: Option<&Tensor>) -> Result<Option<Tensor>> {
        t.map(|t| ops::reshape(t, &self.factor)).transpose()
    }
}

fn times(t: &Tensor, factor: &Option<Tensor>) -> Result<Tensor> {
    factor.as_ref().map_or_else(|| Ok(t.clone()), |f| mul(t, f))
}

/// The gradients of a norm's backward op with respect to the gradient it got, the input and the weight.
pub(crate) fn norm_double_backward(
    frame: Frame,
    grads: &[Option<Tensor>],
    grad_out: &Tensor,
    input: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    wanted: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let normal = Normal::new(&frame, input, mean, rstd)?;
    let (h, r) = (&normal.h, &normal.r);
    let (g_out, w) = (frame.input(grad_out, h)?, frame.factor(weight)?);
    let grad = |k: usize| grads.get(k).and_then(Option::as_ref);
    let v = grad(0).map(|t| frame.input(t, h)).transpose()?;
    let (to_weight, to_bias) = (frame.factor(grad(1))?, frame.factor(grad(2))?);
    let pv = v.as_ref().map(|v| normal.project(v)).transpose()?;
    let back = |t: Option<Tensor>| -> Result<Option<Tensor>> {
        t.map(|t| cast(&ops::reshape(&t, &input.sym_sizes())?, input.dtype())).transpose()
    };

    let mut for_grad = None;
    if wanted[0] {
        let spread = to_bias.map(|b| super::expand_to(&b, h.shape())).transpose()?;
        for_grad = back(total([
            pv.as_ref().map(|p| times(p, &w)).transpose()?,
            to_weight.as_ref().map(|t| mul(t, h)).transpose()?,
            spread,
        ])?)?;
    }
    let mut for_input = None;
    if wanted[1] {
        let mut curved = None;
        if let (Some(v), Some(pv), true) = (&v, &pv, frame.live) {
            let g = times(&g_out, &w)?;
            let (a, b) = (frame.mean(v)?, frame.mean(&g)?);
            let (c, d) = (frame.mean(&mul(v, h)?)?, frame.mean(&mul(&g, h)?)?);
            let spread = sub(&sub(&frame.mean(&mul(v, &g)?)?, &mul(&a, &b)?)?, &mul(&c, &d)?)?;
            let turned = add(&mul(&d, pv)?, &mul(&c, &normal.project(&g)?)?)?;
            let inner = add(&mul(&mul(r, h)?, &spread)?, &turned)?;
            curved = Some(ops::neg(&mul(r, &inner)?)?);
        }
        let by_weight = to_weight.as_ref().map(|t| normal.project(&mul(t, &g_out)?)).transpose()?;
        for_input = back(total([curved, by_weight])?)?;
    }
    let mut for_weight = None;
    if let (Some(pv), Some(weight), true) = (&pv, weight, wanted[2]) {
        for_weight = Some(cast(&frame.to_factor(&mul(&g_out, pv)?, weight.shape())?, weight.dtype())?);
    }
    Ok((for_grad, for_input, for_weight))
}

/// The tangent of a norm's result.
pub(crate) fn norm_result_jvp(
    frame: Frame,
    input: &Tensor,
    input_t: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    weight_t: Option<&Tensor>,
    bias_t: Option<&Tensor>,
) -> Result<Tensor> {
    let normal = Normal::new(&frame, input, mean, rstd)?;
    let moved = times(&normal.project(&frame.input(input_t, &normal.h)?)?, &frame.factor(weight)?)?;
    let scaled = frame.factor(weight_t)?.map(|t| mul(&normal.h, &t)).transpose()?;
    let sum = total([Some(moved), scaled, frame.factor(bias_t)?])?.unwrap_or(normal.h);
    cast(&ops::reshape(&sum, &input.sym_sizes())?, input.dtype())
}

/// The tangent of result `k` (gradient of input, weight or bias) of a norm's backward op.
pub(crate) fn norm_backward_jvp(
    k: usize,
    frame: Frame,
    (grad, grad_t): (&Tensor, &Tensor),
    (input, input_t): (&Tensor, &Tensor),
    mean: &Tensor,
    rstd: &Tensor,
    (weight, weight_t): (Option<&Tensor>, Option<&Tensor>),
    result: &Tensor,
) -> Result<Tensor> {
    if result.numel() == 0 {
        return super::zeros_like_primal(result);
    }
    let normal = Normal::new(&frame, input, mean, rstd)?;
    let (h, r) = (&normal.h, &normal.r);
    let inside = |t: &Tensor| frame.input(t, h);
    let (g, g_t, x_t) = (inside(grad)?, inside(grad_t)?, inside(input_t)?);
    let out = match k {
        0 => {
            let (w, w_t) = (frame.factor(weight)?, frame.factor(weight_t)?);
            let d = times(&g, &w)?;
            let d_t = match &w_t {
                Some(w_t) => add(&times(&g_t, &w)?, &mul(&g, w_t)?)?,
                None => times(&g_t, &w)?,
            };
            let mut out = normal.project(&d_t)?;
            if frame.live {
                let h_t = normal.project(&x_t)?;
                let shrink = mul(r, &frame.mean(&mul(h, &x_t)?)?)?;
                let turned = add(&mul(&h_t, &frame.mean(&mul(&d, h)?)?)?, &mul(h, &frame.mean(&mul(&d, &h_t)?)?)?)?;
                out = sub(&out, &add(&mul(&shrink, &normal.project(&d)?)?, &mul(r, &turned)?)?)?;
            }
            ops::reshape(&out, &input.sym_sizes())?
        }
        1 => {
            let moved = add(&mul(&g_t, h)?, &mul(&g, &normal.project(&x_t)?)?)?;
            frame.to_factor(&moved, result.shape())?
        }
        _ => frame.to_factor(&g_t, result.shape())?,
    };
    cast(&out, result.dtype())
}

// ---- batch norm

/// Mean and reciprocal deviation that a batch norm used.
pub(crate) fn batch_statistics(
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: &Tensor,
    save_invstd: &Tensor,
    train: bool,
    eps: f64,
) -> Result<(Tensor, Tensor)> {
    match (train, running_mean, running_var) {
        (false, Some(m), Some(v)) => {
            let shifted = ops::add_scalar(v, Scalar::Float(eps), Scalar::Int(1))?;
            Ok((m.clone(), ops::reciprocal(&ops::sqrt(&shifted)?)?))
        }
        _ => Ok((save_mean.clone(), save_invstd.clone())),
    }
}

pub(crate) fn batch_norm_jvp(
    input: &Tensor,
    input_t: &Tensor,
    weight: Option<&Tensor>,
    weight_t: Option<&Tensor>,
    bias_t: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: &Tensor,
    save_invstd: &Tensor,
    train: bool,
    eps: f64,
) -> Result<Tensor> {
    let (mean, r) = batch_statistics(running_mean, running_var, save_mean, save_invstd, train, eps)?;
    norm_result_jvp(batch_frame(input, train)?, input, input_t, &mean, &r, weight, weight_t, bias_t)
}

/// The statistics of a batch norm's backward op.
fn given_statistics(
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_invstd: Option<&Tensor>,
    train: bool,
    eps: f64,
) -> Result<(Tensor, Tensor)> {
    match (save_mean, save_invstd) {
        (Some(m), Some(r)) => batch_statistics(running_mean, running_var, m, r, train, eps),
        _ => match (running_mean, running_var) {
            (Some(m), Some(v)) => batch_statistics(running_mean, running_var, m, v, false, eps),
            _ => Err(crate::Error::argument("native_batch_norm_backward", "the statistics are missing")),
        },
    }
}

pub(crate) fn batch_norm_double_backward(
    grads: &[Option<Tensor>],
    grad_out: &Tensor,
    input: &Tensor,
    weight: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_invstd: Option<&Tensor>,
    train: bool,
    eps: f64,
    wanted: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let (mean, r) = given_statistics(running_mean, running_var, save_mean, save_invstd, train, eps)?;
    norm_double_backward(batch_frame(input, train)?, grads, grad_out, input, &mean, &r, weight, wanted)
}

pub(crate) fn batch_norm_backward_jvp(
    k: usize,
    grad: (&Tensor, &Tensor),
    input: (&Tensor, &Tensor),
    weight: (Option<&Tensor>, Option<&Tensor>),
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_invstd: Option<&Tensor>,
    train: bool,
    eps: f64,
    result: &Tensor,
) -> Result<Tensor> {
    let (mean, r) = given_statistics(running_mean, running_var, save_mean, save_invstd, train, eps)?;
    norm_backward_jvp(k, batch_frame(input.0, train)?, grad, input, &mean, &r, weight, result)
}

// ---- group norm: its statistics are differentiable results

pub(crate) fn group_norm_backward(
    grads: &[Option<Tensor>],
    input: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
    wanted: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let grad = |k: usize| grads.get(k).and_then(Option::as_ref);
    let mut out = (None, None, None);
    if let Some(g) = grad(0) {
        let (x, w, b) = ops::native_group_norm_backward(g, input, mean, rstd, weight, n, c, rest, group, wanted)?;
        out = (wanted[0].then_some(x), wanted[1].then_some(w), wanted[2].then_some(b));
    }
    if wanted[0] && (grad(1).is_some() || grad(2).is_some()) {
        let frame = group_frame(input, n, c, rest, group)?;
        let stats = |t: &Tensor| ops::reshape(t, &frame.stats);
        let share = Scalar::Float(1.0 / frame.count as f64);
        let by_mean = grad(1).map(|g| super::expand_to(&ops::mul_scalar(&stats(g)?, share)?, &dims(&frame.sizes)));
        let by_rstd = grad(2).map(|g| -> Result<Tensor> {
            let normal = Normal::new(&frame, input, mean, rstd)?;
            let square = mul(&normal.r, &normal.r)?;
            ops::neg(&mul(&normal.h, &ops::mul_scalar(&mul(&stats(g)?, &square)?, share)?)?)
        });
        let more = total([by_mean.transpose()?, by_rstd.transpose()?])?;
        let more = more.map(|t| ops::reshape(&t, &input.sym_sizes())).transpose()?;
        out.0 = total([out.0, more])?;
    }
    Ok(out)
}

fn dims(sizes: &[SymInt]) -> Dims {
    sizes.iter().map(|&n| n.to_usize().unwrap_or(0)).collect()
}

/// The tangent of a mean of group norm.
pub(crate) fn group_mean_jvp(
    input_t: &Tensor,
    mean: &Tensor,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
) -> Result<Tensor> {
    let frame = group_frame(input_t, n, c, rest, group)?;
    ops::reshape(&frame.mean(&ops::reshape(input_t, &frame.sizes)?)?, &mean.sym_sizes())
}

/// The tangent of a reciprocal deviation of group norm: `-r^2 mean(h * t)`.
pub(crate) fn group_rstd_jvp(
    input: &Tensor,
    input_t: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
) -> Result<Tensor> {
    let frame = group_frame(input, n, c, rest, group)?;
    let normal = Normal::new(&frame, input, mean, rstd)?;
    let along = frame.mean(&mul(&normal.h, &frame.input(input_t, &normal.h)?)?)?;
    ops::reshape(&ops::neg(&mul(&mul(&normal.r, &normal.r)?, &along)?)?, &rstd.sym_sizes())
}

// ---- layer norm

pub(crate) fn layer_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    normalized_shape: &[SymInt],
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    wanted: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let (x, w, b) = ops::native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, wanted)?;
    Ok((wanted[0].then_some(x), wanted[1].then_some(w), wanted[2].then_some(b)))
}

pub(crate) fn batch_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    weight: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: &Tensor,
    save_invstd: &Tensor,
    train: bool,
    eps: f64,
    wanted: [bool; 3],
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    // Outside of training nothing was saved.
    let (m, r) = if train { (Some(save_mean), Some(save_invstd)) } else { (None, None) };
    let (x, w, b) =
        ops::native_batch_norm_backward(grad, input, weight, running_mean, running_var, m, r, train, eps, wanted)?;
    Ok((wanted[0].then_some(x), wanted[1].then_some(w), wanted[2].then_some(b)))
}
