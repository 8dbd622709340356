//! Effects of a captured function and how a call repeats them.

use crate::front::binding::Binding;
use crate::front::number::Number;
use crate::front::tree::Rebuild;
use firebrand_core::autograd::{Removable, RemovableHandle};
use firebrand_core::capture::{PostAccumulateFn, TensorCell, TensorHookFn};
use firebrand_core::{Result, Tensor};
use std::sync::Arc;

/// Host code that gets the values of a call.
type WithValues = dyn Fn(&mut dyn Rebuild) + Send + Sync;

/// Something to do at every call, in terms of the tensors the function was captured with.
#[derive(Clone)]
pub(crate) enum Effect {
    /// Host code.
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Host code with values of the call.
    With(Arc<WithValues>),
    /// A hook on a tensor of the caller's.
    Hook { target: Tensor, hook: TensorHookFn, handle: u64 },
    /// A post-accumulate hook on a leaf of the caller's.
    PostAccumulate { target: Tensor, hook: PostAccumulateFn, handle: u64 },
    /// A handle to a hook that was removed again.
    Removed { handle: u64 },
    /// A tensor of the caller's keeps its gradient.
    RetainGrad { target: Tensor },
    /// Another gradient for a tensor of the caller's.
    SetGrad { target: Tensor, grad: Option<Tensor> },
    /// Another tensor in a cell.
    Store { cell: Arc<dyn TensorCell>, value: Tensor },
    /// A hook in a table of a module.
    Register { again: Arc<dyn Fn() -> RemovableHandle + Send + Sync>, handle: RemovableHandle },
}

impl Effect {
    /// The tensors of the function it holds, besides what closures captured.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let (target, value) = match self {
            Effect::Hook { target, .. } | Effect::PostAccumulate { target, .. } | Effect::RetainGrad { target } => {
                (Some(target), None)
            }
            Effect::SetGrad { target, grad } => (Some(target), grad.as_ref()),
            Effect::Store { value, .. } => (None, Some(value)),
            Effect::Host(_) | Effect::With(_) | Effect::Removed { .. } | Effect::Register { .. } => (None, None),
        };
        target.into_iter().chain(value)
    }
}

/// Nothing: what a removed hook's handle refers to.
struct Nothing;
impl Removable for Nothing {
    fn remove(&self, _: u64) {}
    fn contains(&self, _: u64) -> bool {
        false
    }
}

/// Gives effects the values of a call.
pub(crate) struct FromBinding<'a>(pub(crate) &'a Binding);

impl Rebuild for FromBinding<'_> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        self.0.tensor(t)
    }
    fn number(&mut self, n: &Number) -> Number {
        n.clone()
    }
    fn handle(&mut self, h: &RemovableHandle) -> RemovableHandle {
        self.0.handle(h)
    }
}

/// A hook that runs in the binding of its call.
pub(crate) fn bound_hook(hook: TensorHookFn, binding: Arc<Binding>) -> TensorHookFn {
    Arc::new(move |grad| {
        let result = binding.enter(|| hook(grad))?;
        Ok(result.map(|t| binding.tensor(&t)))
    })
}

impl Effect {
    /// Does it, for one call.
    /// `binding` has every value of the call; hooks, which live on, get `kept`: what they captured, and no more.
    pub(crate) fn run(&self, binding: &Arc<Binding>, kept: &Arc<Binding>) -> Result<()> {
        match self {
            Effect::Host(f) => binding.enter(|| f()),
            Effect::With(f) => f(&mut FromBinding(binding)),
            Effect::Hook { target, hook, handle } => {
                let hook = bound_hook(hook.clone(), kept.clone());
                let made = binding.tensor(target).register_hook_any(move |g| hook(g))?;
                binding.bind_handle(*handle, made);
            }
            Effect::PostAccumulate { target, hook, handle } => {
                let (hook, bound) = (hook.clone(), kept.clone());
                let made = binding
                    .tensor(target)
                    .register_post_accumulate_grad_hook(move |t: &Tensor| bound.enter(|| hook(t)))?;
                binding.bind_handle(*handle, made);
            }
            Effect::Removed { handle } => binding.bind_handle(*handle, RemovableHandle::new(&Arc::new(Nothing))),
            Effect::RetainGrad { target } => binding.tensor(target).try_retain_grad()?,
            Effect::SetGrad { target, grad } => {
                binding.tensor(target).try_set_grad(grad.as_ref().map(|g| binding.tensor(g)).as_ref())?
            }
            Effect::Store { cell, value } => cell.store(binding.tensor(value)),
            Effect::Register { again, handle } => binding.bind_handle(handle.key(), again()),
        }
        Ok(())
    }
}
