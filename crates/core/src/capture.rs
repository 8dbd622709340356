//! Capture of functions: what happens where a function under capture does something that is not an op.
//!
//! A compiler runs a function once on meta tensors. Ops reach it through [`dispatch`]; reads of
//! values, hooks, gradients, cells and custom functions reach it here. Without a tracer nothing is asked: the test is the
//! mode word that ops test anyway. Inside an op the tracer is hidden, as layers are.

use crate::autograd::{Function, RemovableHandle, SavedHooks, Target};
use crate::dispatch::{self, Interpreter, LayerGuard};
use crate::module::Module;
use crate::state::{self, ModeGuard};
use crate::{Error, Result, SymInt, Tensor};
use std::any::Any;
use std::panic::Location;
use std::sync::Arc;

/// A hook of a tensor, as the engine calls it.
pub type TensorHookFn = Arc<dyn Fn(Option<&Tensor>) -> Result<Option<Tensor>> + Send + Sync>;
/// A hook of a leaf that runs after accumulation.
pub type PostAccumulateFn = Arc<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;
/// Where a call came from.
pub type Caller = &'static Location<'static>;

/// Why values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// One value.
    Item,
    /// All of them.
    Data,
    /// For a gradient.
    Backward,
    /// For a function that is not to be captured.
    Disabled,
}

/// A place that holds a tensor and may be given another one.
pub trait TensorCell: Send + Sync {
    /// Its tensor.
    fn load(&self) -> Tensor;
    /// Replaces its tensor.
    fn store(&self, t: Tensor);
}

/// What a capture does beside recording ops and conditionals, which reach it as they reach every layer.
pub trait Tracer: Interpreter {
    /// Itself, for the code that began the capture and knows its type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// The real tensor behind the meta tensor `t`, whose values are about to be read.
    fn materialize(&self, t: &Tensor, why: Read, at: Caller) -> Result<Tensor>;
    /// A hook on the gradient of `t`.
    fn register_hook(&self, t: &Tensor, hook: TensorHookFn, at: Caller) -> Result<RemovableHandle>;
    /// A hook on the leaf `t`.
    fn register_post_accumulate_hook(&self, t: &Tensor, hook: PostAccumulateFn) -> Result<RemovableHandle>;
    /// The gradient of `t` is to be kept.
    fn retain_grad(&self, t: &Tensor) -> Result<()>;
    /// The gradient stored in `t`.
    fn grad(&self, t: &Tensor) -> Option<Tensor>;
    /// Another gradient is stored in `t`.
    fn set_grad(&self, t: &Tensor, grad: Option<&Tensor>) -> Result<()>;
    /// A tensor was made from host data. Every call of the function makes its own.
    fn made(&self, t: &Tensor);
    /// A cell is read.
    fn load(&self, cell: &Arc<dyn TensorCell>) -> Tensor;
    /// A cell is written.
    fn store(&self, cell: &Arc<dyn TensorCell>, t: Tensor);
    /// A module is about to be called.
    fn enter_module(&self, module: &dyn Module);
    /// A hook was put in a table that outlives the capture; `again` does the same once more.
    fn registered(&self, handle: &RemovableHandle, again: Arc<dyn Fn() -> RemovableHandle + Send + Sync>);
    /// A custom function is applied.
    fn apply(&self, function: Arc<dyn Function>, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
    /// The size of a tensor with dynamic sizes.
    fn size(&self, t: &Tensor, dim: usize) -> SymInt;
    /// The sizes of a tensor with dynamic sizes are read as plain integers.
    fn observe_sizes(&self, t: &Tensor);
    /// The value of a host number that may be an input of the graph is read; `number` is its outline.
    fn observe_number(&self, number: &Tensor);
    /// The memory order of such a tensor is looked at.
    fn observe_strides(&self, t: &Tensor);
    /// The id of a handle that [`Tracer::register_hook`] or another method here returned is requested.
    fn handle_id(&self, handle: &RemovableHandle, at: Caller) -> u64;
}

/// The tracer of this thread, if a function is currently being captured.
#[inline]
pub fn tracer() -> Option<Arc<dyn Tracer>> {
    if !state::is(state::LAYERS) {
        return None;
    }
    state::stacks(|s| s.tracer.clone())
}

/// Whether a function is currently being captured.
pub fn is_capturing() -> bool {
    tracer().is_some()
}

/// While it lives, everything this thread does is shown to a tracer.
#[must_use = "the capture lasts while the guard lives"]
pub struct CaptureScope {
    before: Option<Arc<dyn Tracer>>,
    hooks: (Vec<Arc<SavedHooks>>, Option<String>),
    _layer: LayerGuard,
    _mode: ModeGuard,
}

impl CaptureScope {
    /// Begins a capture. Nodes recorded inside it keep no tensors, because they never run.
    pub fn new<T: Tracer + 'static>(tracer: Arc<T>) -> CaptureScope {
        let nothing = SavedHooks::new(
            |_| Ok(()),
            |_: &()| Err(Error::argument("capture", "nodes of a captured function are not run")),
        );
        let (before, hooks) = state::stacks(|s| {
            let hooks = (std::mem::replace(&mut s.saved_hooks, vec![Arc::new(nothing)]), s.saved_hooks_disabled.take());
            (s.tracer.replace(tracer.clone() as Arc<dyn Tracer>), hooks)
        });
        let _layer = dispatch::push_layer(tracer as Arc<dyn Interpreter>);
        CaptureScope { before, hooks, _layer, _mode: ModeGuard::new(state::SAVED_HOOKS, 0) }
    }
}

