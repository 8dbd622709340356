//! Losses that are composed of other ops.

use crate::ops::formulas::{apply_reduction, cast, sym, zero_where};
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops};

fn number(v: f64) -> Scalar {
    Scalar::Float(v)
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

fn plus(a: &Tensor, v: f64) -> Result<Tensor> {
    ops::add_scalar(a, number(v), Scalar::Int(1))
}

fn check_reduction(op: &'static str, reduction: i64) -> Result<()> {
    if (0..=2).contains(&reduction) {
        return Ok(());
    }
    Err(Error::argument(op, format!("reduction should be 0 (none), 1 (mean) or 2 (sum), found {reduction}")))
}

pub(crate) fn l1_loss(a: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    check_reduction("l1_loss", reduction)?;
    apply_reduction(&ops::abs(&sub(a, target)?)?, reduction)
}

/// `log(1 + exp(-y x))`.
pub(crate) fn soft_margin_loss(a: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    check_reduction("soft_margin_loss", reduction)?;
    let margin = ops::neg(&mul(target, a)?)?;
    apply_reduction(&ops::softplus(&margin, Scalar::Int(1), Scalar::Int(40))?, reduction)
}

pub(crate) fn kl_div(a: &Tensor, target: &Tensor, reduction: i64, log_target: bool) -> Result<Tensor> {
    check_reduction("kl_div", reduction)?;
    let each = if log_target {
        mul(&ops::exp(target)?, &sub(target, a)?)?
    } else {
        sub(&ops::xlogy(target, target)?, &mul(target, a)?)?
    };
    apply_reduction(&each, reduction)
}

pub(crate) fn margin_ranking_loss(
    a: &Tensor,
    b: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: i64,
) -> Result<Tensor> {
    check_reduction("margin_ranking_loss", reduction)?;
    let apart = plus(&mul(&ops::neg(target)?, &sub(a, b)?)?, margin)?;
    apply_reduction(&ops::clamp_min(&apart, Scalar::Int(0))?, reduction)
}

/// `a` where the target is 1, `b` where it is -1, 0 elsewhere.
fn by_sign(target: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let a = zero_where(&ops::ne_scalar(target, Scalar::Int(1))?, a)?;
    let b = zero_where(&ops::ne_scalar(target, Scalar::Int(-1))?, b)?;
    add(&a, &b)
}

pub(crate) fn hinge_embedding_loss(a: &Tensor, target: &Tensor, margin: f64, reduction: i64) -> Result<Tensor> {
    check_reduction("hinge_embedding_loss", reduction)?;
    let short = ops::clamp_min(&ops::rsub_scalar(a, number(margin), Scalar::Int(1))?, Scalar::Int(0))?;
    let far = zero_where(&ops::eq_scalar(target, Scalar::Int(1))?, &short)?;
    let near = zero_where(&ops::eq_scalar(target, Scalar::Int(-1))?, a)?;
    apply_reduction(&add(&far, &near)?, reduction)
}

pub(crate) fn cosine_embedding_loss(
    a: &Tensor,
    b: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: i64,
) -> Result<Tensor> {
    const OP: &str = "cosine_embedding_loss";
    check_reduction(OP, reduction)?;
    let dim = match target.ndim() {
        0 | 1 => target.ndim() as i64,
        _ => return Err(Error::argument(OP, format!("expected one target per row, found shape {:?}", target.shape()))),
    };
    if a.ndim() != target.ndim() + 1 || b.ndim() != target.ndim() + 1 {
        let m = format!("expected rows for targets {:?}, found {:?} and {:?}", target.shape(), a.shape(), b.shape());
        return Err(Error::argument(OP, m));
    }
    const EPS: f64 = 1e-12;
    let dot = |x: &Tensor, y: &Tensor| ops::sum_dim(&mul(x, y)?, Some(&[dim]), false, None);
    let lengths = ops::sqrt(&mul(&plus(&dot(a, a)?, EPS)?, &plus(&dot(b, b)?, EPS)?)?)?;
    let cosine = ops::div(&dot(a, b)?, &lengths)?;
    let together = ops::rsub_scalar(&cosine, Scalar::Int(1), Scalar::Int(1))?;
    let apart = ops::clamp_min(&plus(&cosine, -margin)?, Scalar::Int(0))?;
    apply_reduction(&by_sign(target, &together, &apart)?, reduction)
}

/// The norm of the difference of rows; the small number is added to it first.
pub(crate) fn pairwise_distance(x1: &Tensor, x2: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
    let last = x1.ndim().max(x2.ndim()) as i64 - 1;
    ops::norm_dim(&plus(&sub(x1, x2)?, eps)?, Some(number(p)), &[last.max(0)], keepdim)
}

pub(crate) fn triplet_margin_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: i64,
) -> Result<Tensor> {
    const OP: &str = "triplet_margin_loss";
    check_reduction(OP, reduction)?;
    if margin <= 0.0 {
        return Err(Error::argument(OP, format!("the margin must be positive, found {margin}")));
    }
    let distance = |a: &Tensor, b: &Tensor| pairwise_distance(a, b, p, eps, false);
    let mut far = distance(anchor, negative)?;
    if swap {
        far = ops::minimum(&far, &distance(positive, negative)?)?;
    }
    let excess = plus(&sub(&distance(anchor, positive)?, &far)?, margin)?;
    apply_reduction(&ops::clamp_min(&excess, Scalar::Int(0))?, reduction)
}

