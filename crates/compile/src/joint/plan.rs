//! A plan: everything one captured graph needs to run at given sizes, forward and backward.
//!
//! Made from metadata alone. Backward graphs are made per set of gradients that arrive: an output nobody differentiates
//! has no gradient, and what a plain run would not execute is not in the graph. The forward and what it keeps are the same
//! for all of them.

use super::AotOptions;
use super::trace::{Input, Request, Traced, trace};
use crate::backend::{Backend, ExampleInput, ExampleValue, Executable, Value};
use crate::error::{Error, Result};
use crate::partition::{self, Joint, extract};
use firebrand_core::Layout;
use firebrand_graph::ir::{Argument, Function, GraphModule, Name, NodeId, TensorMeta, Val};
use firebrand_graph::passes::{Functional, Memory, View, functionalize_module};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Where a value that the backward reads is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// An input, by its position among tensors.
    Primal(usize),
    /// An output.
    Output(usize),
    /// A value that the forward returns for this, by its position among those.
    Value(usize),
}

/// What a result of the captured graph is.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// An output of the compiled node.
    Output(usize),
    /// Views of an output, which others share.
    ViewOfOutput(usize, Vec<View>),
    /// Views of an input (of all inputs, by position).
    ViewOfInput(usize, Vec<View>),
    /// A number.
    Number(Value),
}

/// What becomes of an input that the graph writes.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its position among all inputs.
    pub(crate) input: usize,
    /// Its position among tensors.
    pub(crate) tensor: usize,
    /// The output that is its new value.
    pub(crate) output: usize,
    /// Whether the new value has a history that the input gets.
    pub(crate) recorded: bool,
}

/// A hook of the graph on one of its outputs: it belongs on the tensor the caller gets.
#[derive(Clone, Debug)]
pub(crate) struct OutputHook {
    pub(crate) output: usize,
    pub(crate) body: Value,
}

/// A backward graph for one set of gradients.
pub(crate) struct BackwardPlan {
    pub(crate) run: Arc<dyn Executable>,
    pub(crate) graph: GraphModule,
    /// For each tensor input, the position of its gradient among the results.
    pub(crate) grads: Vec<Option<usize>>,
}

/// Gradients as a function of inputs and tangents, to be differentiated again.
pub(crate) struct SecondPlan {
    pub(crate) run: Arc<dyn Executable>,
    pub(crate) grads: Vec<Option<usize>>,
}

pub(crate) struct Plan {
    pub(crate) options: AotOptions,
    request: Request,
    pub(crate) forward: Arc<dyn Executable>,
    pub(crate) forward_graph: GraphModule,
    /// Number of outputs of the compiled node; what the forward keeps comes behind them.
    pub(crate) outputs: usize,
    /// For each output, whether it has a history.
    pub(crate) needs: Vec<bool>,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) kept: Vec<Kept>,
    saved_names: Vec<Name>,
    pub(crate) sources: Vec<(Source, bool)>,
    pub(crate) written: Vec<Written>,
    pub(crate) hooks: Vec<OutputHook>,
    pub(crate) is_random: bool,
    /// Positions of tensors among all inputs.
    pub(crate) tensors: Vec<usize>,
    /// Whether gradients may be wanted.
    pub(crate) differentiable: bool,
    backwards: Mutex<HashMap<Vec<bool>, Arc<BackwardPlan>>>,
    seconds: Mutex<HashMap<Vec<bool>, Arc<SecondPlan>>>,
}

/// The graph with the types of these inputs, and no other.
fn typed(graph: &GraphModule, inputs: &[Input]) -> GraphModule {
    let mut module = graph.clone();
    let all: Vec<NodeId> = module.graph.nodes().collect();
    let mut inputs = inputs.iter();
    for n in all {
        let val = match module.graph[n].is_placeholder() {
            false => None,
            true => inputs.next().map(|i| match i {
                Input::Tensor(meta) => Val::Tensor(Arc::new(meta.clone())),
                Input::Number(Value::Scalar(s)) => Val::Constant(match s {
                    firebrand_core::Scalar::Bool(b) => Argument::Bool(*b),
                    firebrand_core::Scalar::Int(i) => Argument::Int(*i),
                    firebrand_core::Scalar::Float(v) => Argument::Float(*v),
                }),
                Input::Number(_) => Val::None,
            }),
        };
        module.graph.meta_mut(n).val = val;
    }
    module
}

