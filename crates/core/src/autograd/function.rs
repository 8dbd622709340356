//! Custom functions: a forward of the user's own with a backward (and a forward-mode rule) of the user's own.
//!
//! `forward` runs unrecorded on the given tensors; afterwards its outputs are linked to one node named after the type.
//! What `forward` needs later it puts in the [`Context`]; plain values simply live in the function's own fields.

use super::forward;
use super::node::{Backward, Edge, Edges, Gradients, InputMetadata, Needs, Node};
use super::saved::{SavedSlot, SavedTensor, SavedValue};
use super::view::CreationKind;
use crate::state::{self, ModeGuard};
use crate::warnings::warn;
use crate::{ErrorKind, Result, Tensor};
use smallvec::{SmallVec, smallvec};
use std::any::Any;

/// An operation with a derivative of its own.
///
/// ```
/// use firebrand_core::autograd::{Context, Function};
/// use firebrand_core::{Result, Tensor};
///
/// struct Square;
/// impl Function for Square {
///     fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         ctx.save_for_backward(&[Some(&inputs[0])]);
///         Ok(vec![&inputs[0] * &inputs[0]])
///     }
///     fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
///         let saved = ctx.saved_tensors()?;
///         let (x, g) = (saved[0].as_ref().unwrap(), grads[0].as_ref().unwrap());
///         Ok(vec![Some(x * g * 2.0)])
///     }
/// }
///
/// let x = Tensor::scalar(3.0f64).requires_grad_();
/// let y = Square.apply(&[&x]).unwrap().remove(0);
/// y.backward();
/// assert_eq!(x.grad().unwrap().item::<f64>(), 6.0);
/// ```
pub trait Function: Send + Sync + Sized + 'static {
    /// The name its node carries in front of `Backward`; the type's own by default.
    fn name(&self) -> String {
        let full = std::any::type_name::<Self>();
        let full = full.split('<').next().unwrap_or(full);
        full.rsplit("::").next().unwrap_or(full).to_string()
    }

    /// Computes the outputs. Nothing in here is recorded.
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Gradients of the inputs from those of the outputs; `None` where there is none.
    fn backward(&self, _ctx: &Context, _grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Err(ErrorKind::FunctionNotImplemented { function: self.name(), what: "backward" }.into())
    }

    /// Tangents of the outputs from those of the inputs.
    fn jvp(&self, _ctx: &Context, _tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Err(ErrorKind::FunctionNotImplemented { function: self.name(), what: "jvp" }.into())
    }

    /// Whether `backward` cannot itself be differentiated: it then runs unrecorded, and differentiating it is an error.
    fn once_differentiable(&self) -> bool {
        false
    }

    /// Runs the function and records it.
    fn apply(self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        apply(self, inputs)
    }
}

/// What a custom function knows of its call, and what it keeps for later.
pub struct Context {
    name: String,
    needs_input_grad: Vec<bool>,
    materialize_grads: bool,
    to_save: Vec<Option<Tensor>>,
    for_forward: Vec<Option<Tensor>>,
    dirty: Vec<Tensor>,
    non_differentiable: Vec<Tensor>,
    outputs: Vec<InputMetadata>,
    saved: Option<SavedSlot<Vec<SavedTensor>>>,
    node: std::sync::OnceLock<super::node::WeakNode>,
}

impl Context {
    /// Keeps tensors for `backward`; they are version-checked when read.
    pub fn save_for_backward(&mut self, tensors: &[Option<&Tensor>]) {
        self.to_save = tensors.iter().map(|t| t.cloned()).collect();
    }

    /// Keeps tensors for `jvp`.
    pub fn save_for_forward(&mut self, tensors: &[Option<&Tensor>]) {
        self.for_forward = tensors.iter().map(|t| t.cloned()).collect();
    }

    /// Says that `forward` wrote these inputs in place.
    pub fn mark_dirty(&mut self, tensors: &[&Tensor]) {
        self.dirty = tensors.iter().map(|t| (*t).clone()).collect();
    }

    /// Says that no gradient flows through these outputs.
    pub fn mark_non_differentiable(&mut self, tensors: &[&Tensor]) {
        self.non_differentiable = tensors.iter().map(|t| (*t).clone()).collect();
    }

    /// Whether undefined gradients arrive as zeros (the default) or as `None`.
    pub fn set_materialize_grads(&mut self, on: bool) {
        self.materialize_grads = on;
    }

