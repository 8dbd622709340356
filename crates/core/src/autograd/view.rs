//! Views and in-place ops: which tensors share memory, and how history follows a write.
//!
//! A tracked view knows its root base. After the base (or a sibling) was modified, its own history is stale; the next
//! reader rebuilds it as a strided slice of the base's new history. Writing through a view gives the *base* a
//! `CopySlices` node that holds the op's own node for the region.

use super::node::{Backward, BoxedBackward, Edge, Edges, Gradients, InputMetadata, Needs, Node, boxed};
use super::saved::SavedTensor;
use super::saved_visit::{SavedVisitor, Visit};
use super::view_replay::{self, ViewStep};
use crate::layout::Layout;
use crate::ops::shape::view::as_parts;
use crate::tensor::{DETACHED, INFERENCE, REBASED, REQUIRES_GRAD, RETAINS_GRAD, STAND_IN, VIEW};
use crate::{DType, Error, ErrorKind, Result, Tensor, ops, state};
use smallvec::smallvec;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::*};
use std::sync::{Arc, OnceLock};

/// How a view was created, which decides whether it may be modified in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CreationKind {
    /// An ordinary view.
    Default,
    /// One of several outputs of one op.
    MultiOutput,
    /// Created with grad mode off.
    NoGrad,
    /// A view of a normal tensor created in inference mode.
    Inference,
    /// Output of a custom function that aliases an input.
    Custom,
    /// Elements of another dtype over the same bytes, which have no derivative.
    OtherDtype,
    /// Result of a compiled function, in the memory of a value that only that knows.
    Compiled,
}

/// How a view reads the elements of its base: complex numbers are pairs of real ones, and the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lens {
    /// As they are.
    Same,
    /// The base is complex, the view shows parts.
    Parts,
    /// The base is real, the view shows pairs as complex numbers.
    Pairs,
}

impl Lens {
    pub(crate) fn of(base: DType, view: DType) -> Option<Lens> {
        match () {
            () if base == view => Some(Lens::Same),
            () if base.is_complex() && base.to_real() == view => Some(Lens::Parts),
            () if view.is_complex() && view.to_real() == base => Some(Lens::Pairs),
            () => None,
        }
    }

    /// Base and region in the units in which both are counted.
    pub(crate) fn layouts(self, base: &Layout, region: &Layout) -> Result<(Layout, Layout)> {
        Ok(match self {
            Lens::Same => (base.clone(), region.clone()),
            Lens::Parts => (as_parts(base)?, region.clone()),
            Lens::Pairs => (base.clone(), as_parts(region)?),
        })
    }

    /// What belongs to the base, in those units.
    pub(crate) fn enter(self, of_base: &Tensor) -> Result<Tensor> {
        if self == Lens::Parts { ops::view_as_real(of_base) } else { Ok(of_base.clone()) }
    }

    /// The way back.
    fn leave(self, of_base: Tensor) -> Result<Tensor> {
        if self == Lens::Parts { ops::view_as_complex(&of_base) } else { Ok(of_base) }
    }

    /// What was cut out in those units, as the view shows it.
    pub(crate) fn show(self, of_view: Tensor) -> Result<Tensor> {
        if self == Lens::Pairs { ops::view_as_complex(&of_view) } else { Ok(of_view) }
    }

    /// The way back.
    fn hide(self, of_view: &Tensor) -> Result<Tensor> {
        if self == Lens::Pairs { ops::view_as_real(of_view) } else { Ok(of_view.clone()) }
    }
}

/// What a view shows: a layout, and another dtype if it reads the same bytes differently.
pub(crate) struct Shown {
    layout: Layout,
    dtype: Option<DType>,
}

impl From<Layout> for Shown {
    #[inline]
    fn from(layout: Layout) -> Shown {
        Shown { layout, dtype: None }
    }
}
impl From<(Layout, DType)> for Shown {
    fn from((layout, dtype): (Layout, DType)) -> Shown {
        Shown { layout, dtype: Some(dtype) }
    }
}

impl CreationKind {
    fn from_u8(v: u8) -> CreationKind {
        match v {
            1 => CreationKind::MultiOutput,
            2 => CreationKind::NoGrad,
            3 => CreationKind::Inference,
            4 => CreationKind::Custom,
            5 => CreationKind::OtherDtype,
            6 => CreationKind::Compiled,
            _ => CreationKind::Default,
        }
    }

