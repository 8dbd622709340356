//! A session without breaks, as something that can be replayed.
//!
//! Results and effects say which tensors they need (`places`). What else the function made is needed only if one of its
//! closures holds it: the capture lets go of all it has, and what is alive then is bound at every call. Nothing counts
//! handles, so a clone more or less changes nothing.

use super::dynamic::Varying;
use super::effect::Effect;
use super::places::Places;
use super::segment::{has_calls, used_placeholders};
use super::{Session, State};
use crate::backend::{Call, ExampleInput, ExampleValue};
use crate::error::Result;
use crate::front::binding::KeptSizes;
use crate::front::guard::{EnvironmentGuard, LookGuard, ModuleGuard, SizeGuard, TensorGuard};
use crate::front::source::Source;
use firebrand_core::autograd::Function;
use firebrand_core::capture::TensorHookFn;
use firebrand_core::sym::SymRecord;
use firebrand_core::{Scalar, Tensor, WeakTensor};
use firebrand_graph::ExportedProgram;
use firebrand_graph::ir::{Argument, GraphModule, NodeId, TensorMeta};
use firebrand_graph::passes::{self, Context};
use std::collections::HashMap;
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
#[derive(Default)]
pub(crate) struct Recording {
    /// None if nothing is computed.
    pub(crate) graph: Option<GraphModule>,
    pub(crate) examples: Vec<ExampleInput>,
    pub(crate) inputs: Vec<Source>,
    /// Where the tensors of the result come from, in order.
    pub(crate) results: Vec<Slot>,
    pub(crate) effects: Vec<Effect<Slot>>,
    /// Tensors that closures hold, and where those that they stand for come from.
    pub(crate) held: Vec<(Tensor, Slot)>,
    /// Numbers that vary and that closures or the result hold.
    pub(crate) numbers: Vec<(Tensor, Source)>,
    /// The sizes that closures or the result may hold.
    pub(crate) sizes: KeptSizes,
    /// What every call makes a copy of.
    pub(crate) locals: Vec<Tensor>,
    pub(crate) hooks: Vec<HookTemplate>,
    pub(crate) functions: Arc<[Arc<dyn Function>]>,
    pub(crate) captured: Vec<(Source, TensorGuard)>,
    pub(crate) environment: Vec<EnvironmentGuard>,
    pub(crate) modules: Vec<ModuleGuard>,
    pub(crate) looked_at: Vec<LookGuard>,
    pub(crate) relations: Vec<SizeGuard>,
    /// Numbers that are inputs but had their value read: these are tied to it.
    pub(crate) fixed_numbers: Vec<(usize, Scalar)>,
    pub(crate) grad_after: Option<bool>,
}

impl Recording {
    /// What the graphs of a function that was cut depend on together.
    pub(crate) fn of_segments(session: &Session) -> Recording {
        let mut state = session.lock();
        Recording {
            environment: std::mem::take(&mut state.environment),
            modules: std::mem::take(&mut state.modules),
            ..Recording::default()
        }
    }
}

/// An input of a graph: where it comes from, and its tensor in the call that was captured.
type Input = (Source, Option<Tensor>);

impl Session {
    /// Ends the capture. `results` are the tensors of the function's result, and the last handles to them but for those
    /// of closures; `keeps_sizes` is whether it has sizes too.
    pub(crate) fn finish(
        &self,
        results: Vec<Tensor>,
        keeps_sizes: bool,
        record: &SymRecord,
        grad_after: bool,
    ) -> Result<Recording> {
        let mut state = self.lock();
        state.call_removable_hooks();
        let mut places = Places::new(&mut state)?;
        let result_slots = results.iter().map(|t| places.slot(t)).collect::<Result<Vec<_>>>()?;
        // A hook in a module's table that is gone again needs no repetition; one that stays is in place for this call.
        let stays = |e: &Effect| !matches!(e, Effect::Register { handle, .. } if !handle.is_registered());
        let effects = std::mem::take(&mut state.effects).into_iter().filter(stays);
        let mut effects = effects.map(|e| e.refer(&mut |t| places.slot(t))).collect::<Result<Vec<_>>>()?;
        for t in std::mem::take(&mut state.retained).iter().filter_map(WeakTensor::upgrade) {
            effects.push(Effect::RetainGrad { target: places.slot(&t)? });
        }
        drop(results);
        places.mark_kept();
        let runs_closures = !effects.is_empty() || !state.hooks.is_empty() || !state.functions.is_empty();
        let held = if runs_closures { places.held() } else { Vec::new() };

        let hooks = number_hooks(&mut state);
        let ambient = state.trace.ambient();
        let mut graph = state.trace.finish(places.outputs());
        let (inputs, examples) = self.inputs(&mut state, &mut graph, &mut places)?;
        let functions: Arc<[Arc<dyn Function>]> = std::mem::take(&mut state.functions).into();
        let (relations, sizes) = if self.plan.varies() {
            let call = Call::new([], functions.clone());
            Varying { plan: &self.plan, graph: &graph, inputs: &inputs, derived: &state.derived, call: &call }
                .relations(record, runs_closures || keeps_sizes)?
        } else {
            Default::default()
        };
        let fixed_numbers = fixed_numbers(&state);
        let known: Vec<_> = state.numbers.drain(..).map(|(t, _, source)| (t.downgrade(), source)).collect();
        let numbers = known.into_iter().filter_map(|(t, source)| Some((t.upgrade()?, source))).collect();
        let graph = if has_calls(&graph) { Some(with_regions(graph, ambient)?) } else { None };
        Ok(Recording {
            graph,
            examples,
            inputs: inputs.into_iter().map(|(s, _)| s).collect(),
            results: result_slots,
            effects,
            held,
            numbers,
            sizes,
            hooks,
            functions,
            captured: places.guarded(),
            locals: places.into_locals(),
            environment: std::mem::take(&mut state.environment),
            modules: std::mem::take(&mut state.modules),
            looked_at: std::mem::take(&mut state.looked_at),
            relations,
            fixed_numbers,
            grad_after: (grad_after != self.ambient_grad).then_some(grad_after),
        })
    }