    /// For each input, whether it requires grad; fixed when the function was applied.
    pub fn needs_input_grad(&self) -> &[bool] {
        &self.needs_input_grad
    }

    /// The tensors kept for `backward`, unpacked and version-checked.
    pub fn saved_tensors(&self) -> Result<Vec<Option<Tensor>>> {
        let (Some(saved), Some(node)) = (&self.saved, self.node.get().and_then(|w| w.upgrade())) else {
            return Ok(self.to_save.clone());
        };
        let list = saved.read(&node, Clone::clone)?;
        list.into_iter().map(|s| s.unpack(&node)).collect()
    }

    /// The tensors kept for `jvp`.
    pub fn saved_for_forward(&self) -> &[Option<Tensor>] {
        &self.for_forward
    }

    fn is_dirty(&self, t: &Tensor) -> bool {
        self.dirty.iter().any(|d| d.is_same(t))
    }
}

struct FunctionNode<F> {
    function: F,
    ctx: Context,
    name: String,
}

/// Makes differentiating a once-differentiable backward an error.
struct DelayedError {
    function: String,
}

impl Backward for DelayedError {
    fn name(&self) -> &str {
        "torch::autograd::Error"
    }
    fn apply(&self, _: &Node, _: Gradients, _: &Needs<'_>) -> Result<Gradients> {
        Err(ErrorKind::OnceDifferentiable { function: self.function.clone() }.into())
    }
}

impl<F: Function> FunctionNode<F> {
    fn run(&self, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        if !self.function.once_differentiable() {
            return self.function.backward(&self.ctx, grads);
        }
        let mut outs = {
            let _off = ModeGuard::new(0, state::GRAD);
            self.function.backward(&self.ctx, grads)?
        };
        let traced = state::is(state::GRAD) && grads.iter().flatten().any(|g| g.requires_grad());
        if traced {
            for out in outs.iter_mut().flatten() {
                // No edges: the node fails if the engine reaches it, and leads nowhere it could be asked for.
                let edges = Edges::new();
                let formula = Box::new(DelayedError { function: self.ctx.name.clone() });
                let mut alias = out.alias_with(out.layout().clone());
                let node = Node::new(edges, smallvec![InputMetadata::of(&alias)], formula)?;
                alias.set_birth_history(Edge { node, slot: 0 });
                *out = alias;
            }
        }
        Ok(outs)
    }
}

impl<F: Function> Backward for FunctionNode<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&self, node: &Node, mut grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        let _ = self.ctx.node.set(node.downgrade());
        if self.ctx.materialize_grads {
            for (g, meta) in grads.iter_mut().zip(&self.ctx.outputs) {
                if g.is_none() {
                    *g = Some(Tensor::try_full_spec(&meta.shape, 0i64.into(), meta.dtype)?);
                }
            }
        }
        let mut outs = self.run(&grads)?;
        let expected = needs.len();
        while outs.len() > expected && outs.last().is_some_and(Option::is_none) {
            outs.pop();
        }
        if outs.len() != expected {
            let function = self.ctx.name.clone();
            return Err(ErrorKind::FnGradCount { function, expected, found: outs.len() }.into());
        }
        Ok(outs.into())
    }

    fn release(&self) {
        if let Some(s) = &self.ctx.saved {
            s.release()
        }
    }

    fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
        let Some(saved) = &self.ctx.saved else { return Ok(Vec::new()) };
        let list = saved.read(node, Clone::clone)?;
        let tensors = list.into_iter().map(|s| s.unpack(node)).collect::<Result<Vec<_>>>()?;
        Ok(vec![("tensors", SavedValue::Tensors(tensors))])
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(&self.function)
    }
}

impl Node {
    /// The custom function this node belongs to, with the values it keeps.
    pub fn function<F: Function>(&self) -> Option<&F> {
        self.formula().as_any()?.downcast_ref()
    }
}

