//! Hooks: tables of closures on tensors, leaves and nodes, and the handles that remove them.
//!
//! A table is snapshotted when its turn comes, so a hook may register or remove hooks, also on its own table: that
//! counts from the next time. Handles are weak: they never keep a tensor or node alive.

use super::node::{Gradients, InputMetadata, Node};
use crate::state::{self, ModeGuard};
use crate::{Error, ErrorKind, Result, Tensor};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc as StdArc, Mutex, OnceLock, Weak as StdWeak};

type Shared<F> = StdArc<F>;

/// Gets a gradient (none if undefined), may replace it.
pub(crate) type TensorHook = (u32, Shared<dyn Fn(Option<&Tensor>) -> Result<Option<Tensor>> + Send + Sync>);
/// Gets the leaf after its gradient was accumulated.
pub(crate) type PostAccumulateHook = Shared<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;
/// Gets all incoming gradients, may replace them.
pub(crate) type PreHook = Shared<dyn Fn(&[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync>;
/// Gets outgoing and incoming gradients, may replace the outgoing ones.
pub(crate) type PostHook =
    Shared<dyn Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync>;
/// Gets every node when it is made.
pub(crate) type CreationHook = Shared<dyn Fn(&Node) -> Result<()> + Send + Sync>;

trait Removable: Send + Sync {
    fn remove(&self, id: u64);
}

type Entries<F> = Mutex<Vec<(u64, F)>>;

/// Hooks in registration order.
pub(crate) struct HookTable<F>(StdArc<Entries<F>>);

impl<F> Default for HookTable<F> {
    fn default() -> Self {
        HookTable(StdArc::new(Mutex::new(Vec::new())))
    }
}

impl<F: Send + 'static> Removable for Entries<F> {
    fn remove(&self, id: u64) {
        // The hook is dropped outside the lock: it may own a tensor whose drop comes back here.
        let removed = {
            let mut list = self.lock().unwrap_or_else(|e| e.into_inner());
            list.iter().position(|(k, _)| *k == id).map(|at| list.remove(at))
        };
        drop(removed);
    }
}

impl<F: Clone + Send + 'static> HookTable<F> {
    pub(crate) fn add(&self, hook: F) -> RemovableHandle {
        self.insert(hook, false)
    }

    /// Adds a hook behind all others, or in front of them.
    pub(crate) fn insert(&self, hook: F, first: bool) -> RemovableHandle {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        {
            let mut list = self.0.lock().unwrap_or_else(|e| e.into_inner());
            let at = if first { 0 } else { list.len() };
            list.insert(at, (id, hook));
        }
        let table: StdWeak<dyn Removable> = StdArc::downgrade(&self.0) as _;
        RemovableHandle { id, table }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).is_empty()
    }

    #[inline]
    pub(crate) fn snapshot(&self) -> SmallVec<[F; 2]> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).iter().map(|(_, f)| f.clone()).collect()
    }
}

/// Removes a hook. Dropping the handle leaves the hook in place; [`RemovableHandle::scoped`] gives one that does not.
#[derive(Clone)]
pub struct RemovableHandle {
    id: u64,
    table: StdWeak<dyn Removable>,
}

impl RemovableHandle {
    /// Unique and increasing over the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Removes the hook; does nothing if it or its owner is gone.
    pub fn remove(&self) {
        if let Some(t) = self.table.upgrade() {
            t.remove(self.id)
        }
    }

    /// A guard that removes the hook when it goes out of scope.
    pub fn scoped(self) -> HookGuard {
        HookGuard(self)
    }
}

/// Removes its hook when dropped.
#[must_use = "the hook lasts while the guard lives"]
pub struct HookGuard(RemovableHandle);

impl Drop for HookGuard {
    fn drop(&mut self) {
        self.0.remove()
    }
}

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

/// The hooks of a node.
#[derive(Default)]
pub(crate) struct NodeHooks {
    /// On the gradients of its outputs, each with its slot, in registration order.
    pub(crate) tensor: OnceLock<HookTable<TensorHook>>,
    /// Tensors that store their gradient: (slot, tensor), after all tensor hooks.
    pub(crate) retain: Mutex<SmallVec<[(u32, crate::tensor::WeakTensor); 1]>>,
    pub(crate) pre: OnceLock<HookTable<PreHook>>,
    pub(crate) post: OnceLock<HookTable<PostHook>>,
}

impl Tensor {
    /// Calls `hook` with the gradient of this tensor whenever it is computed. The hook may return a replacement.
    /// It is skipped when the gradient is undefined; [`Tensor::register_hook_any`] is not.
    pub fn try_register_hook<R: HookResult>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        self.register_hook_any(move |g| match g {
            Some(g) => hook(g).into_result(),
            None => Ok(None),
        })
    }

    /// As [`Tensor::try_register_hook`].
    ///
    /// # Panics
    /// If the tensor does not require grad.
    #[track_caller]
    pub fn register_hook<R: HookResult>(&self, hook: impl Fn(&Tensor) -> R + Send + Sync + 'static) -> RemovableHandle {
        self.try_register_hook(hook).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A hook that is also called when the gradient is undefined.
    pub fn register_hook_any<R: HookResult>(
        &self,
        hook: impl Fn(Option<&Tensor>) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        if !self.requires_grad() {
            return Err(ErrorKind::HookNoGrad.into());
        }
        let hook = StdArc::new(move |g: Option<&Tensor>| hook(g).into_result());
        Ok(match self.grad_fn_edge()? {
            Some(e) => e.node.extras().hooks.tensor.get_or_init(Default::default).add((e.slot, hook)),
            None => self.extras().hooks.get_or_init(Default::default).add((0, hook)),
        })
    }

    /// Calls `hook` with this leaf after a gradient was accumulated into it.
    pub fn register_post_accumulate_grad_hook<R: Into<PostAccumulateResult>>(
        &self,
        hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        if !self.requires_grad() {
            return Err(ErrorKind::HookNoGrad.into());
        }
        if !self.is_leaf() {
            return Err(ErrorKind::PostAccNonLeaf.into());
        }
        let table = self.extras().post_accumulate_hooks.get_or_init(Default::default);
        Ok(table.add(StdArc::new(move |t: &Tensor| hook(t).into().0)))
    }
}

