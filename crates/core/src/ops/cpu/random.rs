//! Random numbers, from the thread's current generator, in PyTorch's order.

use super::{copy_into, expand, zero_into};
use crate::dispatch::MemoryFormat;
use crate::generator::draw;
use crate::layout::Layout;
use crate::ops::lists;
use crate::ops::shape::{creation as shape, need_float};
use crate::sym::SymInt;
use crate::{DType, Device, Error, Result, Scalar, Spec, Tensor};
use firebrand_kernels::random::Generator;

/// A new tensor filled by the generator.
fn drawn(spec: Spec, fill: impl FnOnce(&mut Generator, &firebrand_kernels::ViewMut<'_>)) -> Result<Tensor> {
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        let to = out.write()?;
        draw(|g| fill(g, &to.view_mut()));
    }
    Ok(out)
}

/// As [`drawn`], for distributions that the parts of complex numbers have one by one.
fn drawn_parts(
    op: &'static str,
    spec: Spec,
    fill: impl FnOnce(&mut Generator, &firebrand_kernels::ViewMut<'_>),
) -> Result<Tensor> {
    need_float(op, spec.dtype.to_real())?;
    if !spec.dtype.is_complex() {
        return drawn(spec, fill);
    }
    let out = Tensor::try_empty(spec)?;
    if out.is_meta() {
        return Ok(out);
    }
    let parts = drawn(Spec::new(&[out.numel(), 2], out.dtype().to_real(), out.device())?, fill)?;
    copy_into(&parts.alias_as(Spec::new(out.shape(), out.dtype(), out.device())?), &out)?;
    Ok(out)
}

/// The deviation of what is drawn: that of each part of a complex number, which share the variance.
fn part_deviation(dtype: DType, std: f64) -> f64 {
    if dtype.is_complex() { std / std::f64::consts::SQRT_2 } else { std }
}

fn uniform(op: &'static str, spec: Spec) -> Result<Tensor> {
    drawn_parts(op, spec, |g, to| g.uniform(to, 0.0, 1.0))
}

fn normals(op: &'static str, spec: Spec, mean: f64, std: f64) -> Result<Tensor> {
    let std = part_deviation(spec.dtype, std);
    drawn_parts(op, spec, |g, to| g.normal(to, mean, std))
}

fn float_spec(op: &'static str, spec: Spec) -> Result<Spec> {
    need_float(op, spec.dtype)?;
    Ok(spec)
}

pub(crate) fn rand(size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    uniform("rand", shape::fresh("rand", size, dtype, device)?)
}

pub(crate) fn randn(size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    normals("randn", shape::fresh("randn", size, dtype, device)?, 0.0, 1.0)
}

pub(crate) fn rand_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    uniform("rand_like", shape::like(self_, dtype, device, format)?)
}

pub(crate) fn randn_like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    normals("randn_like", shape::like(self_, dtype, device, format)?, 0.0, 1.0)
}

/// Fails unless there is an integer to draw.
pub(crate) fn need_range(op: &'static str, low: i64, high: i64) -> Result<()> {
    if low < high {
        return Ok(());
    }
    Err(Error::argument(op, format!("the range from {low} to {high} (exclusive) is empty")))
}

pub(crate) fn randint(high: SymInt, size: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    randint_low(0.into(), high, size, dtype, device)
}

pub(crate) fn randint_low(
    low: SymInt,
    high: SymInt,
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    need_range("randint", low.int(), high.int())?;
    let spec = shape::fresh("randint", size, Some(dtype.unwrap_or(DType::I64)), device)?;
    drawn(spec, |g, to| g.random_from_to(to, low.int(), high.int()))
}

pub(crate) fn randint_like(
    self_: &Tensor,
    high: SymInt,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    randint_like_low(self_, 0.into(), high, dtype, device, format)
}

pub(crate) fn randint_like_low(
    self_: &Tensor,
    low: SymInt,
    high: SymInt,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    need_range("randint_like", low.int(), high.int())?;
    drawn(shape::like(self_, dtype, device, format)?, |g, to| g.random_from_to(to, low.int(), high.int()))
}

pub(crate) fn randperm(n: SymInt, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let spec = shape::fresh("randperm", &[n], Some(dtype.unwrap_or(DType::I64)), device)?;
    drawn(spec, |g, to| g.randperm(to))
}

/// Fails for a negative deviation.
pub(crate) fn need_std(op: &'static str, std: f64) -> Result<()> {
    if std >= 0.0 {
        return Ok(());
    }
    Err(Error::argument(op, format!("the standard deviation must not be negative, found {std}")))
}

pub(crate) fn normal(
    mean: f64,
    std: f64,
    size: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    need_std("normal", std)?;
    normals("normal", shape::fresh("normal", size, dtype, device)?, mean, std)
}

/// Standard normals of a tensor's shape, which a composition then shifts and scales.
pub(crate) fn standard_normal(like: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    let spec = float_spec("normal", Spec::new(sizes, like.dtype(), like.device())?)?;
    drawn(spec, |g, to| g.normal(to, 0.0, 1.0))
}

