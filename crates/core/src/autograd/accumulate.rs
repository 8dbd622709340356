//! Accumulate nodes, where gradients end in the `.grad` of a leaf; and everything else about `.grad`.
//!
//! A leaf holds its accumulate node weakly, graphs hold it strongly and it holds the leaf: so it is dropped with the last
//! graph that uses it. Additions to `.grad` happen one after another, and no user code runs under a lock (`grad_slot`).

use super::grad_slot::Sum;
use super::hook_table;
use super::node::{Backward, Edge, Edges, Gradients, InputMetadata, Needs, Node, WeakNode, boxed};
use crate::capture;
use crate::layout::Layout;
use crate::tensor::sparse;
use crate::tensor::{INFERENCE, REQUIRES_GRAD, RETAINS_GRAD, WeakTensor};
use crate::warnings::warn;
use crate::{DType, ErrorKind, Result, Tensor, ops, state};
use smallvec::smallvec;

struct AccumulateGrad {
    variable: Tensor,
}

impl Backward for AccumulateGrad {
    fn name(&self) -> &str {
        "torch::autograd::AccumulateGrad"
    }

    fn apply(&self, _: &Node, grads: Gradients, _: &Needs<'_>) -> Result<Gradients> {
        if let Some(g) = grads.into_iter().next().flatten()
            && self.variable.flags() & REQUIRES_GRAD != 0
        {
            self.variable.accumulate_grad(g)?;
        }
        let hooks = self.variable.extras_if_any().and_then(|e| e.post_accumulate_hooks.get());
        if let Some(table) = hooks {
            table.try_for_each(|hook| hook(&self.variable))?;
        }
        Ok(Gradients::new())
    }

    fn variable(&self) -> Option<&Tensor> {
        Some(&self.variable)
    }
}

impl Tensor {
    /// The accumulate node of a leaf: the existing one, or a new one.
    pub(crate) fn grad_accumulator(&self) -> Result<Node> {
        let slot = || self.extras().accumulator.lock().unwrap_or_else(|e| e.into_inner());
        let living = |slot: &Option<WeakNode>| slot.as_ref().and_then(WeakNode::upgrade);
        let found = living(&slot());
        if let Some(node) = found {
            return Ok(node);
        }
        let formula = boxed(AccumulateGrad { variable: self.clone() });
        let mut meta = InputMetadata::of(self);
        meta.dtype = self.wanted_grad_dtype().unwrap_or(meta.dtype);
        let node = Node::unannounced(u64::MAX, Edges::new(), smallvec![meta], formula);
        let other = {
            let mut slot = slot();
            let other = living(&slot);
            if other.is_none() {
                *slot = Some(node.downgrade());
            }
            other
        };
        // Another thread was faster; ours has not been shared.
        if let Some(other) = other {
            return Ok(other);
        }
        // A creation hook that uses the leaf finds this very node.
        node.announce()?;
        Ok(node)
    }

    /// Graphs recorded from now on have another accumulate node.
    pub(crate) fn forget_accumulator(&self) {
        if let Some(extras) = self.extras_if_any() {
            let before = extras.accumulator.lock().unwrap_or_else(|e| e.into_inner()).take();
            drop(before);
        }
    }

    /// The gradient, if there is one. Reading it from a non-leaf tensor that does not retain it warns.
    pub fn grad(&self) -> Option<Tensor> {
        if let Some(tracer) = capture::tracer() {
            return tracer.grad(self);
        }
        if let Some(real) = capture::stands_for(self) {
            return real.grad();
        }
        if self.flags() & (REQUIRES_GRAD | RETAINS_GRAD) == 0 && self.requires_grad() && !self.is_leaf_here() {
            warn(
                "the .grad of a non-leaf tensor was accessed; it is not populated during backward. \
                 Call retain_grad() on it first, or read the leaf's",
            );
        }
        self.extras_if_any()?.grad.get()
    }

    /// Assigns the gradient; `None` clears it.
    pub fn try_set_grad(&self, grad: Option<&Tensor>) -> Result<()> {
        if let Some(tracer) = capture::tracer() {
            grad.map_or(Ok(()), |g| self.check_grad(g))?;
            return tracer.set_grad(self, grad);
        }
        if let Some(real) = capture::stands_for(self) {
            return real.try_set_grad(grad);
        }
        let grad = grad.map(capture::real);
        let grad = grad.as_ref();
        if let Some(g) = grad {
            self.check_grad(g)?;
            if g.device() != self.device() {
                let (device, expected) = (g.device(), self.device());
                let (argument, reference) = ("the gradient".into(), "the tensor".into());
                return Err(ErrorKind::DeviceMismatch { op: "set_grad", argument, device, reference, expected }.into());
            }
        }
        drop(self.extras().grad.replace(grad.cloned()));
        Ok(())
    }