    /// Refuses a write that a view's history could not tell of; the error names the node and output that the view is.
    fn check(self, indirect: bool, view: &Tensor) -> Result<()> {
        if matches!(self, CreationKind::Default) {
            return Ok(());
        }
        let of = view.stored_history().map(|e| (e.node.name().to_string(), e.slot as usize));
        Err(Error::from(match self {
            CreationKind::Default => return Ok(()),
            CreationKind::MultiOutput => ErrorKind::MultiOutputViewInplace { indirect, of },
            CreationKind::NoGrad => ErrorKind::NoGradViewInplace { indirect, of },
            CreationKind::Inference => ErrorKind::InferenceViewInplace { indirect, of },
            CreationKind::Custom => ErrorKind::CustomFnViewInplace { indirect, of },
            CreationKind::OtherDtype => ErrorKind::OtherDtypeViewInplace { indirect, of },
            CreationKind::Compiled => ErrorKind::CompiledViewInplace { indirect, of },
        }))
    }
}

/// The data of a tracked view.
pub(crate) struct ViewInfo {
    /// The root: never itself a view.
    pub(crate) base: Tensor,
    kind: AtomicU8,
    /// The version of the memory for which the view's history is valid.
    attr_version: AtomicU32,
    /// Whether the tangent of the base is hidden here: in what `unpack_dual` gives as primal, and in views of that.
    hides_tangent: AtomicBool,
    /// The ops that made it, if it remembers them ([`super::view_replay`]).
    pub(super) replay: OnceLock<Arc<ViewStep>>,
}

impl ViewInfo {
    pub(super) fn hides_tangent(&self) -> bool {
        self.hides_tangent.load(Relaxed)
    }

    /// From now on the tangent of the base is hidden here.
    pub(super) fn hide_tangent(&self) {
        self.hides_tangent.store(true, Relaxed);
    }
}

impl Tensor {
    /// The base of this tensor, if it is a tracked view.
    ///
    /// # Panics
    /// For an argument of a compiled function that is a view, inside of that function.
    #[track_caller]
    pub fn base(&self) -> Option<&Tensor> {
        if let Some(real) = crate::capture::expect_itself(self, "base")
            && real.view_info().is_some()
        {
            panic!("base: this is a view that a compiled function got; ask for its base where the function is called");
        }
        self.base_here()
    }

    /// The same, for the library's own use.
    #[inline]
    pub(crate) fn base_here(&self) -> Option<&Tensor> {
        self.view_info().map(|v| &v.base)
    }

    /// Whether it is a tracked view.
    pub fn is_view(&self) -> bool {
        crate::capture::looked_at(self, "is_view", Tensor::is_view_here).unwrap_or_else(|| self.is_view_here())
    }

    /// The same, for the library's own use: no condition of a graph.
    pub fn is_view_here(&self) -> bool {
        match self.here() {
            None => self.flags() & VIEW != 0,
            Some(real) => real.is_view_here(),
        }
    }

    #[inline]
    pub(crate) fn view_info(&self) -> Option<&ViewInfo> {
        if self.flags() & VIEW == 0 {
            return None;
        }
        self.extras().view.get()
    }

    /// A view of this tensor: an alias that is tracked, without history yet (`set_birth_history` follows).
    #[inline]
    pub(crate) fn make_view(&self, shown: impl Into<Shown>, kind: CreationKind) -> Tensor {
        let Shown { layout, dtype } = shown.into();
        let out = match dtype {
            None => self.alias_with(layout),
            Some(dtype) => self.alias_as(crate::Spec { layout, dtype, device: self.device() }),
        };
        let root = self.base_here().map_or(self.dtype(), Tensor::dtype);
        let strange = dtype.is_some_and(|dtype| Lens::of(root, dtype).is_none());
        self.track_view(&out, if strange { CreationKind::OtherDtype } else { kind });
        out
    }

    /// Makes `out`, a new tensor over the same memory, a tracked view of this one.
    pub(crate) fn track_view(&self, out: &Tensor, kind: CreationKind) {
        let word = state::word();
        if self.flags() & INFERENCE != 0 {
            return; // inference tensors track nothing
        }
        let mut kind = if word & state::INFERENCE != 0 {
            CreationKind::Inference
        } else if word & state::GRAD == 0 && kind == CreationKind::Default {
            CreationKind::NoGrad
        } else {
            kind
        };
        let hides_tangent = AtomicBool::new(self.view_info().is_some_and(ViewInfo::hides_tangent));
        let base = match self.view_info() {
            Some(v) => {
                let parent = CreationKind::from_u8(v.kind.load(Relaxed));
                if kind == CreationKind::Default || parent == CreationKind::Inference {
                    kind = parent
                }
                v.base.clone()
            }
            None => self.clone(),
        };
        let attr_version = AtomicU32::new(out.version_counter());
        let kind = AtomicU8::new(kind as u8);
        let info = ViewInfo { base, kind, attr_version, hides_tangent, replay: OnceLock::new() };
        let _ = out.extras().view.set(info);
        out.set_flag(VIEW);
    }

