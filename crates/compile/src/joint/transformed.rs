//! A captured graph that is called inside function transforms or a dual level.
//!
//! Without levels and tangents it is a node of the caller's graph as everywhere else. With them, a pure graph is a custom function
//! whose rules are graphs too, made by tracing it: its gradient, its tangents and itself over a batch. Each of these is such a
//! function again, so transforms nest. A graph that is more than a function of its inputs (hooks, writes, random numbers, results that share
//! memory) runs op by op, each by its own rule, as in a plain run.

use super::plan::{only_computes, pure_graph};
use super::trace::{Input, Request, keep_constants, outline, trace, without_writes};
use super::{Aot, AotExecutable, AotOptions};
use crate::backend::{Call, EagerRunner, Executable, Interpreted, Value};
use crate::error::{Error, Result};
use crate::joint::partition::extract;
use firebrand_core::autograd::{
    BatchedOutputs, Context, Function, VmapInfo, apply_function, dual_level, make_dual, unpack_dual,
};
use firebrand_core::state::ThreadState;
use firebrand_core::{Device, Tensor, func, ops};
use firebrand_graph::InnerTrace;
use firebrand_graph::interpret::run_module;
use firebrand_graph::ir::{Argument, GraphModule, InsertPoint, NodeId, Target, TensorMeta};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// A graph called inside transforms.
pub(super) struct Transformed {
    graph: Arc<GraphModule>,
    /// For calls without levels and tangents, of a graph that only computes.
    plain: Option<Arc<dyn Executable>>,
    options: AotOptions,
    functions: Rules<Vec<TensorMeta>, Option<Arc<PureFunction>>>,
}

impl Transformed {
    pub(super) fn new(graph: &GraphModule, plain: Option<Arc<dyn Executable>>, options: AotOptions) -> Transformed {
        Transformed { graph: Arc::new(graph.clone()), plain, options, functions: Rules::default() }
    }

    /// The graph as a function, if it is one of these inputs.
    fn function(&self, inputs: &[Value]) -> Option<(Arc<PureFunction>, Vec<Tensor>)> {
        if !only_computes(&self.graph) {
            return None;
        }
        let tensors = inputs.iter().map(|v| v.tensor().ok().cloned()).collect::<Option<Vec<_>>>()?;
        let metas: Vec<TensorMeta> = tensors.iter().map(TensorMeta::of).collect();
        let made = self.functions.get(metas, |metas| {
            let pure = pure_graph(&self.graph, metas.iter().cloned().map(Input::Tensor).collect());
            Ok(pure.map(|graph| PureFunction::new(graph, self.options.clone())))
        });
        Some((made.ok().flatten()?, tensors))
    }
}

impl Executable for Transformed {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let active = func::active();
        if active.levels == 0
            && !active.dual
            && let Some(plain) = &self.plain
        {
            return plain.run(inputs, call);
        }
        match self.function(inputs).filter(|_| active.levels > 0 || active.dual) {
            Some((function, tensors)) => {
                let results = apply_function(function, tensors)?;
                Ok(results.into_iter().map(Value::Tensor).collect())
            }
            None => Interpreted { graph: self.graph.clone() }.run(inputs, call),
        }
    }
}

/// What was made before, by what it was made for.
struct Rules<K, V>(Mutex<Vec<(K, V)>>);

impl<K, V> Default for Rules<K, V> {
    fn default() -> Rules<K, V> {
        Rules(Mutex::default())
    }
}

impl<K: PartialEq, V: Clone> Rules<K, V> {
    fn get(&self, key: K, make: impl FnOnce(&K) -> Result<V>) -> Result<V> {
        let known = |list: &[(K, V)]| list.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
        let found = known(&self.0.lock().unwrap_or_else(|e| e.into_inner()));
        if let Some(found) = found {
            return Ok(found);
        }
        // Nothing that the caller has switched on takes part.
        let made = ThreadState::isolated(|| make(&key))?;
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push((key, made.clone()));
        Ok(made)
    }
}

/// A rule of a function, and which of its results there are.
type Rule = (Arc<PureFunction>, Vec<bool>);