impl Drop for CaptureScope {
    fn drop(&mut self) {
        let (hooks, disabled) = std::mem::take(&mut self.hooks);
        let ended = state::stacks(|s| {
            s.saved_hooks_disabled = disabled;
            (std::mem::replace(&mut s.saved_hooks, hooks), std::mem::replace(&mut s.tracer, self.before.take()))
        });
        drop(ended);
    }
}

/// Runs `f` outside the capture of this thread: plainly, unseen by the tracer.
pub fn suspended<R>(f: impl FnOnce() -> R) -> R {
    outside(Vec::new(), f)
}

/// As [`suspended`], with the saved-tensor hooks that the captured function itself has switched on.
pub fn suspended_with_own_hooks<R>(f: impl FnOnce() -> R) -> R {
    outside(state::stacks(|s| s.saved_hooks.iter().skip(1).cloned().collect()), f)
}

/// Whether the function that is currently being captured has switched saved-tensor hooks on that may change what they keep.
pub fn has_own_saved_hooks() -> bool {
    // The first pair is the capture's.
    state::stacks(|s| s.tracer.is_some() && s.saved_hooks.iter().skip(1).last().is_some_and(|h| !h.faithful))
}

fn outside<R>(hooks: Vec<Arc<SavedHooks>>, f: impl FnOnce() -> R) -> R {
    struct Resume(Vec<Arc<SavedHooks>>);
    impl Drop for Resume {
        fn drop(&mut self) {
            let hooks = std::mem::take(&mut self.0);
            drop(state::stacks(|s| std::mem::replace(&mut s.saved_hooks, hooks)));
        }
    }
    let (on, off) = if hooks.is_empty() { (0, state::SAVED_HOOKS) } else { (state::SAVED_HOOKS, 0) };
    let _off = ModeGuard::new(on, off | state::LAYERS);
    let _resume = Resume(state::stacks(|s| std::mem::replace(&mut s.saved_hooks, hooks)));
    f()
}

/// Identifies the pair of saved-tensor hooks that is active here; zero if there is none.
pub fn saved_hooks_id() -> usize {
    if !state::is(state::SAVED_HOOKS) {
        return 0;
    }
    state::stacks(|s| s.saved_hooks.last().map_or(0, |h| Arc::as_ptr(h).addr()))
}

/// Targets of `backward` and `grad` as the tracer knows them: the real tensors.
pub(crate) fn real_targets(tracer: &dyn Tracer, targets: &[Target], at: Caller) -> Result<Vec<Target>> {
    let real = |t: &Target| match t {
        Target::Tensor(t) => tracer.materialize(t, Read::Backward, at).map(Target::Tensor),
        Target::Edge(e) => Ok(Target::Edge(e.clone())),
    };
    targets.iter().map(real).collect()
}

/// Seeds, likewise.
pub(crate) fn real_seeds(tracer: &dyn Tracer, seeds: &[Option<Tensor>], at: Caller) -> Result<Vec<Option<Tensor>>> {
    let real = |t: &Tensor| tracer.materialize(t, Read::Backward, at);
    seeds.iter().map(|t| t.as_ref().map(real).transpose()).collect()
}
