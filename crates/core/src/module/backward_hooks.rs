//! Backward hooks of modules: identity nodes around a call, whose post-hooks call the user's.
//!
//! Inputs pass through one identity node and outputs through another. When the output node has run, the gradients of the
//! outputs are known: the pre-hooks see them. When the input node has run, those of the inputs are: the hooks see both.
//! State belongs to one call, so a module may be called any number of times in one graph. Under capture there is no node to
//! hook yet: the identity calls the hooks in its own backward, wherever the captured function runs.

use super::call::hooks_of;
use super::erased::rebuild;
use super::hooks::{BackwardHook, BackwardPreHook, ModuleInfo};
use super::{Module, TensorTree};
use crate::autograd::{Context, Function, is_grad_enabled};
use crate::capture;
use crate::warnings::warn;
use crate::{ErrorKind, Result, Tensor};
use std::sync::{Arc, Mutex, OnceLock};

type Grads = Vec<Option<Tensor>>;

/// What runs on the gradients at one side of a call; may replace them.
type AtSide = Arc<dyn Fn(&[Option<Tensor>]) -> Result<Option<Grads>> + Send + Sync>;

/// Which gradients the hooks see: those of a call's inputs, as they leave the identity node, or those of its outputs, as they
/// come in, where an undefined one stays so.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Inputs,
    Outputs,
}

/// The identity; `at` is set under capture only.
struct BackwardHookFunction {
    at: Option<AtSide>,
    side: Side,
}

impl Function for BackwardHookFunction {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let constants: Vec<&Tensor> = inputs.iter().filter(|t| !t.requires_grad()).collect();
        ctx.mark_non_differentiable(&constants);
        ctx.set_materialize_grads(self.at.is_none() || self.side == Side::Inputs);
        Ok(inputs.to_vec())
    }

    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Grads> {
        let replaced = self.at.as_ref().map(|at| at(grads)).transpose()?.flatten();
        Ok(replaced.unwrap_or_else(|| grads.to_vec()))
    }
}

/// Which slots of a value hold tensors, and how many slots there are.
#[derive(Clone)]
struct Slots {
    tensors: Vec<usize>,
    count: usize,
}

impl Slots {
    fn of(value: &impl TensorTree) -> Slots {
        let mut slots = Slots { tensors: Vec::new(), count: 0 };
        value.visit_slots(&mut |t| {
            if t.is_some() {
                slots.tensors.push(slots.count)
            }
            slots.count += 1;
        });
        slots
    }

    /// One gradient per tensor to one per slot.
    fn spread(&self, grads: &[Option<Tensor>]) -> Grads {
        let mut all = vec![None; self.count];
        for (&slot, g) in self.tensors.iter().zip(grads) {
            all[slot] = g.clone();
        }
        all
    }

    /// One gradient per slot to one per tensor.
    fn gather(&self, grads: &Grads) -> Grads {
        self.tensors.iter().map(|&slot| grads[slot].clone()).collect()
    }
}

/// The value with its tensors passed through an identity node, if a gradient will come through it.
fn through_identity<T: TensorTree>(value: &T, side: Side, at: AtSide) -> Result<Option<T>> {
    let tensors = value.leaves();
    if !is_grad_enabled() || !tensors.iter().any(Tensor::requires_grad) {
        return Ok(None);
    }
    let captured = capture::is_capturing();
    let identity = BackwardHookFunction { at: captured.then(|| at.clone()), side };
    let passed = identity.apply(&tensors.iter().collect::<Vec<_>>())?;
    if !captured {
        let Some(node) = passed.iter().find(|t| t.requires_grad()).and_then(Tensor::grad_fn) else { return Ok(None) };
        node.register_hook(move |outgoing, incoming| at(if side == Side::Inputs { outgoing } else { incoming }));
    }
    rebuild(value, passed, |_, _| unreachable!("the identity returns what it gets")).map(Some)
}

struct Call {
    module: ModuleInfo,
    pre: Vec<BackwardPreHook>,
    full: Vec<BackwardHook>,
    inputs: OnceLock<Slots>,
    /// Whether gradients of inputs are computed at all.
    inputs_watched: OnceLock<()>,
    /// From the output node to the input node; none when the gradient came another way.
    grad_outputs: Mutex<Option<Grads>>,
}

/// The backward hooks that one call of a module sets up.
pub(super) struct BackwardHooks(Arc<Call>);

