//! Reverse mode as a transform: `grad`, `grad_and_value`, `vjp`.
//!
//! No wrapping: the function runs on fresh leaves (or on aliases, where the arguments are differentiated outside too) of
//! the ordinary engine, and gradients are taken with respect to exactly those. Whether the gradients themselves are
//! recorded is decided by inspection: only if the graph leads out of the function to something that requires grad.

use super::level::{self, TransformGuard};
use crate::autograd::node::Node;
use crate::autograd::{EnableGrad, GradOptions, Target, api, forward, record};
use crate::tree::{Outcome, TensorTree};
use crate::{ErrorKind, Result, Tensor, capture, ops, state};
use std::any::Any;
use std::sync::Arc;

const NO_HOOKS: &str =
    "saved tensor hooks do not work inside grad, vjp or jacrev: remove them, or use autograd::grad without a transform";

/// A new tensor of this level over the same data: no history here, tangents kept.
fn stripped(t: &Tensor) -> Tensor {
    let out = if t.is_of_this_level() { t.alias_born_under(state::word()) } else { level::wrap(t.clone(), None) };
    capture::same_value(&out, t);
    if let Some(tangent) = forward::tangent(t) {
        forward::attach(&out, tangent);
    }
    out
}

/// An argument that is not differentiated, for a function under the innermost transform: over the same data, but the function's own, so
/// that writing it is not writing something captured. What has history outside stays what it is.
pub fn argument(t: &Tensor) -> Tensor {
    if record::wants_grad(t) || !t.is_of_this_level() { t.clone() } else { stripped(t) }
}

/// The arguments as the function sees them.
fn differentiable(t: &Tensor, outer: bool) -> Result<Tensor> {
    if !t.dtype().is_differentiable() {
        return Err(ErrorKind::NotDifferentiableDtype { dtype: t.dtype() }.into());
    }
    if outer && record::wants_grad(t) { ops::alias(t) } else { capture::leaf_of_transform(stripped(t)) }
}

/// Whether the graph of the outputs leads to something older than the function, or to a leaf that is not an argument.
fn leads_outside(outputs: &[Tensor], inputs: &[Tensor], start: u64) -> Result<bool> {
    let end = state::next_sequence_peek();
    let mut seen = vec![false; end.saturating_sub(start) as usize];
    let mut stack: Vec<Node> = Vec::new();
    for t in outputs {
        stack.extend(record::edge(t)?.map(|e| e.node));
    }
    while let Some(node) = stack.pop() {
        if let Some(leaf) = node.variable() {
            if !inputs.iter().any(|i| i.is_same(leaf)) {
                return Ok(true);
            }
            continue;
        }
        let at = node.sequence_nr().wrapping_sub(start) as usize;
        match seen.get_mut(at) {
            // Older than the function, or made on another thread.
            None => return Ok(true),
            Some(true) => continue,
            Some(unseen) => *unseen = true,
        }
        stack.extend(node.edges().iter().flatten().map(|e| e.node.clone()));
    }
    Ok(false)
}

/// A run of the function, ready to be differentiated.
struct Recorded<O> {
    inputs: Vec<Tensor>,
    output: O,
    /// Whether gradients of the results may be needed outside.
    connected: bool,
}

fn trace<A: TensorTree, R: Outcome>(f: impl FnOnce(&A) -> R, args: &A) -> Result<Recorded<R::Tree>> {
    let args = &args.replace(&mut |t| Ok(capture::real(t)))?;
    let outer = state::is(state::GRAD);
    if state::is(state::SAVED_HOOKS) && state::stacks(|s| !s.saved_hooks.is_empty()) {
        return Err(ErrorKind::SavedHooksDisabled { message: NO_HOOKS.to_string() }.into());
    }
    let wanted_outside = outer && args.leaves().iter().any(record::wants_grad);
    let _recording = EnableGrad::new();
    let (start, loose) = (state::next_sequence_peek(), state::loose_edges());
    let (inside, output) = {
        let _transform = TransformGuard::new(Some(NO_HOOKS));
        let inside = args.replace(&mut |t| differentiable(t, outer))?;
        let output = f(&inside).outcome()?;
        (inside, output)
    };
    let inputs = inside.leaves();
    // What is computed from a view without history requires grad, though no gradient arrives anywhere.
    let loose = loose != state::loose_edges();
    let connected = outer && (wanted_outside || loose || leads_outside(&output.leaves(), &inputs, start)?);
    Ok(Recorded { inputs, output, connected })
}

