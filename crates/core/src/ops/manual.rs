//! Ops whose autograd part is written by hand: `copy_`, `detach`, `detach_`.

use crate::autograd::node::{Backward, Edges, Gradients, Needs, Node, boxed};
use crate::autograd::{SavedVisitor, forward, record};
use crate::dispatch::Op;
use crate::func::level;
use crate::tensor::{DETACHED, REQUIRES_GRAD, RETAINS_GRAD};
use crate::{ErrorKind, Result, Tensor, ops, races, state};
use smallvec::smallvec;

pub(crate) use super::fused_optim::{fused_adagrad_, fused_adam_, fused_adamw_, fused_sgd_};
pub(crate) use super::inplace_view::*;
pub(crate) use super::overwrite::*;
pub(crate) use super::resize::{resize_, resize_as_, set_, set_source, set_source_region};

/// Gradient of a copy: none to the old value, all to the source.
struct CopyBackwards;

impl Backward for CopyBackwards {
    fn name(&self) -> &str {
        "torch::autograd::CopyBackwards"
    }
    fn apply(&self, _: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        let Some(g) = grads.into_iter().next().flatten() else { return Ok(smallvec![None, None]) };
        // The old value was overwritten: a zero gradient keeps its history alive, as in PyTorch.
        let old = if needs.get(0) { Some(ops::formulas::zeros_like_primal(&g)?) } else { None };
        Ok(smallvec![old, needs.get(1).then_some(g)])
    }
    fn visit_saved(&self, _: &Node, _: &mut dyn SavedVisitor) -> Result<bool> {
        Ok(true)
    }
}

/// Copies the values of `src`, broadcast and converted, into `self_`.
pub(crate) fn copy_<'a>(self_: &'a Tensor, src: &Tensor, _non_blocking: bool) -> Result<&'a Tensor> {
    const OP: &str = "copy_";
    self_.check_writable(OP)?;
    if !ops::shape::is_expandable_to(src.shape(), self_.shape()) {
        return Err(crate::Error::argument(
            OP,
            format!("a source of shape {:?} cannot be broadcast to shape {:?}", src.shape(), self_.shape()),
        ));
    }
    let word = state::word();
    let recording = word & state::GRAD != 0
        && self_.dtype().is_differentiable()
        && (record::wants_grad(self_) || (record::wants_grad(src) && src.dtype().is_differentiable()));
    let mut edges = Edges::new();
    if recording {
        self_.check_inplace(OP)?;
        let from = if src.dtype().is_differentiable() { record::edge(src)? } else { None };
        edges = smallvec![record::edge(self_)?, from];
    }
    if word & state::LEVEL != 0 {
        level::call(Op::COPY_, &[self_.into(), src.into()])?;
    } else {
        if !self_.is_meta() {
            src.need_data(OP)?;
            races::op!(OP, self_, src);
            copy_data(src, self_)?;
        }
        self_.bump_version();
    }
    if recording {
        record::finish_inplace(self_, edges, boxed(CopyBackwards))?;
    }
    if word & state::DUAL != 0 && forward::any_tangent(&[self_, src]) {
        let t = forward::tangent_or_zeros(src)?;
        let t = ops::formulas::expand_to(&t, self_.shape())?;
        forward::set_tangent_inplace(self_, ops::formulas::cast(&t, self_.dtype())?)?;
    }
    Ok(self_)
}

/// Copies numbers only; overlapping memory is safe.
pub(crate) fn copy_data(src: &Tensor, dst: &Tensor) -> Result<()> {
    use ops::inplace::{Overlap, overlap};
    let from = ops::shape::expanded(src, dst.shape())?;
    match overlap(dst, src) {
        Overlap::Full if from.same_geometry(dst.layout()) => Ok(()),
        Overlap::No => {
            let access = src.read()?;
            firebrand_kernels::copy(access.view_as(from.sizes(), from.strides()), dst.write()?.view_mut());
            Ok(())
        }
        _ => {
            let copy = Tensor::try_empty(crate::Spec::new(src.shape(), src.dtype(), src.device())?)?;
            firebrand_kernels::copy(src.read()?.view(), copy.write()?.view_mut());
            copy_data(&copy, dst)
        }
    }
}

/// An alias without history: shares memory and version, is not a tracked view, loses the tangent.
pub(crate) fn detach(self_: &Tensor) -> Result<Tensor> {
    if state::is(state::LEVEL) {
        return crate::dispatch::one_tensor(level::call(Op::DETACH, &[self_.into()])?);
    }
    Ok(self_.alias_with(self_.layout().clone()))
}

/// Cuts the tensor off its history, in place.
pub(crate) fn detach_(self_: &Tensor) -> Result<&Tensor> {
    if self_.is_view_here() {
        return Err(ErrorKind::DetachViewInplace.into());
    }
    self_.store_history(None);
    forward::forget(self_);
    self_.clear_flag(REQUIRES_GRAD | RETAINS_GRAD);
    self_.set_flag(DETACHED);
    Ok(self_)
}
