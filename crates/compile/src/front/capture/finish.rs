//! A session without breaks, as something that can be replayed.

use super::Session;
use super::dynamic::Varying;
use super::effect::Effect;
use super::segment::{has_calls, used_placeholders};
use crate::backend::{Call, ExampleInput, ExampleValue};
use crate::error::{Error, Result};
use crate::front::guard::{EnvironmentGuard, ModuleGuard, SizeGuard, TensorGuard};
use crate::front::leaves::Leaves;
use crate::front::source::Source;
use firebrand_core::autograd::Function;
use firebrand_core::capture::TensorHookFn;
use firebrand_core::sym::SymRecord;
use firebrand_core::{Scalar, Tensor, WeakTensor};
use firebrand_graph::ExportedProgram;
use firebrand_graph::ir::{Argument, GraphModule, NodeId, TensorMeta};
use firebrand_graph::passes::{self, Context};
use std::sync::Arc;

/// Where a tensor of the function comes from at a call.
#[derive(Clone)]
pub(crate) enum Slot {
    /// From outside.
    Source(Source),
    /// From the graph.
    Output(usize),
}

/// A hook on a value inside the function.
pub(crate) struct HookTemplate {
    pub(crate) hook: TensorHookFn,
    pub(crate) handle: u64,
}

/// All a function did, ready to be compiled and repeated.
pub(crate) struct Recording {
    /// None if nothing is computed.
    pub(crate) graph: Option<GraphModule>,
    pub(crate) examples: Vec<ExampleInput>,
    pub(crate) inputs: Vec<Source>,
    /// Where the tensors of the result come from, in order.
    pub(crate) results: Vec<Slot>,
    pub(crate) effects: Vec<Effect>,
    /// Every tensor that effects and hooks may ask for.
    pub(crate) all: Vec<(usize, Slot)>,
    /// Those of them that closures captured.
    pub(crate) held: Vec<(usize, Slot)>,
    pub(crate) retained: Vec<(usize, Slot)>,
    pub(crate) hooks: Vec<HookTemplate>,
    pub(crate) functions: Arc<[Arc<dyn Function>]>,
    pub(crate) captured: Vec<(Source, TensorGuard)>,
    pub(crate) environment: Vec<EnvironmentGuard>,
    pub(crate) modules: Vec<ModuleGuard>,
    pub(crate) relations: Vec<SizeGuard>,
    /// Numbers that are inputs but were asked for their value: these are tied to it.
    pub(crate) fixed_numbers: Vec<(usize, Scalar)>,
    pub(crate) grad_after: Option<bool>,
}

impl Recording {
    /// What the graphs of a function that was cut depend on together.
    pub(crate) fn of_segments(session: &Session) -> Recording {
        let mut state = session.lock();
        Recording {
            graph: None,
            examples: Vec::new(),
            inputs: Vec::new(),
            results: Vec::new(),
            effects: Vec::new(),
            all: Vec::new(),
            held: Vec::new(),
            retained: Vec::new(),
            hooks: Vec::new(),
            functions: Arc::new([]),
            captured: Vec::new(),
            environment: std::mem::take(&mut state.environment),
            modules: std::mem::take(&mut state.modules),
            relations: Vec::new(),
            fixed_numbers: Vec::new(),
            grad_after: None,
        }
    }
}

