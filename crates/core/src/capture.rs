//! Capture of functions: what happens when a function under capture does something that is not an op.
//!
//! A compiler runs a function once on meta tensors. Ops reach it through [`dispatch`]; reads of
//! values, hooks, gradients, cells and custom functions reach it here. Without a tracer this costs nothing: the test is the
//! mode word that ops test anyway. Inside an op the tracer is hidden, as layers are.
//!
//! What a graph cannot represent ends the capture ([`leave`]): there is no other way, so nothing can be dropped by accident. The
//! code that continues then holds stand-ins, and so do hooks of a captured function when they run: in a [`StandInScope`] they
//! refer to the tensors of the call, in ops and in methods.
//!
//! A function transform in a captured function (`transform`) runs as it does plainly, on stand-ins; what is recorded is what it
//! makes of the function, as it reaches the kernels: plain ops, whatever transforms they came from.

use crate::autograd::{Function, RemovableHandle, SavedHooks, Target};
use crate::dispatch::{self, Interpreter, LayerGuard};
use crate::module::{Module, ModuleWatch};
use crate::slot::{Slot, SlotGuard};
use crate::state::{self, ModeGuard};
use crate::tree::TensorTree;
use crate::{Device, Error, Result, Spec, SymInt, Tensor};
use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
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
    /// For a function that must not be captured.
    Disabled,
}

/// A cell that holds a tensor which can be replaced.
pub trait TensorCell: Send + Sync {
    /// Its tensor.
    fn load(&self) -> Tensor;
    /// Replaces its tensor.
    fn store(&self, t: Tensor);
}

