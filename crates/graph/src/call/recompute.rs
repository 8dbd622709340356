//! Recomputes blocks of a program in the backward pass instead of saving their activations (activation checkpointing).
//!
//! A block is the computation of one module of a list: `model.layers.3`, `encoder.layer.0`, `vit.blocks.5`. Its nodes are found
//! by the module stack that every exported node carries. Only the values that cross its boundary are saved; the backward pass runs
//! it once more, with the same random numbers, when it gets there. A block that mutates state (batch norm in training, a
//! cache) is not recomputed, since running it again would mutate the state again.

use super::{Evaluator, Runner};
use crate::error::{Error, Result};
use crate::interpret::{Value, run_module};
use crate::ir::{Argument, Graph, GraphModule, Kind, NodeId};
use firebrand_core::Tensor;
use firebrand_core::autograd::{CheckpointOptions, checkpoint, is_grad_enabled};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, OnceLock};

/// Blocks with fewer calls are not worth recomputing.
const FEW: usize = 4;

/// Runs a program with its blocks recomputed in the backward pass; for [`super::ProgramModule::set_evaluator`].
///
/// # Errors
/// The evaluator returns an error for a program without blocks.
pub fn recompute_blocks() -> Evaluator {
    // A module has one graph per mode.
    let plans: Mutex<HashMap<usize, Arc<Plan>>> = Mutex::default();
    Arc::new(move |module, inputs| {
        if !is_grad_enabled() {
            return plainly(module, inputs);
        }
        let key = std::ptr::from_ref(module) as usize;
        let known = plans.lock().unwrap_or_else(|e| e.into_inner()).get(&key).cloned();
        let plan = match known {
            Some(plan) => plan,
            None => {
                let plan = Arc::new(Plan::new(module)?);
                plans.lock().unwrap_or_else(|e| e.into_inner()).insert(key, plan.clone());
                plan
            }
        };
        plan.run(inputs)
    })
}

/// The blocks of a program that [`recompute_blocks`] recomputes, by path, with their number of calls.
pub fn blocks_of(module: &GraphModule) -> Vec<(String, usize)> {
    let graph = &module.graph;
    let mut found: Vec<(String, usize)> = Vec::new();
    for part in parts(graph) {
        if let Some(path) = part.block.filter(|_| part.calls >= FEW) {
            found.push((path, part.calls));
        }
    }
    found
}

fn results(value: Value) -> Result<Vec<Value>> {
    Ok(match value {
        Value::List(items) => items,
        one => vec![one],
    })
}

/// A run of nodes, all of one block or of none.
struct Part {
    block: Option<String>,
    nodes: Vec<NodeId>,
    calls: usize,
}

/// The block a node belongs to: the outermost module that is numbered.
pub(super) fn block(graph: &Graph, n: NodeId) -> Option<String> {
    let stack = graph[n].meta().nn_module_stack.as_ref()?;
    let numbered = |path: &&str| {
        path.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()) && !last.is_empty())
    };
    let paths = stack.values().map(|(path, _)| path.split('@').next().unwrap_or_default());
    paths.filter(|p| p.contains('.')).find(numbered).map(str::to_string)
}

/// Whether a call mutates memory that outlives it, or may do so.
fn writes(module: &GraphModule, n: NodeId) -> bool {
    let node = &module.graph[n];
    let Kind::CallFunction(target) = node.kind() else { return false };
    let Some(op) = target.overload() else { return false };
    // In-place ops, and batch norm, which updates its statistics while it trains.
    let trains = op.op().and_then(|op| op.info().training).is_some_and(|k| {
        op.base().contains("batch_norm") && node.args().get(usize::from(k)) != Some(&Argument::Bool(false))
    });
    trains || op.schema().is_some_and(|s| s.args.iter().any(|a| a.written))
}

/// The nodes between inputs and output, in order, cut where the block changes. Nodes without a module go with what is around.
fn parts(graph: &Graph) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for n in graph.nodes().filter(|&n| !graph[n].is_placeholder() && !graph[n].is_output()) {
        let known = graph[n].meta().nn_module_stack.is_some();
        let block = if known { block(graph, n) } else { parts.last().and_then(|p| p.block.clone()) };
        let call = usize::from(graph[n].target().is_some());
        match parts.last_mut().filter(|p| p.block == block) {
            Some(part) => {
                part.nodes.push(n);
                part.calls += call;
            }
            None => parts.push(Part { block, nodes: vec![n], calls: call }),
        }
    }
    parts
}

/// A part as a separate graph: its inputs and outputs.
struct Stage {
    module: Arc<GraphModule>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    recomputed: bool,
    /// Values that no later stage needs.
    done: Vec<NodeId>,
}

struct Plan {
    placeholders: Vec<NodeId>,
    stages: Vec<Stage>,
    result: Argument,
}

