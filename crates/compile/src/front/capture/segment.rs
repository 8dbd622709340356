//! Running a graph in the middle of a function.

use super::Session;
use super::effect::bound_hook;
use super::finish::with_regions;
use super::places::refuse_kept;
use crate::backend::HookSlot;
use crate::backend::Interpreted;
use crate::backend::{Call, ExampleInput, ExampleValue, Executable, Value};
use crate::error::{Error, Result};
use crate::front::source::Source;
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
use firebrand_core::capture::StandIns;
use firebrand_core::{Scalar, Tensor, WeakTensor, capture as core_capture};
use firebrand_graph::ir::{Argument, GraphModule, Kind, NodeId, TensorMeta};
use firebrand_graph::trace::{Free, Trace};
use std::sync::Arc;

/// How a graph in the middle of a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Compiled,
    /// Op by op, and compiled for later calls: whether the function will ask for the histories of its values is not known yet.
    Interpreted,
    /// Op by op.
    Plain,
}

/// Compiles the graphs of a function that is cut into several.
pub(crate) trait SegmentRunner: Send + Sync {
    /// The executable of a graph; one that was compiled before is used again.
    fn executable(
        &self,
        graph: GraphModule,
        ambient_grad: bool,
        examples: &[ExampleInput],
    ) -> Result<Arc<dyn Executable>>;
}

/// Whether a graph computes anything.
pub(super) fn has_calls(graph: &GraphModule) -> bool {
    graph.graph.nodes().any(|n| matches!(graph.graph[n].kind(), Kind::CallFunction(_)))
}

/// Erases placeholders that nothing uses; returns those that are left.
pub(super) fn used_placeholders(graph: &mut GraphModule) -> Vec<NodeId> {
    let all: Vec<NodeId> = graph.graph.placeholders().collect();
    all.into_iter().filter(|&n| graph.graph[n].num_users() > 0 || !matches!(graph.graph.erase(n), Ok(true))).collect()
}

/// The description of a value for a backend.
fn example(value: &Value) -> ExampleInput {
    let value = match value {
        Value::Tensor(t) => ExampleValue::Tensor(TensorMeta::of(t)),
        Value::Scalar(Scalar::Float(v)) => ExampleValue::Float(*v),
        other => ExampleValue::Int(other.scalar().map_or(0, Scalar::to_i64)),
    };
    ExampleInput { value, is_static: false }
}

impl Session {
    /// Whether nothing is pending.
    pub(super) fn is_flushed(&self) -> bool {
        let state = self.lock();
        !has_calls(state.trace.module()) && state.effects.is_empty()
    }