    // ---- history

    /// The current history; `None` for leaves. Rebuilds that of a stale view.
    #[inline]
    pub fn try_grad_fn_edge(&self) -> Result<Option<Edge>> {
        if self.flags() & (VIEW | REBASED) == 0 { Ok(self.birth_history().cloned()) } else { self.current_history() }
    }

    /// The node that computed this tensor.
    ///
    /// # Panics
    /// If the tensor is a view whose history cannot be rebuilt; see [`Tensor::try_grad_fn_edge`].
    #[track_caller]
    pub fn grad_fn(&self) -> Option<Node> {
        let real = crate::capture::itself(self, "grad_fn").unwrap_or_else(|e| e.raise());
        real.as_ref().unwrap_or(self).try_grad_fn_edge().unwrap_or_else(|e| e.raise()).map(|e| e.node)
    }

    /// Which output of its node this tensor is; 0 for leaves.
    #[track_caller]
    pub fn output_nr(&self) -> usize {
        let real = crate::capture::itself(self, "output_nr").unwrap_or_else(|e| e.raise());
        real.as_ref().unwrap_or(self).try_grad_fn_edge().ok().flatten().map_or(0, |e| e.slot as usize)
    }

    pub(crate) fn stored_history(&self) -> Option<Edge> {
        if self.flags() & REBASED == 0 {
            return self.birth_history().cloned();
        }
        self.extras().history.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    #[cold]
    pub(crate) fn current_history(&self) -> Result<Option<Edge>> {
        let stored = self.stored_history();
        let Some(view) = self.view_info() else { return Ok(stored) };
        let has_none = view.kind.load(Relaxed) == CreationKind::OtherDtype as u8;
        if stored.is_none() && (has_none || !view.base.requires_grad()) {
            return Ok(None);
        }
        let version = self.version_counter();
        if version == view.attr_version.load(Acquire) {
            return Ok(stored);
        }
        CreationKind::from_u8(view.kind.load(Relaxed)).check(true, self)?;
        let replayed = match view.replay.get() {
            Some(step) => view_replay::history(step, &view.base)?,
            None => None,
        };
        let edge = match replayed {
            Some(edge) => edge,
            None => {
                let lens = lens(&view.base, self)?;
                let formula = boxed(ViewCut { base: view.base.spec().clone(), region: self.layout().clone(), lens });
                let edges: Edges = smallvec![view.base.gradient_edge()?];
                let node = Node::new(edges, smallvec![InputMetadata::of(self)], formula)?;
                Edge { node, slot: 0 }
            }
        };
        self.store_history(Some(edge.clone()));
        view.attr_version.store(version, Release);
        Ok(Some(edge))
    }

    /// Replaces the history; retention follows to the new node.
    pub(crate) fn store_history(&self, edge: Option<Edge>) {
        if self.flags() & RETAINS_GRAD != 0 {
            let old = self.stored_history();
            super::accumulate::move_retention(self, old.as_ref(), edge.as_ref());
        }
        let renewed = edge.is_some();
        let old = std::mem::replace(&mut *self.extras().history.lock().unwrap_or_else(|e| e.into_inner()), edge);
        self.set_flag(REBASED);
        if renewed && self.flags() & DETACHED != 0 {
            self.clear_flag(DETACHED);
        }
        if let Some(e) = old {
            super::node::defer(e.node)
        }
    }

    /// Where this tensor's gradient goes: its node, or the accumulate node of a leaf that requires grad.
    #[inline(always)]
    pub(crate) fn gradient_edge(&self) -> Result<Option<Edge>> {
        let flags = self.flags();
        if flags & (VIEW | REBASED) == 0 {
            // Constants and computed tensors: most operands.
            if flags & REQUIRES_GRAD == 0 {
                return Ok(self.birth_history().cloned());
            }
            if let Some(e) = self.birth_history() {
                return Ok(Some(e.clone()));
            }
        }
        self.gradient_edge_slow()
    }

    #[cold]
    fn gradient_edge_slow(&self) -> Result<Option<Edge>> {
        if let Some(e) = self.try_grad_fn_edge()? {
            return Ok(Some(e));
        }
        if self.flags() & REQUIRES_GRAD == 0 {
            if self.requires_grad() {
                state::count_loose_edge();
            }
            return Ok(None);
        }
        Ok(Some(Edge { node: self.grad_accumulator()?, slot: 0 }))
    }

    /// Whether the tensor requires grad.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        let f = self.flags();
        if f & (REQUIRES_GRAD | STAND_IN) == REQUIRES_GRAD {
            return true;
        }
        if f & (VIEW | REBASED | STAND_IN) == 0 {
            return self.birth_history().is_some();
        }
        self.requires_grad_with_care()
    }

