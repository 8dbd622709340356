//! The joint trace: forward and backward of a pure graph as one graph, through the real engine.
//!
//! The graph runs once on meta tensors, then the engine runs from its results; what reaches the kernels is
//! recorded. So hooks run on accumulated gradients, undefined gradients stay undefined, and the order of sums is that
//! of an eager run. Tracing happens in a state of its own ([`ThreadState::isolated`]): nothing the caller has switched on
//! (capture, saved-tensor hooks, autocast, anomaly mode) takes part.

use super::cond::Conditionals;
use super::decompose::decompose;
use crate::backend::hook_result;
use crate::error::{Error, Result};
use crate::joint::partition::{self, Joint};
use firebrand_core::autograd::{
    AutocastGuard, AutocastOptions, GradOptions, autocast_dtype, grad, is_autocast_enabled, set_grad_enabled,
};
use firebrand_core::dispatch::Op;
use firebrand_core::state::ThreadState;
use firebrand_core::{DType, Device, Layout, Spec, Tensor, fusion};
use firebrand_graph::InnerTrace;
use firebrand_graph::interpret::{self, NodeRunner, Value, run_call, run_module};
use firebrand_graph::ir::{
    Argument, Function, GraphModule, Hop, InsertPoint, Kind, Node, NodeId, OpOverload, Target, TensorMeta, Val,
};
use firebrand_graph::passes::functionalize_module;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// What to trace.
#[derive(Clone)]
pub(crate) struct Request {
    /// A pure graph.
    pub(crate) graph: Arc<GraphModule>,
    /// Its inputs: meta tensors (leaves), and numbers.
    pub(crate) inputs: Vec<Input>,
    /// Which inputs are there anyway, in the order of tensors.
    pub(crate) is_static: Vec<bool>,
    /// Which of its results count, without repetition.
    pub(crate) outputs: Vec<usize>,
    /// Outputs, by position, of which the caller gets nothing that has a history.
    pub(crate) constants: HashSet<usize>,
    /// Hook nodes on results, which are left to the caller.
    pub(crate) deferred: HashSet<NodeId>,
    /// Hook nodes on inputs, which belong on the caller's tensors.
    pub(crate) on_inputs: HashSet<NodeId>,
    /// Whether to decompose ops that a backend could fuse.
    pub(crate) decompose: bool,
    /// For each output that wants one, whether it has a gradient; none: all have.
    pub(crate) defined: Option<Vec<bool>>,
    /// Whether derivatives of the gradients are needed.
    pub(crate) create_graph: bool,
    /// The results that these derivatives pass through again, as plain ones do: an op that kept its result reads the caller's, with the
    /// hooks on it.
    pub(crate) through_results: Vec<usize>,
    /// Whether anything is recorded at all.
    pub(crate) recording: bool,
    /// What autocast lowers to, if it is on.
    pub(crate) autocast: Option<DType>,
}

/// An input of the graph.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Tensor(TensorMeta),
    Number(Value),
}

/// The graph, and what its results are.
pub(crate) struct JointTrace {
    pub(crate) joint: Joint,
    /// For each output, whether it has a history.
    pub(crate) needs: Vec<bool>,
    /// For each result of the graph, whether it has a history.
    pub(crate) result_needs: Vec<bool>,
    /// Results of the graph that are numbers.
    pub(crate) numbers: Vec<Option<Value>>,
    /// For each output, whether derivatives keep it as the result of its op.
    pub(crate) is_kept: Vec<bool>,
    /// What tangents look like.
    pub(crate) layouts: Vec<Layout>,
    /// Tensor inputs in the order in which the engine arrives at them; those it does not reach come last.
    pub(crate) order: Vec<usize>,
}