    /// Ends the graph so far, runs it, and repeats the effects up to here. Everything alive gets its real tensor.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_as(if self.interpret { Segment::Interpreted } else { Segment::Compiled })
    }

    pub(super) fn flush_as(&self, how: Segment) -> Result<()> {
        let mut state = self.lock();
        state.flushed = true;
        state.call_removable_hooks();
        let grad_mode = is_grad_enabled();
        let captured: Vec<(Tensor, NodeId)> = state.trace.captured().to_vec();
        let mut wanted: Vec<(Tensor, NodeId)> = Vec::new();
        for (weak, node) in state.trace.release() {
            let Some(t) = weak.upgrade() else { continue };
            let input = state.trace.module().graph[node].is_placeholder();
            if t.is_meta() && !input && !t.is_wrapped_number() && !state.reals.contains_key(&t.id()) {
                wanted.push((t, node));
            }
        }
        let retained = std::mem::take(&mut state.retained);
        let hooks = std::mem::take(&mut state.hooks);
        for (slot, hook) in hooks.iter().enumerate() {
            let graph = &mut state.trace.module_mut().graph;
            let mut args = graph[hook.node].args().to_vec();
            args[1] = Argument::Int(slot as i64);
            graph.set_args(hook.node, args);
        }
        let ambient = state.trace.ambient();
        let results = wanted.iter().map(|(_, n)| (*n).into()).collect();
        let mut graph = state.trace.finish(results);
        let placeholders = used_placeholders(&mut graph);
        let inputs = std::mem::take(&mut state.inputs);
        let functions = std::mem::take(&mut state.functions);
        let mut values: Vec<Value> = Vec::with_capacity(placeholders.len());
        for n in &placeholders {
            let source = inputs.iter().find(|(node, _)| node == n).map(|(_, s)| s);
            let given = state.placeholder_values.iter().find(|(node, _)| node == n);
            let value = match (given, source) {
                (Some((_, real)), _) => Some(Value::Tensor(real.clone())),
                (None, Some(source)) => self.number_now(&state, source),
                (None, None) => {
                    let t = captured.iter().find(|(_, node)| node == n).map(|(t, _)| t);
                    let known = |t: &Tensor| state.reals.get(&t.id()).map(|(_, real)| real.clone());
                    let real = t.map(|t| known(t).map_or_else(|| refuse_kept(t).map(|()| t.clone()), Ok));
                    real.transpose()?.map(Value::Tensor)
                }
            };
            let name = || graph.graph[*n].name().to_string();
            values.push(value.ok_or_else(|| Error::internal(format!("input {} has no value", name())))?);
        }
        state.placeholder_values.clear();
        *state.trace = Trace::new(grad_mode, Free::Input);
        for (t, value, source) in state.numbers.clone() {
            let node = state.trace.number("number", firebrand_graph::ir::Val::SymInt(value.to_i64().into()));
            state.trace.bind(&t, node);
            state.inputs.push((node, source));
        }
        let effects = std::mem::take(&mut state.effects);
        state.changed_cells.clear();
        drop(state);
        let slots: Vec<Arc<HookSlot>> = hooks
            .iter()
            .map(|h| {
                let slot = HookSlot::new(bound_hook(h.hook.clone(), self.binding.clone()));
                self.binding.bind_handle(h.handle, slot.handle());
                slot
            })
            .collect();
        // A custom function runs in the graph and may hold any value of it that is alive.
        let held: Vec<(usize, Tensor)> = match functions.is_empty() {
            true => Vec::new(),
            false => wanted.iter().enumerate().map(|(k, (t, _))| (k, t.clone())).collect(),
        };
        let call = Call::new(slots, functions.into()).within(self.binding.clone(), held);
        let examples: Vec<ExampleInput> = values.iter().map(example).collect();
        // Compiling calls ops too, and they belong to no graph.
        let run = || -> Result<()> {
            if has_calls(&graph) {
                let executable = self.segment(how, graph, ambient, &examples)?;
                let results = {
                    let _mode = set_grad_enabled(ambient).scoped();
                    executable.run(&values, &call).map_err(Error::of_the_program)?
                };
                let mut state = self.lock();
                for ((stand_in, _), value) in wanted.iter().zip(results) {
                    let real = value.tensor()?.clone();
                    self.binding.bind(stand_in, real.clone());
                    state.reals.insert(stand_in.id(), (stand_in.clone(), real));
                }
            }
            let tensor = |t: &Tensor| Ok(self.binding.tensor(t));
            effects.iter().try_for_each(|e| e.run(&tensor, &self.binding, &self.binding))?;
            for t in retained.iter().filter_map(WeakTensor::upgrade) {
                self.binding.tensor(&t).try_retain_grad()?;
            }
            Ok(())
        };
        core_capture::suspended(run)
    }

    /// What runs a graph in the middle of the function.
    fn segment(
        &self,
        how: Segment,
        graph: GraphModule,
        ambient: bool,
        examples: &[ExampleInput],
    ) -> Result<Arc<dyn Executable>> {
        let interpreted = match how {
            Segment::Compiled => None,
            Segment::Interpreted | Segment::Plain => Some(with_regions(graph.clone(), ambient)?),
        };
        let compiled = match how {
            Segment::Plain => None,
            _ => Some(self.runner.executable(graph, ambient, examples)?),
        };
        let interpreted =
            interpreted.map(|graph| Arc::new(Interpreted { graph: Arc::new(graph) }) as Arc<dyn Executable>);
        interpreted.or(compiled).ok_or_else(|| Error::internal("a graph is either compiled or interpreted"))
    }

    /// The number that an input is in the call that is captured.
    fn number_now(&self, state: &super::State, source: &Source) -> Option<Value> {
        Some(match source {
            Source::Number(_) | Source::ReadNumber(_) => {
                Value::Scalar(state.numbers.iter().find(|(_, _, s)| s.is_same_number(source))?.1)
            }
            Source::Symbol(s) => Value::Scalar(self.plan.hint(*s)?.into()),
            _ => return None,
        })
    }
}