pub(crate) fn poisson_nll_loss(
    input: &Tensor,
    target: &Tensor,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: i64,
) -> Result<Tensor> {
    check_reduction("poisson_nll_loss", reduction)?;
    let mut each = if log_input {
        sub(&ops::exp(input)?, &mul(target, input)?)?
    } else {
        sub(input, &mul(target, &ops::log(&plus(input, eps)?)?)?)?
    };
    if full {
        // Stirling's approximation of log(target!).
        let circle = ops::log(&ops::mul_scalar(target, number(2.0 * std::f64::consts::PI))?)?;
        let most = sub(&mul(target, &ops::log(target)?)?, target)?;
        let stirling = add(&most, &ops::mul_scalar(&circle, number(0.5))?)?;
        each = add(&each, &zero_where(&ops::le_scalar(target, Scalar::Int(1))?, &stirling)?)?;
    }
    apply_reduction(&each, reduction)
}

pub(crate) fn cosine_similarity(x1: &Tensor, x2: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
    const OP: &str = "cosine_similarity";
    let dtype = crate::dtype::result_type(x1, x2);
    ops::shape::need_float(OP, dtype)?;
    let sizes = ops::shape::broadcast(OP, x1.shape(), x2.shape())?;
    let wide = |x: &Tensor| ops::formulas::expand_to(&cast(x, dtype)?, &sizes);
    let unit = |x: &Tensor| -> Result<Tensor> {
        let norm = ops::linalg_vector_norm(x, Scalar::Int(2), Some(&[dim]), true, None)?;
        // The bound is a constant: a length below it is divided by it, but keeps its own slope.
        let bounded = {
            let _plain = crate::autograd::NoGrad::new();
            sub(&ops::clamp_min(&norm, number(eps))?, &norm)?
        };
        ops::div(x, &add(&norm, &bounded)?)
    };
    ops::sum_dim(&mul(&unit(&wide(x1)?)?, &unit(&wide(x2)?)?)?, Some(&[dim]), false, None)
}

// ---- class numbers

pub(crate) fn nll_loss(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
) -> Result<Tensor> {
    Ok(ops::nll_loss_forward(input, target, weight, reduction, ignore_index)?.0)
}

pub(crate) fn nll_loss2d(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
) -> Result<Tensor> {
    Ok(ops::nll_loss2d_forward(input, target, weight, reduction, ignore_index)?.0)
}