fn apply<F: Function>(function: F, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let owned: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    let mut ctx = Context {
        name: function.name(),
        needs_input_grad: owned.iter().map(Tensor::requires_grad).collect(),
        materialize_grads: true,
        to_save: Vec::new(),
        for_forward: Vec::new(),
        dirty: Vec::new(),
        non_differentiable: Vec::new(),
        outputs: Vec::new(),
        saved: None,
        node: std::sync::OnceLock::new(),
    };
    let word = state::word();
    let recording = word & state::GRAD != 0 && ctx.needs_input_grad.contains(&true);
    let edges: Edges = if recording {
        owned.iter().map(|t| if t.requires_grad() { t.gradient_edge() } else { Ok(None) }).collect::<Result<_>>()?
    } else {
        Edges::new()
    };
    let results = {
        let _plain = ModeGuard::new(0, state::GRAD | state::DUAL);
        function.forward(&mut ctx, &owned)?
    };
    check_dirty(&ctx, &owned, &results, recording)?;
    let mut outputs: Vec<Tensor> = results.iter().map(|r| wrap(&ctx, &owned, r)).collect();
    ctx.outputs = outputs.iter().map(InputMetadata::of).collect();

    if word & state::DUAL != 0 && owned.iter().any(|t| forward::tangent(t).is_some()) {
        let tangents = owned
            .iter()
            .map(|t| match forward::tangent(t) {
                None if ctx.materialize_grads => forward::tangent_or_zeros(t).map(Some),
                found => Ok(found),
            })
            .collect::<Result<Vec<_>>>()?;
        for (out, t) in outputs.iter().zip(function.jvp(&ctx, &tangents)?) {
            if let Some(t) = t {
                forward::set_tangent(out, t)?;
            }
        }
    }
    if recording {
        record(function, ctx, edges, &results, &mut outputs)?;
    }
    Ok(outputs)
}

fn check_dirty(ctx: &Context, inputs: &[Tensor], results: &[Tensor], recording: bool) -> Result<()> {
    let function = || ctx.name.clone();
    for d in &ctx.dirty {
        if !inputs.iter().any(|i| i.is_same(d)) {
            warn(format!("{}: a tensor that is not an input was marked dirty", ctx.name));
            continue;
        }
        if recording && d.is_leaf() && d.requires_grad() {
            return Err(ErrorKind::DirtyLeaf { function: function() }.into());
        }
        if !results.iter().any(|r| r.is_same(d)) {
            return Err(ErrorKind::DirtyNotReturned { function: function() }.into());
        }
        if recording && d.is_view() && results.len() > 1 {
            return Err(ErrorKind::DirtyViewMultiOut { function: function() }.into());
        }
        d.bump_version();
    }
    Ok(())
}

/// What the caller gets for one result: an input returned unchanged becomes a view of it.
fn wrap(ctx: &Context, inputs: &[Tensor], result: &Tensor) -> Tensor {
    if let Some(input) = inputs.iter().find(|i| i.is_same(result)) {
        if ctx.is_dirty(input) {
            return result.clone();
        }
        return input.make_view(input.layout().clone(), CreationKind::Custom);
    }
    let of_input = |base: &Tensor| inputs.iter().any(|i| i.is_same(base) || i.base().is_some_and(|b| b.is_same(base)));
    if result.base().is_some_and(of_input) {
        result.set_view_kind(CreationKind::Custom);
    }
    result.clone()
}

fn record<F: Function>(
    function: F,
    mut ctx: Context,
    edges: Edges,
    results: &[Tensor],
    outputs: &mut [Tensor],
) -> Result<()> {
    let slot_of = |t: &Tensor| results.iter().rposition(|r| r.is_same(t));
    let saved = std::mem::take(&mut ctx.to_save)
        .iter()
        .map(|t| match t {
            None => Ok(SavedTensor::NONE),
            Some(t) => match slot_of(t) {
                Some(slot) => SavedTensor::output(t, slot as u32),
                None => SavedTensor::input(t),
            },
        })
        .collect::<Result<Vec<_>>>()?;
    if !saved.is_empty() {
        ctx.saved = Some(SavedSlot::new(saved));
    }
    let frozen: Vec<bool> = results
        .iter()
        .map(|r| !r.dtype().is_differentiable() || ctx.non_differentiable.iter().any(|n| n.is_same(r)))
        .collect();
    let dirty: Vec<bool> = results.iter().map(|r| ctx.is_dirty(r)).collect();
    let name = format!("{}Backward", ctx.name);
    let meta: SmallVec<[InputMetadata; 1]> = outputs.iter().map(InputMetadata::of).collect();
    let node = Node::new(edges, meta, Box::new(FunctionNode { function, ctx, name }))?;
    for (slot, out) in outputs.iter_mut().enumerate() {
        if frozen[slot] {
            continue;
        }
        if dirty[slot] {
            out.rebase_history(node.clone())?;
        } else {
            out.set_birth_history(Edge { node: node.clone(), slot: slot as u32 });
        }
    }
    Ok(())
}
