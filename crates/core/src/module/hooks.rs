//! The hook tables of modules and of the process, and how to register in them.
//!
//! A module without hooks pays one test per call. Tables are read when their turn comes, so a hook may register or
//! remove hooks: that takes effect from the next call. `call` and `backward_hooks` define when each table runs.

use super::erased::Erased;
use super::{IncompatibleKeys, Module, StateDict, TensorTree};
use crate::autograd::RemovableHandle;
use crate::autograd::hook_table::HookTable;
use crate::error::expect_ok;
use crate::{Error, ErrorKind, Result, Tensor, capture};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};

type Grads = [Option<Tensor>];
pub(super) type ForwardPreHook = Arc<dyn Fn(&dyn Module, &mut dyn Erased) -> Result<()> + Send + Sync>;
pub(super) type ForwardHook =
    Arc<dyn Fn(&dyn Module, &dyn Erased, Option<&mut dyn Erased>) -> Result<()> + Send + Sync>;
pub(super) type BackwardPreHook = Arc<dyn Fn(&ModuleInfo, &Grads) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync>;
pub(super) type BackwardHook =
    Arc<dyn Fn(&ModuleInfo, &Grads, &Grads) -> Result<Option<Vec<Option<Tensor>>>> + Send + Sync>;
pub(super) type StateDictHook = Arc<dyn Fn(&dyn Module, &mut StateDict, &str) + Send + Sync>;
pub(super) type LoadHook = Arc<dyn Fn(&dyn Module, &mut StateDict, &str) -> Result<()> + Send + Sync>;
pub(super) type LoadedHook = Arc<dyn Fn(&dyn Module, &mut IncompatibleKeys) -> Result<()> + Send + Sync>;

/// All hooks of one module, or those that apply to every module.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) forward_pre: HookTable<ForwardPreHook>,
    /// With whether the hook is also called when forward fails.
    pub(super) forward: HookTable<(bool, ForwardHook)>,
    pub(super) backward_pre: HookTable<BackwardPreHook>,
    pub(super) backward: HookTable<BackwardHook>,
    pub(super) legacy_backward: HookTable<BackwardHook>,
    pub(super) state_dict: HookTable<StateDictHook>,
    pub(super) load_pre: HookTable<LoadHook>,
    pub(super) loaded: HookTable<LoadedHook>,
}

static GLOBAL: LazyLock<Tables> = LazyLock::new(Tables::default);
/// Set by the first global hook and never cleared: calls test it before they look at the tables.
static GLOBAL_IN_USE: AtomicBool = AtomicBool::new(false);

/// The tables that apply to every module, if there ever was a global hook.
pub(super) fn global() -> Option<&'static Tables> {
    GLOBAL_IN_USE.load(Relaxed).then(|| &*GLOBAL)
}

fn global_for_use() -> &'static Tables {
    GLOBAL_IN_USE.store(true, Relaxed);
    &GLOBAL
}

/// State common to all modules: identity, training flag, hooks.
pub struct ModuleCore {
    id: u64,
    state: Arc<State>,
}

/// The mutable part of a module; shared with its watchers.
#[derive(Default)]
struct State {
    evaluating: AtomicBool,
    tables: OnceLock<Box<Tables>>,
}

/// What calling a module depends on besides its parameters: training mode and hooks. Does not keep the module alive.
#[derive(Clone)]
pub struct ModuleWatch(Arc<State>);

impl ModuleWatch {
    /// Whether both watch one module.
    pub fn is_same(&self, other: &ModuleWatch) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the module is in training mode.
    pub fn is_training(&self) -> bool {
        !self.0.evaluating.load(Relaxed)
    }

    /// The ids of the hooks around its calls, table by table; empty if there are none.
    pub fn hook_ids(&self) -> Vec<u64> {
        self.0.tables.get().map_or(Vec::new(), |t| t.ids())
    }

    /// The ids of the hooks around every module's calls.
    pub fn global_hook_ids() -> Vec<u64> {
        global().map_or(Vec::new(), Tables::ids)
    }
}

impl Tables {
    /// The hooks that act on calls; each table ends with a zero, which no hook has as its number.
    fn ids(&self) -> Vec<u64> {
        let tables = [
            self.forward_pre.ids(),
            self.forward.ids(),
            self.backward_pre.ids(),
            self.backward.ids(),
            self.legacy_backward.ids(),
        ];
        if tables.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        tables.into_iter().flat_map(|t| t.into_iter().chain([0])).collect()
    }
}

impl ModuleCore {
    /// The core of a new module, in training mode and without hooks.
    pub fn new() -> ModuleCore {
        static IDS: AtomicU64 = AtomicU64::new(1);
        ModuleCore { id: IDS.fetch_add(1, Relaxed), state: Arc::default() }
    }

