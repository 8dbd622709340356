//! Losses: one pass over the elements, then a reduction.

use super::fused::{Fused, Input, V};
use super::reduce::{elements, mean, sum};
use crate::ops::lists;
use crate::ops::shape::broadcast;
use crate::{Error, ErrorKind, Result, Spec, SymInt, Tensor};
use firebrand_kernels::index::{gather, scatter};
use firebrand_kernels::pointwise::Op;
use firebrand_kernels::{fill, write_slice};

const MEAN: i64 = 1;

/// Runs an elementwise loss, and reduces it.
fn reduced<const N: usize>(
    formula: &Fused<N>,
    inputs: [Input<'_>; N],
    sizes: &[usize],
    reduction: i64,
    out: &Tensor,
) -> Result<()> {
    if reduction == 0 {
        return formula.run(out.dtype(), inputs, out);
    }
    let each = Tensor::try_empty(Spec::new(sizes, out.dtype(), out.device())?)?;
    formula.run(out.dtype(), inputs, &each)?;
    if reduction == MEAN { mean(&each, None, out) } else { sum(&each, None, out) }
}

/// What a gradient of the reduced loss counts for each element.
fn share(reduction: i64, out: &Tensor) -> f64 {
    if reduction == MEAN { 1.0 / out.numel() as f64 } else { 1.0 }
}

pub(crate) fn mse_loss(a: &Tensor, b: &Tensor, reduction: i64, out: &Tensor) -> Result<()> {
    static LOSS: Fused<2> = Fused::new(|[x, y]| (x - y) * (x - y));
    let sizes = broadcast("mse_loss", a.shape(), b.shape())?;
    reduced(&LOSS, [a.into(), b.into()], &sizes, reduction, out)
}

pub(crate) fn mse_loss_backward(grad: &Tensor, a: &Tensor, b: &Tensor, reduction: i64, out: &Tensor) -> Result<()> {
    static SLOPE: Fused<4> = Fused::new(|[g, x, y, k]| g * k * (x - y));
    SLOPE.run(out.dtype(), [grad.into(), a.into(), b.into(), (2.0 * share(reduction, out)).into()], out)
}

fn sign(x: V<'_>) -> V<'_> {
    x.one(Op::Sign)
}

pub(crate) fn smooth_l1_loss(a: &Tensor, b: &Tensor, reduction: i64, beta: f64, out: &Tensor) -> Result<()> {
    static LOSS: Fused<3> = Fused::new(|[x, y, beta]| {
        let z = (x - y).one(Op::Abs);
        z.lt(beta).select(z * z * 0.5 / beta, z - beta * 0.5)
    });
    let sizes = broadcast("smooth_l1_loss", a.shape(), b.shape())?;
    reduced(&LOSS, [a.into(), b.into(), beta.into()], &sizes, reduction, out)
}

pub(crate) fn smooth_l1_loss_backward(
    grad: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
    beta: f64,
    out: &Tensor,
) -> Result<()> {
    static SLOPE: Fused<5> = Fused::new(|[g, x, y, beta, k]| {
        let d = x - y;
        g * k * d.one(Op::Abs).lt(beta).select(d / beta, sign(d))
    });
    let k = share(reduction, out);
    SLOPE.run(out.dtype(), [grad.into(), a.into(), b.into(), beta.into(), k.into()], out)
}

pub(crate) fn huber_loss(a: &Tensor, b: &Tensor, reduction: i64, delta: f64, out: &Tensor) -> Result<()> {
    static LOSS: Fused<3> = Fused::new(|[x, y, delta]| {
        let z = (x - y).one(Op::Abs);
        z.lt(delta).select(z * z * 0.5, delta * (z - delta * 0.5))
    });
    let sizes = broadcast("huber_loss", a.shape(), b.shape())?;
    reduced(&LOSS, [a.into(), b.into(), delta.into()], &sizes, reduction, out)
}

pub(crate) fn huber_loss_backward(
    grad: &Tensor,
    a: &Tensor,
    b: &Tensor,
    reduction: i64,
    delta: f64,
    out: &Tensor,
) -> Result<()> {
    static SLOPE: Fused<5> = Fused::new(|[g, x, y, delta, k]| {
        let d = x - y;
        g * k * d.one(Op::Abs).lt(delta).select(d, delta * sign(d))
    });
    let k = share(reduction, out);
    SLOPE.run(out.dtype(), [grad.into(), a.into(), b.into(), delta.into(), k.into()], out)
}

/// A weight, or 1.
fn or_one(w: Option<&Tensor>) -> Input<'_> {
    w.map_or(Input::from(1.0), Input::from)
}

pub(crate) fn binary_cross_entropy(
    a: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    out: &Tensor,
) -> Result<()> {
    if let Some(bad) = elements::<f64>(a)?.iter().find(|x| !(0.0..=1.0).contains(*x)) {
        return Err(Error::argument(
            "binary_cross_entropy",
            format!(
                "inputs are probabilities from 0 to 1, found {bad}; use binary_cross_entropy_with_logits for scores"
            ),
        ));
    }
    // The logarithms are bounded, so that a certain error costs 100 and not infinity.
    static LOSS: Fused<3> = Fused::new(|[x, y, w]| {
        let low = (-x).one(Op::Log1p).two(Op::Maximum, -100.0);
        let high = x.one(Op::Log).two(Op::Maximum, -100.0);
        w * ((y - 1.0) * low - y * high)
    });
    let sizes = broadcast("binary_cross_entropy", a.shape(), target.shape())?;
    reduced(&LOSS, [a.into(), target.into(), or_one(weight)], &sizes, reduction, out)
}

pub(crate) fn binary_cross_entropy_backward(
    grad: &Tensor,
    a: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    out: &Tensor,
) -> Result<()> {
    static SLOPE: Fused<5> =
        Fused::new(|[g, x, y, w, k]| g * k * w * (x - y) / ((1.0 - x) * x).two(Op::Maximum, 1e-12));
    let k = share(reduction, out);
    SLOPE.run(out.dtype(), [grad.into(), a.into(), target.into(), or_one(weight), k.into()], out)
}

pub(crate) fn binary_cross_entropy_with_logits(
    a: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: i64,
    out: &Tensor,
) -> Result<()> {
    // -log(sigmoid(x)) is max(-x, 0) + log(1 + exp(-|x|)).
    static LOSS: Fused<4> = Fused::new(|[x, y, w, p]| {
        let far = (-(x.one(Op::Abs))).one(Op::Exp).one(Op::Log1p) + (-x).two(Op::Maximum, 0.0);
        w * ((1.0 - y) * x + (1.0 + (p - 1.0) * y) * far)
    });
    let sizes = broadcast("binary_cross_entropy_with_logits", a.shape(), target.shape())?;
    reduced(&LOSS, [a.into(), target.into(), or_one(weight), or_one(pos_weight)], &sizes, reduction, out)
}

// ---- class numbers

/// Class numbers with their weights; 0 where a target is ignored.
struct Targets {
    /// In range everywhere: an ignored one is 0.
    class: Vec<i64>,
    weight: Vec<f64>,
}

impl Targets {
    fn new(
        op: &'static str,
        target: &Tensor,
        weight: Option<&Tensor>,
        classes: usize,
        ignore: SymInt,
    ) -> Result<Targets> {
        let (mut class, table): (Vec<i64>, _) = (elements(target)?, weight.map(elements::<f64>).transpose()?);
        let ignore = ignore.int();
        if let Some(&index) = class.iter().find(|&&t| t != ignore && !(0..classes as i64).contains(&t)) {
            return Err(ErrorKind::IndexOutOfRange { op, index, dim: 1, size: classes }.into());
        }
        let each = class.iter_mut().map(|t| {
            if *t == ignore {
                *t = 0;
                return 0.0;
            }
            table.as_ref().map_or(1.0, |w| w[*t as usize])
        });
        let weight = lists::collected(each.len(), each)?;
        Ok(Targets { class, weight })
    }
}

/// Sizes and strides of an input as samples, classes and places.
fn as_classes(t: &Tensor) -> ([usize; 3], [usize; 3]) {
    match *t.shape() {
        [c] => ([1, c, 1], [c, 1, 1]),
        [n, c] => ([n, c, 1], [c, 1, 1]),
        _ => {
            let (n, c) = (t.shape()[0], t.shape()[1]);
            let rest = t.shape()[2..].iter().product();
            ([n, c, rest], [c * rest, rest, 1])
        }
    }
}

fn forward(
    op: &'static str,
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore: SymInt,
    out: &Tensor,
    total_weight: &Tensor,
) -> Result<()> {
    let input = super::reduce::contiguous(input)?;
    let ([n, c, rest], strides) = as_classes(&input);
    let t = Targets::new(op, target, weight, c, ignore)?;
    let index = Tensor::try_from_slice(&t.class, [n, 1, rest])?;
    let picked = Tensor::try_empty(Spec::new(&[n, 1, rest], input.dtype(), input.device())?)?;
    gather(&input.read()?.view_as(&[n, c, rest], &strides), 1, &index.read()?.view(), &picked.write()?.view_mut())
        .map_err(|_| Error::argument(op, "a target is out of range"))?;
    let mut losses = elements::<f64>(&picked)?;
    losses.iter_mut().zip(&t.weight).for_each(|(x, &w)| *x = if w == 0.0 { 0.0 } else { -*x * w });
    let weights: f64 = t.weight.iter().sum();
    if reduction == 0 {
        write_slice(&losses, out.write()?.view_mut());
        write_slice(&[0f64], total_weight.write()?.view_mut());
        return Ok(());
    }
    let sum: f64 = losses.iter().sum();
    write_slice(&[if reduction == MEAN { sum / weights } else { sum }], out.write()?.view_mut());
    write_slice(&[weights], total_weight.write()?.view_mut());
    Ok(())
}

fn backward(
    op: &'static str,
    grad: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore: SymInt,
    total_weight: &Tensor,
    out: &Tensor,
) -> Result<()> {
    let ([n, c, rest], strides) = as_classes(out);
    let t = Targets::new(op, target, weight, c, ignore)?;
    let grads: Vec<f64> = elements(grad)?;
    let k = if reduction == MEAN { 1.0 / elements::<f64>(total_weight)?[0] } else { 1.0 };
    let each = |i: usize| if reduction == 0 { grads[i] } else { grads[0] };
    let src = Tensor::try_empty(Spec::new(&[n, 1, rest], out.dtype(), out.device())?)?;
    let each = t.weight.iter().enumerate().map(|(i, &w)| if w == 0.0 { 0.0 } else { -w * each(i) * k });
    lists::write(&src, each)?;
    let index = Tensor::try_from_slice(&t.class, [n, 1, rest])?;
    fill(out.write()?.view_mut(), crate::Scalar::Int(0).into());
    let access = out.write()?;
    scatter(&access.view_mut_as(&[n, c, rest], &strides), 1, &index.read()?.view(), &src.read()?.view())
        .map_err(|_| Error::argument(op, "a target is out of range"))
}

/// Both forms of the negative log likelihood: of classes, and of classes at places.
macro_rules! nll {
    ($forward:ident $backward:ident) => {
        pub(crate) fn $forward(
            input: &Tensor,
            target: &Tensor,
            weight: Option<&Tensor>,
            reduction: i64,
            ignore_index: SymInt,
            out: &Tensor,
            total_weight: &Tensor,
        ) -> Result<()> {
            forward(stringify!($forward), input, target, weight, reduction, ignore_index, out, total_weight)
        }
        pub(crate) fn $backward(
            grad: &Tensor,
            _input: &Tensor,
            target: &Tensor,
            weight: Option<&Tensor>,
            reduction: i64,
            ignore_index: SymInt,
            total_weight: &Tensor,
            out: &Tensor,
        ) -> Result<()> {
            backward(stringify!($backward), grad, target, weight, reduction, ignore_index, total_weight, out)
        }
    };
}
nll!(nll_loss_forward nll_loss_backward);
nll!(nll_loss2d_forward nll_loss2d_backward);
