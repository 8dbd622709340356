//! In-place ops that replace every element by something that does not depend on it: random numbers and the like.
//!
//! They record a node whose gradient is zero, so that the tensor's previous value gets none.

use crate::autograd::node::{Backward, Edges, Gradients, Needs, Node, boxed};
use crate::autograd::{SavedVisitor, forward, record};
use crate::generator::draw;
use crate::ops::cpu::random::{need_probabilities, need_probability, need_range, need_std};
use crate::ops::shape::{is_expandable_to, need_float, need_real};
use crate::{Error, ErrorKind, Result, Tensor, ops, races, state};
use firebrand_kernels::ViewMut;
use firebrand_kernels::random::Generator;
use smallvec::smallvec;

/// Zero to the old value.
struct Overwritten(&'static str);

impl Backward for Overwritten {
    fn name(&self) -> &str {
        self.0
    }
    fn apply(&self, _: &Node, grads: Gradients, _: &Needs<'_>) -> Result<Gradients> {
        let Some(g) = grads.into_iter().next().flatten() else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(ops::formulas::zeros_like_primal(&g)?)])
    }
    fn visit_saved(&self, _: &Node, _: &mut dyn SavedVisitor) -> Result<bool> {
        Ok(true)
    }
}

fn overwrite<'a>(
    op: &'static str,
    node: &'static str,
    self_: &'a Tensor,
    write: impl FnOnce(&Tensor) -> Result<()>,
) -> Result<&'a Tensor> {
    // Boxed here, so that one level down the same code is not instantiated again and again.
    overwrite_boxed(op, node, self_, Box::new(write))
}

type Write<'w> = Box<dyn FnOnce(&Tensor) -> Result<()> + 'w>;

fn overwrite_boxed<'a>(
    op: &'static str,
    node: &'static str,
    self_: &'a Tensor,
    write: Write<'_>,
) -> Result<&'a Tensor> {
    self_.check_writable(op)?;
    let word = state::word();
    let recording = word & state::GRAD != 0 && record::wants_grad(self_) && self_.dtype().is_differentiable();
    let mut edges = Edges::new();
    if recording {
        self_.check_inplace(op)?;
        edges = smallvec![record::edge(self_)?];
    }
    if word & state::LEVEL != 0 {
        crate::func::level::draw_in_place(op, self_, |value| overwrite_boxed(op, node, value, write).map(drop))?;
    } else {
        if !self_.is_meta() {
            races::op!(op, self_);
            write(self_)?;
        }
        self_.bump_version();
    }
    if recording {
        record::finish_inplace(self_, edges, boxed(Overwritten(node)))?;
    }
    if word & state::DUAL != 0 && forward::any_tangent(&[self_]) {
        forward::set_tangent_inplace(self_, ops::formulas::zeros_like_primal(self_)?)?;
    }
    Ok(self_)
}

/// As [`random`], for distributions that the parts of complex numbers have one by one.
fn random_parts<'a>(
    op: &'static str,
    node: &'static str,
    self_: &'a Tensor,
    fill: impl FnOnce(&mut Generator, &ViewMut<'_>),
) -> Result<&'a Tensor> {
    need_float(op, self_.dtype().to_real())?;
    if !self_.is_complex() {
        return random(op, node, self_, fill);
    }
    overwrite(op, node, self_, |t| {
        let _plain = crate::autograd::NoGrad::new();
        let parts = ops::view_as_real(&ops::detach(t)?)?;
        let to = parts.write()?;
        draw(|g| fill(g, &to.view_mut()));
        Ok(())
    })
}

fn random<'a>(
    op: &'static str,
    node: &'static str,
    self_: &'a Tensor,
    fill: impl FnOnce(&mut Generator, &ViewMut<'_>),
) -> Result<&'a Tensor> {
    need_real(op, &[self_])?;
    overwrite(op, node, self_, |t| {
        let to = t.write()?;
        draw(|g| fill(g, &to.view_mut()));
        Ok(())
    })
}

fn need(op: &'static str, holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::argument(op, message())) }
}

/// `uniform_`.
pub(crate) fn uniform_(self_: &Tensor, from: f64, to: f64) -> Result<&Tensor> {
    need("uniform_", from <= to, || format!("the interval from {from} to {to} is empty"))?;
    random_parts("uniform_", "UniformBackward0", self_, |g, out| g.uniform(out, from, to))
}