    /// Unique over the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this module is in training mode.
    #[inline]
    pub fn is_training(&self) -> bool {
        if let Some(tracer) = capture::tracer() {
            tracer.observe_training(&self.watch());
        }
        !self.state.evaluating.load(Relaxed)
    }

    /// Access to what may change without the module.
    pub fn watch(&self) -> ModuleWatch {
        ModuleWatch(self.state.clone())
    }

    /// Sets the training mode of this module only; [`Module::set_training`] includes its submodules.
    #[track_caller]
    pub fn set_training(&self, on: bool) {
        expect_ok(capture::leave("set_training"));
        self.state.evaluating.store(!on, Relaxed)
    }

    /// Whether a call must look at hooks at all.
    #[inline]
    pub(super) fn is_hooked(&self) -> bool {
        self.state.tables.get().is_some() || GLOBAL_IN_USE.load(Relaxed)
    }

    pub(super) fn tables(&self) -> Option<&Tables> {
        self.state.tables.get().map(|b| &**b)
    }

    fn tables_for_use(&self) -> &Tables {
        self.state.tables.get_or_init(Box::default)
    }
}

impl Default for ModuleCore {
    fn default() -> Self {
        ModuleCore::new()
    }
}

impl std::fmt::Debug for ModuleCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleCore").field("id", &self.id).field("training", &self.is_training()).finish()
    }
}

/// Which module a backward hook runs for. Backward may outlive the module, so it gets no reference to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Its type's name.
    pub name: &'static str,
    /// Its [`ModuleCore::id`].
    pub id: u64,
}

impl ModuleInfo {
    pub(super) fn of(module: &dyn Module) -> ModuleInfo {
        ModuleInfo { name: module.name(), id: module.core().id() }
    }

    pub(super) fn wrong_count(self, hook: &'static str, expected: usize, found: usize) -> Error {
        ErrorKind::ModuleHookCount { module: self.name, hook, expected, found }.into()
    }
}

/// The position of a hook, and when it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookOptions {
    /// Run before the module's existing hooks of the same kind instead of after them.
    pub prepend: bool,
    /// Forward hooks: also run when forward (or another hook) failed.
    pub always_call: bool,
}

/// What a module's hook may return: nothing, replacements (all of them), or an error.
pub trait ModuleHookResult<T> {
    /// The replacements, if any.
    fn into_replacement(self) -> Result<Option<Vec<T>>>;
}
impl<T> ModuleHookResult<T> for () {
    fn into_replacement(self) -> Result<Option<Vec<T>>> {
        Ok(None)
    }
}
impl<T> ModuleHookResult<T> for Vec<T> {
    fn into_replacement(self) -> Result<Option<Vec<T>>> {
        Ok(Some(self))
    }
}
impl<T> ModuleHookResult<T> for Option<Vec<T>> {
    fn into_replacement(self) -> Result<Option<Vec<T>>> {
        Ok(self)
    }
}
impl<T: From<Tensor>> ModuleHookResult<T> for Tensor {
    fn into_replacement(self) -> Result<Option<Vec<T>>> {
        Ok(Some(vec![self.into()]))
    }
}
impl<T, R: ModuleHookResult<T>> ModuleHookResult<T> for Result<R> {
    fn into_replacement(self) -> Result<Option<Vec<T>>> {
        self?.into_replacement()
    }
}

// ---- closures of the user's, as the tables keep them

fn forward_pre<R: ModuleHookResult<Tensor>>(
    hook: impl Fn(&dyn Module, &[Tensor]) -> R + Send + Sync + 'static,
) -> ForwardPreHook {
    Arc::new(move |m, input| match hook(m, &input.tensors()).into_replacement()? {
        Some(new) => input.replace(new, &|e, f| ModuleInfo::of(m).wrong_count("a forward pre-hook", e, f)),
        None => Ok(()),
    })
}

fn forward<R: ModuleHookResult<Tensor>>(
    hook: impl Fn(&dyn Module, &[Tensor], Option<&[Tensor]>) -> R + Send + Sync + 'static,
) -> ForwardHook {
    Arc::new(move |m, input, output| {
        let before = output.as_ref().map(|o| o.tensors());
        let new = hook(m, &input.tensors(), before.as_deref()).into_replacement()?;
        match (new, output) {
            (Some(new), Some(output)) => {
                output.replace(new, &|e, f| ModuleInfo::of(m).wrong_count("a forward hook", e, f))
            }
            _ => Ok(()),
        }
    })
}