/// A meta tensor like this.
pub(crate) fn outline(meta: &TensorMeta) -> Result<Tensor> {
    let hint = |s: &firebrand_graph::ir::SymInt| s.hint().and_then(|v| usize::try_from(v).ok());
    let sizes: Option<Vec<usize>> = meta.sizes.iter().map(hint).collect();
    let strides: Option<Vec<usize>> = meta.strides.iter().map(hint).collect();
    let (Some(sizes), Some(strides), Some(dtype)) = (sizes, strides, meta.dtype.dtype()) else {
        return Err(Error::internal(format!("a tensor of dtype {} and unknown sizes cannot be traced", meta.dtype)));
    };
    let layout = Layout::strided(&sizes, &strides, hint(&meta.storage_offset).unwrap_or(0))?;
    let tensor = Tensor::try_empty(Spec { layout, dtype, device: Device::Meta })?;
    Ok(tensor.try_requires_grad_(meta.requires_grad && dtype.is_differentiable())?)
}

/// How the gradient of a tensor is laid out: as the tensor, if that is dense.
fn tangent_layout(t: &Tensor) -> Layout {
    if t.layout().is_non_overlapping_and_dense() { t.layout().from_start() } else { t.layout().to_contiguous() }
}

/// Whether gradients flow through it: a view made where nothing is recorded requires grad as its base does, and has none.
fn has_history(t: &Tensor) -> bool {
    t.requires_grad() && !t.is_leaf_here()
}

/// Traces; see the head of this file.
pub(crate) fn trace(request: &Request) -> Result<JointTrace> {
    ThreadState::isolated(|| trace_isolated(request))
}

fn trace_isolated(request: &Request) -> Result<JointTrace> {
    let _mode = set_grad_enabled(request.recording).scoped();
    let lower = |dtype| AutocastGuard::new(AutocastOptions { enabled: true, dtype, cache_enabled: false });
    let autocast = request.autocast.map(lower);
    // Derivatives of the gradient, and decompositions, go through its products.
    let _whole = (!request.create_graph && !request.decompose).then(fusion::keep_attention_whole);
    let tracer = InnerTrace::new();
    let mut values = Vec::new();
    let mut leaves = Vec::new();
    for (i, input) in request.inputs.iter().enumerate() {
        values.push(match input {
            Input::Number(v) => v.clone(),
            Input::Tensor(meta) => {
                let leaf = outline(meta)?;
                tracer.input(&format!("primals_{i}"), &leaf);
                leaves.push(leaf.clone());
                Value::Tensor(leaf)
            }
        });
    }
    let (deferred, on_inputs) = (request.deferred.clone(), request.on_inputs.clone());
    let conditionals = Conditionals {
        tracer: tracer.clone(),
        create_graph: request.create_graph,
        decompose: request.decompose,
        autocast: None,
    };
    let mut runner = Runner { conditionals, deferred, on_inputs };
    let results = match tracer.trace(|| run_module(&mut runner, &request.graph, &values))? {
        Value::List(items) => items,
        one => vec![one],
    };
    drop(autocast);
    let result_needs = results.iter().map(|v| matches!(v, Value::Tensor(t) if has_history(t))).collect();
    let numbers = results.iter().map(|v| (!matches!(v, Value::Tensor(_))).then(|| v.clone())).collect();
    let outputs = request.outputs.iter().map(|&i| Ok(results[i].tensor()?.clone())).collect::<Result<Vec<Tensor>>>()?;
    let is_needed = |(k, t): (usize, &Tensor)| has_history(t) && !request.constants.contains(&k);
    let needs: Vec<bool> = outputs.iter().enumerate().map(is_needed).collect();
    let layouts: Vec<Layout> = outputs.iter().map(tangent_layout).collect();
    let (mut roots, mut seeds) = (Vec::new(), Vec::new());
    for (i, t) in outputs.iter().enumerate().filter(|(i, _)| needs[*i]) {
        if request.defined.as_ref().is_none_or(|d| d[i]) {
            let tangent =
                Tensor::try_empty(Spec { layout: layouts[i].clone(), dtype: t.dtype(), device: Device::Meta })?;
            let tangent = tangent.try_requires_grad_(request.create_graph)?;
            tracer.input(&format!("tangents_{i}"), &tangent);
            roots.push(t.clone());
            seeds.push(Some(tangent));
        }
    }
    let wanted: Vec<Tensor> = leaves.iter().filter(|t| t.requires_grad()).cloned().collect();
    let arrived: Arc<Mutex<Vec<usize>>> = Arc::default();
    for (k, t) in leaves.iter().enumerate().filter(|(_, t)| t.requires_grad()) {
        let arrived = arrived.clone();
        t.try_register_hook_any(move |_| arrived.lock().unwrap_or_else(|e| e.into_inner()).push(k))?;
    }
    let mut found = match roots.is_empty() || wanted.is_empty() {
        true => vec![None; wanted.len()].into_iter(),
        false => {
            let options = GradOptions {
                grad_outputs: seeds.clone(),
                create_graph: request.create_graph,
                allow_unused: Some(true),
                ..GradOptions::default()
            };
            tracer.trace(|| grad(roots, wanted, &options))?.into_iter()
        }
    };
    let mut order = std::mem::take(&mut *arrived.lock().unwrap_or_else(|e| e.into_inner()));
    order.extend((0..leaves.len()).filter(|k| !order.contains(k)).collect::<Vec<_>>());
    let grads = leaves.iter().map(|t| if t.requires_grad() { found.next().flatten() } else { None });
    let all: Vec<Option<Tensor>> = outputs.iter().cloned().map(Some).chain(grads).collect();
    let mut module = without_writes(tracer.finish(&all)?)?;
    through_results(&mut module, &request.through_results);
    // Asked before ops are decomposed into others.
    let is_kept = kept_results(&module, outputs.len());
    if request.decompose && !request.create_graph {
        drop_aliases(&mut module)?;
        module = decompose(module)?;
    }
    let joint = assemble(module, outputs.len(), request.is_static.clone(), request.create_graph)?;
    Ok(JointTrace { joint, needs, result_needs, numbers, is_kept, layouts, order })
}

