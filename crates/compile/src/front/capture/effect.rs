//! Effects of a captured function and how a call repeats them.

use crate::front::binding::Binding;
use firebrand_core::Number;
use firebrand_core::autograd::{Removable, RemovableHandle};
use firebrand_core::capture::{PostAccumulateFn, TensorCell, TensorHookFn};
use firebrand_core::tree::{Leaf, Rebuild, TensorTree};
use firebrand_core::{DType, Device, Result, Spec, SymInt, Tensor};
use std::sync::Arc;

/// Host code that gets the values of a call.
type WithValues = dyn Fn(&mut dyn Rebuild) + Send + Sync;

/// Something to do at every call. `T` is how it refers to tensors: by the tensor while the function is captured, by where
/// that comes from in a recording. So what an effect needs of a call is said here and not found out; closures are the
/// exception, and run in the binding of the call.
pub(crate) enum Effect<T = Tensor> {
    /// Host code.
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Host code with values of the call: these tensors, in the order of the tree that it rebuilds.
    With { tensors: Vec<T>, run: Arc<WithValues> },
    /// A hook on a tensor of the caller's.
    Hook { target: T, hook: TensorHookFn, handle: u64 },
    /// A post-accumulate hook on a leaf of the caller's.
    PostAccumulate { target: T, hook: PostAccumulateFn, handle: u64 },
    /// A handle to a hook that was removed again.
    Removed { handle: u64 },
    /// A tensor of the caller's keeps its gradient.
    RetainGrad { target: T },
    /// Another gradient for a tensor of the caller's.
    SetGrad { target: T, grad: Option<T> },
    /// Another tensor in a cell.
    Store { cell: Arc<dyn TensorCell>, value: T },
    /// A hook in a table of a module.
    Register { again: Arc<dyn Fn() -> RemovableHandle + Send + Sync>, handle: RemovableHandle },
}

impl<T> Effect<T> {
    /// The same with other references to tensors.
    pub(crate) fn refer<U>(self, f: &mut impl FnMut(&T) -> crate::Result<U>) -> crate::Result<Effect<U>> {
        Ok(match self {
            Effect::Host(run) => Effect::Host(run),
            Effect::With { tensors, run } => {
                Effect::With { tensors: tensors.iter().map(f).collect::<crate::Result<_>>()?, run }
            }
            Effect::Hook { target, hook, handle } => Effect::Hook { target: f(&target)?, hook, handle },
            Effect::PostAccumulate { target, hook, handle } => {
                Effect::PostAccumulate { target: f(&target)?, hook, handle }
            }
            Effect::Removed { handle } => Effect::Removed { handle },
            Effect::RetainGrad { target } => Effect::RetainGrad { target: f(&target)? },
            Effect::SetGrad { target, grad } => {
                Effect::SetGrad { target: f(&target)?, grad: grad.as_ref().map(f).transpose()? }
            }
            Effect::Store { cell, value } => Effect::Store { cell, value: f(&value)? },
            Effect::Register { again, handle } => Effect::Register { again, handle },
        })
    }
}

/// Takes the tensors out of a tree: the rest holds none of the function's tensors.
pub(crate) struct Blank(Tensor);

impl Blank {
    /// The tensors of a tree in order, and the tree without them.
    pub(crate) fn split<O: TensorTree>(tree: &O) -> Result<(Vec<Tensor>, O)> {
        let mut tensors = Vec::new();
        tree.visit(&mut |leaf| {
            if let Leaf::Tensor(t) | Leaf::Index(t) = leaf {
                tensors.push(t.clone());
            }
        });
        let nothing = Tensor::try_empty(Spec::new(&[0], DType::F32, Device::Meta)?)?;
        Ok((tensors, tree.rebuild(&mut Blank(nothing))))
    }
}

impl Rebuild for Blank {
    fn tensor(&mut self, _: &Tensor) -> Tensor {
        self.0.clone()
    }
}

/// Puts tensors back in their order, and handles of the call.
struct InOrder<'a> {
    tensors: std::vec::IntoIter<Tensor>,
    binding: &'a Binding,
}

impl Rebuild for InOrder<'_> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        self.tensors.next().unwrap_or_else(|| t.clone())
    }
    fn number(&mut self, n: &Number) -> Number {
        n.here()
    }
    fn size(&mut self, n: SymInt) -> SymInt {
        n.here()
    }
    fn handle(&mut self, h: &RemovableHandle) -> RemovableHandle {
        self.binding.handle(h)
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

impl<T> Effect<T> {
    /// Does it, for one call, in which `tensor` says what a reference means.
    /// Host code runs in `binding`; hooks, which live on, get `kept`.
    pub(crate) fn run(
        &self,
        tensor: &dyn Fn(&T) -> crate::Result<Tensor>,
        binding: &Arc<Binding>,
        kept: &Arc<Binding>,
    ) -> crate::Result<()> {
        match self {
            Effect::Host(f) => binding.enter(|| f()),
            Effect::With { tensors, run } => {
                let tensors = tensors.iter().map(tensor).collect::<crate::Result<Vec<_>>>()?;
                binding.enter(|| run(&mut InOrder { tensors: tensors.into_iter(), binding }));
            }
            Effect::Hook { target, hook, handle } => {
                let hook = bound_hook(hook.clone(), kept.clone());
                let made = tensor(target)?.try_register_hook_any(move |g| hook(g))?;
                binding.bind_handle(*handle, made);
            }
            Effect::PostAccumulate { target, hook, handle } => {
                let (hook, bound) = (hook.clone(), kept.clone());
                let made = tensor(target)?
                    .try_register_post_accumulate_grad_hook(move |t: &Tensor| bound.enter(|| hook(t)))?;
                binding.bind_handle(*handle, made);
            }
            Effect::Removed { handle } => binding.bind_handle(*handle, RemovableHandle::new(&Arc::new(Nothing))),
            Effect::RetainGrad { target } => tensor(target)?.try_retain_grad()?,
            Effect::SetGrad { target, grad } => {
                let grad = grad.as_ref().map(tensor).transpose()?;
                tensor(target)?.try_set_grad(grad.as_ref())?
            }
            Effect::Store { cell, value } => cell.store(tensor(value)?),
            Effect::Register { again, handle } => binding.bind_handle(handle.key(), again()),
        }
        Ok(())
    }
}
