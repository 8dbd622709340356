//! A plan: everything one captured graph needs to run at given sizes, forward and backward.
//!
//! Made from metadata alone. Backward graphs are made per set of gradients that arrive: an output that is not differentiated
//! has no gradient, and what an eager run would not execute is not in the graph. The forward and what it keeps are the same
//! for all of them.

use super::AotOptions;
use super::loose::Loose;
use super::trace::{Input, JointTrace, RESULTS, Request, trace};
use super::writes::Writes;
use crate::backend::{ExampleInput, ExampleValue, Executable, Value};
use crate::error::{Error, Result};
use crate::joint::partition::{self, Joint, extract};
use crate::times::{Stage, timed};
use firebrand_core::autograd::increment_version;
use firebrand_core::state::ThreadState;
use firebrand_core::{DType, Layout, Tensor};
use firebrand_graph::ir::{Argument, Function, GraphModule, Hop, NodeId, OpOverload, Target, TensorMeta, Val};
use firebrand_graph::passes::{Functional, Memory, View, functionalize_module};
use firebrand_graph::schema::Schema;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

impl Source {
    /// Whether it comes from this output.
    fn is_of(&self, output: usize) -> bool {
        matches!(self, Source::Output(k) | Source::ViewOfOutput(k, _) if *k == output)
    }
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
    /// How often the graph writes it, as its version counts.
    pub(crate) writes: usize,
}

impl Written {
    /// Counts the writes that the copy of the new value has not counted.
    pub(crate) fn count_others(&self, input: &Tensor) {
        (1..self.writes).for_each(|_| increment_version(&[input]));
    }
}

/// A hook of the graph on one of its outputs or inputs: it belongs on the caller's tensor.
#[derive(Clone, Debug)]
pub(crate) struct OuterHook {
    /// The output, or the input by its position among all.
    pub(crate) on: usize,
    pub(crate) body: Value,
    /// The inputs that its body reads, by position among all.
    pub(crate) free: Vec<usize>,
}

/// The modes of the call that a plan is made for.
#[derive(Clone, Copy)]
pub(crate) struct Modes {
    pub(crate) recording: bool,
    /// What autocast lowers to, if it is on.
    pub(crate) autocast: Option<DType>,
}

/// A backward graph for one set of gradients.
pub(crate) struct BackwardPlan {
    pub(crate) run: Arc<dyn Executable>,
    pub(crate) graph: GraphModule,
    /// Which kept values it reads.
    pub(crate) saved: Vec<usize>,
    /// For each tensor input, the position of its gradient among the results.
    pub(crate) grads: Vec<Option<usize>>,
}

/// Gradients as a function of inputs and tangents, to be differentiated again.
pub(crate) struct SecondPlan {
    pub(crate) run: Arc<dyn Executable>,
    /// Inside function transforms.
    pub(crate) transformed: Arc<dyn Executable>,
    /// Inside them where nothing is recorded: without hooks on values, as no gradient will reach these.
    pub(crate) unrecorded: Arc<dyn Executable>,
    /// For each tensor input, whether its elements are read.
    pub(crate) reads: Vec<bool>,
    /// Results of the node that come behind inputs and tangents.
    pub(crate) results: Vec<usize>,
    pub(crate) grads: Vec<Option<usize>>,
}

pub(crate) struct Plan {
    /// No other plan has it.
    pub(crate) id: u64,
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
    /// Outputs that derivatives keep as the results of their ops: derivatives of the gradient pass through them.
    pub(crate) kept_results: Vec<usize>,
    /// What each kept value is computed by: traces for other sets of gradients know it under another name.
    saved_keys: Vec<u64>,
    pub(crate) sources: Vec<(Source, bool)>,
    pub(crate) written: Vec<Written>,
    pub(crate) hooks: Vec<OuterHook>,
    pub(crate) input_hooks: Vec<OuterHook>,
    pub(crate) is_random: bool,
    /// Whether the backward calls hooks that come with the call.
    pub(crate) calls_hooks: bool,
    /// Positions of tensors among all inputs.
    pub(crate) tensors: Vec<usize>,
    /// Tensor inputs in the order in which an eager run reaches them: gradients leave the compiled node in it.
    pub(crate) order: Vec<usize>,
    /// Whether gradients may be wanted.
    pub(crate) differentiable: bool,
    /// Whether the results of the forward are those of the captured graph, in order, and running it is all there is to do
    /// when nothing is recorded.
    pub(crate) is_direct: bool,
    /// For each tensor input, whether it gets a gradient when every output has one.
    pub(crate) reached: Vec<bool>,
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
                    firebrand_core::Scalar::Complex(v) => Argument::Complex(v.re, v.im),
                }),
                Input::Number(_) => Val::None,
            }),
        };
        module.graph.meta_mut(n).val = val;
    }
    module
}