/// For each output, whether derivatives keep it as the result of its op.
fn kept_results(module: &GraphModule, outputs: usize) -> Vec<bool> {
    let graph = &module.graph;
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]);
    let is_kept = |a: &Argument| {
        let mut at = a.node();
        while let Some(n) = at.filter(|n| is_alias(&graph[*n])) {
            at = graph[n].args().first().and_then(Argument::node);
        }
        at.is_some_and(|n| graph[n].is_saved_result())
    };
    returned.iter().take(outputs).map(is_kept).collect()
}

fn is_alias(node: &Node) -> bool {
    node.target().is_some_and(|t| t.is_op(Op::DETACH) || t.is_op(Op::ALIAS))
}

/// The name of the input that is a result of the compiled node.
pub(crate) const RESULTS: &str = "results_";

/// Makes gradients read results of the compiled node where derivatives kept them: as inputs, which have the node's history.
fn through_results(module: &mut GraphModule, results: &[usize]) {
    if results.is_empty() {
        return;
    }
    let graph = &mut module.graph;
    let inputs: Vec<NodeId> = graph.placeholders().collect();
    let mut backward: HashSet<NodeId> =
        inputs.iter().copied().filter(|n| graph[*n].name().starts_with("tangents_")).collect();
    for n in graph.nodes() {
        if graph.input_nodes(n).any(|of| backward.contains(&of)) {
            backward.insert(n);
        }
    }
    let Some(&last) = inputs.last() else { return };
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]).to_vec();
    let mut after = last;
    for &i in results {
        let Some(n) = returned[i].node().filter(|n| graph[*n].is_saved_result() && !graph[*n].is_placeholder()) else {
            continue;
        };
        let read = graph.users(n).any(|u| backward.contains(&u) && !graph[u].is_output());
        if !read {
            continue;
        }
        let input = graph.inserting(InsertPoint::After(after), |g| g.placeholder(&format!("{RESULTS}{i}")));
        if let Some(Val::Tensor(meta)) = &graph[n].meta().val {
            let meta = TensorMeta { requires_grad: true, ..(**meta).clone() };
            graph.meta_mut(input).val = Some(meta.into());
        }
        graph.replace_uses_if(n, input, |g, user| backward.contains(&user) && !g[user].is_output());
        after = input;
    }
}