fn backward_pre<R: ModuleHookResult<Option<Tensor>>>(
    hook: impl Fn(&ModuleInfo, &Grads) -> R + Send + Sync + 'static,
) -> BackwardPreHook {
    Arc::new(move |m, grad_outputs| hook(m, grad_outputs).into_replacement())
}

fn backward<R: ModuleHookResult<Option<Tensor>>>(
    hook: impl Fn(&ModuleInfo, &Grads, &Grads) -> R + Send + Sync + 'static,
) -> BackwardHook {
    Arc::new(move |m, grad_inputs, grad_outputs| hook(m, grad_inputs, grad_outputs).into_replacement())
}

fn downcast<'a, T: 'static>(m: &dyn Module, hook: &'static str, value: &'a dyn Erased) -> Result<&'a T> {
    value.as_any().downcast_ref().ok_or_else(|| {
        let (expected, found) = (std::any::type_name::<T>(), value.type_name());
        ErrorKind::ModuleHookType { module: m.name(), hook, expected, found }.into()
    })
}

/// Registering hooks on a module; implemented for every module. Hooks get the tensors among inputs and outputs in
/// order; the `typed` forms get the whole values, so they also see arguments that are not tensors.
pub trait ModuleHooks: Module {
    /// Calls `hook` with the inputs before forward; it may return replacements for all of them.
    fn register_forward_pre_hook<R: ModuleHookResult<Tensor>>(
        &self,
        hook: impl Fn(&dyn Module, &[Tensor]) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.register_forward_pre_hook_with(HookOptions::default(), hook)
    }

    /// Like [`ModuleHooks::register_forward_pre_hook`], with options.
    fn register_forward_pre_hook_with<R: ModuleHookResult<Tensor>>(
        &self,
        options: HookOptions,
        hook: impl Fn(&dyn Module, &[Tensor]) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().forward_pre.insert(forward_pre(hook), options.prepend)
    }

    /// Calls `hook` with the whole input before forward; it may return a replacement. Calling the module with an input
    /// of another type is an error.
    fn register_typed_forward_pre_hook<I: TensorTree>(
        &self,
        hook: impl Fn(&dyn Module, &I) -> Result<Option<I>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().forward_pre.add(Arc::new(move |m, input| {
            if let Some(new) = hook(m, downcast(m, "a typed forward pre-hook", input)?)?
                && let Some(slot) = input.as_any_mut().downcast_mut()
            {
                *slot = new;
            }
            Ok(())
        }))
    }

    /// Calls `hook` with inputs and outputs after forward; it may return replacements for all outputs.
    fn register_forward_hook<R: ModuleHookResult<Tensor>>(
        &self,
        hook: impl Fn(&dyn Module, &[Tensor], &[Tensor]) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        let hook = forward(move |m, input, output| match output {
            Some(output) => hook(m, input, output).into_replacement(),
            None => Ok(None),
        });
        self.core().tables_for_use().forward.add((false, hook))
    }

    /// Like [`ModuleHooks::register_forward_hook`], with options; one that is always called gets no outputs
    /// when forward failed.
    fn register_forward_hook_with<R: ModuleHookResult<Tensor>>(
        &self,
        options: HookOptions,
        hook: impl Fn(&dyn Module, &[Tensor], Option<&[Tensor]>) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().forward.insert((options.always_call, forward(hook)), options.prepend)
    }

    /// Calls `hook` with the whole input and output after forward; it may return a replacement for the output. Calling
    /// the module with other types is an error.
    fn register_typed_forward_hook<I: TensorTree, O: TensorTree>(
        &self,
        hook: impl Fn(&dyn Module, &I, &O) -> Result<Option<O>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        let hook: ForwardHook = Arc::new(move |m, input, output| {
            let (name, Some(output)) = ("a typed forward hook", output) else { return Ok(()) };
            if let Some(new) = hook(m, downcast(m, name, input)?, downcast(m, name, output)?)?
                && let Some(slot) = output.as_any_mut().downcast_mut()
            {
                *slot = new;
            }
            Ok(())
        });
        self.core().tables_for_use().forward.add((false, hook))
    }

    /// Calls `hook` with the gradients of the outputs, before any gradient of the module is computed; it may return
    /// replacements.
    fn register_full_backward_pre_hook<R: ModuleHookResult<Option<Tensor>>>(
        &self,
        hook: impl Fn(&ModuleInfo, &[Option<Tensor>]) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.register_full_backward_pre_hook_with(HookOptions::default(), hook)
    }