/// What a capture does besides recording ops and conditionals, which reach it as they reach every layer.
pub trait Tracer: Interpreter {
    /// The tracer itself, for the code that started the capture and knows its type.
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
    /// Whether the function created this tensor from host data.
    fn made_here(&self, t: &Tensor) -> bool;
    /// A cell is read.
    fn load(&self, cell: &Arc<dyn TensorCell>) -> Tensor;
    /// A cell is written.
    fn store(&self, cell: &Arc<dyn TensorCell>, t: Tensor);
    /// A module is about to be called.
    fn enter_module(&self, module: &dyn Module);
    /// A hook was registered in a table that outlives the capture; `again` registers it once more.
    fn registered(&self, handle: &RemovableHandle, again: Arc<dyn Fn() -> RemovableHandle + Send + Sync>);
    /// A custom function is applied.
    fn apply(&self, function: Arc<dyn Function>, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
    /// The size of a tensor with dynamic sizes.
    fn size(&self, t: &Tensor, dim: usize) -> SymInt;
    /// A size as an operand: a number that is known when the graph runs.
    fn size_operand(&self, n: SymInt) -> Result<Tensor>;
    /// The sizes of a tensor with dynamic sizes are read as plain integers.
    fn observe_sizes(&self, t: &Tensor);
    /// The value of a host number that may be an input of the graph is read; `number` is its outline.
    fn observe_number(&self, number: &Tensor);
    /// The memory order of such a tensor is looked at; `exactly` if it is its strides.
    fn observe_strides(&self, exactly: bool, at: Caller) -> Result<()>;
    /// A flag of a tensor is looked at, which `read` reads: that of a tensor of the caller's becomes a condition of the graph, and is
    /// returned. None for a tensor that the function has made.
    fn look(&self, t: &Tensor, what: &'static str, read: fn(&Tensor) -> bool) -> Option<bool>;
    /// An alias of a tensor was made whose writes nobody is to see ([`Tensor::data`]).
    fn unseen_alias(&self, alias: &Tensor, at: Caller) -> Result<()>;
    /// Something that a graph cannot represent is about to happen: the graph so far runs, and the capture ends ([`end`]), so that the
    /// rest of the function runs eagerly; an error where that is not allowed.
    fn leave(&self, what: &'static str, at: Caller) -> Result<()>;
    /// A setting is looked at, which nothing else guards: the graph is for what `read` gives now.
    fn observe(&self, what: &'static str, read: fn() -> i64);
    /// The training mode of a module is looked at.
    fn observe_training(&self, module: &ModuleWatch);
    /// Whether the hook of this handle was registered by the function itself.
    fn owns(&self, handle: &RemovableHandle) -> bool;
    /// The id of a handle that [`Tracer::register_hook`] or another method here returned is requested.
    fn handle_id(&self, handle: &RemovableHandle, at: Caller) -> u64;
    /// A checkpoint whose function runs again in the backward pass begins.
    fn begin_checkpoint(&self, at: Caller) -> Result<()>;
    /// A function transform begins: from now on ops are recorded as they reach the kernels. `records` is whether what it gives is
    /// recorded outside it. False if this capture cannot take it.
    fn begin_transform(&self, records: bool) -> bool;
    /// The innermost transform ends.
    fn end_transform(&self);
    /// Whether a function transform runs.
    fn in_transform(&self) -> bool;
    /// The layer that records what reaches the kernels.
    fn below_autograd(self: Arc<Self>) -> Arc<dyn Interpreter>;
    /// `alias` is `of`, without its history.
    fn same_value(&self, alias: &Tensor, of: &Tensor);
    /// What the captured function gets for a result of the outermost transform.
    fn result_of_transform(&self, t: &Tensor) -> Result<Tensor>;
    /// Something that keeps the nodes of a transform, to run them later: it holds what this returns.
    fn keeps_nodes(&self) -> Arc<dyn Any + Send + Sync>;
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

/// Maps stand-ins to the tensors they stand for: those of the current call.
pub trait StandIns: Send + Sync {
    /// The tensor that `t` stands for, if it stands for one.
    fn real(&self, t: &Tensor) -> Option<Tensor>;
    /// From now on, `t` stands for `real`.
    fn bind(&self, t: &Tensor, real: Tensor);
    /// The handle that the one with this key stands for, if it stands for one.
    fn handle(&self, key: u64) -> Option<RemovableHandle>;
    /// The value of the size at this place in the table of a capture (`sym::SymRecord`), if it is known here.
    fn size(&self, table: u32, place: usize) -> Option<i64>;
    /// Whether there are any; otherwise ops need not look them up.
    fn is_empty(&self) -> bool;
    /// The map itself, for the code that started the scope and knows its type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// Who knows them here, if user code that was captured runs.
static STAND_INS: Slot<Option<Arc<dyn StandIns>>> = Slot::new(|| None);

/// While it lives, ops and methods on stand-ins act on the tensors that they stand for.
#[must_use = "the scope lasts while the guard lives"]
pub struct StandInScope {
    _slot: SlotGuard<Option<Arc<dyn StandIns>>>,
    _mode: ModeGuard,
}

impl StandInScope {
    /// Starts the scope.
    pub fn new(stand_ins: Arc<dyn StandIns>) -> StandInScope {
        let on = if stand_ins.is_empty() { 0 } else { state::LAYERS };
        StandInScope { _slot: STAND_INS.enter(Some(stand_ins)), _mode: ModeGuard::new(on, 0) }
    }
}

/// Who knows the stand-ins here: what user code is given to keep runs in a scope of it later.
#[derive(Clone, Default)]
pub(crate) struct Bound(Option<Arc<dyn StandIns>>);

impl Bound {
    pub(crate) fn here() -> Bound {
        Bound(STAND_INS.get())
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(crate) fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _scope = self.0.clone().map(StandInScope::new);
        f()
    }
}

/// Who knows the stand-ins here.
pub fn stand_ins() -> Option<Arc<dyn StandIns>> {
    STAND_INS.get()
}

/// Whether stand-ins are about other tensors here.
#[inline]
pub fn has_stand_ins() -> bool {
    state::is(state::LAYERS) && STAND_INS.with(|s| s.is_some())
}

/// The tensor that `t` stands for here; `None` if it is not a stand-in.
#[inline]
pub(crate) fn stands_for(t: &Tensor) -> Option<Tensor> {
    if !state::is(state::LAYERS) { None } else { STAND_INS.get()?.real(t) }
}

/// The handle that the one with this key stands for here; `None` if it is not a stand-in.
pub(crate) fn handle_here(key: u64) -> Option<RemovableHandle> {
    stand_ins()?.handle(key).filter(|handle| handle.key() != key)
}

/// The tensor that `t` stands for here, or `t`.
pub fn real(t: &Tensor) -> Tensor {
    stands_for(t).unwrap_or_else(|| t.clone())
}

/// Something that a graph cannot represent is about to happen. If a function is being captured, the capture ends: what it has computed so
/// far runs, and the rest of it runs eagerly. This is the only way out of a capture, so nothing is dropped silently.
#[track_caller]
pub fn leave(what: &'static str) -> Result<()> {
    match tracer() {
        Some(tracer) => tracer.leave(what, Location::caller()),
        None => Ok(()),
    }
}

/// A setting that a graph does not hold: a function that is being captured is captured for what `read` gives.
pub(crate) fn observed(what: &'static str, read: fn() -> i64) -> i64 {
    if let Some(tracer) = tracer() {
        tracer.observe(what, read);
    }
    read()
}

/// The tensor itself, for what is not about its values: its history, its version, its data. None if `t` is it; a capture
/// ends ([`leave`]).
#[track_caller]
pub(crate) fn itself(t: &Tensor, what: &'static str) -> Result<Option<Tensor>> {
    if !state::is(state::LAYERS) {
        return Ok(None);
    }
    leave(what)?;
    Ok(stands_for(t))
}

/// A flag of a tensor that a graph does not hold: what it is for a tensor of the caller's that a captured function looks at.
pub(crate) fn looked_at(t: &Tensor, what: &'static str, read: fn(&Tensor) -> bool) -> Option<bool> {
    if !state::is(state::LAYERS) { None } else { tracer()?.look(t, what, read) }
}

/// Like [`itself`], for what cannot fail.
#[track_caller]
pub(crate) fn expect_itself(t: &Tensor, what: &'static str) -> Option<Tensor> {
    itself(t, what).unwrap_or_else(|e| e.raise())
}

/// Like [`itself`], for a change of the leaf flag: tensors the function creates from host data are created with it at every call.
#[track_caller]
pub(crate) fn flagged(t: &Tensor) -> Result<Option<Tensor>> {
    match tracer() {
        Some(tracer) if tracer.made_here(t) => Ok(None),
        _ => itself(t, "requires_grad_"),
    }
}

/// A function transform that is part of a capture, while it lives.
#[must_use = "the transform lasts while the guard lives"]
pub(crate) struct TransformScope {
    tracer: Arc<dyn Tracer>,
    outermost: Option<Outermost>,
}

/// What the outermost transform of a capture switches: nodes keep what they need, since they run here.
struct Outermost {
    hooks: Vec<Arc<SavedHooks>>,
    _layer: LayerGuard,
    _mode: ModeGuard,
}

impl Drop for Outermost {
    fn drop(&mut self) {
        let hooks = std::mem::take(&mut self.hooks);
        drop(state::stacks(|s| std::mem::replace(&mut s.saved_hooks, hooks)));
    }
}

impl Drop for TransformScope {
    fn drop(&mut self) {
        drop(self.outermost.take());
        self.tracer.end_transform();
    }
}

impl TransformScope {
    /// Ends the transform: what the captured function gets as its result.
    fn result<T: TensorTree>(self, tree: T) -> Result<T> {
        match self.outermost.is_some() {
            true => tree.replace(&mut |t| self.tracer.result_of_transform(t)),
            false => Ok(tree),
        }
    }
}

/// A function transform is about to run. If a function is being captured, it is part of that while the scope lives, or the capture
/// ends. `records` says whether what it gives is recorded outside it.
#[track_caller]
pub(crate) fn transform(what: &'static str, records: bool) -> Result<Option<TransformScope>> {
    let Some(tracer) = tracer() else { return Ok(None) };
    let outermost = !tracer.in_transform();
    // Hooks that see what nodes keep, and a look for NaN, are about values.
    let hooked = || {
        OUTSIDE.with(|o| !o.saved_hooks.is_empty() || o.disabled.is_some())
            || state::stacks(|s| s.saved_hooks.len() > 1)
            || state::is(state::CHECK_NAN | state::CREATION)
    };
    if (outermost && hooked()) || !tracer.begin_transform(records) {
        tracer.leave(what, Location::caller())?;
        return Ok(None);
    }
    let outermost = outermost.then(|| Outermost {
        hooks: state::stacks(|s| std::mem::take(&mut s.saved_hooks)),
        _layer: dispatch::push_inner_layer(tracer.clone().below_autograd()),
        _mode: ModeGuard::new(0, state::SAVED_HOOKS),
    });
    Ok(Some(TransformScope { tracer, outermost }))
}

/// Ends a transform that may be part of a capture, with its result.
pub(crate) fn transformed<T: TensorTree>(scope: Option<TransformScope>, tree: T) -> Result<T> {
    match scope {
        Some(scope) => scope.result(tree),
        None => Ok(tree),
    }
}

/// Whether a function transform is part of a capture here.
pub(crate) fn in_transform() -> bool {
    tracer().is_some_and(|tracer| tracer.in_transform())
}

/// Whether what runs here is recorded by those around it: not under `no_grad`, but where only an engine on this level records nothing.
pub fn is_recorded_outside() -> bool {
    state::is(state::GRAD | state::ENGINE_OFF)
}

/// What somebody holds who keeps nodes of a captured transform, to run them later.
pub(crate) fn keeps_nodes() -> Option<Arc<dyn Any + Send + Sync>> {
    tracer().filter(|t| t.in_transform()).map(|tracer| tracer.keeps_nodes())
}

/// A transform has made an alias of `of`.
pub(crate) fn same_value(alias: &Tensor, of: &Tensor) {
    if let Some(tracer) = tracer() {
        tracer.same_value(alias, of);
    }
}

/// A leaf of a transform.
pub(crate) fn leaf_of_transform(t: Tensor) -> Result<Tensor> {
    // Its flag is no act of the captured function.
    if state::is(state::LAYERS) { suspended(|| t.try_requires_grad_(true)) } else { t.try_requires_grad_(true) }
}

/// A meta tensor like `t`, without history, that belongs to the same transforms; it requires grad if `t` does.
pub fn outline(t: &Tensor) -> Result<Tensor> {
    let spec = Spec { layout: t.layout().clone(), dtype: t.dtype(), device: Device::Meta };
    // The flag of an outline is no act of the function whose capture may run here.
    suspended(|| Tensor::try_empty(spec)?.alias_born_under(t.birth()).try_requires_grad_(t.requires_grad()))
}

/// The scopes that were active around a capture.
#[derive(Clone, Default)]
struct Outside {
    saved_hooks: Vec<Arc<SavedHooks>>,
    disabled: Option<String>,
}

static OUTSIDE: Slot<Outside> = Slot::new(Outside::default);

/// While it lives, everything this thread does is shown to a tracer.
#[must_use = "the capture lasts while the guard lives"]
pub struct CaptureScope {
    before: Option<Arc<dyn Tracer>>,
    _layer: LayerGuard,
    _mode: ModeGuard,
    _outside: SlotGuard<Outside>,
    _stand_ins: SlotGuard<Option<Arc<dyn StandIns>>>,
}

impl CaptureScope {
    /// Starts a capture. Nodes recorded inside it save no tensors, because they never run.
    pub fn new<T: Tracer + 'static>(tracer: Arc<T>) -> CaptureScope {
        let nothing = SavedHooks::new(
            |_| Ok(()),
            |_: &()| Err(Error::argument("capture", "nodes of a captured function are not run")),
        );
        let (before, outside) = state::stacks(|s| {
            let saved_hooks = std::mem::replace(&mut s.saved_hooks, vec![Arc::new(nothing)]);
            let outside = Outside { saved_hooks, disabled: s.saved_hooks_disabled.take() };
            (s.tracer.replace(tracer.clone() as Arc<dyn Tracer>), outside)
        });
        let _layer = dispatch::push_layer(tracer as Arc<dyn Interpreter>);
        let _mode = ModeGuard::new(state::SAVED_HOOKS, 0);
        CaptureScope { before, _layer, _mode, _outside: OUTSIDE.enter(outside), _stand_ins: STAND_INS.enter(None) }
    }
}

impl Drop for CaptureScope {
    fn drop(&mut self) {
        let Outside { saved_hooks, disabled } = OUTSIDE.get();
        let ended = state::stacks(|s| {
            s.saved_hooks_disabled = disabled;
            (std::mem::replace(&mut s.saved_hooks, saved_hooks), std::mem::replace(&mut s.tracer, self.before.take()))
        });
        drop(ended);
    }
}

/// Ends the capture of this thread before its scope ends: nothing is shown to the tracer any more, and saved tensors pass
/// through the hooks that are switched on around the function, or in it. The tracer remains a layer, and passes calls on. The
/// code that continues holds stand-ins.
pub fn end(stand_ins: Arc<dyn StandIns>) {
    drop(STAND_INS.replace(Some(stand_ins)));
    let outside = OUTSIDE.get();
    let ended = state::stacks(|s| {
        let mut hooks = outside.saved_hooks;
        let nothing: Vec<_> = s.saved_hooks.drain(..1).collect();
        hooks.append(&mut s.saved_hooks);
        s.saved_hooks = hooks;
        if s.saved_hooks_disabled.is_none() {
            s.saved_hooks_disabled = outside.disabled;
        }
        (s.tracer.take(), nothing, s.saved_hooks.is_empty())
    });
    let word = state::word();
    state::set_word(if ended.2 { word & !state::SAVED_HOOKS } else { word | state::SAVED_HOOKS });
    drop(ended);
}

/// Runs `f` in a scope where no tensor stands for another.
pub fn without_stand_ins<R>(f: impl FnOnce() -> R) -> R {
    let _none = STAND_INS.enter(None);
    f()
}

/// Runs `f` outside the capture of this thread: eagerly, unseen by the tracer.
pub fn suspended<R>(f: impl FnOnce() -> R) -> R {
    outside(Vec::new(), f)
}

/// Whether code is tried on meta tensors here.
static TRIAL: Slot<bool> = Slot::new(|| false);

/// Whether code is tried on meta tensors here: that it reads numbers is no news for the user.
pub(crate) fn in_trial() -> bool {
    TRIAL.get()
}

/// Tries code of the user's on meta tensors: none if it panics, as it does where it reads numbers.
pub fn trial<R>(f: impl FnOnce() -> R) -> Option<R> {
    let _trial = TRIAL.enter(true);
    catch_unwind(AssertUnwindSafe(f)).ok()
}

/// Like [`suspended`], with the saved-tensor hooks that the captured function itself has enabled.
pub fn suspended_with_own_hooks<R>(f: impl FnOnce() -> R) -> R {
    outside(state::stacks(|s| s.saved_hooks.iter().skip(1).cloned().collect()), f)
}

/// Whether the function that is currently being captured has enabled saved-tensor hooks that may change what is saved.
pub fn has_own_saved_hooks() -> bool {
    // The first pair is the capture's.
    state::stacks(|s| s.tracer.is_some() && s.saved_hooks.iter().skip(1).last().is_some_and(|h| !h.faithful))
}

/// Whether the function that is currently being captured is inside a checkpoint that will run again.
pub fn in_checkpoint() -> bool {
    state::stacks(|s| s.tracer.is_some() && s.saved_hooks.iter().skip(1).last().is_some_and(|h| h.faithful))
}

fn outside<R>(hooks: Vec<Arc<SavedHooks>>, f: impl FnOnce() -> R) -> R {
    /// The capture that waits: the tracer and all layers too, since a scope inside may switch layers on.
    struct Resume(Vec<Arc<SavedHooks>>, Vec<Arc<dyn Interpreter>>, Option<Arc<dyn Tracer>>);
    impl Resume {
        fn swap(&mut self) {
            state::stacks(|s| {
                std::mem::swap(&mut s.saved_hooks, &mut self.0);
                std::mem::swap(&mut s.layers, &mut self.1);
                std::mem::swap(&mut s.tracer, &mut self.2);
            });
        }
    }
    impl Drop for Resume {
        fn drop(&mut self) {
            self.swap();
        }
    }
    let (on, off) = if hooks.is_empty() { (0, state::SAVED_HOOKS) } else { (state::SAVED_HOOKS, 0) };
    let _off = ModeGuard::new(on, off | state::LAYERS);
    let _plain = STAND_INS.enter(None);
    let mut resume = Resume(hooks, Vec::new(), None);
    resume.swap();
    f()
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

/// Whether one of these stands for another tensor here.
pub(crate) fn targets_stand_in(outputs: &[Target], inputs: Option<&[Target]>, seeds: &[Option<Tensor>]) -> bool {
    let tensor = |t: &Target| matches!(t, Target::Tensor(t) if stands_for(t).is_some());
    outputs.iter().chain(inputs.unwrap_or_default()).any(tensor)
        || seeds.iter().flatten().any(|t| stands_for(t).is_some())
}

/// The targets that these stand for here.
pub(crate) fn targets_here(targets: &[Target]) -> Vec<Target> {
    let here = |t: &Target| match t {
        Target::Tensor(t) => Target::Tensor(real(t)),
        Target::Edge(e) => Target::Edge(e.clone()),
    };
    targets.iter().map(here).collect()
}