/// Derivatives and layers built from ops may write their own results; here they do not.
pub(crate) fn without_writes(mut module: GraphModule) -> Result<GraphModule> {
    let graph = &module.graph;
    let writes = |n: NodeId| graph[n].target().and_then(Target::overload).and_then(OpOverload::schema);
    if !graph.nodes().any(|n| writes(n).is_some_and(|s| s.mutates())) {
        return Ok(module);
    }
    let inputs: Vec<NodeId> = module.graph.placeholders().collect();
    for n in inputs {
        if let Some(Val::Tensor(meta)) = module.graph[n].meta().val.clone() {
            module.graph.meta_mut(n).val = Some(TensorMeta { requires_grad: false, ..(*meta).clone() }.into());
        }
    }
    let functional = functionalize_module(&module, false)?;
    if functional.mutations.is_empty() {
        return Ok(functional.module);
    }
    Err(Error::internal("a derivative writes an input of the function"))
}

fn assemble(mut module: GraphModule, outputs: usize, is_static: Vec<bool>, create_graph: bool) -> Result<Joint> {
    if create_graph {
        keep_constants(&mut module)?;
    } else {
        drop_aliases(&mut module)?;
        merge_equal(&mut module, outputs)?;
    }
    let graph = &module.graph;
    let starts =
        |prefix: &str| graph.placeholders().filter(|n| graph[*n].name().starts_with(prefix)).collect::<Vec<_>>();
    let (primals, tangents) = (starts("primals_"), starts("tangents_"));
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]).to_vec();
    let (outputs, grads) = returned.split_at(outputs);
    let (outputs, grads) = (outputs.to_vec(), grads.to_vec());
    Ok(Joint { module, primals, is_static, tangents, outputs, grads })
}

/// The graph is not differentiated any more, so aliases are their values.
fn drop_aliases(module: &mut GraphModule) -> Result<()> {
    let graph = &mut module.graph;
    let order: Vec<NodeId> = graph.nodes().collect();
    for n in order {
        if let (true, Some(Argument::Node(of))) = (is_alias(&graph[n]), graph[n].args().first().cloned()) {
            graph.replace_all_uses_with(n, of);
            graph.erase(n)?;
        }
    }
    Ok(())
}

/// Computes once what the forward, or the backward, computes twice.
fn merge_equal(module: &mut GraphModule, outputs: usize) -> Result<()> {
    let returned = module.graph.result().and_then(Argument::items).unwrap_or(&[]);
    let keys = partition::keys(&module.graph, &returned[..outputs]);
    // Results are tensors of their own.
    let results: HashSet<NodeId> = returned[..outputs].iter().filter_map(Argument::node).collect();
    let graph = &mut module.graph;
    let mut first: HashMap<u64, NodeId> = HashMap::new();
    let order: Vec<NodeId> = graph.nodes().collect();
    for n in order {
        match first.get(&keys[&n]) {
            Some(&same) if graph[n].target().is_some() && !results.contains(&n) => {
                graph.replace_all_uses_with(n, same);
                graph.erase(n)?;
            }
            _ => drop(first.insert(keys[&n], n)),
        }
    }
    Ok(())
}

/// What ran where nothing is recorded is a constant for the derivatives of the graph.
pub(crate) fn keep_constants(module: &mut GraphModule) -> Result<()> {
    let graph = &mut module.graph;
    let order: Vec<NodeId> = graph.nodes().filter(|n| graph[*n].is_unrecorded()).collect();
    for n in order {
        let parts: Vec<NodeId> = match &graph[n].meta().val {
            Some(Val::Tensor(_)) => vec![n],
            _ => graph
                .users(n)
                .filter(|u| graph[*u].target().is_some_and(|t| t.is_function(&Function::GetItem)))
                .collect(),
        };
        for part in parts {
            let detached = graph.inserting(InsertPoint::After(part), |g| {
                g.call_function(Target::aten("detach.default"), [part.into()])
            });
            graph.meta_mut(detached).val = graph[part].meta().val.clone();
            graph.replace_uses_if(part, detached, |_, user| user != detached);
        }
    }
    Ok(())
}