/// Hook nodes whose tensor is returned and used for nothing else: the hook then belongs on what the caller gets, where it
/// runs before hooks the caller adds. Later results first, as the engine runs them. If some hook is on an inner value, all
/// stay inside, so that their order is that of an eager run.
fn output_hooks(graph: &GraphModule, returned: &[Argument], on_inputs: &[(NodeId, usize)]) -> Vec<(NodeId, NodeId)> {
    let g = &graph.graph;
    let is_hook = |n: NodeId| is_hook(graph, n);
    let mut found = Vec::new();
    let mut results: Vec<NodeId> = returned.iter().filter_map(Argument::node).collect();
    // The hooks on a value, the last one first, and the value itself.
    let hooked = |result: NodeId| {
        let (mut chain, mut at) = (Vec::new(), result);
        while is_hook(at) {
            chain.push(at);
            let Some(of) = g[at].args().first().and_then(Argument::node) else { break };
            at = of;
        }
        (chain, at)
    };
    results.sort_by_key(|&n| (std::cmp::Reverse(hooked(n).1.index()), n.index()));
    results.dedup();
    for result in results {
        let (mut chain, at) = hooked(result);
        let only_returned = |n: NodeId| {
            g.users(n).all(|u| g[u].is_output() || (is_hook(u) && g[u].args().first() == Some(&Argument::Node(n))))
        };
        let is_outer = on_inputs.iter().any(|(h, _)| *h == result);
        let simple = !is_outer && chain.iter().all(|&h| g[h].args().len() == 2 && only_returned(h));
        if !chain.is_empty() && simple && only_returned(at) && !g[at].is_placeholder() {
            chain.reverse();
            found.extend(chain.into_iter().map(|h| (h, result)));
        }
    }
    let hooks = g.nodes().filter(|&n| is_hook(n)).count();
    if hooks == found.len() + on_inputs.len() { found } else { Vec::new() }
}

fn is_hook(graph: &GraphModule, n: NodeId) -> bool {
    graph.graph[n].target().is_some_and(|t| t.is_function(&Function::RegisterHook))
}

/// Whether a hook is on a view from which others were made without it. Their gradients pass the hook; made anew from their
/// base, they would go past it.
fn hooks_a_used_view(graph: &GraphModule) -> bool {
    let g = &graph.graph;
    let is_view = |n: NodeId| schema(graph, n).is_some_and(Schema::is_view);
    g.nodes().filter(|&n| is_hook(graph, n)).any(|hook| {
        let on = g[hook].args().first().and_then(Argument::node);
        on.is_some_and(|on| is_view(on) && g.users(on).any(|u| u != hook && is_view(u)))
    })
}

/// Whether a hook is on memory that has views and is written: which history the hook is on then depends on both.
fn hooks_written_views(graph: &GraphModule) -> bool {
    let g = &graph.graph;
    let mut roots: HashMap<NodeId, NodeId> = HashMap::new();
    let (mut viewed, mut written, mut hooked) = (HashSet::new(), HashSet::new(), HashSet::new());
    for n in g.nodes() {
        let (view, write) = schema(graph, n).map_or((false, false), |s| (s.is_view(), s.mutates()));
        let hook = is_hook(graph, n);
        if let Some(of) = g[n].args().first().and_then(Argument::node).filter(|_| view || write || hook) {
            let root = roots.get(&of).copied().unwrap_or(of);
            roots.insert(n, root);
            for (holds, set) in [(view, &mut viewed), (write, &mut written), (hook, &mut hooked)] {
                if holds {
                    set.insert(root);
                }
            }
        }
    }
    hooked.iter().any(|root| viewed.contains(root) && written.contains(root))
}

/// Whether the graph computes from what it wrote where nothing is recorded. In an eager run the tensor has the node that it had
/// before; here there would be one more, and gradients would arrive later.
fn goes_on_from_unrecorded_write(graph: &GraphModule) -> bool {
    let g = &graph.graph;
    let written = g.nodes().filter(|&n| g[n].target() == Some(&Hop::WithData.into()));
    written.into_iter().any(|n| g.users(n).any(|u| !g[u].is_output() && g[u].target() != Some(&Hop::WithData.into())))
}