impl Session {
    /// Ends the capture. `results` are the tensors of the function's result; nobody but that, effects and hooks may hold
    /// tensors of the capture any more.
    pub(crate) fn finish(&self, results: &[Tensor], record: &SymRecord, grad_after: bool) -> Result<Recording> {
        let mut state = self.lock();
        let effects = std::mem::take(&mut state.effects);
        // A hook in a module's table that is gone again needs no repetition; one that stays is in place for this call.
        let effects: Vec<Effect> = effects
            .into_iter()
            .filter(|e| !matches!(e, Effect::Register { handle, .. } if !handle.is_registered()))
            .collect();
        let sources: Vec<(WeakTensor, Source)> = state.sources.drain(..).map(|(t, s)| (t.downgrade(), s)).collect();
        state.reals.clear();
        state.tensor_cells.clear();
        state.cells.clear();
        let captured: Vec<(Tensor, NodeId)> = state.trace.captured().to_vec();
        state.trace.forget_captured();
        let bindings = state.trace.release();

        let mut outputs: Vec<Argument> = Vec::new();
        let mut nodes: Vec<NodeId> = Vec::new();
        let slot = |t: &Tensor, outputs: &mut Vec<Argument>, nodes: &mut Vec<NodeId>| -> Option<Slot> {
            let is = |w: &WeakTensor| w.upgrade().is_some_and(|o| o.is_same(t));
            if let Some((_, source)) = sources.iter().find(|(w, _)| is(w)) {
                return Some(Slot::Source(source.clone()));
            }
            let node = bindings.iter().find(|(w, _)| is(w)).map(|(_, n)| *n);
            if let Some((real, _)) = captured.iter().find(|(r, n)| r.is_same(t) || Some(*n) == node) {
                return Some(Slot::Source(Source::Captured(real.clone())));
            }
            if !t.is_meta() {
                return Some(Slot::Source(Source::Captured(t.clone())));
            }
            let node = node?;
            let at = nodes.iter().position(|n| *n == node).unwrap_or_else(|| {
                outputs.push(node.into());
                nodes.push(node);
                nodes.len() - 1
            });
            Some(Slot::Output(at))
        };
        let lost = || Error::internal("a tensor of the function comes from nowhere");
        let mut result_slots = Vec::with_capacity(results.len());
        for t in results {
            result_slots.push(slot(t, &mut outputs, &mut nodes).ok_or_else(lost)?);
        }
        let (mut all, mut held) = (Vec::new(), Vec::new());
        if !effects.is_empty() || !state.hooks.is_empty() {
            let alive = sources.iter().map(|(w, _)| w).chain(bindings.iter().map(|(w, _)| w));
            let alive: Vec<Tensor> = alive.filter_map(WeakTensor::upgrade).filter(Tensor::is_meta).collect();
            for t in alive.iter().filter(|t| !t.is_wrapped_number()) {
                let Some(slot) = slot(t, &mut outputs, &mut nodes) else { continue };
                all.push((t.id(), slot.clone()));
                // Handles that are accounted for: `results` and the tree they come from, effects, and `alive` itself.
                let known = alive.iter().filter(|o| o.is_same(t)).count()
                    + 2 * results.iter().filter(|o| o.is_same(t)).count()
                    + effects.iter().flat_map(Effect::tensors).filter(|o| o.is_same(t)).count();
                if t.handle_count() > known {
                    held.push((t.id(), slot));
                }
            }
        }
        let mut retained = Vec::new();
        for t in std::mem::take(&mut state.retained).iter().filter_map(WeakTensor::upgrade) {
            retained.push((t.id(), slot(&t, &mut outputs, &mut nodes).ok_or_else(lost)?));
        }

        let hooks = std::mem::take(&mut state.hooks);
        for (at, hook) in hooks.iter().enumerate() {
            let graph = &mut state.trace.module_mut().graph;
            let mut args = graph[hook.node].args().to_vec();
            args[1] = Argument::Int(at as i64);
            graph.set_args(hook.node, args);
        }
        let ambient = state.trace.ambient();
        let mut graph = state.trace.finish(outputs);
        let placeholders = used_placeholders(&mut graph);
        let writes = graph.graph.nodes().any(|n| {
            graph.graph[n].target().and_then(|t| t.overload()).and_then(|o| o.schema()).is_some_and(|s| s.mutates())
        });
        let inputs = std::mem::take(&mut state.inputs);
        let values = std::mem::take(&mut state.placeholder_values);
        let (mut sources_in_order, mut examples) = (Vec::new(), Vec::new());
        for n in &placeholders {
            let given = inputs.iter().find(|(node, _)| node == n).map(|(_, s)| s.clone());
            let free = captured.iter().find(|(_, node)| node == n).map(|(t, _)| t);
            let source = match (given, free) {
                (Some(source), _) => source,
                // Nobody else has it: the function made it of host data.
                (None, Some(t)) if t.handle_count() == 1 && writes => Source::Local(t.clone()),
                (None, Some(t)) => Source::Captured(t.clone()),
                (None, None) => return Err(Error::internal("an input of the graph comes from nowhere")),
            };
            let real = values.iter().find(|(node, _)| node == n).map(|(_, t)| t).or(free);
            let number = state.numbers.iter().find(|(_, _, s)| s.is_same_number(&source)).map(|(_, v, _)| *v);
            examples.push(self.example(&source, real, number));
            sources_in_order.push((source, real.cloned()));
        }
        let guarded = captured
            .iter()
            .map(|(t, _)| (Source::Captured(t.clone()), TensorGuard::fixed(t)))
            .chain(sources.iter().filter_map(|(_, s)| match s {
                Source::Cell(_) | Source::Read(_) => {
                    let t = s.tensor(&Leaves::default())?;
                    Some((s.clone(), TensorGuard::fixed(&t)))
                }
                _ => None,
            }))
            .collect();
        let functions: Arc<[Arc<dyn Function>]> = std::mem::take(&mut state.functions).into();
        let relations = if self.plan.varies() {
            let call = Call::new([], functions.clone());
            Varying { plan: &self.plan, graph: &graph, inputs: &sources_in_order, derived: &state.derived, call: &call }
                .relations(record)?
        } else {
            Vec::new()
        };
        let fixed_numbers = state
            .numbers
            .iter()
            .filter(|(t, ..)| state.numbers_read.contains(&t.id()))
            .filter_map(|(_, v, s)| if let Source::Number(i) = s { Some((*i, *v)) } else { None })
            .collect();
        let graph = if has_calls(&graph) { Some(with_regions(graph, ambient)?) } else { None };
        Ok(Recording {
            graph,
            examples,
            inputs: sources_in_order.into_iter().map(|(s, _)| s).collect(),
            results: result_slots,
            effects,
            all,
            held,
            retained,
            hooks: hooks.into_iter().map(|h| HookTemplate { hook: h.hook, handle: h.handle }).collect(),
            functions,
            captured: guarded,
            environment: std::mem::take(&mut state.environment),
            modules: std::mem::take(&mut state.modules),
            relations,
            fixed_numbers,
            grad_after: (grad_after != self.ambient_grad).then_some(grad_after),
        })
    }

    /// What a back end is told of an input.
    fn example(&self, source: &Source, real: Option<&Tensor>, number: Option<Scalar>) -> ExampleInput {
        let value = match (source, real, number) {
            (Source::Symbol(s), ..) => ExampleValue::Int(self.plan.hint(*s).unwrap_or_default()),
            (_, Some(t), _) => ExampleValue::Tensor(TensorMeta::of(t)),
            (_, None, Some(Scalar::Float(v))) => ExampleValue::Float(v),
            (_, None, number) => ExampleValue::Int(number.map_or(0, Scalar::to_i64)),
        };
        ExampleInput { value, is_static: matches!(source, Source::Captured(_) | Source::Cell(_) | Source::Local(_)) }
    }
}

/// The graph with changes of grad mode as regions.
pub(crate) fn with_regions(graph: GraphModule, ambient_grad: bool) -> Result<GraphModule> {
    let program = ExportedProgram { module: Arc::new(graph), ..ExportedProgram::default() };
    let context = Context { ambient_grad, compat: false };
    let (program, _) = passes::replace_set_grad_with_hop_pass(&program, &context)?;
    Ok(Arc::unwrap_or_clone(program.module))
}