/// Runs the nodes of a captured graph on meta tensors.
#[derive(Clone)]
struct Runner {
    /// Also says where nodes go, and whether derivatives of the gradients are needed.
    conditionals: Conditionals,
    deferred: HashSet<NodeId>,
    on_inputs: HashSet<NodeId>,
}

impl Runner {
    fn register(&self, call: &interpret::Call<'_>) -> Result<Value> {
        let [Value::Tensor(tensor), body, free @ ..] = &call.args[..] else {
            return Err(Error::internal("a hook node takes a tensor, a body and values"));
        };
        if self.on_inputs.contains(&call.node) {
            return Ok(Value::Tensor(tensor.clone()));
        }
        if tensor.requires_grad() && self.conditionals.create_graph {
            // The hook stays on the value: it also sees what derivatives of the gradient send there.
            self.conditionals.tracer.call(Function::RegisterHook, &call.args, Some(tensor))?;
        }
        if self.deferred.contains(&call.node) || !tensor.requires_grad() {
            return Ok(Value::Tensor(tensor.clone()));
        }
        let runner = self.clone();
        let (body, free) = (body.clone(), free.to_vec());
        tensor.try_register_hook_any(move |g| runner.hook(&body, &free, g).map_err(firebrand_core::Error::from))?;
        Ok(Value::Tensor(tensor.clone()))
    }

    /// What a hook does to a gradient.
    fn hook(&self, body: &Value, free: &[Value], g: Option<&Tensor>) -> Result<Option<Tensor>> {
        match (body, g) {
            // A pure hook is skipped when the gradient is undefined, as plain hooks are.
            (Value::Graph(_), None) => Ok(None),
            (Value::Graph(body), Some(g)) => {
                let inputs: Vec<Value> = std::iter::once(g.into()).chain(free.iter().cloned()).collect();
                let result = run_module(&mut self.clone(), body, &inputs)?;
                Ok(hook_result(&result).cloned())
            }
            (slot, g) => {
                let result = match g {
                    Some(g) => Some(Tensor::try_empty(Spec {
                        layout: tangent_layout(g),
                        dtype: g.dtype(),
                        device: Device::Meta,
                    })?),
                    None => None,
                };
                let args = [slot.clone(), g.map_or(Value::NONE, Value::from)];
                self.conditionals.tracer.call(Function::CallHook, &args, result.as_ref())?;
                Ok(result)
            }
        }
    }
}

impl Runner {
    /// A conditional whose predicate is known at run time only.
    fn conditional(&self, pred: &Tensor, yes: &Value, no: &Value, operands: &Value) -> Result<Value> {
        let sides = [yes.graph()?.clone(), no.graph()?.clone()];
        let operands = operands.items()?.iter().map(|v| Ok(v.tensor()?.clone())).collect::<Result<Vec<_>>>()?;
        let autocast = is_autocast_enabled().then(autocast_dtype);
        let conditionals = Conditionals { autocast, ..self.conditionals.clone() };
        let results = conditionals.run(pred, sides, &operands)?;
        Ok(Value::List(results.into_iter().map(Value::Tensor).collect()))
    }
}

impl NodeRunner for Runner {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> firebrand_graph::Result<Value> {
        let graph_error = |e: Error| match e {
            Error::Graph(e) => e,
            e => firebrand_graph::Error::Core(e.into()),
        };
        match call.module.graph[call.node].kind() {
            Kind::CallFunction(Target::Function(Function::RegisterHook)) => self.register(call).map_err(graph_error),
            Kind::CallFunction(Target::Hop(Hop::Cond)) => match &call.args[..] {
                [Value::Tensor(pred), yes, no, operands] => {
                    self.conditional(pred, yes, no, operands).map_err(graph_error)
                }
                _ => run_call(self, call),
            },
            Kind::CallFunction(Target::Hop(Hop::WithData)) if self.conditionals.create_graph => {
                // A value with the history of another has it for derivatives of the gradient too.
                let result = run_call(self, call)?;
                self.conditionals.tracer.call(Hop::WithData, &call.args, Some(result.tensor()?))?;
                Ok(result)
            }
            _ => run_call(self, call),
        }
    }

    fn device(&self) -> Option<Device> {
        Some(Device::Meta)
    }
}