    /// For views, what was written, and stand-ins.
    #[cold]
    fn requires_grad_with_care(&self) -> bool {
        if let Some(real) = self.here() {
            return real.requires_grad();
        }
        let follows = |v: &ViewInfo| v.kind.load(Relaxed) != CreationKind::OtherDtype as u8 && v.base.requires_grad();
        self.flags() & REQUIRES_GRAD != 0 || self.stored_history().is_some() || self.view_info().is_some_and(follows)
    }

    /// Whether it is a leaf: not the result of a recorded operation.
    pub fn is_leaf(&self) -> bool {
        // Its stand-in is one if it is, and follows what the function does to it.
        crate::capture::looked_at(self, "is_leaf", Tensor::is_leaf_here);
        self.is_leaf_here()
    }

    /// The same, for the library's own use: no condition of a graph.
    pub fn is_leaf_here(&self) -> bool {
        let real = self.here();
        match real.as_ref().unwrap_or(self).try_grad_fn_edge() {
            Ok(e) => e.is_none(),
            Err(_) => false,
        }
    }

    // ---- in-place

    /// Whether an in-place op that is going to be recorded may write this tensor.
    pub(crate) fn check_inplace(&self, op: &'static str) -> Result<()> {
        if let Some(v) = self.view_info() {
            CreationKind::from_u8(v.kind.load(Relaxed)).check(false, self)?;
            if v.base.flags() & REQUIRES_GRAD != 0 && v.base.is_leaf_here() {
                return Err(ErrorKind::LeafViewInplace { op }.into());
            }
        }
        if self.flags() & REQUIRES_GRAD != 0 && self.is_leaf_here() {
            return Err(ErrorKind::LeafInplace { op }.into());
        }
        Ok(())
    }

    /// Whether the memory may be written at all.
    #[inline]
    pub(crate) fn check_writable(&self, op: &'static str) -> Result<()> {
        if self.flags() & INFERENCE != 0 && state::word() & state::INFERENCE == 0 {
            return Err(ErrorKind::InferenceInplace { op }.into());
        }
        if !self.is_contiguous() && self.layout().has_internal_overlap() {
            return Err(ErrorKind::OverlappingWrite { op }.into());
        }
        let word = state::word();
        // A write that the base's history could not tell of.
        if self.flags() & VIEW != 0
            && word & state::GRAD != 0
            && self
                .view_info()
                .is_some_and(|v| v.kind.load(Relaxed) == CreationKind::OtherDtype as u8 && v.base.requires_grad())
        {
            return Err(ErrorKind::OtherDtypeViewInplace { indirect: false, of: None }.into());
        }
        if word & state::MUTATION_WATCH != 0 {
            super::mutation::before_write(self)?;
        }
        if word & state::DEPTH != 0 {
            crate::func::level::check_captured(self, op)?;
        }
        Ok(())
    }

    /// Gives a tensor that was just written, as output `slot` of `node`, its new history: the node computes the gradient of
    /// the old value and of the op's other inputs. A view is the only output, and edge 0 is its old value's.
    pub(crate) fn rebase_history(&self, node: Node, slot: u32) -> Result<()> {
        if !self.is_of_this_level() {
            return Err(ErrorKind::CapturedMutation { op: "an in-place op" }.into());
        }
        let Some(view) = self.view_info() else {
            self.store_history(Some(Edge { node, slot }));
            return Ok(());
        };
        let base = &view.base;
        let mut edges: Edges = smallvec![base.gradient_edge()?];
        edges.extend(node.edges().iter().skip(1).cloned());
        let lens = lens(base, self)?;
        let region = self.layout().clone();
        let formula = boxed(CopySlices { base: base.spec().clone(), region, lens, inner: node });
        let outer = Node::new(edges, smallvec![InputMetadata::of(base)], formula)?;
        base.store_history(Some(Edge { node: outer, slot: 0 }));
        // The view's own history is rebuilt now, so that hooks and edges taken from it belong to the new value.
        self.current_history()?;
        Ok(())
    }

    /// Whether an operation computed it, for tensors that can be detached in place: views cannot.
    #[inline]
    pub(crate) fn has_history_to_lose(&self) -> bool {
        let f = self.flags();
        f & (VIEW | DETACHED) == 0 && (f & REBASED != 0 || self.birth_history().is_some())
    }