/// What a post-accumulate hook may return: nothing, or an error.
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
        self.extras().hooks.pre.get_or_init(Default::default).add(StdArc::new(hook))
    }

    /// Calls `hook` with (outgoing, incoming) gradients after the node ran; it may replace the outgoing ones.
    pub fn register_hook(
        &self,
        hook: impl Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.extras().hooks.post.get_or_init(Default::default).add(StdArc::new(hook))
    }
}

/// A replacement must look like what it replaces.
fn check_like(new: &Tensor, old: Option<&Tensor>, meta: Option<&InputMetadata>) -> Result<()> {
    let (shape, dtype) = match (old, meta) {
        (Some(t), _) => (t.shape().to_vec(), t.dtype()),
        (None, Some(m)) => (m.shape.to_vec(), m.dtype),
        (None, None) => return Ok(()),
    };
    if new.shape() != &shape[..] {
        return Err(ErrorKind::HookShape { hook: None, expected: shape, found: new.shape().to_vec() }.into());
    }
    if new.dtype() != dtype {
        return Err(ErrorKind::HookDtype { hook: None, expected: dtype, found: new.dtype() }.into());
    }
    Ok(())
}

fn run_tensor_hooks(table: &HookTable<TensorHook>, grads: &mut Gradients, meta: &[InputMetadata]) -> Result<()> {
    for (slot, hook) in table.snapshot() {
        let slot = slot as usize;
        if grads.len() <= slot {
            grads.resize(slot + 1, None)
        }
        if let Some(new) = hook(grads[slot].as_ref())? {
            check_like(&new, grads[slot].as_ref(), meta.get(slot))?;
            grads[slot] = Some(new);
        }
    }
    Ok(())
}

/// Tensor hooks of the node's outputs (or of the leaf), then retention.
#[inline]
pub(crate) fn run_tensor_pre_hooks(node: &Node, grads: &mut Gradients) -> Result<()> {
    if let Some(leaf) = node.variable()
        && let Some(table) = leaf.extras_if_any().and_then(|e| e.hooks.get())
    {
        run_tensor_hooks(table, grads, node.input_metadata())?;
    }
    let Some(extras) = node.extras_if_any() else { return Ok(()) };
    if let Some(table) = extras.hooks.tensor.get() {
        run_tensor_hooks(table, grads, node.input_metadata())?;
    }
    let retain = extras.hooks.retain.lock().unwrap_or_else(|e| e.into_inner()).clone();
    for (slot, weak) in retain {
        if let (Some(t), Some(Some(g))) = (weak.upgrade(), grads.get(slot as usize)) {
            t.accumulate_retained(g)?;
        }
    }
    Ok(())
}

fn replace_all(new: Vec<Option<Tensor>>, old: &mut Gradients, meta: &[InputMetadata]) -> Result<()> {
    if new.len() != old.len() {
        return Err(ErrorKind::HookCount { hook: None, expected: old.len(), found: new.len() }.into());
    }
    for (k, n) in new.iter().enumerate() {
        if let Some(n) = n {
            check_like(n, old[k].as_ref(), meta.get(k))?;
        }
    }
    *old = new.into();
    Ok(())
}

/// Node pre-hooks.
pub(crate) fn run_pre_hooks(node: &Node, grads: &mut Gradients) -> Result<()> {
    let Some(table) = node.extras_if_any().and_then(|e| e.hooks.pre.get()) else { return Ok(()) };
    for hook in table.snapshot() {
        if let Some(new) = hook(grads)? {
            replace_all(new, grads, node.input_metadata())?;
        }
    }
    Ok(())
}

/// Whether the incoming gradients must be kept for post-hooks.
pub(crate) fn has_post_hooks(node: &Node) -> bool {
    node.extras_if_any().is_some_and(|e| e.hooks.post.get().is_some())
}

/// Node post-hooks.
pub(crate) fn run_post_hooks(node: &Node, outgoing: &mut Gradients, incoming: &Gradients) -> Result<()> {
    let Some(table) = node.extras_if_any().and_then(|e| e.hooks.post.get()) else { return Ok(()) };
    for hook in table.snapshot() {
        if let Some(new) = hook(outgoing, incoming)? {
            replace_all(new, outgoing, &[])?;
        }
    }
    Ok(())
}

/// Scope in which `hook` sees every node that this thread creates, after edges and saved values are in place.
pub fn node_creation_hook(hook: impl Fn(&Node) -> Result<()> + Send + Sync + 'static) -> CreationHookGuard {
    state::stacks(|s| s.creation_hooks.push(StdArc::new(hook)));
    CreationHookGuard { _mode: ModeGuard::new(state::CREATION, 0) }
}

/// Ends the scope of a creation hook when dropped.
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