/// What a rule is made for.
#[derive(PartialEq)]
enum For {
    /// Gradients: the inputs, and which results have one.
    Gradients(Vec<TensorMeta>, Vec<bool>),
    /// Tangents: the inputs, and which of them have one.
    Tangents(Vec<TensorMeta>, Vec<bool>),
    /// A batch: the inputs one level down, where each has the batch, and its size.
    Batch(Vec<TensorMeta>, Vec<Option<usize>>, usize),
}

/// A graph as a function of tensors, with rules that are graphs too.
pub(super) struct PureFunction {
    graph: Arc<GraphModule>,
    run: AotExecutable,
    options: AotOptions,
    /// None where the function cannot be traced: then its ops run one by one, each by its own rule.
    rules: Rules<For, Option<Rule>>,
}

impl PureFunction {
    fn new(mut graph: GraphModule, options: AotOptions) -> Arc<PureFunction> {
        own_results(&mut graph);
        let run = Aot::new(options.clone()).unplanned(&graph, Vec::new());
        Arc::new(PureFunction { graph: Arc::new(graph), run, options, rules: Rules::default() })
    }

    /// The function of those results that there are.
    fn rule(&self, graph: GraphModule, there: Vec<bool>) -> Rule {
        (PureFunction::new(graph, self.options.clone()), there)
    }

    fn gradients(&self, inputs: &[TensorMeta], defined: &[bool]) -> Result<Rule> {
        let request = Request {
            graph: self.graph.clone(),
            inputs: inputs.iter().cloned().map(Input::Tensor).collect(),
            is_static: vec![false; inputs.len()],
            outputs: (0..defined.len()).collect(),
            constants: HashSet::new(),
            deferred: HashSet::new(),
            on_inputs: HashSet::new(),
            decompose: false,
            defined: Some(defined.to_vec()),
            create_graph: true,
            through_results: Vec::new(),
            recording: true,
            autocast: None,
        };
        let joint = trace(&request)?.joint;
        let given: Vec<NodeId> = joint.primals.iter().chain(&joint.tangents).copied().collect();
        let there = joint.grads.iter().map(|g| *g != Argument::None).collect();
        let results: Vec<Argument> = joint.grads.iter().filter(|g| **g != Argument::None).cloned().collect();
        Ok(self.rule(extract(&joint.module, &given, &results, &[])?, there))
    }

    fn tangents(&self, inputs: &[TensorMeta], given: &[bool]) -> Result<Rule> {
        let tracer = InnerTrace::new();
        let primals = placeholders(&tracer, "primals", inputs)?;
        let with: Vec<TensorMeta> = inputs.iter().zip(given).filter(|(_, g)| **g).map(|(m, _)| m.clone()).collect();
        let tangents = placeholders(&tracer, "tangents", &with)?;
        let pushed = tracer.trace(|| {
            dual_level(|| -> Result<Vec<Option<Tensor>>> {
                let mut tangents = tangents.iter();
                let mut duals = Vec::with_capacity(primals.len());
                for (primal, given) in primals.iter().zip(given) {
                    let tangent = if *given { tangents.next() } else { None };
                    duals.push(tangent.map_or(Ok(primal.clone()), |t| make_dual(primal, t))?);
                }
                let results = interpreted(&self.graph, &duals, Some(Device::Meta))?;
                results.iter().map(|t| Ok(unpack_dual(t)?.1)).collect()
            })
        })??;
        let there = pushed.iter().map(Option::is_some).collect();
        let pushed: Vec<Option<Tensor>> = pushed.into_iter().filter(Option::is_some).collect();
        Ok(self.rule(finished(&tracer, &pushed)?, there))
    }

    fn batched(&self, inputs: &[TensorMeta], dims: &[Option<usize>]) -> Result<Rule> {
        let tracer = InnerTrace::new();
        let values = placeholders(&tracer, "values", inputs)?;
        let dims: Vec<Option<i64>> = dims.iter().map(|d| d.map(|d| d as i64)).collect();
        let one = |sample: &Vec<Tensor>| interpreted(&self.graph, sample, Some(Device::Meta));
        let results = tracer.trace(|| func::vmap(one).in_dims(dims).call(&values))?;
        let there = vec![true; results.len()];
        let results: Vec<Option<Tensor>> = results.into_iter().map(Some).collect();
        Ok(self.rule(finished(&tracer, &results)?, there))
    }