/// Hook nodes whose tensor is returned and used for nothing else: the hook then belongs on what the caller gets, where it
/// runs before hooks the caller adds.
fn output_hooks(graph: &GraphModule, returned: &[Argument]) -> Vec<(NodeId, NodeId)> {
    let g = &graph.graph;
    let is_hook = |n: NodeId| g[n].target().is_some_and(|t| t.is_function(&Function::RegisterHook));
    let mut found = Vec::new();
    for result in returned.iter().filter_map(Argument::node) {
        let mut chain = Vec::new();
        let mut at = result;
        while is_hook(at) {
            chain.push(at);
            let Some(of) = g[at].args().first().and_then(Argument::node) else { break };
            at = of;
        }
        let only_returned = |n: NodeId| {
            g.users(n).all(|u| g[u].is_output() || (is_hook(u) && g[u].args().first() == Some(&Argument::Node(n))))
        };
        let simple = chain.iter().all(|&h| g[h].args().len() == 2 && only_returned(h));
        if !chain.is_empty() && simple && only_returned(at) && !g[at].is_placeholder() {
            chain.reverse();
            found.extend(chain.into_iter().map(|h| (h, result)));
        }
    }
    found
}

impl Plan {
    pub(crate) fn new(
        graph: &GraphModule,
        inputs: Vec<Input>,
        is_static: &[bool],
        recording: bool,
        options: &AotOptions,
    ) -> Result<Plan> {
        let functional = functionalize_module(&typed(graph, &inputs), true)?;
        if functional.mutations.iter().any(|m| !m.relayout.is_empty()) {
            return Err(Error::internal("an input changes its shape in place"));
        }
        let tensors: Vec<usize> =
            inputs.iter().enumerate().filter(|(_, i)| matches!(i, Input::Tensor(_))).map(|(k, _)| k).collect();
        let shape = Shape::of(&functional, &tensors);
        let returned = functional.module.graph.result().and_then(Argument::items).unwrap_or(&[]).to_vec();
        let picked: Vec<Argument> = shape.outputs.iter().map(|&i| returned[i].clone()).collect();
        let deferred = output_hooks(&functional.module, &picked);
        let mut hooks = Vec::new();
        for (hook, result) in &deferred {
            let output = picked.iter().position(|a| a == &Argument::Node(*result));
            let body = match &functional.module.graph[*hook].args()[1] {
                Argument::Node(n) => {
                    let path = functional.module.graph[*n].attr_path();
                    let body = path.and_then(|p| functional.module.subgraph(p));
                    Value::Graph(body.ok_or_else(|| Error::internal("a hook's body is a sub-graph"))?.clone())
                }
                Argument::Int(slot) => (*slot).into(),
                other => return Err(Error::internal(format!("a hook's body is {other:?}"))),
            };
            hooks.push(OutputHook { output: output.ok_or_else(|| Error::internal("a hooked output is lost"))?, body });
        }
        let request = Request {
            graph: Arc::new(functional.module.clone()),
            inputs,
            is_static: tensors.iter().map(|&k| is_static.get(k).copied().unwrap_or(false)).collect(),
            outputs: shape.outputs.clone(),
            deferred: deferred.iter().map(|(h, _)| *h).collect(),
            defined: None,
            create_graph: false,
            recording,
        };
        let traced = trace(&request)?;
        let Traced { joint, needs, result_needs, numbers, layouts } = traced;
        let differentiable = recording && joint.grads.iter().any(|g| *g != Argument::None);
        let saved = match differentiable {
            true => partition::saved_values(&joint, &options.partition)?,
            false => Vec::new(),
        };
        tracing::debug!(target: "firebrand::compile::joint", saved = saved.len(), "partitioned");
        let name = |n: NodeId| joint.module.graph[n].name().clone();
        let saved_names: Vec<Name> = saved.iter().map(|&n| name(n)).collect();
        let mut extra: Vec<Argument> = Vec::new();
        let mut kept = Vec::new();
        for &n in &saved {
            kept.push(if let Some(k) = joint.primals.iter().position(|p| *p == n) {
                Kept::Primal(k)
            } else if let Some(k) = joint.outputs.iter().position(|o| *o == Argument::Node(n)) {
                Kept::Output(k)
            } else {
                extra.push(n.into());
                Kept::Value(extra.len() - 1)
            });
        }
        let results: Vec<Argument> = joint.outputs.iter().cloned().chain(extra).collect();
        let draws: Vec<NodeId> = {
            let parts = joint.parts();
            joint.draws().into_iter().filter(|n| !parts.backward.contains(n)).collect()
        };
        let forward_graph = extract(&joint.module, &joint.primals, &results, &draws)?;
        let forward = options.compile(&forward_graph, &joint.is_static)?;
        let sources = shape.sources.into_iter().enumerate().map(|(i, s)| {
            let at = functional.mutations.len() + i;
            match (s, numbers.get(at).cloned().flatten()) {
                (Some(s), _) => (s, result_needs[at]),
                (None, number) => (Source::Number(number.unwrap_or(Value::NONE)), false),
            }
        });
        let sources = sources.collect();
        let mut written = shape.written;
        for w in &mut written {
            w.recorded &= needs[w.output];
        }
        let plan = Plan {
            options: options.clone(),
            forward,
            outputs: joint.outputs.len(),
            needs,
            layouts,
            kept,
            saved_names,
            sources,
            written,
            hooks,
            is_random: !draws.is_empty(),
            tensors,
            differentiable,
            backwards: Mutex::default(),
            seconds: Mutex::default(),
            request,
            forward_graph,
        };
        if differentiable {
            let all = plan.needs.clone();
            let backward = Arc::new(plan.build_backward(&joint)?);
            plan.backwards.lock().unwrap_or_else(|e| e.into_inner()).insert(all, backward);
        }
        Ok(plan)
    }