/// `normal_`.
pub(crate) fn normal_(self_: &Tensor, mean: f64, std: f64) -> Result<&Tensor> {
    need_std("normal_", std)?;
    // Both parts share the variance.
    let std = if self_.is_complex() { std / std::f64::consts::SQRT_2 } else { std };
    random_parts("normal_", "NormalBackward0", self_, |g, out| g.normal(out, mean, std))
}

/// `log_normal_`.
pub(crate) fn log_normal_(self_: &Tensor, mean: f64, std: f64) -> Result<&Tensor> {
    need_float("log_normal_", self_.dtype())?;
    need("log_normal_", std > 0.0, || format!("the standard deviation must be positive, found {std}"))?;
    random("log_normal_", "LogNormalBackward0", self_, |g, out| g.log_normal(out, mean, std))
}

/// `exponential_`.
pub(crate) fn exponential_(self_: &Tensor, lambd: f64) -> Result<&Tensor> {
    need_float("exponential_", self_.dtype())?;
    need("exponential_", lambd > 0.0, || format!("the rate must be positive, found {lambd}"))?;
    random("exponential_", "ExponentialBackward0", self_, |g, out| g.exponential(out, lambd))
}

/// `cauchy_`.
pub(crate) fn cauchy_(self_: &Tensor, median: f64, sigma: f64) -> Result<&Tensor> {
    need_float("cauchy_", self_.dtype())?;
    need("cauchy_", sigma > 0.0, || format!("sigma must be positive, found {sigma}"))?;
    random("cauchy_", "CauchyBackward0", self_, |g, out| g.cauchy(out, median, sigma))
}

/// `geometric_`.
pub(crate) fn geometric_(self_: &Tensor, p: f64) -> Result<&Tensor> {
    need("geometric_", 0.0 < p && p < 1.0, || format!("the probability lies strictly between 0 and 1, found {p}"))?;
    random("geometric_", "GeometricBackward0", self_, |g, out| g.geometric(out, p))
}

/// `random_`.
pub(crate) fn random_(self_: &Tensor) -> Result<&Tensor> {
    random("random_", "RandomBackward0", self_, |g, out| g.random_any(out))
}

/// `random_.to`.
pub(crate) fn random_to_(self_: &Tensor, to: i64) -> Result<&Tensor> {
    random_from_(self_, 0, Some(to))
}

/// `random_.from`.
pub(crate) fn random_from_(self_: &Tensor, from: i64, to: Option<i64>) -> Result<&Tensor> {
    let to = to.unwrap_or(i64::MAX);
    need_range("random_", from, to)?;
    random("random_", "RandomBackward1", self_, |g, out| g.random_from_to(out, from, to))
}

/// `bernoulli_.float`.
pub(crate) fn bernoulli_(self_: &Tensor, p: f64) -> Result<&Tensor> {
    need_probability("bernoulli_", p)?;
    random("bernoulli_", "BernoulliBackward2", self_, |g, out| g.bernoulli(out, p))
}

/// `bernoulli_.Tensor`.
pub(crate) fn bernoulli_tensor_<'a>(self_: &'a Tensor, p: &Tensor) -> Result<&'a Tensor> {
    const OP: &str = "bernoulli_";
    need(OP, is_expandable_to(p.shape(), self_.shape()), || {
        format!("probabilities of shape {:?} cannot be broadcast to shape {:?}", p.shape(), self_.shape())
    })?;
    need_real(OP, &[self_])?;
    if state::is(state::LEVEL) && p.is_batched() {
        // Each sample has probabilities of its own.
        crate::func::level::need_different(OP, true)?;
        if !crate::func::level::holds(self_, p) {
            return Err(ErrorKind::UnbatchedWrite { op: OP.to_string() }.into());
        }
        let drawn = ops::bernoulli(&ops::formulas::expand_to(p, self_.shape())?)?;
        return ops::copy_(self_, &ops::detach(&drawn)?, false);
    }
    if !self_.is_meta() {
        races::op!(OP, self_, p);
        need_probabilities(OP, p)?;
    }
    overwrite(OP, "BernoulliBackward1", self_, |t| {
        races::op!(OP, self_, p);
        let (p, to) = (ops::cpu::expand(p, t.shape())?, t.write()?);
        draw(|g| g.bernoulli_tensor(&to.view_mut(), &p.view()));
        Ok(())
    })
}