    /// States that the history of a view, set by hand, is current.
    pub(crate) fn mark_history_current(&self) {
        if let Some(v) = self.view_info() {
            v.attr_version.store(self.version_counter(), Release)
        }
    }

    /// Sets the kind of a view that was made as another (custom functions).
    pub(crate) fn set_view_kind(&self, kind: CreationKind) {
        if let Some(v) = self.view_info() {
            v.kind.store(kind as u8, Relaxed)
        }
    }
}

/// How a view reads its base; views of strange dtypes were refused before.
fn lens(base: &Tensor, view: &Tensor) -> Result<Lens> {
    let strange = || ErrorKind::OtherDtypeViewInplace { indirect: true, of: None }.into();
    Lens::of(base.dtype(), view.dtype()).ok_or_else(strange)
}

/// The derivative of viewing a region of a base: the gradient in the region, zero elsewhere.
struct ViewCut {
    base: crate::Spec,
    region: Layout,
    lens: Lens,
}

impl Backward for ViewCut {
    fn name(&self) -> &str {
        "AsStridedBackward0"
    }
    fn apply(&self, _: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        let Some(g) = grads.into_iter().next().flatten().filter(|_| needs.get(0)) else { return Ok(smallvec![None]) };
        let (base, region) = self.lens.layouts(&self.base.layout, &self.region)?;
        let whole = ops::formulas::as_strided_scatter_zeros(&self.lens.hide(&g)?, &base, &region)?;
        Ok(smallvec![Some(self.lens.leave(whole)?)])
    }
    fn visit_saved(&self, _: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
        self.base.visit(visitor)?;
        self.region.visit(visitor)?;
        visitor.fixed(self.lens as u64);
        Ok(true)
    }
}

/// The history of a base after one of its views was written.
struct CopySlices {
    base: crate::Spec,
    region: Layout,
    lens: Lens,
    inner: Node,
}

impl Backward for CopySlices {
    fn name(&self) -> &str {
        "torch::autograd::CopySlices"
    }
    fn apply(&self, _: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        let mut out: Gradients = smallvec![None; needs.len()];
        let Some(g) = grads.into_iter().next().flatten() else { return Ok(out) };
        let (base, region) = self.lens.layouts(&self.base.layout, &self.region)?;
        let (whole, slice) = ops::formulas::cut_region(&self.lens.enter(&g)?, &base, &region)?;
        let slice = self.lens.show(slice)?;
        // The inner node's first edge may be none (the view had no history of its own), yet its gradient is needed here.
        let mut edges = self.inner.edges().clone();
        if needs.get(0)
            && let Some(first) = edges.first_mut()
            && first.is_none()
        {
            *first = Some(Edge { node: self.inner.clone(), slot: 0 });
        }
        let mut unwanted = 0u64;
        for k in (0..needs.len().min(64)).filter(|&k| !needs.get(k)) {
            unwanted |= 1 << k;
        }
        let inner_grads =
            self.inner.formula().apply(&self.inner, smallvec![Some(slice)], &Needs::without(&edges, unwanted))?;
        for (k, g) in inner_grads.into_iter().enumerate() {
            if k == 0 {
                if needs.get(0) {
                    let g = g.map(|g| self.lens.hide(&g)).transpose()?;
                    let whole = ops::formulas::paste_region(&whole, g.as_ref(), &base, &region)?;
                    out[0] = Some(self.lens.leave(whole)?);
                }
            } else if k < out.len() {
                out[k] = g;
            }
        }
        Ok(out)
    }
    fn release(&self) {
        // A result that the op saved has the inner node as its history, so in a graph of derivatives that node may still have to
        // run on its own account; it then lets go of what it saved itself.
        if self.inner.owners() == 1 {
            self.inner.formula().release()
        }
    }
    fn visit_saved(&self, _: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
        self.base.visit(visitor)?;
        self.region.visit(visitor)?;
        visitor.fixed(self.lens as u64);
        visitor.fixed(super::runner::kind_of(self.inner.formula()));
        self.inner.formula().visit_saved(&self.inner, visitor)
    }
    fn outlined(
        &self,
        _: &Node,
        outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
    ) -> Result<Option<BoxedBackward>> {
        let Some(formula) = self.inner.formula().outlined(&self.inner, outline)? else { return Ok(None) };
        let inner = self.inner.with_formula(formula)?;
        let (base, region, lens) = (self.base.clone(), self.region.clone(), self.lens);
        Ok(Some(boxed(CopySlices { base, region, lens, inner })))
    }
}