    /// Like [`ModuleHooks::register_full_backward_pre_hook`], with options.
    fn register_full_backward_pre_hook_with<R: ModuleHookResult<Option<Tensor>>>(
        &self,
        options: HookOptions,
        hook: impl Fn(&ModuleInfo, &[Option<Tensor>]) -> R + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().backward_pre.insert(backward_pre(hook), options.prepend)
    }

    /// Calls `hook` with the gradients of inputs and outputs once those of the inputs are computed; it may return
    /// replacements for those of the inputs. Positions without a tensor hold `None`. An error if the module has legacy
    /// backward hooks.
    fn register_full_backward_hook<R: ModuleHookResult<Option<Tensor>>>(
        &self,
        hook: impl Fn(&ModuleInfo, &[Option<Tensor>], &[Option<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        self.register_full_backward_hook_with(HookOptions::default(), hook)
    }

    /// Like [`ModuleHooks::register_full_backward_hook`], with options.
    fn register_full_backward_hook_with<R: ModuleHookResult<Option<Tensor>>>(
        &self,
        options: HookOptions,
        hook: impl Fn(&ModuleInfo, &[Option<Tensor>], &[Option<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        let tables = self.core().tables_for_use();
        if !tables.legacy_backward.is_empty() {
            return Err(ErrorKind::MixedModuleHooks { module: self.name() }.into());
        }
        Ok(tables.backward.insert(backward(hook), options.prepend))
    }

    /// The legacy backward hook: only sees the gradients around the last node of forward, which for a module of several
    /// ops are not those of its inputs. Kept for programs that rely on it; prefer
    /// [`ModuleHooks::register_full_backward_hook`]. An error if the module has full backward hooks.
    fn register_backward_hook<R: ModuleHookResult<Option<Tensor>>>(
        &self,
        hook: impl Fn(&ModuleInfo, &[Option<Tensor>], &[Option<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Result<RemovableHandle> {
        let tables = self.core().tables_for_use();
        if !tables.backward.is_empty() {
            return Err(ErrorKind::MixedModuleHooks { module: self.name() }.into());
        }
        Ok(tables.legacy_backward.add(backward(hook)))
    }

    /// Calls `hook` after the module put its entries in a state dictionary, with the dictionary and the module's path
    /// followed by a dot (empty at the root); it may change entries.
    fn register_state_dict_post_hook(
        &self,
        hook: impl Fn(&dyn Module, &mut StateDict, &str) + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().state_dict.add(Arc::new(hook))
    }

    /// Calls `hook` before the module takes its entries from a state dictionary, with a copy of the dictionary and the
    /// module's path followed by a dot (empty at the root); it may rename or add entries.
    fn register_load_state_dict_pre_hook(
        &self,
        hook: impl Fn(&dyn Module, &mut StateDict, &str) -> Result<()> + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().load_pre.add(Arc::new(hook))
    }

    /// Calls `hook` after a state dictionary was compared with the module's names; it may remove differences.
    fn register_load_state_dict_post_hook(
        &self,
        hook: impl Fn(&dyn Module, &mut IncompatibleKeys) -> Result<()> + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.core().tables_for_use().loaded.add(Arc::new(hook))
    }
}

impl<M: Module + ?Sized> ModuleHooks for M {}

/// A forward pre-hook on every module of the process, before the module's own.
pub fn register_module_forward_pre_hook<R: ModuleHookResult<Tensor>>(
    hook: impl Fn(&dyn Module, &[Tensor]) -> R + Send + Sync + 'static,
) -> RemovableHandle {
    global_for_use().forward_pre.add(forward_pre(hook))
}

/// A forward hook on every module of the process, before the module's own; `always_call` as in [`HookOptions`].
pub fn register_module_forward_hook<R: ModuleHookResult<Tensor>>(
    always_call: bool,
    hook: impl Fn(&dyn Module, &[Tensor], Option<&[Tensor]>) -> R + Send + Sync + 'static,
) -> RemovableHandle {
    global_for_use().forward.add((always_call, forward(hook)))
}

/// A full backward pre-hook on every module of the process, before the module's own.
pub fn register_module_full_backward_pre_hook<R: ModuleHookResult<Option<Tensor>>>(
    hook: impl Fn(&ModuleInfo, &[Option<Tensor>]) -> R + Send + Sync + 'static,
) -> RemovableHandle {
    global_for_use().backward_pre.add(backward_pre(hook))
}

/// A full backward hook on every module of the process, before the module's own.
pub fn register_module_full_backward_hook<R: ModuleHookResult<Option<Tensor>>>(
    hook: impl Fn(&ModuleInfo, &[Option<Tensor>], &[Option<Tensor>]) -> R + Send + Sync + 'static,
) -> RemovableHandle {
    global_for_use().backward.add(backward(hook))
}