    /// The rule for this, if the function can be traced.
    fn find(&self, what: For) -> Option<Rule> {
        let made = self.rules.get(what, |what| {
            let traced = match what {
                For::Gradients(inputs, defined) => self.gradients(inputs, defined),
                For::Tangents(inputs, given) => self.tangents(inputs, given),
                For::Batch(inputs, dims, _) => self.batched(inputs, dims),
            };
            let refused = |e: &Error| tracing::info!(target: "firebrand::compile::joint", "a rule runs op by op: {e}");
            Ok(traced.inspect_err(refused).ok())
        });
        made.ok().flatten()
    }
}

/// Applies a rule, and puts its results where they belong.
fn apply_rule(rule: Rule, inputs: Vec<Tensor>) -> firebrand_core::Result<Vec<Option<Tensor>>> {
    let (function, there) = rule;
    if !there.contains(&true) {
        return Ok(vec![None; there.len()]);
    }
    let mut results = apply_function(function, inputs)?.into_iter();
    Ok(there.into_iter().map(|there| if there { results.next() } else { None }).collect())
}

fn placeholders(tracer: &InnerTrace, name: &str, metas: &[TensorMeta]) -> Result<Vec<Tensor>> {
    let one = |(i, meta): (usize, &TensorMeta)| {
        let t = outline(&TensorMeta { requires_grad: false, ..meta.clone() })?;
        tracer.input(&format!("{name}_{i}"), &t);
        Ok(t)
    };
    metas.iter().enumerate().map(one).collect()
}

/// The results of the graph, op by op.
fn interpreted(graph: &GraphModule, inputs: &[Tensor], device: Option<Device>) -> firebrand_core::Result<Vec<Tensor>> {
    let values: Vec<Value> = inputs.iter().map(Value::from).collect();
    let call = Call::default();
    let mut runner = EagerRunner { call: &call, device };
    let results = run_module(&mut runner, graph, &values)?;
    let items = results.items().map_err(Error::from)?;
    items.iter().map(|v| Ok(v.tensor().map_err(Error::from)?.clone())).collect()
}

fn finished(tracer: &InnerTrace, results: &[Option<Tensor>]) -> Result<GraphModule> {
    let mut module = without_writes(tracer.finish(results)?)?;
    keep_constants(&mut module)?;
    Ok(module)
}

/// Results are tensors of their own: one that is an input, a part of one or another result is copied.
fn own_results(module: &mut GraphModule) {
    let graph = &mut module.graph;
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]).to_vec();
    let mut roots = HashSet::new();
    let mut results = Vec::new();
    for n in returned.iter().filter_map(Argument::node) {
        let mut root = n;
        let shows = |n: NodeId| {
            let view =
                graph[n].target().and_then(Target::overload).and_then(|o| o.schema()).is_some_and(|s| s.is_view());
            graph[n].args().first().and_then(Argument::node).filter(|_| view)
        };
        while let Some(of) = shows(root) {
            root = of;
        }
        let shared = graph[root].is_placeholder() || !roots.insert(root);
        results.push(match shared {
            false => n,
            true => {
                let copy = graph
                    .inserting(InsertPoint::After(n), |g| g.call_function(Target::aten("clone.default"), [n.into()]));
                graph.meta_mut(copy).val = graph[n].meta().val.clone();
                copy
            }
        });
    }
    if let Some(output) = graph.output_node() {
        graph.set_args(output, vec![Argument::tuple(results.into_iter().map(Argument::Node))]);
    }
}

/// For each result, whether it is computed from an input that has a batch.
fn batched_results(module: &GraphModule, in_dims: &[Option<usize>]) -> Vec<bool> {
    let graph = &module.graph;
    let given = graph.placeholders().zip(in_dims).filter(|(_, d)| d.is_some());
    let mut batched: HashSet<NodeId> = given.map(|(n, _)| n).collect();
    for n in graph.nodes() {
        if graph.input_nodes(n).any(|of| batched.contains(&of)) {
            batched.insert(n);
        }
    }
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]);
    returned.iter().map(|a| a.node().is_some_and(|n| batched.contains(&n))).collect()
}

fn metas(tensors: &[Tensor]) -> Vec<TensorMeta> {
    tensors.iter().map(TensorMeta::of).collect()
}