    /// The inputs that the graph uses, in the order of its placeholders; the others are erased.
    fn inputs(
        &self,
        state: &mut State,
        graph: &mut GraphModule,
        places: &mut Places,
    ) -> Result<(Vec<Input>, Vec<ExampleInput>)> {
        let placeholders = used_placeholders(graph);
        let writes = graph.graph.nodes().any(|n| {
            graph.graph[n].target().and_then(|t| t.overload()).and_then(|o| o.schema()).is_some_and(|s| s.mutates())
        });
        let given: HashMap<NodeId, Source> = std::mem::take(&mut state.inputs).into_iter().collect();
        let values: HashMap<NodeId, Tensor> = std::mem::take(&mut state.placeholder_values).into_iter().collect();
        let (mut inputs, mut examples) = (Vec::new(), Vec::new());
        for n in placeholders {
            let (source, real) = match given.get(&n) {
                Some(source) => (source.clone(), values.get(&n).cloned()),
                None => {
                    let (source, real) = places.free_input(n, writes)?;
                    (source, Some(real))
                }
            };
            let number = state.numbers.iter().find(|(_, _, s)| s.is_same_number(&source)).map(|(_, v, _)| *v);
            examples.push(self.example(&source, real.as_ref(), number));
            inputs.push((source, real));
        }
        Ok((inputs, examples))
    }

    /// The description of an input for a backend.
    fn example(&self, source: &Source, real: Option<&Tensor>, number: Option<Scalar>) -> ExampleInput {
        let value = match (source, real, number) {
            (Source::Symbol(s), ..) => ExampleValue::Int(self.plan.hint(*s).unwrap_or_default()),
            (_, Some(t), _) => ExampleValue::Tensor(TensorMeta::of(t)),
            (_, None, Some(Scalar::Float(v))) => ExampleValue::Float(v),
            (_, None, number) => ExampleValue::Int(number.map_or(0, Scalar::to_i64)),
        };
        ExampleInput { value, is_static: matches!(source, Source::Captured(_) | Source::Cell(_)) }
    }
}

/// Gives the hook nodes of the trace the numbers of their slots.
fn number_hooks(state: &mut State) -> Vec<HookTemplate> {
    let hooks = std::mem::take(&mut state.hooks);
    let graph = &mut state.trace.module_mut().graph;
    for (slot, hook) in hooks.iter().enumerate() {
        let mut args = graph[hook.node].args().to_vec();
        args[1] = Argument::Int(slot as i64);
        graph.set_args(hook.node, args);
    }
    hooks.into_iter().map(|h| HookTemplate { hook: h.hook, handle: h.handle }).collect()
}

/// Number arguments that are inputs and had their value read.
fn fixed_numbers(state: &State) -> Vec<(usize, Scalar)> {
    let read = state.numbers.iter().filter(|(t, ..)| state.numbers_read.contains(&t.id()));
    read.filter_map(|(_, v, s)| if let Source::Number(i) = s { Some((*i, *v)) } else { None }).collect()
}

/// The graph with changes of grad mode as regions.
pub(crate) fn with_regions(graph: GraphModule, ambient_grad: bool) -> Result<GraphModule> {
    let program = ExportedProgram { module: Arc::new(graph), ..ExportedProgram::default() };
    let context = Context { ambient_grad, compat: false };
    let (program, _) = passes::replace_set_grad_with_hop_pass(&program, &context)?;
    Ok(Arc::unwrap_or_clone(program.module))
}