impl BackwardHooks {
    pub(super) fn of(module: &dyn Module) -> Option<BackwardHooks> {
        let pre: Vec<_> = hooks_of(module, |t| t.backward_pre.snapshot()).collect();
        let full: Vec<_> = hooks_of(module, |t| t.backward.snapshot()).collect();
        if pre.is_empty() && full.is_empty() {
            return None;
        }
        Some(BackwardHooks(Arc::new(Call {
            module: ModuleInfo::of(module),
            pre,
            full,
            inputs: OnceLock::new(),
            inputs_watched: OnceLock::new(),
            grad_outputs: Mutex::new(None),
        })))
    }

    pub(super) fn wrap_input<I: TensorTree>(&self, input: &I) -> Result<I> {
        let slots = self.0.inputs.get_or_init(|| Slots::of(input)).clone();
        let call = self.0.clone();
        let at: AtSide = Arc::new(move |grad_inputs| call.at_inputs(&slots, grad_inputs));
        let Some(wrapped) = through_identity(input, Side::Inputs, at)? else {
            return Ok(input.clone());
        };
        let _ = self.0.inputs_watched.set(());
        Ok(wrapped)
    }

    pub(super) fn wrap_output<O: TensorTree>(&self, output: &O) -> Result<O> {
        let slots = Slots::of(output);
        let call = self.0.clone();
        let at: AtSide = Arc::new(move |grad_outputs| call.at_outputs(&slots, grad_outputs));
        Ok(through_identity(output, Side::Outputs, at)?.unwrap_or_else(|| output.clone()))
    }
}

impl Call {
    fn at_outputs(&self, slots: &Slots, grads: &[Option<Tensor>]) -> Result<Option<Grads>> {
        let mut grad_outputs = slots.spread(grads);
        for hook in &self.pre {
            if let Some(new) = hook(&self.module, &grad_outputs)? {
                self.check_count("a full backward pre-hook", &grad_outputs, &new)?;
                grad_outputs = new;
            }
        }
        if self.inputs_watched.get().is_none() && !self.full.is_empty() {
            self.without_inputs(&grad_outputs)?;
        }
        let replaced = slots.gather(&grad_outputs);
        let mut place = self.grad_outputs.lock().unwrap_or_else(|e| e.into_inner());
        let before = Option::replace(&mut *place, grad_outputs);
        drop(place);
        drop(before);
        Ok(Some(replaced))
    }

    /// No input requires grad, so there is nothing to wait for: the hooks run now.
    fn without_inputs(&self, grad_outputs: &Grads) -> Result<()> {
        warn(format!(
            "module {}: no input requires grad, so its full backward hooks run with the gradients of the outputs only",
            self.module.name
        ));
        let none = vec![None; self.inputs.get().map_or(0, |s| s.count)];
        for hook in &self.full {
            if hook(&self.module, &none, grad_outputs)?.is_some_and(|new| new.iter().any(Option::is_some)) {
                return Err(ErrorKind::ModuleHookNoInput { module: self.module.name }.into());
            }
        }
        Ok(())
    }

    fn at_inputs(&self, slots: &Slots, grads: &[Option<Tensor>]) -> Result<Option<Grads>> {
        // None: the gradient did not come through the module's output, as in a double backward.
        let Some(grad_outputs) = self.grad_outputs.lock().unwrap_or_else(|e| e.into_inner()).take() else {
            return Ok(None);
        };
        let mut grad_inputs = slots.spread(grads);
        for hook in &self.full {
            if let Some(new) = hook(&self.module, &grad_inputs, &grad_outputs)? {
                self.check_count("a full backward hook", &grad_inputs, &new)?;
                grad_inputs = new;
            }
        }
        Ok(Some(slots.gather(&grad_inputs)))
    }

    fn check_count(&self, hook: &'static str, old: &Grads, new: &Grads) -> Result<()> {
        if new.len() == old.len() {
            return Ok(());
        }
        Err(self.module.wrong_count(hook, old.len(), new.len()))
    }
}

/// Puts the legacy backward hooks on the node that made the first output.
pub(super) fn attach_legacy(module: &dyn Module, output: &impl TensorTree) -> Result<()> {
    let Some(tables) = module.core().tables().filter(|t| !t.legacy_backward.is_empty()) else { return Ok(()) };
    let Some(node) = output.leaves().first().and_then(Tensor::grad_fn) else { return Ok(()) };
    let info = ModuleInfo::of(module);
    for hook in tables.legacy_backward.snapshot() {
        node.register_hook(move |grad_inputs, grad_outputs| hook(&info, grad_inputs, grad_outputs));
    }
    Ok(())
}
