//! Hooks of tensors, leaves and nodes: how they are registered, and when the engine runs them.
//!
//! A hook may register or remove hooks, also in its own table: that takes effect from the next time (see `hook_table`).

use super::hook_table::{HookTable, RemovableHandle};
use super::node::{Edge, Gradients, Node};
use crate::capture::{self, Bound, PostAccumulateFn, TensorHookFn};
use crate::state::{self, ModeGuard};
use crate::{Error, ErrorKind, Result, Tensor};
use smallvec::SmallVec;
use std::any::TypeId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::sync::{Arc as StdArc, Mutex, OnceLock};

type Shared<F> = StdArc<F>;

/// Gets the gradient in a slot (`None` if undefined), may replace it.
#[derive(Clone)]
pub(crate) struct TensorHook {
    pub(crate) slot: u32,
    pub(crate) run: TensorHookFn,
    /// If declared to only compute on tensors, so that a compiler may trace it: what distinguishes it from other hooks.
    pub(crate) pure: Option<PureHook>,
}

/// What distinguishes pure hooks.
#[derive(Clone, Copy)]
pub(crate) enum PureHook {
    /// It captures nothing: all hooks of its type are the same.
    Type(TypeId),
    /// It is unique.
    Itself,
}

impl TensorHook {
    /// What identifies a pure hook while it is registered; zero for others.
    pub(crate) fn identity(&self) -> u64 {
        match self.pure {
            None => 0,
            Some(PureHook::Itself) => StdArc::as_ptr(&self.run).addr() as u64,
            // Addresses are even.
            Some(PureHook::Type(id)) => {
                let mut hasher = DefaultHasher::new();
                id.hash(&mut hasher);
                hasher.finish() | 1
            }
        }
    }
}