/// Gradients of `outputs` with respect to `inputs`; zeros where there is no path.
fn pull(
    outputs: &[Tensor],
    inputs: &[Tensor],
    cotangents: Option<Vec<Tensor>>,
    create_graph: bool,
    retain_graph: bool,
) -> Result<Vec<Tensor>> {
    // An output that depends on nothing has no node to start from.
    let live: Vec<usize> = (0..outputs.len()).filter(|&k| outputs[k].requires_grad()).collect();
    let found = if live.is_empty() {
        vec![None; inputs.len()]
    } else {
        let targets: Vec<Target> = live.iter().map(|&k| Target::from(&outputs[k])).collect();
        let grad_outputs = match cotangents {
            Some(c) => live.iter().map(|&k| Some(c[k].clone())).collect(),
            None => Vec::new(),
        };
        let options = GradOptions {
            grad_outputs,
            retain_graph: Some(retain_graph || create_graph),
            create_graph,
            allow_unused: Some(true),
            ..Default::default()
        };
        api::grad_here(targets, inputs.iter().map(Target::from).collect(), &options)?
    };
    found.into_iter().zip(inputs).map(|(g, x)| g.map_or_else(|| ops::formulas::zeros_like_primal(x), Ok)).collect()
}

fn one_element<T: TensorTree>(transform: &'static str, output: &T) -> Result<Tensor> {
    let leaves = output.leaves();
    let expected = "one 0-dim tensor";
    match &leaves[..] {
        [y] if y.ndim() == 0 => Ok(y.clone()),
        [y] => {
            let found = format!("a tensor of shape {:?}", y.shape());
            Err(ErrorKind::TransformOutput { transform, expected, found }.into())
        }
        _ => {
            let found = format!("{} tensors", leaves.len());
            Err(ErrorKind::TransformOutput { transform, expected, found }.into())
        }
    }
}

/// Gradient, value and auxiliary output.
#[track_caller]
fn differentiate<A: TensorTree, X: TensorTree, R: Outcome>(
    transform: &'static str,
    f: impl FnOnce(&A) -> R,
    args: &A,
    split: impl FnOnce(R::Tree) -> Result<(Tensor, X)>,
) -> Result<(A, Tensor, X)> {
    let scope = capture::transform("a function transform", state::is(state::GRAD))?;
    let traced = trace(f, args)?;
    let (y, aux) = split(traced.output)?;
    one_element(transform, &y)?;
    let grads = pull(std::slice::from_ref(&y), &traced.inputs, None, traced.connected, traced.connected)?;
    let outside = |t: &Tensor| if traced.connected { t.clone() } else { stripped(t) };
    capture::transformed(scope, (args.with_leaves(grads)?, outside(&y), aux.replace(&mut |t| Ok(outside(t)))?))
}

/// The function that computes the gradient of `f`, which returns one 0-dim tensor.
///
/// Gradients have the structure of the argument; pass a tuple to differentiate with respect to several tensors, and
/// capture what should stay constant.
pub fn grad<A: TensorTree, R: Outcome<Tree: TensorTree>>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<A> {
    move |args| Ok(differentiate("grad", &f, args, |o| Ok((one_element("grad", &o)?, ())))?.0)
}

/// Like [`grad`]; returns the gradient and the value.
pub fn grad_and_value<A: TensorTree, R: Outcome>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<(A, Tensor)> {
    move |args| {
        let (g, y, ()) = differentiate("grad_and_value", &f, args, |o| Ok((one_element("grad_and_value", &o)?, ())))?;
        Ok((g, y))
    }
}