    fn build_backward(&self, joint: &Joint) -> Result<BackwardPlan> {
        let by_name: HashMap<&Name, NodeId> =
            joint.module.graph.nodes().map(|n| (joint.module.graph[n].name(), n)).collect();
        let saved = self.saved_names.iter().map(|name| {
            by_name.get(name).copied().ok_or_else(|| Error::internal(format!("%{name} is not in the joint graph")))
        });
        let inputs: Vec<NodeId> = saved.chain(joint.tangents.iter().copied().map(Ok)).collect::<Result<_>>()?;
        let mut results = Vec::new();
        let mut grads = Vec::new();
        for g in &joint.grads {
            grads.push((*g != Argument::None).then(|| {
                results.push(g.clone());
                results.len() - 1
            }));
        }
        let graph = extract(&joint.module, &inputs, &results, &joint.hooks())?;
        let run = self.options.compile(&graph, &vec![false; inputs.len()])?;
        Ok(BackwardPlan { run, graph, grads })
    }

    /// The backward for these gradients.
    pub(crate) fn backward(&self, defined: &[bool]) -> Result<Arc<BackwardPlan>> {
        if let Some(found) = self.backwards.lock().unwrap_or_else(|e| e.into_inner()).get(defined) {
            return Ok(found.clone());
        }
        let request = Request { defined: Some(defined.to_vec()), ..self.request.clone() };
        let plan = Arc::new(self.build_backward(&trace(&request)?.joint)?);
        self.backwards.lock().unwrap_or_else(|e| e.into_inner()).insert(defined.to_vec(), plan.clone());
        Ok(plan)
    }