fn kind_of<F: 'static>(hook: &F) -> PureHook {
    if size_of_val(hook) == 0 { PureHook::Type(TypeId::of::<F>()) } else { PureHook::Itself }
}
/// Gets the leaf after its gradient was accumulated.
pub(crate) type PostAccumulateHook = Shared<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;
/// Gets all incoming gradients, may replace them.
pub(crate) type PreHook = Shared<dyn Fn(&[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync>;
/// Gets outgoing and incoming gradients, may replace the outgoing ones.
pub(crate) type PostHook =
    Shared<dyn Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync>;
/// Gets every node when it is created.
pub(crate) type CreationHook = Shared<dyn Fn(&Node) -> Result<()> + Send + Sync>;

/// What a hook may return: nothing, a replacement, or an error.
pub trait HookResult {
    /// The replacement, if any.
    fn into_result(self) -> Result<Option<Tensor>>;
}
impl HookResult for () {
    fn into_result(self) -> Result<Option<Tensor>> {
        Ok(None)
    }
}
impl HookResult for Tensor {
    fn into_result(self) -> Result<Option<Tensor>> {
        Ok(Some(self))
    }
}
impl HookResult for Option<Tensor> {
    fn into_result(self) -> Result<Option<Tensor>> {
        Ok(self)
    }
}
impl<T: HookResult> HookResult for Result<T> {
    fn into_result(self) -> Result<Option<Tensor>> {
        self?.into_result()
    }
}

/// Outputs of a node that retain their gradient.
type Retaining = SmallVec<[(u32, crate::tensor::WeakTensor); 1]>;

/// The hooks of a node.
#[derive(Default)]
pub(crate) struct NodeHooks {
    /// On the gradients of its outputs, each with its slot, in registration order.
    pub(crate) tensor: OnceLock<HookTable<TensorHook>>,
    /// Tensors that store their gradient: (slot, tensor), after all tensor hooks.
    pub(crate) retain: OnceLock<Mutex<Retaining>>,
    pub(crate) pre: OnceLock<HookTable<PreHook>>,
    pub(crate) post: OnceLock<HookTable<PostHook>>,
}

impl Tensor {
    /// Calls `hook` with the gradient of this tensor whenever it is computed. The hook may return a replacement.
    /// It is skipped when the gradient is undefined; a hook of [`Tensor::register_hook_any`] is not.
    ///
    /// The tensor's history (or the leaf) owns the hook, and the hook owns its captures: a hook that captures the
    /// tensor itself keeps both alive until the handle's `remove` is called. Capture a
    /// [`WeakTensor`](crate::WeakTensor) to avoid that.
    #[track_caller]
    pub fn try_register_hook<R: HookResult>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        self.try_register_hook_any(move |g| match g {
            Some(g) => hook(g).into_result(),
            None => Ok(None),
        })
    }

    /// Registers a hook on the gradient; see [`Tensor::try_register_hook`].
    ///
    /// # Panics
    /// If the tensor does not require grad.
    #[track_caller]
    pub fn register_hook<R: HookResult>(&self, hook: impl Fn(&Tensor) -> R + Send + Sync + 'static) -> RemovableHandle {
        self.try_register_hook(hook).unwrap_or_else(|e| e.raise())
    }

    /// Like [`Tensor::try_register_hook_any`], but panics on error.
    ///
    /// # Panics
    /// If the tensor does not require grad.
    #[track_caller]
    pub fn register_hook_any<R: HookResult>(
        &self,
        hook: impl Fn(Option<&Tensor>) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.try_register_hook_any(hook).unwrap_or_else(|e| e.raise())
    }

    /// A hook that is also called when the gradient is undefined.
    #[track_caller]
    pub fn try_register_hook_any<R: HookResult>(
        &self,
        hook: impl Fn(Option<&Tensor>) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        if !self.requires_grad() {
            return Err(ErrorKind::HookNoGrad.into());
        }
        let hook: TensorHookFn = StdArc::new(move |g: Option<&Tensor>| hook(g).into_result());
        if let Some(tracer) = capture::tracer() {
            return tracer.register_hook(self, hook, Location::caller());
        }
        self.add_hook(hook, None)
    }

    /// Like [`Tensor::try_register_hook`], for a hook that only computes on tensors, including tensors it
    /// captured: a compiler of backward passes may run it once on meta tensors and record what it does.
    #[track_caller]
    pub fn try_register_pure_hook<R: HookResult>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        if !self.requires_grad() || capture::is_capturing() {
            return self.try_register_hook(hook);
        }
        let kind = kind_of(&hook);
        self.add_hook(StdArc::new(move |g| g.map_or(Ok(None), |g| hook(g).into_result())), Some(kind))
    }

    /// Like [`Tensor::try_register_pure_hook`], but panics on error.
    ///
    /// # Panics
    /// If the tensor does not require grad.
    #[track_caller]
    pub fn register_pure_hook<R: HookResult>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.try_register_pure_hook(hook).unwrap_or_else(|e| e.raise())
    }

    fn add_hook(&self, run: TensorHookFn, pure: Option<PureHook>) -> Result<RemovableHandle> {
        if let Some(real) = capture::stands_for(self) {
            return real.add_hook(run, pure);
        }
        let bound = Bound::here();
        let run: TensorHookFn = match bound.is_plain() {
            true => run,
            false => StdArc::new(move |g| bound.run(|| Ok(run(g)?.map(|t| capture::real(&t))))),
        };
        Ok(match self.try_grad_fn_edge()? {
            Some(Edge { node, slot }) => {
                node.extras().hooks.tensor.get_or_init(Default::default).add(TensorHook { slot, run, pure })
            }
            None => self.extras().hooks.get_or_init(Default::default).add(TensorHook { slot: 0, run, pure }),
        })
    }

    /// Like [`Tensor::try_register_post_accumulate_grad_hook`], but panics on error.
    ///
    /// # Panics
    /// If the tensor is not a leaf that requires grad.
    #[track_caller]
    pub fn register_post_accumulate_grad_hook<R: Into<PostAccumulateResult>>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.try_register_post_accumulate_grad_hook(hook).unwrap_or_else(|e| e.raise())
    }

    /// Calls `hook` with this leaf after a gradient was accumulated into it.
    pub fn try_register_post_accumulate_grad_hook<R: Into<PostAccumulateResult>>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        if !self.requires_grad() {
            return Err(ErrorKind::HookNoGrad.into());
        }
        if !self.is_leaf_here() {
            return Err(ErrorKind::PostAccNonLeaf.into());
        }
        let hook: PostAccumulateFn = StdArc::new(move |t: &Tensor| hook(t).into().0);
        if let Some(tracer) = capture::tracer() {
            return tracer.register_post_accumulate_hook(self, hook);
        }
        let real = capture::real(self);
        let bound = Bound::here();
        let table = real.extras().post_accumulate_hooks.get_or_init(Default::default);
        Ok(table.add(if bound.is_plain() { hook } else { StdArc::new(move |t| bound.run(|| hook(t))) }))
    }
}

