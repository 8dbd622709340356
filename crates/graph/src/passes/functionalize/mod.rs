//! functionalize: removes all mutations from a program; new values of inputs are returned.
//!
//! The program is run once on meta tensors, which shows which values share memory. Every value is described as a
//! chain of view ops on its memory ([`views`]); a write computes the new value by the functional form of the op
//! ([`pure`]), puts it back through the chain, and later reads of an alias slice it out again. Gradients stay:
//! a write with grad mode off keeps the history of its target (`with_data`).
//!
//! Grad-mode regions are opened while the graph is walked and closed again by the set_grad pass. Branches of a conditional may
//! mutate tensors they created, never an operand; bodies of other higher-order ops must not mutate.

mod pure;
mod views;
mod walk;
mod writes;

use super::{Context, Report, set_grad};
use crate::dynamic::at_all_sizes;
use crate::error::{Error, Result};
use crate::export::dialect_of;
use crate::interpret::{Value, materialize};
use crate::ir::*;
use crate::program::{Dialect, ExportedProgram};
use crate::signature::*;
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
use firebrand_core::dispatch::Op;
use firebrand_core::{Device, Layout, Spec, Tensor};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use views::Step;
use walk::{Scope, Slot, Walk};

const PASS: &str = "functionalize";

/// A view op to be applied to a real tensor.
#[derive(Clone, Debug)]
pub struct View {
    step: Step,
}

impl View {
    /// Applies it.
    pub fn apply(&self, tensor: &Tensor) -> Result<Tensor> {
        let Some(op) = self.step.target.overload() else { return Err(Error::Value("a view is an op".to_string())) };
        let args: Vec<Value> = std::iter::once(tensor.into()).chain(self.step.given.iter().cloned()).collect();
        let result = crate::interpret::call_op(op, &args, &self.step.given_named, None)?;
        match self.step.item {
            None => result.tensor().cloned(),
            Some(k) => result.items()?.get(k).unwrap_or(&Value::NONE).tensor().cloned(),
        }
    }
}

/// Where the memory of a result comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// An input, by its position.
    Input(usize),
    /// Made inside; results with one number share it.
    Fresh(usize),
}

/// Where a result is in memory.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Whose memory it is.
    pub memory: Memory,
    /// The views that lead from that memory to the value.
    pub views: Vec<View>,
    /// A number that only the same tensor has.
    pub tensor: usize,
    /// Whether a hook is on it.
    pub hooked: bool,
}

/// What became of an input.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Its position.
    pub input: usize,
    /// Whether its elements were written.
    pub data: bool,
    /// Views that changed its layout.
    pub relayout: Vec<View>,
    /// Whether its history is unchanged because no write to it was recorded.
    pub keeps_history: bool,
}

/// A graph without mutations.
#[derive(Clone, Debug)]
pub struct Functional {
    /// Returns a tuple: the new values of written inputs, in the order of `mutations`, then the results.
    pub module: GraphModule,
    /// Inputs that were changed, in order; only those with `data` have a leading result.
    pub mutations: Vec<Mutation>,
    /// For each result that is a tensor, where it is in memory.
    pub origins: Vec<Option<Origin>>,
    /// Memory made inside that several results share; its values are returned last, in this order.
    pub bases: Vec<usize>,
    /// The number of writes that were functionalized.
    pub rewrites: usize,
}

/// Runs the pass: writes become functional ops, and new values of parameters, buffers and inputs become leading results.
pub fn functionalize(program: &ExportedProgram, context: &Context) -> Result<(ExportedProgram, Report)> {
    if !writes(program) {
        let dialect = Dialect::Aten;
        return Ok((ExportedProgram { dialect, ..program.clone() }, Report::default()));
    }
    let rewrites = Cell::new(0);
    let pure = at_all_sizes(program, PASS, |program| {
        let (pure, report) = functionalize_at_hints(program, context)?;
        rewrites.set(report.rewrites);
        Ok(pure)
    })?;
    Ok((pure, Report::of(rewrites.get())))
}

/// Like [`functionalize`], for the sizes that the program was exported with.
pub(super) fn functionalize_at_hints(
    program: &ExportedProgram,
    context: &Context,
) -> Result<(ExportedProgram, Report)> {
    let module = &program.module;
    let _mode = set_grad_enabled(context.ambient_grad).scoped();
    let mut result = functionalize_module(module, false)?;
    let mut signature = program.signature()?.clone();
    let mut leading = Vec::new();
    let returned: Vec<Name> = {
        let graph = &result.module.graph;
        let items = graph.result().and_then(Argument::items).unwrap_or(&[]);
        items.iter().map(|a| a.node().map_or_else(|| "".into(), |n| graph[n].name().clone())).collect()
    };
    for (mutation, name) in result.mutations.iter().zip(&returned) {
        let spec = &signature.inputs[mutation.input];
        let refuse = |message: &str| Error::PassNode {
            pass: PASS,
            node: spec.arg.name().to_string(),
            message: message.to_string(),
        };
        if !mutation.relayout.is_empty() {
            return Err(refuse("an input that changes its shape in place cannot be returned as a new value"));
        }
        let kind = match &spec.kind {
            InputKind::UserInput => OutputKind::UserInputMutation(spec.arg.name().clone()),
            InputKind::Parameter(target) => OutputKind::ParameterMutation(target.clone()),
            InputKind::Buffer { target, .. } => OutputKind::BufferMutation(target.clone()),
            _ => return Err(refuse("a constant is mutated; make it a buffer")),
        };
        leading.push(OutputSpec { kind, arg: SpecArg::Tensor(name.clone()) });
    }
    for (spec, name) in signature.outputs.iter_mut().zip(&returned[leading.len()..]) {
        if spec.arg.node().is_some() {
            spec.arg.set_name(name.clone());
        }
    }
    signature.outputs.splice(0..0, leading);
    result.module.graph.call_spec = module.graph.call_spec.clone();
    result.module.meta = module.meta.clone();
    let rewrites = result.rewrites;
    let pure = ExportedProgram {
        dialect: dialect_of(&result.module),
        module: Arc::new(result.module),
        signature: Some(Arc::new(signature)),
        ..program.clone()
    };
    let (pure, _) = set_grad::replace_set_grad_with_hop_pass(&pure, context)?;
    Ok((pure, Report::of(rewrites)))
}