fn schema(graph: &GraphModule, n: NodeId) -> Option<&Schema> {
    graph.graph[n].target().and_then(Target::overload).and_then(OpOverload::schema)
}

/// Hook nodes on inputs, with the input's position: such a hook is put on the caller's tensor at every call.
fn input_hooks(graph: &GraphModule) -> Vec<(NodeId, usize)> {
    let g = &graph.graph;
    let root = |hook: NodeId| {
        let mut at = hook;
        // A write that was not recorded leaves the input's history what it was.
        while is_hook(graph, at) || g[at].target() == Some(&Hop::WithData.into()) {
            at = g[at].args().first().and_then(Argument::node)?;
        }
        g.placeholders().position(|p| p == at)
    };
    g.nodes().filter(|&n| is_hook(graph, n)).filter_map(|h| root(h).map(|k| (h, k))).collect()
}

/// The inputs that a hook's body reads; an error where it reads another value.
fn free_inputs(graph: &GraphModule, hook: NodeId) -> Result<Vec<usize>> {
    let g = &graph.graph;
    let place = |a: &Argument| a.node().and_then(|n| g.placeholders().position(|p| p == n));
    let lost = || Error::internal("a hook on an input or a result reads a value that the graph computes");
    g[hook].args()[2..].iter().map(|a| place(a).ok_or_else(lost)).collect()
}

/// What a hook node calls: a sub-graph, or the number of a slot.
fn hook_body(graph: &GraphModule, hook: NodeId) -> Result<Value> {
    match &graph.graph[hook].args()[1] {
        Argument::Node(n) => {
            let body = graph.graph[*n].attr_path().and_then(|p| graph.subgraph(p));
            Ok(Value::Graph(body.ok_or_else(|| Error::internal("a hook's body is a sub-graph"))?.clone()))
        }
        Argument::Int(slot) => Ok((*slot).into()),
        other => Err(Error::internal(format!("a hook's body is {other:?}"))),
    }
}

/// Whether a graph does nothing but compute: no hooks, no custom functions, no writes, no random numbers, no conditionals.
pub(crate) fn only_computes(graph: &GraphModule) -> bool {
    let g = &graph.graph;
    let more = |t: &Target| {
        let function = [Function::RegisterHook, Function::ApplyFunction].iter().any(|f| t.is_function(f));
        let writes = t.overload().and_then(OpOverload::schema).is_some_and(|s| s.mutates());
        function || writes || matches!(t, Target::Hop(Hop::Cond))
    };
    g.nodes().all(|n| !g[n].draws() && !g[n].target().is_some_and(more))
        && graph.subgraphs().all(|(_, g)| only_computes(g))
}

/// The graph as a pure function of these inputs, if its results are tensors of their own.
pub(crate) fn pure_graph(graph: &GraphModule, inputs: Vec<Input>) -> Option<GraphModule> {
    let functional = functionalize_module(&typed(graph, &inputs), true).ok()?;
    let mut seen = HashSet::new();
    let own = functional.origins.iter().all(|o| {
        let fresh = |o: &firebrand_graph::passes::Origin| matches!(o.memory, Memory::Fresh(m) if seen.insert(m));
        o.as_ref().is_some_and(fresh)
    });
    (own && functional.mutations.is_empty() && functional.bases.is_empty()).then_some(functional.module)
}