/// What a post-accumulate hook may return: nothing, or an error.
#[derive(Debug)]
pub struct PostAccumulateResult(Result<()>);
impl From<()> for PostAccumulateResult {
    fn from((): ()) -> Self {
        PostAccumulateResult(Ok(()))
    }
}
impl From<Result<()>> for PostAccumulateResult {
    fn from(r: Result<()>) -> Self {
        PostAccumulateResult(r)
    }
}

impl Node {
    /// Calls `hook` with all incoming gradients before the node runs; it may return replacements.
    pub fn register_prehook(
        &self,
        hook: impl Fn(&[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        let bound = Bound::here();
        let hook = move |grads: &[Option<Tensor>]| bound.run(|| Ok(hook(grads)?.map(real_all)));
        self.extras().hooks.pre.get_or_init(Default::default).add(StdArc::new(hook))
    }

    /// Calls `hook` with (outgoing, incoming) gradients after the node ran; it may replace the outgoing ones.
    pub fn register_hook(
        &self,
        hook: impl Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        let bound = Bound::here();
        let hook = move |outgoing: &[Option<Tensor>], incoming: &[Option<Tensor>]| {
            bound.run(|| Ok(hook(outgoing, incoming)?.map(real_all)))
        };
        self.extras().hooks.post.get_or_init(Default::default).add(StdArc::new(hook))
    }
}

/// Gradients that a hook returns, where it may have captured stand-ins.
fn real_all(grads: Vec<Option<Tensor>>) -> Vec<Option<Tensor>> {
    if !state::is(state::LAYERS) { grads } else { grads.iter().map(|g| g.as_ref().map(capture::real)).collect() }
}

/// A hook's result replaces the gradient and must match it; an undefined gradient cannot be replaced.
fn check_like(new: &Tensor, old: Option<&Tensor>) -> Result<()> {
    let old = old.ok_or(ErrorKind::HookUndefined { hook: None })?;
    if new.shape() != old.shape() {
        let (expected, found) = (old.shape().to_vec(), new.shape().to_vec());
        return Err(ErrorKind::HookShape { hook: None, expected, found }.into());
    }
    if new.dtype() != old.dtype() {
        return Err(ErrorKind::HookDtype { hook: None, expected: old.dtype(), found: new.dtype() }.into());
    }
    // A layer below autograd may show tensors on another device than those it computes with.
    if new.device() != old.device() && !crate::state::is(crate::state::INNER) {
        return Err(ErrorKind::HookDevice { hook: None, expected: old.device(), found: new.device() }.into());
    }
    Ok(())
}

fn run_tensor_hooks(table: &HookTable<TensorHook>, grads: &mut Gradients) -> Result<()> {
    table.try_for_each(|hook| {
        let slot = hook.slot as usize;
        if grads.len() <= slot {
            grads.resize(slot + 1, None)
        }
        if let Some(new) = (hook.run)(grads[slot].as_ref())? {
            check_like(&new, grads[slot].as_ref())?;
            grads[slot] = Some(new);
        }
        Ok(())
    })
}

/// Tensor hooks of the node's outputs (or of the leaf), then retention.
#[inline]
pub(crate) fn run_tensor_pre_hooks(node: &Node, grads: &mut Gradients) -> Result<()> {
    if let Some(leaf) = node.variable()
        && let Some(table) = leaf.extras_if_any().and_then(|e| e.hooks.get())
    {
        run_tensor_hooks(table, grads)?;
    }
    let Some(extras) = node.extras_if_any() else { return Ok(()) };
    if let Some(table) = extras.hooks.tensor.get() {
        run_tensor_hooks(table, grads)?;
    }
    let Some(retain) = extras.hooks.retain.get() else { return Ok(()) };
    let retain = retain.lock().unwrap_or_else(|e| e.into_inner()).clone();
    for (slot, weak) in retain {
        if let (Some(t), Some(Some(g))) = (weak.upgrade(), grads.get(slot as usize)) {
            t.accumulate_retained(g)?;
        }
    }
    Ok(())
}

fn replace_all(new: Vec<Option<Tensor>>, old: &mut Gradients) -> Result<()> {
    if new.len() != old.len() {
        return Err(ErrorKind::HookCount { hook: None, expected: old.len(), found: new.len() }.into());
    }
    for (k, n) in new.iter().enumerate() {
        if let Some(n) = n {
            check_like(n, old[k].as_ref())?;
        }
    }
    *old = new.into();
    Ok(())
}

/// Node pre-hooks.
pub(crate) fn run_pre_hooks(node: &Node, grads: &mut Gradients) -> Result<()> {
    let Some(table) = node.extras_if_any().and_then(|e| e.hooks.pre.get()) else { return Ok(()) };
    table.try_for_each(|hook| match hook(grads)? {
        Some(new) => replace_all(new, grads),
        None => Ok(()),
    })
}

/// Whether the incoming gradients must be kept for post-hooks.
#[inline]
pub(crate) fn has_post_hooks(node: &Node) -> bool {
    node.extras_if_any().is_some_and(|e| e.hooks.post.get().is_some())
}

/// Node post-hooks.
pub(crate) fn run_post_hooks(node: &Node, outgoing: &mut Gradients, incoming: &[Option<Tensor>]) -> Result<()> {
    let Some(table) = node.extras_if_any().and_then(|e| e.hooks.post.get()) else { return Ok(()) };
    table.try_for_each(|hook| match hook(outgoing, incoming)? {
        Some(new) => replace_all(new, outgoing),
        None => Ok(()),
    })
}

/// Scope in which `hook` sees every node that this thread creates, after edges and saved values are in place.
#[track_caller]
pub fn node_creation_hook(hook: impl Fn(&Node) -> Result<()> + Send + Sync + 'static) -> CreationHookGuard {
    crate::error::expect_ok(crate::capture::leave("node_creation_hook"));
    state::stacks(|s| s.creation_hooks.push(StdArc::new(hook)));
    CreationHookGuard { _mode: ModeGuard::new(state::CREATION, 0) }
}

/// Ends the scope of a creation hook when dropped.
#[derive(Debug)]
#[must_use = "the hook lasts while the guard lives"]
pub struct CreationHookGuard {
    _mode: ModeGuard,
}

impl Drop for CreationHookGuard {
    fn drop(&mut self) {
        state::stacks(|s| s.creation_hooks.pop());
    }
}

/// Shows a new node to anomaly mode and to the creation hooks, outermost first.
#[cold]
pub(crate) fn announce(node: &Node) -> Result<()> {
    if state::is(state::ANOMALY) {
        super::anomaly::remember(node);
    }
    if !state::is(state::CREATION) {
        return Ok(());
    }
    if state::is(state::IN_CREATION) {
        return Err(Error::from(ErrorKind::NodeCreatedInCreationHook));
    }
    let hooks = state::stacks(|s| s.creation_hooks.clone());
    let _inside = ModeGuard::new(state::IN_CREATION, 0);
    hooks.iter().try_for_each(|h| h(node))
}