/// Functionalizes a graph. Its inputs must be tensors or numbers of known type; symbolic sizes are taken at their hint.
/// With `bases`, memory that several results share is returned too.
pub fn functionalize_module(module: &GraphModule, bases: bool) -> Result<Functional> {
    let _frame = set_grad_enabled(is_grad_enabled()).scoped();
    let mut walk = Walk {
        graph: Graph::new(),
        attributes: module.attributes.clone(),
        aliases: Vec::new(),
        memories: Vec::new(),
        at: HashMap::new(),
        by_tensor: HashMap::new(),
        mode: is_grad_enabled(),
        subgraphs: 0,
        rewrites: 0,
    };
    let mut scope = Scope::default();
    let mut inputs = Vec::new();
    for n in module.graph.placeholders() {
        let node = &module.graph[n];
        // By its very name, also one that no new node would get, such as `input`.
        let copy = walk.graph.create_named(node.kind().clone(), [], [], node.name());
        let copy = copy.ok_or_else(|| Error::PassNode {
            pass: PASS,
            node: node.name().to_string(),
            message: "two inputs have this name".into(),
        })?;
        *walk.graph.meta_mut(copy) = node.meta().clone();
        let slot = match outline(node)? {
            Value::Tensor(t) => {
                let alias = walk.fresh(t, copy, node.meta().val.clone(), Some(inputs.len()));
                inputs.push(Some(alias));
                Slot::Tensor(alias)
            }
            value => {
                inputs.push(None);
                Slot::Other(copy.into(), value)
            }
        };
        scope.slots.insert(n, slot);
    }
    let results = walk.run(module, &mut scope)?;
    walk.finish(inputs, results, bases)
}

/// A meta tensor like what a placeholder takes.
fn outline(node: &Node) -> Result<Value> {
    let fail = |message: &str| Error::PassNode { pass: PASS, node: node.name().to_string(), message: message.into() };
    match &node.meta().val {
        Some(Val::Tensor(meta)) => {
            let hint = |s: &SymInt| s.hint().and_then(|v| usize::try_from(v).ok());
            let sizes: Option<Vec<usize>> = meta.sizes.iter().map(hint).collect();
            let strides: Option<Vec<usize>> = meta.strides.iter().map(hint).collect();
            let (Some(sizes), Some(strides), Some(dtype)) = (sizes, strides, meta.dtype.dtype()) else {
                return Err(fail("its sizes have no hint, or its dtype cannot be computed with"));
            };
            let layout = Layout::strided(&sizes, &strides, hint(&meta.storage_offset).unwrap_or(0))?;
            let tensor = Tensor::try_empty(Spec { layout, dtype, device: Device::Meta })?;
            let leaf = tensor.try_requires_grad_(meta.requires_grad && dtype.is_differentiable())?;
            // No leaf: whether the caller may write it was decided when the program was made.
            let _on = set_grad_enabled(true).scoped();
            Ok(Value::Tensor(if leaf.requires_grad() { firebrand_core::ops::clone(&leaf, None)? } else { leaf }))
        }
        Some(Val::SymInt(s)) => s.hint().map(Value::from).ok_or_else(|| fail("its value has no hint")),
        Some(Val::SymFloat(s)) => s.hint().map(Value::from).ok_or_else(|| fail("its value has no hint")),
        Some(Val::SymBool(s)) => s.hint().map(Value::from).ok_or_else(|| fail("its value has no hint")),
        Some(Val::Constant(a)) => materialize(a, &mut |_| Ok(Value::NONE)),
        Some(Val::None) => Ok(Value::NONE),
        _ => Err(fail("it has no abstract value; export it, or give the types of inputs in the text")),
    }
}

/// Whether any op of the program mutates memory, declared in its schema or not.
pub(super) fn writes(program: &ExportedProgram) -> bool {
    dialect_of(&program.module) != Dialect::Aten || hides_writes(&program.module)
}

/// Ops that update running statistics in training mode without declaring it in their schema.
fn writes_statistics(op: &OpOverload) -> bool {
    op.is(Op::BATCH_NORM) || op.is(Op::NATIVE_BATCH_NORM) || op.is(Op::INSTANCE_NORM)
}

fn hides_writes(module: &GraphModule) -> bool {
    let graph = &module.graph;
    graph.nodes().any(|n| graph[n].target().and_then(Target::overload).is_some_and(writes_statistics))
        || module.subgraphs().any(|(_, g)| hides_writes(g))
}