/// Like [`grad`], for a function that returns a value and an auxiliary output; returns the gradient and the latter.
pub fn grad_with_aux<A: TensorTree, X: TensorTree, R: Outcome<Tree = (Tensor, X)>>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<(A, X)> {
    move |args| {
        let (g, _, aux) = differentiate("grad", &f, args, Ok)?;
        Ok((g, aux))
    }
}

/// Like [`grad_with_aux`]; returns the gradient, the value and the auxiliary output.
pub fn grad_and_value_with_aux<A: TensorTree, X: TensorTree, R: Outcome<Tree = (Tensor, X)>>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<(A, Tensor, X)> {
    move |args| differentiate("grad_and_value", &f, args, Ok)
}

/// The pullback of a function at a point: what [`vjp`] returns.
#[derive(Debug)]
pub struct Vjp<A, O> {
    args: A,
    output: O,
    outputs: Vec<Tensor>,
    inputs: Vec<Tensor>,
    connected: bool,
    /// For a capture to know that nodes of it are kept here.
    keeps: Option<Arc<dyn Any + Send + Sync>>,
}

impl<A: TensorTree, O: TensorTree> Vjp<A, O> {
    /// The cotangents of the arguments from those of the outputs. May be called any number of times.
    #[track_caller]
    pub fn call(&self, cotangents: &O) -> Result<A> {
        if self.keeps.is_none() {
            // Its nodes are not those of a function that is being captured.
            capture::leave("a pullback")?;
        }
        let scope = capture::transform("a pullback", true)?;
        let cotangents: Vec<Tensor> = cotangents.leaves().iter().map(capture::real).collect();
        if cotangents.len() != self.outputs.len() {
            let message = format!("{} cotangents for {} outputs", cotangents.len(), self.outputs.len());
            return Err(ErrorKind::Functional { function: "vjp", message }.into());
        }
        let create = state::is(state::GRAD) && (self.connected || cotangents.iter().any(record::wants_grad));
        let grads = pull(&self.outputs, &self.inputs, Some(cotangents), create, true)?;
        capture::transformed(scope, self.args.with_leaves(grads)?)
    }

    pub(super) fn output(&self) -> &O {
        &self.output
    }
}

/// Runs `f`; returns its output and the function that pulls cotangents back to the arguments.
#[track_caller]
pub fn vjp<A: TensorTree, O: TensorTree, R: Outcome<Tree = O>>(
    f: impl FnOnce(&A) -> R,
    args: &A,
) -> Result<(O, Vjp<A, O>)> {
    let (y, pullback, ()) = pulled(f, args, |o| Ok((o, ())))?;
    Ok((y, pullback))
}

/// Like [`vjp`], for a function that also returns an auxiliary output, which is passed through.
#[track_caller]
pub fn vjp_with_aux<A: TensorTree, O: TensorTree, X: TensorTree, R: Outcome<Tree = (O, X)>>(
    f: impl FnOnce(&A) -> R,
    args: &A,
) -> Result<(O, Vjp<A, O>, X)> {
    pulled(f, args, Ok)
}

#[track_caller]
fn pulled<A: TensorTree, O: TensorTree, X: TensorTree, R: Outcome>(
    f: impl FnOnce(&A) -> R,
    args: &A,
    split: impl FnOnce(R::Tree) -> Result<(O, X)>,
) -> Result<(O, Vjp<A, O>, X)> {
    let scope = capture::transform("a function transform", state::is(state::GRAD))?;
    let traced = trace(f, args)?;
    let (inside, aux) = split(traced.output)?;
    let outside = |t: &Tensor| Ok(if traced.connected { t.clone() } else { stripped(t) });
    let keeps = capture::keeps_nodes();
    let outside = (inside.replace(&mut |t| outside(t))?, aux.replace(&mut |t| outside(t))?);
    let (output, aux) = capture::transformed(scope, outside)?;
    let pullback = Vjp {
        args: args.clone(),
        output: output.clone(),
        outputs: inside.leaves(),
        inputs: traced.inputs,
        connected: traced.connected,
        keeps,
    };
    Ok((output, pullback, aux))
}