impl Function for PureFunction {
    fn name(&self) -> String {
        "CompiledFunction".to_string()
    }

    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> firebrand_core::Result<Vec<Tensor>> {
        let values: Vec<Value> = inputs.iter().map(|t| Value::Tensor(t.detach())).collect();
        let results = self.run.run(&values, &Call::default())?;
        results.iter().map(|v| Ok(v.tensor().map_err(Error::from)?.clone())).collect()
    }

    fn has_setup_context(&self) -> bool {
        true
    }

    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], _: &[Tensor]) -> firebrand_core::Result<()> {
        let all: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
        ctx.set_materialize_grads(false);
        ctx.save_for_backward(&all);
        ctx.save_for_forward(&all);
        Ok(())
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        let mut inputs: Vec<Tensor> = ctx.saved_tensors()?.into_iter().flatten().collect();
        let defined: Vec<bool> = grads.iter().map(Option::is_some).collect();
        if !defined.contains(&true) {
            return Ok(vec![None; inputs.len()]);
        }
        let wanted = inputs.iter().zip(ctx.needs_input_grad());
        let metas = wanted.map(|(t, wanted)| TensorMeta { requires_grad: *wanted, ..TensorMeta::of(t) }).collect();
        let rule = self.find(For::Gradients(metas, defined));
        let Some(rule) = rule else {
            let (results, pullback) =
                func::vjp(|inputs: &Vec<Tensor>| interpreted(&self.graph, inputs, None), &inputs)?;
            let zeros = |t: &Tensor| ops::zeros_like(t, None, None, None);
            let seeds = grads.iter().zip(&results).map(|(g, y)| g.as_ref().map_or_else(|| zeros(y), |g| Ok(g.clone())));
            let found = pullback.call(&seeds.collect::<firebrand_core::Result<Vec<Tensor>>>()?)?;
            return Ok(found.into_iter().map(Some).collect());
        };
        inputs.extend(grads.iter().flatten().cloned());
        apply_rule(rule, inputs)
    }

    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        let mut inputs: Vec<Tensor> = ctx.saved_for_forward().iter().flatten().cloned().collect();
        let given: Vec<bool> = tangents.iter().map(Option::is_some).collect();
        let Some(rule) = self.find(For::Tangents(metas(&inputs), given)) else {
            let zeros = |t: &Tensor| ops::zeros_like(t, None, None, None);
            let all = tangents.iter().zip(&inputs).map(|(t, x)| t.as_ref().map_or_else(|| zeros(x), |t| Ok(t.clone())));
            let all = all.collect::<firebrand_core::Result<Vec<Tensor>>>()?;
            let (_, pushed) = func::jvp(|inputs: &Vec<Tensor>| interpreted(&self.graph, inputs, None), &inputs, &all)?;
            return Ok(pushed.into_iter().map(Some).collect());
        };
        inputs.extend(tangents.iter().flatten().cloned());
        apply_rule(rule, inputs)
    }

    fn vmap(
        &self,
        info: VmapInfo,
        in_dims: &[Option<usize>],
        inputs: &[Tensor],
    ) -> firebrand_core::Result<Option<BatchedOutputs>> {
        let results: Vec<Tensor> = match self.find(For::Batch(metas(inputs), in_dims.to_vec(), info.batch_size)) {
            Some(rule) => apply_rule(rule, inputs.to_vec())?.into_iter().flatten().collect(),
            None => {
                let dims: Vec<Option<i64>> = in_dims.iter().map(|d| d.map(|d| d as i64)).collect();
                let one = |inputs: &Vec<Tensor>| interpreted(&self.graph, inputs, None);
                func::vmap(one).in_dims(dims).randomness(info.randomness).call(&inputs.to_vec())?
            }
        };
        // What is computed from no batch is none, as in a plain run: it may be written there.
        let batched = batched_results(&self.graph, in_dims);
        let one = |(t, batched): (Tensor, bool)| match batched || info.batch_size == 0 {
            true => Ok((t, Some(0))),
            false => Ok((t.try_select(0, 0)?, None)),
        };
        let results = results.into_iter().zip(batched).map(one).collect::<firebrand_core::Result<Vec<_>>>()?;
        Ok(Some(results.into_iter().unzip()))
    }
}