    /// Whether a tensor, or its stand-in in a capture, may be the gradient.
    fn check_grad(&self, g: &Tensor) -> Result<()> {
        if g.is_same(self) {
            return Err(ErrorKind::GradAssignSelf.into());
        }
        let (expected, found) = (self.layout().sizes(), g.layout().sizes());
        if found != expected {
            let (expected, found) = (expected.to_vec(), found.to_vec());
            return Err(ErrorKind::GradAssignShape { expected, found }.into());
        }
        if let Some(expected) = self.wanted_grad_dtype()
            && g.dtype() != expected
        {
            return Err(ErrorKind::GradAssignDtype { expected, found: g.dtype() }.into());
        }
        Ok(())
    }

    /// Assigns the gradient; `None` clears it.
    ///
    /// # Panics
    /// If shape, dtype or device do not match.
    #[track_caller]
    pub fn set_grad(&self, grad: Option<&Tensor>) {
        self.try_set_grad(grad).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Clears the gradient.
    pub fn zero_grad(&self) {
        if let Some(tracer) = capture::tracer() {
            let _ = tracer.set_grad(self, None); // clearing cannot fail
            return;
        }
        if let Some(real) = capture::stands_for(self) {
            return real.zero_grad();
        }
        if let Some(e) = self.extras_if_any() {
            drop(e.grad.replace(None));
        }
    }

    /// The required dtype of gradients; `None` if any is accepted.
    #[track_caller]
    pub fn grad_dtype(&self) -> Option<DType> {
        let real = capture::expect_itself(self, "grad_dtype");
        real.as_ref().unwrap_or(self).wanted_grad_dtype()
    }

    fn wanted_grad_dtype(&self) -> Option<DType> {
        match self.extras_if_any().and_then(|e| *e.grad_dtype.lock().unwrap_or_else(|e| e.into_inner())) {
            Some(choice) => choice,
            None => Some(self.dtype()),
        }
    }

    /// Sets the required dtype of gradients; `None` accepts any.
    #[track_caller]
    pub fn set_grad_dtype(&self, dtype: Option<DType>) {
        if let Some(real) = capture::expect_itself(self, "set_grad_dtype") {
            return real.set_grad_dtype(dtype);
        }
        let before = self.wanted_grad_dtype();
        *self.extras().grad_dtype.lock().unwrap_or_else(|e| e.into_inner()) = Some(dtype);
        if before != dtype {
            // The accumulate node knows what the engine should cast to; a new one will know the new wish.
            *self.extras().accumulator.lock().unwrap_or_else(|e| e.into_inner()) = None;
        }
    }

    /// The layout a stored gradient has: the leaf's own if that is dense, row-major otherwise.
    fn grad_layout(&self) -> Layout {
        if self.layout().is_non_overlapping_and_dense() {
            self.layout().from_start()
        } else {
            self.layout().to_contiguous()
        }
    }

    fn accumulate_grad(&self, g: Tensor) -> Result<()> {
        let grad_mode = state::is(state::GRAD);
        let in_place = |old: &Tensor| !grad_mode && (old.flags() & INFERENCE == 0 || state::is(state::INFERENCE));
        let add = |old: Option<&Tensor>, g: Tensor, may_write: bool| match old {
            None => self.first_grad(g, grad_mode).map(Sum::New),
            Some(old) if sparse::either(old, &g) => {
                let writes = may_write && in_place(old) && !old.is_sparse();
                let sum = sparse::sum_gradients(old, &g, writes)?;
                Ok(if writes { Sum::InPlace } else { Sum::New(sum) })
            }
            Some(old) if may_write && in_place(old) => ops::formulas::add_in_place(old, &g).map(|()| Sum::InPlace),
            Some(old) => ops::formulas::add_tensors(old, &g).map(Sum::New),
        };
        let slot = &self.extras().grad;
        if !is_watched(grad_mode) {
            return slot.add(g, add);
        }
        let g = if slot.is_some() { g } else { self.first_grad(g, grad_mode)? };
        match slot.set_first(g) {
            None => Ok(()),
            Some(g) => slot.add_watched(g, in_place, add, unseen(add)),
        }
    }

    /// The first gradient as it is stored: itself if nothing else can see it, else a copy.
    fn first_grad(&self, mut g: Tensor, grad_mode: bool) -> Result<Tensor> {
        if g.is_sparse() {
            return if g.is_sole_owner() { Ok(g) } else { sparse::copy(&g) };
        }
        let free = state::is(state::FREE_GRAD_LAYOUT);
        let fits = free || {
            let want = self.layout();
            if want.is_contiguous() { g.is_contiguous() } else { g.strides() == self.grad_layout().strides() }
        };
        if !grad_mode && fits {
            g = without_base(g);
            if g.is_sole_owner() && !g.is_view_here() {
                return Ok(g);
            }
        }
        let layout = if free { g.layout().dense_like() } else { self.grad_layout() };
        ops::formulas::clone_with_layout(&g, &layout)
    }

    /// Stores the gradient of a non-leaf tensor that retains it.
    pub(crate) fn accumulate_retained(&self, g: &Tensor) -> Result<()> {
        let add = |old: Option<&Tensor>, g: Tensor, _: bool| {
            Ok(Sum::New(match old {
                None if g.is_sparse() => sparse::copy(&g)?,
                Some(old) if sparse::either(old, &g) => sparse::sum_gradients(old, &g, false)?,
                None => ops::formulas::clone_with_layout(&g, &g.layout().to_contiguous())?,
                Some(old) => ops::formulas::add_tensors(old, &g)?,
            }))
        };
        let slot = &self.extras().grad;
        if is_watched(state::is(state::GRAD)) {
            slot.add_watched(g.clone(), |_| false, add, unseen(add))
        } else {
            slot.add(g.clone(), add)
        }
    }

    /// Retains the gradient of a non-leaf tensor in its `.grad`. Does nothing on leaves, which always store theirs.
    pub fn try_retain_grad(&self) -> Result<()> {
        if !self.requires_grad() {
            return Err(ErrorKind::RetainGradNoGrad.into());
        }
        if let Some(tracer) = capture::tracer() {
            return tracer.retain_grad(self);
        }
        if let Some(real) = capture::stands_for(self) {
            return real.try_retain_grad();
        }
        let Some(edge) = self.try_grad_fn_edge()? else { return Ok(()) };
        if self.flags() & RETAINS_GRAD == 0 {
            self.set_flag(RETAINS_GRAD);
            move_retention(self, None, Some(&edge));
        }
        Ok(())
    }

    /// Retains the gradient of a non-leaf tensor in its `.grad`.
    ///
    /// # Panics
    /// If the tensor does not require grad.
    #[track_caller]
    pub fn retain_grad(&self) {
        self.try_retain_grad().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Whether a non-leaf tensor retains its gradient.
    #[track_caller]
    pub fn retains_grad(&self) -> bool {
        let real = capture::expect_itself(self, "retains_grad");
        real.as_ref().unwrap_or(self).flags() & RETAINS_GRAD != 0
    }
}

/// Whether user code may observe the ops that add gradients: layers do, and hooks that see the nodes of a recorded sum.
fn is_watched(recording: bool) -> bool {
    let word = state::word();
    let hooks = if recording { state::CREATION | state::SAVED_HOOKS } else { 0 };
    if word & (state::LEVEL | hooks) != 0 {
        return true;
    }
    // Autocast alone is not user code.
    let layered = |s: &mut state::Stacks| !s.layers.is_empty() || !s.inner.is_empty() || s.tracer.is_some();
    word & (state::LAYERS | state::INNER) != 0 && state::stacks(layered)
}

/// The addition, invisible to layers and hooks.
fn unseen<A>(add: A) -> impl Fn(Option<&Tensor>, Tensor, bool) -> Result<Sum<Tensor>>
where
    A: Fn(Option<&Tensor>, Tensor, bool) -> Result<Sum<Tensor>>,
{
    move |old, g, may_write| {
        // A level needs its own layer.
        let layers = if state::is(state::LEVEL) { state::LAYERS } else { state::LAYERS | state::INNER };
        let _hidden = state::ModeGuard::new(0, layers | state::CREATION | state::SAVED_HOOKS);
        add(old, g, may_write)
    }
}

/// A view of a whole tensor that nothing else holds, as a separate tensor; any other tensor as it is.
///
/// The gradient of a linear layer's weight is such a view: it was transposed twice. Taking it over avoids a copy.
fn without_base(g: Tensor) -> Tensor {
    let whole = |b: &&Tensor| b.numel() == g.numel() && b.dtype() == g.dtype();
    let Some(base) = g.base_here().filter(whole).cloned() else { return g };
    if state::word() & (state::LAYERS | state::LEVEL) != 0 {
        return g;
    }
    // Handles: the view's own, and this one; if there are more, writes to the gradient would be visible elsewhere.
    if base.handles() > 2 || g.handles() > 1 {
        return g;
    }
    let layout = g.layout().clone();
    drop(g);
    base.alias_with(layout)
}

/// Moves gradient retention of a tensor from its old node to its new one.
pub(crate) fn move_retention(t: &Tensor, from: Option<&Edge>, to: Option<&Edge>) {
    let weak: WeakTensor = t.downgrade();
    if let Some(e) = from
        && let Some(retain) = e.node.extras_if_any().and_then(|x| x.hooks.retain.get())
    {
        let mut list = retain.lock().unwrap_or_else(|e| e.into_inner());
        list.retain(|(_, w)| w.is_alive() && !w.is_same(&weak));
    }
    if let Some(e) = to {
        let retain = e.node.extras().hooks.retain.get_or_init(Default::default);
        retain.lock().unwrap_or_else(|e| e.into_inner()).push((e.slot, weak));
        hook_table::note_change();
    }
}