/// Fails unless it is a probability.
pub(crate) fn need_probability(op: &'static str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::argument(op, format!("a probability must lie between 0 and 1, found {p}")))
}

/// Fails unless all elements are probabilities.
pub(crate) fn need_probabilities(op: &'static str, p: &Tensor) -> Result<()> {
    need_float(op, p.dtype())?;
    p.need_data(op)?;
    let wide = Tensor::try_empty(Spec::new(p.shape(), DType::F64, Device::Cpu)?)?;
    copy_into(p, &wide)?;
    match wide.try_to_vec::<f64>()?.into_iter().find(|p| !(0.0..=1.0).contains(p)) {
        Some(wrong) => need_probability(op, wrong),
        None => Ok(()),
    }
}

/// `bernoulli`: the tensor holds the probabilities.
pub(crate) fn bernoulli(self_: &Tensor) -> Result<Tensor> {
    let spec = float_spec("bernoulli", shape::like(self_, None, None, None)?)?;
    if self_.is_meta() {
        return Tensor::try_empty(spec);
    }
    need_probabilities("bernoulli", self_)?;
    let p = self_.read()?;
    drawn(spec, |g, to| g.bernoulli_tensor(to, &p.view()))
}

/// `bernoulli.p`.
pub(crate) fn bernoulli_p(self_: &Tensor, p: f64) -> Result<Tensor> {
    need_probability("bernoulli", p)?;
    drawn(shape::like(self_, None, None, None)?, |g, to| g.bernoulli(to, p))
}

/// `multinomial`: with replacement by running sums, without by the largest of weight over exponential.
pub(crate) fn multinomial(self_: &Tensor, num_samples: SymInt, replacement: bool) -> Result<Tensor> {
    const OP: &str = "multinomial";
    need_float(OP, self_.dtype())?;
    let wrong = |m: String| Err(Error::argument(OP, m));
    let (rows, categories) = match *self_.shape() {
        [c] => (1, c),
        [r, c] => (r, c),
        _ => return wrong(format!("takes one or two dimensions of weights, found shape {:?}", self_.shape())),
    };
    let Some(n) = num_samples.to_usize().filter(|n| *n > 0) else {
        return wrong(format!("the number of samples must be positive, found {num_samples}"));
    };
    if !replacement && n > categories {
        return wrong(format!("{n} samples without replacement from {categories} categories"));
    }
    if rows > 0 && categories == 0 {
        return wrong(format!("there are no categories to draw from, found shape {:?}", self_.shape()));
    }
    let sizes = if self_.ndim() == 1 { vec![n] } else { vec![rows, n] };
    let out = Tensor::try_empty(Spec::new(&sizes, DType::I64, self_.device())?)?;
    if out.is_meta() {
        return Ok(out);
    }
    let weights = Tensor::try_empty(Spec::new(&[rows, categories], self_.dtype(), Device::Cpu)?)?;
    copy_into(self_, &weights.alias_with(Layout::contiguous(self_.shape())?))?;
    let wide = Tensor::try_empty(Spec::new(&[rows, categories], DType::F64, Device::Cpu)?)?;
    copy_into(&weights, &wide)?;
    let values = wide.try_to_vec::<f64>()?;
    for row in values.chunks(categories.max(1)) {
        let sum: f64 = row.iter().sum();
        if row.iter().any(|w| !w.is_finite() || *w < 0.0) || sum <= 0.0 {
            return wrong("weights must be finite and not negative, and each row needs a positive one".into());
        }
        if !replacement && row.iter().filter(|w| **w > 0.0).count() < n {
            return wrong(format!("{n} samples without replacement from fewer positive weights"));
        }
    }
    let flat = out.alias_with(Layout::contiguous(&[rows, n])?);
    if replacement {
        let (w, to) = (weights.read()?, flat.write()?);
        draw(|g| g.multinomial(&to.view_mut(), &w.view()));
        return Ok(out);
    }
    let noise = Tensor::try_empty(Spec::new(&[rows, categories], self_.dtype(), Device::Cpu)?)?;
    let to = noise.write()?;
    draw(|g| g.exponential(&to.view_mut(), 1.0));
    drop(to);
    super::pointwise::binary_op(
        firebrand_kernels::pointwise::Op::Div,
        self_.dtype().compute(),
        &weights,
        &noise,
        &weights,
    )?;
    let best = Tensor::try_empty(Spec::new(&[rows, n], self_.dtype(), Device::Cpu)?)?;
    super::sort::topk(&weights, num_samples, 1, true, true, &best, &flat)?;
    Ok(out)
}