/// Negative log likelihood with any number of places after the classes.
pub(crate) fn nll_loss_nd(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
) -> Result<Tensor> {
    const OP: &str = "nll_loss_nd";
    match input.ndim() {
        0 => Err(Error::argument(OP, "expected at least one dimension, the classes")),
        1 | 2 => ops::nll_loss(input, target, weight, reduction, ignore_index),
        4 => ops::nll_loss2d(input, target, weight, reduction, ignore_index),
        _ => {
            let (n, c) = (input.shape()[0], input.shape()[1]);
            let mut expected = vec![n];
            expected.extend_from_slice(&input.shape()[2..]);
            if target.shape() != expected {
                let m = format!(
                    "an input of shape {:?} needs targets of shape {expected:?}, found {:?}",
                    input.shape(),
                    target.shape()
                );
                return Err(Error::argument(OP, m));
            }
            let rest: usize = input.shape()[2..].iter().product();
            let input = ops::reshape(input, &sym(&[n, c, 1, rest]))?;
            let flat = ops::reshape(target, &sym(&[n, 1, rest]))?;
            let out = ops::nll_loss2d(&input, &flat, weight, reduction, ignore_index)?;
            if reduction == 0 { ops::reshape(&out, &sym(&expected)) } else { Ok(out) }
        }
    }
}

/// Weights of the classes, in a shape that broadcasts with scores.
fn class_weights(weight: &Tensor, ndim: usize, dim: usize) -> Result<Tensor> {
    let sizes: Vec<usize> = (0..ndim).map(|k| if k == dim { weight.numel() } else { 1 }).collect();
    ops::reshape(weight, &sym(&sizes))
}

pub(crate) fn cross_entropy_loss(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore_index: SymInt,
    label_smoothing: f64,
) -> Result<Tensor> {
    const OP: &str = "cross_entropy_loss";
    check_reduction(OP, reduction)?;
    if !(0.0..=1.0).contains(&label_smoothing) {
        return Err(Error::argument(OP, format!("label_smoothing should be between 0 and 1, found {label_smoothing}")));
    }
    if input.ndim() == 0 {
        return Err(Error::argument(OP, "expected at least one dimension, the classes"));
    }
    let dim = usize::from(input.ndim() > 1);
    let c = input.shape()[dim];
    if let Some(w) = weight.filter(|w| w.shape() != [c]) {
        return Err(Error::argument(OP, format!("expected {c} weights, found shape {:?}", w.shape())));
    }
    let log = ops::log_softmax(input, dim as i64, None)?;
    let over_classes = |t: &Tensor| ops::sum_dim(t, Some(&[dim as i64]), false, None);
    let wide = weight.map(|w| class_weights(w, input.ndim(), dim)).transpose()?;
    let weighted = |t: &Tensor| wide.as_ref().map_or_else(|| Ok(t.clone()), |w| mul(t, w));
    if input.shape() == target.shape() {
        if !target.is_floating_point() {
            return Err(Error::argument(OP, "targets of the input's shape are probabilities and must be floats"));
        }
        let mut target = target.clone();
        if label_smoothing > 0.0 {
            let kept = ops::mul_scalar(&target, number(1.0 - label_smoothing))?;
            target = plus(&kept, label_smoothing / c as f64)?;
        }
        let each = ops::neg(&weighted(&mul(&log, &target)?)?)?;
        return match reduction {
            0 => over_classes(&each),
            1 => ops::div_scalar(&ops::sum(&each, None)?, number((input.numel() / c.max(1)) as f64)),
            _ => ops::sum(&each, None),
        };
    }
    let nll = nll_loss_nd(&log, target, weight, reduction, ignore_index)?;
    if label_smoothing == 0.0 {
        return Ok(nll);
    }
    let ignored = ops::eq_scalar(target, Scalar::Int(ignore_index.int()))?;
    let each = zero_where(&ignored, &ops::neg(&over_classes(&weighted(&log)?)?)?)?;
    let smooth = match reduction {
        1 => {
            let counted = match weight {
                Some(w) => {
                    let flat = ops::reshape(&zero_where(&ignored, target)?, &[SymInt::from(-1)])?;
                    let of_targets = ops::index_select(w, 0, &flat)?;
                    ops::sum(&zero_where(&ops::reshape(&ignored, &[SymInt::from(-1)])?, &of_targets)?, None)?
                }
                None => cast(&ops::sum(&ops::logical_not(&ignored)?, None)?, log.dtype())?,
            };
            ops::div(&ops::sum(&each, None)?, &counted)?
        }
        2 => ops::sum(&each, None)?,
        _ => each,
    };
    let hard = ops::mul_scalar(&nll, number(1.0 - label_smoothing))?;
    add(&hard, &ops::mul_scalar(&smooth, number(label_smoothing / c as f64))?)
}

// ---- margins between classes

