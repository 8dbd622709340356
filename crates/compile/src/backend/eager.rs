//! Graphs that are interpreted, op by op: the backend `eager`, with ordinary autograd, which is the reference for every other
//! one; what unoptimized backends do with forward and backward graphs; and what a graph does that cannot be traced.

use crate::backend::{Backend, Call, ExampleInput, Executable, Value};
use crate::error::{Error, Result};
use firebrand_core::autograd::RemovableHandle;
use firebrand_core::{Device, Tensor};
use firebrand_graph::Error as GraphError;
use firebrand_graph::interpret::{self, NodeRunner, run_call, run_module};
use firebrand_graph::ir::{Argument, Function, GraphModule, Hop, Kind, NodeId, Target};
use std::collections::HashMap;
use std::sync::Arc;

/// The backend that runs graphs eagerly.
pub fn eager() -> Arc<dyn Backend> {
    Arc::new(Interpret)
}

/// The backend that compiles nothing: every run interprets the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpret;

impl Backend for Interpret {
    fn name(&self) -> &str {
        "eager"
    }

    fn compile(&self, graph: &GraphModule, _: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Interpreted { graph: Arc::new(graph.clone()) }))
    }
}

/// A graph that is interpreted.
pub(crate) struct Interpreted {
    pub(crate) graph: Arc<GraphModule>,
}

impl Executable for Interpreted {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let runner = EagerRunner { call, device: None };
        let results = match call.held().is_empty() {
            true => run_module(&mut { runner }, &self.graph, inputs)?,
            false => run_module(&mut Binding::new(runner, &self.graph), &self.graph, inputs)?,
        };
        match results {
            Value::List(results) => Ok(results),
            one => Ok(vec![one]),
        }
    }
}

/// Binds results that custom functions may hold as soon as they are computed, in the graph or in a region of it.
struct Binding<'a> {
    runner: EagerRunner<'a>,
    /// By the graph and the node in it.
    held: HashMap<(*const GraphModule, NodeId), Vec<&'a Tensor>>,
}

impl<'a> Binding<'a> {
    fn new(runner: EagerRunner<'a>, graph: &'a GraphModule) -> Binding<'a> {
        let results = graph.graph.result().and_then(Argument::items).unwrap_or(&[]);
        let mut held: HashMap<_, Vec<&'a Tensor>> = HashMap::new();
        for (place, stand_in) in runner.call.held() {
            let mut at = results.get(*place).and_then(Argument::node).map(|n| (graph, n));
            while let Some((graph, node)) = at {
                held.entry((std::ptr::from_ref(graph), node)).or_default().push(stand_in);
                at = in_region(graph, node);
            }
        }
        Binding { runner, held }
    }
}

/// The node of a region whose value this one is.
fn in_region(graph: &GraphModule, part: NodeId) -> Option<(&GraphModule, NodeId)> {
    let g = &graph.graph;
    let (of, place) = match g[part].args() {
        [Argument::Node(of), Argument::Int(place)] => (*of, usize::try_from(*place).ok()?),
        _ => return None,
    };
    let is = |n: NodeId, target: Target| g[n].target() == Some(&target);
    if !is(part, Function::GetItem.into()) || !is(of, Hop::WrapWithSetGradEnabled.into()) {
        return None;
    }
    let region = graph.subgraph(g[g[of].args().get(1)?.node()?].attr_path()?)?;
    Some((region, region.graph.result().and_then(Argument::items)?.get(place)?.node()?))
}

impl NodeRunner for Binding<'_> {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> Result<Value, GraphError> {
        let value = match self.runner.own(call)? {
            Some(value) => value,
            None => run_call(self, call)?,
        };
        if let (Some(held), Value::Tensor(t), Some(known)) =
            (self.held.get(&(std::ptr::from_ref(call.module), call.node)), &value, self.runner.call.stand_ins())
        {
            held.iter().for_each(|stand_in| known.bind(stand_in, t.clone()));
        }
        Ok(value)
    }

    fn device(&self) -> Option<Device> {
        self.runner.device()
    }
}

/// Runs the nodes of captured graphs and of backward graphs: ops, and what belongs to a call (hooks, custom functions, the
/// host of a compiled backward pass).
pub struct EagerRunner<'a> {
    /// The call.
    pub call: &'a Call,
    /// A device that stands for every device; on [`Device::Meta`] hooks are left out.
    pub device: Option<Device>,
}

impl NodeRunner for EagerRunner<'_> {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> Result<Value, GraphError> {
        match self.own(call)? {
            Some(value) => Ok(value),
            None => run_call(self, call),
        }
    }

    fn device(&self) -> Option<Device> {
        self.device
    }
}

impl EagerRunner<'_> {
    /// The result of a node that belongs to a call; `None` for any other node.
    fn own(&self, call: &interpret::Call<'_>) -> Result<Option<Value>, GraphError> {
        let Kind::CallFunction(Target::Function(function)) = call.module.graph[call.node].kind() else {
            return Ok(None);
        };
        self.special(function, &call.args).map_err(|e| match e {
            Error::Graph(e) => e,
            e => GraphError::Core(e.into()),
        })
    }

    /// The result of a node that belongs to a call; `None` for any other node.
    fn special(&self, function: &Function, args: &[Value]) -> Result<Option<Value>> {
        Ok(Some(match (function, args) {
            (Function::RegisterHook, [tensor, body, free @ ..]) => {
                let tensor = tensor.tensor()?;
                if self.device.is_none() {
                    register_hook(self.call, tensor, body, free)?;
                }
                tensor.into()
            }
            (Function::CallHook, [slot, grad]) => self.call.call_hook(slot, grad)?,
            (Function::CallHost, args) => self.call.call_host(args.to_vec())?,
            (Function::ApplyFunction, [slot, inputs @ ..]) => {
                let inputs = inputs.iter().map(|v| Ok(v.tensor()?.clone())).collect::<Result<Vec<Tensor>>>()?;
                let results = self.call.apply(slot_number(slot)?, inputs)?;
                Value::List(results.into_iter().map(Value::Tensor).collect())
            }
            _ => return Ok(None),
        }))
    }
}

fn slot_number(slot: &Value) -> Result<usize> {
    usize::try_from(slot.scalar()?.to_i64()).map_err(|_| Error::internal("a slot is not a number"))
}

/// Puts the hook of a node on a tensor as an eager run does: one that the call brings along, or a sub-graph.
pub(crate) fn register_hook(call: &Call, tensor: &Tensor, body: &Value, free: &[Value]) -> Result<RemovableHandle> {
    Ok(match body {
        Value::Graph(body) => {
            let (body, free, call) = (body.clone(), free.to_vec(), call.clone());
            tensor.try_register_hook(move |g: &Tensor| -> firebrand_core::Result<Option<Tensor>> {
                let inputs: Vec<Value> = std::iter::once(g.into()).chain(free.iter().cloned()).collect();
                let mut runner = EagerRunner { call: &call, device: None };
                let result = run_module(&mut runner, &body, &inputs).map_err(Error::from)?;
                Ok(hook_result(&result).cloned())
            })?
        }
        slot => {
            let slot = call.hook(slot_number(slot)?)?.clone();
            tensor.try_register_hook_any(move |g| slot.run(g))?
        }
    })
}

/// The replacement for the gradient that the body of a traced hook returns; `None` if it leaves it unchanged.
pub(crate) fn hook_result(result: &Value) -> Option<&Tensor> {
    let first = match result {
        Value::List(items) => items.first(),
        one => Some(one),
    };
    first.and_then(|v| v.tensor().ok())
}