impl Plan {
    pub(crate) fn new(
        graph: &GraphModule,
        inputs: Vec<Input>,
        is_static: &[bool],
        Modes { recording, autocast }: Modes,
        options: &AotOptions,
    ) -> Result<Plan> {
        let loose = match recording.then(|| Loose::of(graph, &inputs)) {
            Some(Loose::GoesOn) => {
                return Err(Error::internal("a view was created with grad mode off, and is used with grad mode on"));
            }
            Some(Loose::Results(places)) => places,
            None => Vec::new(),
        };
        let functional = timed(Stage::Joint, || functionalize_module(&typed(graph, &inputs), true))?;
        if functional.mutations.iter().any(|m| !m.relayout.is_empty()) {
            return Err(Error::internal("an input changes its shape in place"));
        }
        let is_computed = |k: &usize| {
            let origin = functional.origins.get(*k).and_then(Option::as_ref);
            origin.is_some_and(|o| matches!(o.memory, Memory::Fresh(_)))
        };
        if loose.iter().any(is_computed) {
            return Err(Error::internal("a view of a computed value was created with grad mode off, and is returned"));
        }
        let shared =
            |m: &Memory| matches!(m, Memory::Input(_)) || matches!(m, Memory::Fresh(b) if functional.bases.contains(b));
        if functional.origins.iter().flatten().any(|o| o.hooked && !o.views.is_empty() && shared(&o.memory)) {
            return Err(Error::internal("a hook is on a result that is a view of an input or of another result"));
        }
        if functional.origins.iter().flatten().any(|o| !o.views.is_empty()) && hooks_a_used_view(graph) {
            return Err(Error::internal("a hook is on a view from which another was made before"));
        }
        if hooks_written_views(graph) {
            return Err(Error::internal("a hook is on memory that has views and is written"));
        }
        if recording && goes_on_from_unrecorded_write(&functional.module) {
            return Err(Error::internal("a tensor was written with grad mode off, and is used with grad mode on"));
        }
        let tensors: Vec<usize> =
            inputs.iter().enumerate().filter(|(_, i)| matches!(i, Input::Tensor(_))).map(|(k, _)| k).collect();
        let shape = Shape::of(&functional, &tensors, &Writes::of(graph).counts);
        let returned = functional.module.graph.result().and_then(Argument::items).unwrap_or(&[]).to_vec();
        let picked: Vec<Argument> = shape.outputs.iter().map(|&i| returned[i].clone()).collect();
        let on_inputs = input_hooks(&functional.module);
        let deferred = output_hooks(&functional.module, &picked, &on_inputs);
        let outer = |hook: NodeId, on: Option<usize>| {
            let lost = || Error::internal("the tensor of a hook is lost");
            let (body, free) = (hook_body(&functional.module, hook)?, free_inputs(&functional.module, hook)?);
            Ok::<_, Error>(OuterHook { on: on.ok_or_else(lost)?, body, free })
        };
        let place = |result: &NodeId| picked.iter().position(|a| a == &Argument::Node(*result));
        let hooks = deferred.iter().map(|(h, r)| outer(*h, place(r))).collect::<Result<Vec<_>>>()?;
        let input_hooks = on_inputs.iter().map(|(h, k)| outer(*h, Some(*k))).collect::<Result<Vec<_>>>()?;
        let mut request = Request {
            graph: Arc::new(functional.module.clone()),
            inputs,
            is_static: tensors.iter().map(|&k| is_static.get(k).copied().unwrap_or(false)).collect(),
            outputs: shape.outputs.clone(),
            constants: HashSet::new(),
            deferred: deferred.iter().map(|(h, _)| *h).collect(),
            on_inputs: on_inputs.iter().map(|(h, _)| *h).collect(),
            decompose: options.decompose,
            defined: None,
            create_graph: false,
            through_results: Vec::new(),
            recording,
            autocast,
        };
        let mut traced = timed(Stage::Joint, || trace(&request))?;
        // No gradient arrives for memory of which every result is detached, nor for what is written into an input that keeps its
        // history.
        let is_used = |k: usize| {
            let places = traced.result_needs.iter().skip(functional.mutations.len());
            let given =
                shape.sources.iter().zip(places).any(|(s, needs)| *needs && s.as_ref().is_some_and(|s| s.is_of(k)));
            given || shape.written.iter().any(|w| w.output == k && w.recorded) || hooks.iter().any(|h| h.on == k)
        };
        let unused: HashSet<usize> = (0..traced.needs.len()).filter(|&k| traced.needs[k] && !is_used(k)).collect();
        if !unused.is_empty() {
            request.constants = unused;
            traced = timed(Stage::Joint, || trace(&request))?;
        }
        let JointTrace { joint, needs, result_needs, numbers, is_kept, layouts, order } = traced;
        let differentiable = recording && joint.grads.iter().any(|g| *g != Argument::None);
        let saved = match differentiable {
            true => timed(Stage::Partition, || partition::saved_values(&joint, &options.partition))?,
            false => Vec::new(),
        };
        tracing::debug!(target: "firebrand::compile::joint", saved = saved.len(), "partitioned");
        let keys = partition::keys(&joint.module.graph, &joint.outputs);
        let saved_keys: Vec<u64> = saved.iter().map(|n| keys[n]).collect();
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
        let sources: Vec<(Source, bool)> = sources.collect();
        let in_order = |(i, s): (usize, &(Source, bool))| matches!(s.0, Source::Output(k) if k == i);
        let is_direct = results.len() == sources.len()
            && sources.iter().enumerate().all(in_order)
            && tensors.iter().enumerate().all(|(i, k)| i == *k)
            && shape.written.is_empty()
            && hooks.is_empty()
            && input_hooks.is_empty();
        let mut written = shape.written;
        for w in &mut written {
            w.recorded &= needs[w.output];
        }
        // What is written into an input belongs to that, and a view of a result is not the result, even if it shows all of it.
        let is_view = |k: usize| {
            let mut at = picked[k].node();
            while let Some(n) = at.filter(|n| is_hook(&functional.module, *n)) {
                at = functional.module.graph[n].args().first().and_then(Argument::node);
            }
            at.is_some_and(|n| schema(&functional.module, n).is_some_and(Schema::is_view))
        };
        let own = |k: &usize| needs[*k] && !written.iter().any(|w| w.output == *k) && !is_view(*k);
        let kept_results: Vec<usize> = (0..joint.outputs.len()).filter(own).filter(|k| is_kept[*k]).collect();
        let sees_parts = |n: NodeId| {
            let elsewhere = deferred.iter().any(|(h, _)| *h == n) || on_inputs.iter().any(|(h, _)| *h == n);
            is_hook(&functional.module, n) && !elsewhere && !super::stages::is_linear_hook(&functional.module, n)
        };
        if recording && !kept_results.is_empty() && functional.module.graph.nodes().any(sees_parts) {
            return Err(Error::internal("a hook that is not linear is on a value, and derivatives keep a result"));
        }
        static IDS: AtomicU64 = AtomicU64::new(1);
        let plan = Plan {
            id: IDS.fetch_add(1, Relaxed),
            options: options.clone(),
            forward,
            outputs: joint.outputs.len(),
            needs,
            layouts,
            kept,
            kept_results,
            saved_keys,
            sources,
            written,
            hooks,
            input_hooks,
            is_random: !draws.is_empty(),
            calls_hooks: !joint.hooks().is_empty(),
            tensors,
            order,
            differentiable,
            is_direct,
            reached: joint.grads.iter().map(|g| *g != Argument::None).collect(),
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
        let mut by_key: HashMap<u64, NodeId> = HashMap::new();
        let keys = partition::keys(&joint.module.graph, &joint.outputs);
        for n in joint.module.graph.nodes() {
            by_key.entry(keys[&n]).or_insert(n);
        }
        let mut results = Vec::new();
        let mut grads = Vec::new();
        for g in &joint.grads {
            grads.push((*g != Argument::None).then(|| {
                results.push(g.clone());
                results.len() - 1
            }));
        }
        // With fewer gradients, some values are not needed at all, and may have been written since.
        let known: Vec<Option<NodeId>> = self.saved_keys.iter().map(|key| by_key.get(key).copied()).collect();
        let needed = reached(joint, &results, &known);
        let mut saved = Vec::new();
        let mut inputs = Vec::new();
        for (i, n) in known.into_iter().enumerate() {
            if let Some(n) = n.filter(|n| needed.contains(n)) {
                saved.push(i);
                inputs.push(n);
            }
        }
        inputs.extend(&joint.tangents);
        let graph = extract(&joint.module, &inputs, &results, &joint.hooks())?;
        let run = self.options.compile(&graph, &vec![false; inputs.len()])?;
        Ok(BackwardPlan { run, graph, saved, grads })
    }

    /// The backward for these gradients.
    pub(crate) fn backward(&self, defined: &[bool]) -> Result<Arc<BackwardPlan>> {
        let known = self.backwards.lock().unwrap_or_else(|e| e.into_inner()).get(defined).cloned();
        known.map_or_else(|| ThreadState::isolated(|| self.new_backward(defined)), Ok)
    }

    fn new_backward(&self, defined: &[bool]) -> Result<Arc<BackwardPlan>> {
        let request = Request { defined: Some(defined.to_vec()), ..self.request.clone() };
        let plan = Arc::new(self.build_backward(&timed(Stage::Joint, || trace(&request))?.joint)?);
        self.backwards.lock().unwrap_or_else(|e| e.into_inner()).insert(defined.to_vec(), plan.clone());
        Ok(plan)
    }

    /// The gradients as a function of inputs and tangents.
    pub(crate) fn second(&self, defined: &[bool]) -> Result<Arc<SecondPlan>> {
        let known = self.seconds.lock().unwrap_or_else(|e| e.into_inner()).get(defined).cloned();
        known.map_or_else(|| ThreadState::isolated(|| self.new_second(defined)), Ok)
    }

    fn new_second(&self, defined: &[bool]) -> Result<Arc<SecondPlan>> {
        let request = Request {
            defined: Some(defined.to_vec()),
            create_graph: true,
            through_results: self.kept_results.clone(),
            ..self.request.clone()
        };
        let joint = timed(Stage::Joint, || trace(&request))?.joint;
        let place = |n: &NodeId| joint.module.graph[*n].name().strip_prefix(RESULTS)?.parse::<usize>().ok();
        let through: Vec<(NodeId, usize)> =
            joint.module.graph.placeholders().filter_map(|n| Some((n, place(&n)?))).collect();
        let inputs = joint.primals.iter().chain(&joint.tangents).copied().chain(through.iter().map(|(n, _)| *n));
        let inputs: Vec<NodeId> = inputs.collect();
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
        let registered = joint.module.graph.nodes().filter(|&n| is_hook(&joint.module, n));
        let roots: Vec<NodeId> = hooks.iter().copied().chain(draws).chain(registered).collect();
        let graph = extract(&joint.module, &inputs, &results, &roots)?;
        let g = &graph.graph;
        let reads = g.placeholders().take(joint.primals.len()).map(|n| g[n].num_users() > 0).collect();
        let transformed = super::transformed::Transformed::new(&graph, None, self.options.clone());
        let unrecorded = super::transformed::Transformed::new(&without_hooks(&graph)?, None, self.options.clone());
        // What a hook that comes with the call computes is known only when it is called: then ops are recorded one by one.
        let run: Arc<dyn Executable> = match hooks.is_empty() {
            true => {
                let examples = examples(&graph, &vec![false; inputs.len()]);
                // The caller cannot see into it: it needs no stages.
                Arc::new(super::Aot::new(self.options.clone()).compile_graph(&graph, &examples)?)
            }
            false => Arc::new(crate::backend::Interpreted { graph: Arc::new(graph) }),
        };
        let results = through.into_iter().map(|(_, k)| k).collect();
        let (transformed, unrecorded) = (Arc::new(transformed), Arc::new(unrecorded));
        let plan = Arc::new(SecondPlan { run, transformed, unrecorded, reads, results, grads });
        self.seconds.lock().unwrap_or_else(|e| e.into_inner()).insert(defined.to_vec(), plan.clone());
        Ok(plan)
    }

    /// The backward graph when every output has a gradient.
    pub(crate) fn backward_graph(&self) -> Option<Arc<BackwardPlan>> {
        self.backwards.lock().unwrap_or_else(|e| e.into_inner()).get(&self.needs).cloned()
    }
}

/// The graph without the hooks that it puts on values.
fn without_hooks(graph: &GraphModule) -> Result<GraphModule> {
    let mut module = graph.clone();
    let hooks: Vec<NodeId> = module.graph.nodes().filter(|&n| is_hook(graph, n)).collect();
    for n in hooks {
        if let Some(of) = module.graph[n].args().first().and_then(Argument::node) {
            module.graph.replace_all_uses_with(n, of);
            module.graph.erase(n)?;
        }
    }
    Ok(module)
}

/// What the backward reads, where it does not go on behind these values.
fn reached(joint: &Joint, results: &[Argument], given: &[Option<NodeId>]) -> HashSet<NodeId> {
    let given: HashSet<NodeId> = given.iter().flatten().copied().collect();
    let mut seen = HashSet::new();
    let mut stack = joint.hooks();
    results.iter().for_each(|a| a.for_each_node(&mut |n| stack.push(n)));
    while let Some(n) = stack.pop() {
        if seen.insert(n) && !given.contains(&n) {
            stack.extend(joint.module.graph.input_nodes(n));
        }
    }
    seen
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
    fn of(functional: &Functional, tensors: &[usize], writes: &[usize]) -> Shape {
        let mut outputs = Vec::new();
        let mut written = Vec::new();
        for (i, m) in functional.mutations.iter().enumerate() {
            let tensor = tensors.iter().position(|&k| k == m.input).unwrap_or(0);
            let (recorded, writes) = (!m.keeps_history, writes.get(m.input).copied().unwrap_or(1));
            written.push(Written { input: m.input, tensor, output: outputs.len(), recorded, writes });
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