impl Plan {
    fn new(module: &GraphModule) -> Result<Plan> {
        let graph = &module.graph;
        let parts = parts(graph);
        let result = graph.result().cloned().ok_or_else(|| Error::Value("the graph returns nothing".into()))?;
        let mut part_of: HashMap<NodeId, usize> = HashMap::new();
        for (k, part) in parts.iter().enumerate() {
            part.nodes.iter().for_each(|&n| _ = part_of.insert(n, k));
        }
        // The last part that reads each value; what is returned is never done with.
        let mut last: HashMap<NodeId, usize> = HashMap::new();
        for (k, part) in parts.iter().enumerate() {
            for &n in &part.nodes {
                graph.input_nodes(n).for_each(|i| _ = last.insert(i, k));
            }
        }
        result.for_each_node(&mut |n| _ = last.insert(n, usize::MAX));
        let mut stages = Vec::with_capacity(parts.len());
        for (k, part) in parts.iter().enumerate() {
            let recomputed =
                part.block.is_some() && part.calls >= FEW && !part.nodes.iter().any(|&n| writes(module, n));
            stages.push(stage(module, part, k, &part_of, &last, recomputed));
        }
        if !stages.iter().any(|s| s.recomputed) {
            let message = "no block to recompute: no module of a list (such as `layers.0`) in the module stack of the \
                           program, or all of them write to memory";
            return Err(Error::Value(message.to_string()));
        }
        Ok(Plan { placeholders: graph.placeholders().collect(), stages, result })
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut values: HashMap<NodeId, Value> =
            self.placeholders.iter().copied().zip(inputs.iter().cloned()).collect();
        for stage in &self.stages {
            let given: Vec<Value> = stage.inputs.iter().map(|n| values[n].clone()).collect();
            for n in &stage.done {
                values.remove(n);
            }
            let made = if stage.recomputed { again(stage, given)? } else { plainly(&stage.module, &given)? };
            values.extend(stage.outputs.iter().copied().zip(made));
        }
        let value = crate::interpret::materialize(&self.result, &mut |n| Ok(values[&n].clone()))?;
        results(value)
    }
}

fn plainly(module: &GraphModule, inputs: &[Value]) -> Result<Vec<Value>> {
    results(run_module(&mut Runner::default(), module, inputs)?)
}

/// A part of the graph with values from outside as inputs.
fn stage(
    module: &GraphModule,
    part: &Part,
    k: usize,
    part_of: &HashMap<NodeId, usize>,
    last: &HashMap<NodeId, usize>,
    recomputed: bool,
) -> Stage {
    let graph = &module.graph;
    let mut inner = Graph::new();
    let mut known: HashMap<NodeId, Argument> = HashMap::new();
    let mut inputs = Vec::new();
    for &n in &part.nodes {
        for i in graph.input_nodes(n).filter(|i| part_of.get(i) != Some(&k)) {
            if let Entry::Vacant(place) = known.entry(i) {
                place.insert(inner.placeholder(graph[i].name()).into());
                inputs.push(i);
            }
        }
    }
    let mut outputs = Vec::new();
    for &n in &part.nodes {
        let copy = inner.node_copy(&graph[n], |i| known[&i].clone());
        known.insert(n, copy.into());
        if last.get(&n).is_some_and(|&l| l > k) {
            outputs.push(n);
        }
    }
    inner.output(Argument::list(outputs.iter().map(|n| known[n].clone())));
    let done = last.iter().filter(|(_, l)| **l == k).map(|(n, _)| *n).collect();
    let module = GraphModule { graph: inner, attributes: module.attributes.clone(), meta: Default::default() };
    Stage { module: Arc::new(module), inputs, outputs, recomputed, done }
}

/// Runs a stage without saving tensors for backward. Values that are not tensors are passed separately.
fn again(stage: &Stage, given: Vec<Value>) -> Result<Vec<Value>> {
    let tensors: Vec<Tensor> = given.iter().filter_map(|v| v.tensor().ok().cloned()).collect();
    let others: Vec<Option<Value>> =
        given.into_iter().map(|v| if let Value::Tensor(_) = v { None } else { Some(v) }).collect();
    let module = stage.module.clone();
    // What comes out is a list of values, of which only tensors pass through; the rest is remembered from the first run.
    let shape: Arc<OnceLock<Vec<Option<Value>>>> = Arc::default();
    let seen = shape.clone();
    let run = move |tensors: &[Tensor]| -> firebrand_core::Result<Vec<Tensor>> {
        let mut tensors = tensors.iter();
        let mut next = || tensors.next().cloned().map(Value::Tensor).unwrap_or(Value::NONE);
        let inputs: Vec<Value> = others.iter().map(|v| v.clone().unwrap_or_else(&mut next)).collect();
        let made = plainly(&module, &inputs)?;
        let _ = seen.set(made.iter().map(|v| if let Value::Tensor(_) = v { None } else { Some(v.clone()) }).collect());
        Ok(made.into_iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect())
    };
    let references: Vec<&Tensor> = tensors.iter().collect();
    let mut made = checkpoint(run, &references, &CheckpointOptions::default())?.into_iter();
    let shape = shape.get().ok_or_else(|| Error::Value("a block did not run".into()))?;
    let mut next = || made.next().map(Value::Tensor).unwrap_or(Value::NONE);
    Ok(shape.iter().map(|v| v.clone().unwrap_or_else(&mut next)).collect())
}