/// `native_dropout`: kept elements scaled, and which were kept.
pub(crate) fn native_dropout(input: &Tensor, p: f64, train: Option<bool>) -> Result<(Tensor, Tensor)> {
    const OP: &str = "native_dropout";
    need_probability(OP, p)?;
    let out = Tensor::try_empty(shape::like(input, None, None, None)?)?;
    let mask = Tensor::try_empty(shape::like(input, Some(DType::Bool), None, None)?)?;
    if out.is_meta() {
        return Ok((out, mask));
    }
    if train == Some(false) || p == 0.0 {
        firebrand_kernels::fill(mask.write()?.view_mut(), Scalar::Bool(true).into());
        copy_into(input, &out)?;
    } else if p == 1.0 {
        zero_into(&mask)?;
        zero_into(&out)?;
    } else {
        need_float(OP, input.dtype())?;
        let to = mask.write()?;
        draw(|g| g.bernoulli(&to.view_mut(), 1.0 - p));
        drop(to);
        native_dropout_backward(input, &mask, 1.0 / (1.0 - p), &out)?;
    }
    Ok((out, mask))
}

/// `native_dropout_backward`.
pub(crate) fn native_dropout_backward(grad: &Tensor, mask: &Tensor, scale: f64, out: &Tensor) -> Result<()> {
    use firebrand_kernels::pointwise::Op;
    let compute = out.dtype().compute();
    super::pointwise::scalar_op(Op::Mul, compute, grad, Scalar::Float(scale), out)?;
    let (kept, zero) = (expand(mask, out.shape())?, Scalar::Int(0));
    let to = out.write()?;
    firebrand_kernels::pointwise::ternary(
        Op::Where,
        compute,
        kept.view().into(),
        to.view().into(),
        firebrand_kernels::pointwise::Operand::Value(zero.into()),
        to.view_mut(),
    );
    Ok(())
}

/// The elements in f64, in logical order.
fn wide(t: &Tensor) -> Result<Vec<f64>> {
    let copy = Tensor::try_empty(Spec::new(t.shape(), DType::F64, Device::Cpu)?)?;
    copy_into(t, &copy)?;
    copy.try_to_vec::<f64>()
}

/// A new row-major tensor of values that are drawn in logical order, each given its place.
fn drawn_each(like: &Tensor, sizes: &[usize], one: impl Fn(&mut Generator, usize) -> f64) -> Result<Tensor> {
    let out = Tensor::try_empty(Spec::new(sizes, like.dtype(), like.device())?)?;
    let mut values = lists::room(out.numel())?;
    draw(|g| values.extend((0..out.numel()).map(|k| one(g, k))));
    lists::write(&out, values)?;
    Ok(out)
}

/// `poisson`: one number per rate.
pub(crate) fn poisson(self_: &Tensor) -> Result<Tensor> {
    const OP: &str = "poisson";
    need_float(OP, self_.dtype())?;
    if self_.is_meta() {
        return Tensor::try_empty(Spec::new(self_.shape(), self_.dtype(), self_.device())?);
    }
    let rates = wide(self_)?;
    if let Some(wrong) = rates.iter().find(|r| !(**r >= 0.0 && r.is_finite())) {
        return Err(Error::argument(OP, format!("rates must be finite and not negative, found {wrong}")));
    }
    drawn_each(self_, self_.shape(), |g, k| g.poisson(rates[k]))
}

/// `_standard_gamma`: one number per shape.
pub(crate) fn standard_gamma(self_: &Tensor) -> Result<Tensor> {
    const OP: &str = "_standard_gamma";
    need_float(OP, self_.dtype())?;
    if self_.is_meta() {
        return Tensor::try_empty(Spec::new(self_.shape(), self_.dtype(), self_.device())?);
    }
    let shapes = wide(self_)?;
    if let Some(wrong) = shapes.iter().find(|s| !(**s >= 0.0 && s.is_finite())) {
        return Err(Error::argument(OP, format!("shapes must be finite and not negative, found {wrong}")));
    }
    // Zero would have no logarithm.
    let least = match self_.dtype() {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => 6.103_515_625e-5,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let single = self_.dtype() != DType::F64;
    drawn_each(self_, self_.shape(), |g, k| g.gamma(shapes[k], single).max(least))
}

/// `binomial`: successes among this many trials.
pub(crate) fn binomial(count: &Tensor, prob: &Tensor) -> Result<Tensor> {
    const OP: &str = "binomial";
    need_float(OP, count.dtype())?;
    if count.dtype() != prob.dtype() {
        let m = format!("expected counts and probabilities of one dtype, found {} and {}", count.dtype(), prob.dtype());
        return Err(Error::argument(OP, m));
    }
    let sizes = crate::ops::shape::broadcast(OP, count.shape(), prob.shape())?;
    if count.is_meta() {
        return Tensor::try_empty(Spec::new(&sizes, count.dtype(), count.device())?);
    }
    let spread = |t: &Tensor| -> Result<Vec<f64>> { wide(&t.alias_with(crate::ops::shape::expanded(t, &sizes)?)) };
    let (counts, probabilities) = (spread(count)?, spread(prob)?);
    if let Some(wrong) = counts.iter().find(|n| n.is_infinite()) {
        return Err(Error::argument(OP, format!("expected finite counts, found {wrong}")));
    }
    let single = count.dtype() != DType::F64;
    drawn_each(count, &sizes, |g, k| g.binomial(counts[k], probabilities[k], single))
}