/// True where a column is the class that a row of `target` names; targets have one dimension less.
fn is_class(target: &Tensor, classes: usize) -> Result<Tensor> {
    let columns = ops::arange(Scalar::Int(classes as i64), None, Some(target.device()))?;
    ops::eq(&ops::unsqueeze(target, -1)?, &columns)
}

/// What the target's class does not lead the others by.
pub(crate) fn multi_margin_loss(
    input: &Tensor,
    target: &Tensor,
    p: Scalar,
    margin: Scalar,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    const OP: &str = "multi_margin_loss";
    check_reduction(OP, reduction)?;
    if input.ndim() == 0 {
        return multi_margin_loss(&ops::unsqueeze(input, 0)?, target, p, margin, weight, reduction);
    }
    if input.ndim() == 1 && target.shape() == [1] {
        return multi_margin_loss(input, &ops::squeeze_dim(target, 0)?, p, margin, weight, reduction);
    }
    let classes = *input.shape().last().unwrap_or(&0);
    let fits = matches!(input.ndim(), 1 | 2)
        && target.shape() == &input.shape()[..input.ndim() - 1]
        && classes > 0
        && target.dtype() == DType::I64;
    if !fits || !(p.equals(1.0) || p.equals(2.0)) || weight.is_some_and(|w| w.shape() != [classes]) {
        let m = format!(
            "expected scores of classes, one target per sample, an order of 1 or 2 and one weight per class; found {:?} and {:?}",
            input.shape(),
            target.shape()
        );
        return Err(Error::argument(OP, m));
    }
    let own = is_class(target, classes)?;
    let over = |t: &Tensor, keepdim: bool| ops::sum_dim(t, Some(&[-1]), keepdim, None);
    let others = ops::logical_not(&own)?;
    let score = over(&zero_where(&others, input)?, true)?;
    let lead = ops::clamp_min(&ops::add_scalar(&sub(input, &score)?, margin, Scalar::Int(1))?, Scalar::Int(0))?;
    let mut cost = if p.equals(2.0) { mul(&lead, &lead)? } else { lead };
    if let Some(w) = weight {
        cost = mul(&cost, &over(&zero_where(&others, w)?, true)?)?;
    }
    let each = ops::div_scalar(&over(&zero_where(&own, &cost)?, false)?, Scalar::Int(classes as i64))?;
    apply_reduction(&each, reduction)
}

/// As above for several classes a sample: a row of targets ends at the first -1.
pub(crate) fn multilabel_margin_loss(input: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor> {
    const OP: &str = "multilabel_margin_loss";
    check_reduction(OP, reduction)?;
    if input.ndim() == 0 && target.ndim() == 0 {
        return multilabel_margin_loss(&ops::unsqueeze(input, 0)?, &ops::unsqueeze(target, 0)?, reduction);
    }
    let classes = *input.shape().last().unwrap_or(&0);
    if !matches!(input.ndim(), 1 | 2) || target.shape() != input.shape() || classes == 0 {
        let m = format!("expected scores and targets of one shape, found {:?} and {:?}", input.shape(), target.shape());
        return Err(Error::argument(OP, m));
    }
    let valid = ops::cumprod(&ops::ge_scalar(target, Scalar::Int(0))?, -1, None)?;
    let named = mul(&cast(&is_class(target, classes)?, valid.dtype())?, &ops::unsqueeze(&valid, -1)?)?;
    let chosen = ops::any_dim(&named, -2, false)?;
    let unnamed = ops::eq_scalar(&named, Scalar::Int(0))?;
    let scores = ops::sum_dim(&zero_where(&unnamed, &ops::unsqueeze(input, -2)?)?, Some(&[-1]), true, None)?;
    let lead = plus(&sub(&ops::unsqueeze(input, -2)?, &scores)?, 1.0)?;
    let cost = zero_where(&ops::unsqueeze(&chosen, -2)?, &ops::clamp_min(&lead, Scalar::Int(0))?)?;
    let ended = ops::unsqueeze(&ops::eq_scalar(&valid, Scalar::Int(0))?, -1)?;
    let each = ops::sum_dim(&zero_where(&ended, &cost)?, Some(&[-2, -1]), false, None)?;
    apply_reduction(&ops::div_scalar(&each, Scalar::Int(classes as i64))?, reduction)
}
