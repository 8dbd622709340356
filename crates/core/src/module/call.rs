//! Calling a module: forward with the hooks around it.
//!
//! Order: global pre-hooks, own pre-hooks, forward, global forward hooks, own forward hooks; gradients pass the same way
//! back through `backward_hooks`. A module without hooks goes straight to forward.

use super::backward_hooks::BackwardHooks;
use super::erased::{Erased, Holder};
use super::hooks::{ForwardHook, ForwardPreHook, Tables, global};
use super::{Module, TensorTree};
use crate::capture;
use crate::warnings::warn;
use crate::{Result, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// A module that computes an output from an `Input`. Implement `forward`, use `call`.
pub trait Forward<Input: TensorTree = Tensor>: Module {
    /// The type of the result.
    type Output: TensorTree;

    /// The computation, without hooks.
    fn forward(&self, input: &Input) -> Result<Self::Output>;

    /// Runs the hooks around forward.
    fn try_call(&self, input: &Input) -> Result<Self::Output> {
        if let Some(tracer) = capture::tracer() {
            tracer.enter_module(self.as_module());
        }
        if self.core().is_hooked() { call_hooked(self, input) } else { self.forward(input) }
    }

    /// Runs the hooks around forward.
    ///
    /// # Panics
    /// If forward or a hook fails.
    #[track_caller]
    fn call(&self, input: &Input) -> Self::Output {
        match self.try_call(input) {
            Ok(output) => output,
            Err(e) => e.raise(),
        }
    }
}

/// One table of hooks, those of the process first.
pub(super) fn hooks_of<T>(module: &dyn Module, pick: impl Fn(&Tables) -> T) -> impl Iterator<Item = T::Item>
where
    T: IntoIterator,
{
    let both = [global(), module.core().tables()];
    both.into_iter().flatten().map(pick).collect::<Vec<_>>().into_iter().flatten()
}

fn forward_pre_hooks(module: &dyn Module) -> Vec<ForwardPreHook> {
    hooks_of(module, |t| t.forward_pre.snapshot()).collect()
}

/// With whether the hook is also called when forward fails.
fn forward_hooks(module: &dyn Module) -> Vec<(bool, ForwardHook)> {
    hooks_of(module, |t| t.forward.snapshot()).collect()
}

/// The progress of a call; what hooks that are always called can see.
struct Progress<I, O> {
    input: Holder<I>,
    output: Option<Holder<O>>,
    /// Forward hooks that were called.
    called: Vec<ForwardHook>,
}

#[cold]
fn call_hooked<I: TensorTree, M: Forward<I> + ?Sized>(m: &M, input: &I) -> Result<M::Output> {
    let module = m.as_module();
    let mut progress = Progress { input: Holder(input.clone()), output: None, called: Vec::new() };
    if !forward_hooks(module).iter().any(|(always, _)| *always) {
        return run(m, module, &mut progress);
    }
    // Hooks that are always called also see a panic pass, as they see an error.
    match catch_unwind(AssertUnwindSafe(|| run(m, module, &mut progress))) {
        Ok(Ok(output)) => Ok(output),
        failed => {
            let Progress { input, mut output, called } = progress;
            for (always, hook) in forward_hooks(module) {
                if !always || called.iter().any(|h| Arc::ptr_eq(h, &hook)) {
                    continue;
                }
                let output = output.as_mut().map(|o| o as &mut dyn Erased);
                if let Err(e) = hook(module, &input, output) {
                    warn(format!("a forward hook of module {} failed after another error: {e}", module.name()));
                }
            }
            failed.unwrap_or_else(|panic| resume_unwind(panic))
        }
    }
}

fn run<I: TensorTree, M: Forward<I> + ?Sized>(
    m: &M,
    module: &dyn Module,
    progress: &mut Progress<I, M::Output>,
) -> Result<M::Output> {
    for hook in forward_pre_hooks(module) {
        hook(module, &mut progress.input)?;
    }
    let backward = BackwardHooks::of(module);
    if let Some(b) = &backward {
        progress.input.0 = b.wrap_input(&progress.input.0)?;
    }
    let output = progress.output.insert(Holder(m.forward(&progress.input.0)?));
    for (_, hook) in forward_hooks(module) {
        progress.called.push(hook.clone());
        hook(module, &progress.input, Some(output))?;
    }
    if let Some(b) = &backward {
        output.0 = b.wrap_output(&output.0)?;
    }
    super::backward_hooks::attach_legacy(module, &output.0)?;
    Ok(progress.output.take().expect("forward has run").0)
}