    /// The gradients as a function of inputs and tangents.
    pub(crate) fn second(&self, defined: &[bool]) -> Result<Arc<SecondPlan>> {
        if let Some(found) = self.seconds.lock().unwrap_or_else(|e| e.into_inner()).get(defined) {
            return Ok(found.clone());
        }
        let request = Request { defined: Some(defined.to_vec()), create_graph: true, ..self.request.clone() };
        let joint = trace(&request)?.joint;
        let inputs: Vec<NodeId> = joint.primals.iter().chain(&joint.tangents).copied().collect();
        let mut results = Vec::new();
        let mut grads = Vec::new();
        for g in &joint.grads {
            grads.push((*g != Argument::None).then(|| {
                results.push(g.clone());
                results.len() - 1
            }));
        }
        let hooks = joint.hooks();
        let parts = joint.parts();
        let draws = joint.draws().into_iter().filter(|n| !parts.backward.contains(n));
        let roots: Vec<NodeId> = hooks.iter().copied().chain(draws).collect();
        let graph = extract(&joint.module, &inputs, &results, &roots)?;
        // What a hook that comes with the call computes is known only when it is called: then ops are recorded one by one.
        let run: Arc<dyn Executable> = match hooks.is_empty() {
            true => {
                let examples = examples(&graph, &vec![false; inputs.len()]);
                super::Aot::new(self.options.clone()).compile(&graph, &examples)?
            }
            false => Arc::new(super::interpreted::Interpreted { graph: Arc::new(graph) }),
        };
        let plan = Arc::new(SecondPlan { run, grads });
        self.seconds.lock().unwrap_or_else(|e| e.into_inner()).insert(defined.to_vec(), plan.clone());
        Ok(plan)
    }

    /// The backward graph when every output has a gradient.
    pub(crate) fn backward_graph(&self) -> Option<Arc<BackwardPlan>> {
        self.backwards.lock().unwrap_or_else(|e| e.into_inner()).get(&self.needs).cloned()
    }
}

/// What is known of the inputs of a traced graph.
pub(crate) fn examples(graph: &GraphModule, is_static: &[bool]) -> Vec<ExampleInput> {
    let g = &graph.graph;
    let placeholders = g.placeholders().zip(is_static);
    placeholders
        .filter_map(|(n, &is_static)| match &g[n].meta().val {
            Some(Val::Tensor(meta)) => {
                let meta = TensorMeta { ..(**meta).clone() };
                Some(ExampleInput { value: ExampleValue::Tensor(meta), is_static })
            }
            _ => None,
        })
        .collect()
}

/// Which results of the pure graph the compiled node returns, and how the captured graph's results come from them.
struct Shape {
    /// Positions among the results of the pure graph.
    outputs: Vec<usize>,
    sources: Vec<Option<Source>>,
    written: Vec<Written>,
}

impl Shape {
    fn of(functional: &Functional, tensors: &[usize]) -> Shape {
        let mut outputs = Vec::new();
        let mut written = Vec::new();
        for (i, m) in functional.mutations.iter().enumerate() {
            let tensor = tensors.iter().position(|&k| k == m.input).unwrap_or(0);
            written.push(Written { input: m.input, tensor, output: outputs.len(), recorded: !m.keeps_history });
            outputs.push(i);
        }
        let first = functional.mutations.len();
        let mut by_tensor: HashMap<usize, usize> = HashMap::new();
        let base = |memory: usize| functional.bases.iter().position(|b| *b == memory);
        let mut base_outputs: HashMap<usize, usize> = HashMap::new();
        let mut sources = Vec::new();
        for (i, origin) in functional.origins.iter().enumerate() {
            sources.push(origin.as_ref().map(|o| match o.memory {
                Memory::Input(k) => Source::ViewOfInput(k, o.views.clone()),
                Memory::Fresh(memory) => match base(memory) {
                    Some(b) => {
                        let at = *base_outputs.entry(b).or_insert_with(|| {
                            outputs.push(first + functional.origins.len() + b);
                            outputs.len() - 1
                        });
                        Source::ViewOfOutput(at, o.views.clone())
                    }
                    None => Source::Output(*by_tensor.entry(o.tensor).or_insert_with(|| {
                        outputs.push(first + i);
                        outputs.len() - 1
                    })),
                },
            }));
        }
        Shape { outputs, sources, written }
    }
}
