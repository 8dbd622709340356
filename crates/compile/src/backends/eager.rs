//! eager: interprets the captured graph op by op, with ordinary autograd. The reference for every other back end.

use crate::backend::{Backend, Call, ExampleInput, Executable, Value};
use crate::error::Result;
use crate::hooks::HookFn;
use firebrand_core::autograd::apply_function;
use firebrand_core::{Device, Tensor};
use firebrand_graph::Error as GraphError;
use firebrand_graph::interpret::{self, NodeRunner, run_call, run_module};
use firebrand_graph::ir::{Function, GraphModule, Kind, Target};
use std::sync::Arc;

/// The back end.
pub fn eager() -> Arc<dyn Backend> {
    Arc::new(Eager)
}

struct Eager;

impl Backend for Eager {
    fn name(&self) -> &str {
        "eager"
    }

    fn compile(&self, graph: &GraphModule, _: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Interpreted(graph.clone())))
    }
}

struct Interpreted(GraphModule);

impl Executable for Interpreted {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        match run_module(&mut EagerRunner { call, device: None }, &self.0, inputs)? {
            Value::List(results) => Ok(results),
            one => Ok(vec![one]),
        }
    }
}

/// Runs the nodes of captured graphs: ops, and what belongs to a call (hooks, custom functions).
pub struct EagerRunner<'a> {
    /// The call.
    pub call: &'a Call,
    /// A device that stands for every device; on [`Device::Meta`] hooks are left out.
    pub device: Option<Device>,
}

impl NodeRunner for EagerRunner<'_> {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> Result<Value, GraphError> {
        let Kind::CallFunction(Target::Function(function)) = call.module.graph[call.node].kind() else {
            return run_call(self, call);
        };
        match (function, &call.args[..]) {
            (Function::RegisterHook, [tensor, body, free @ ..]) => {
                let tensor = tensor.tensor()?;
                if self.device.is_none() && tensor.requires_grad() {
                    tensor.register_hook_any(self.hook(body, free)?)?;
                }
                Ok(tensor.into())
            }
            (Function::ApplyFunction, [slot, inputs @ ..]) => {
                let function = self.call.function(slot.scalar()?.to_i64() as usize).map_err(wrapped)?;
                let inputs = inputs.iter().map(|v| v.tensor().cloned()).collect::<Result<Vec<Tensor>, _>>()?;
                let results = apply_function(function.clone(), inputs)?;
                Ok(Value::List(results.into_iter().map(Value::Tensor).collect()))
            }
            (Function::CallHost, args) => self.call.call_host(args.to_vec()).map_err(wrapped),
            _ => run_call(self, call),
        }
    }

    fn device(&self) -> Option<Device> {
        self.device
    }
}

fn wrapped(e: crate::Error) -> GraphError {
    GraphError::Core(e.into())
}

impl EagerRunner<'_> {
    /// The hook of a node: one that the call brings along, or a sub-graph.
    fn hook(
        &self,
        body: &Value,
        free: &[Value],
    ) -> Result<impl Fn(Option<&Tensor>) -> firebrand_core::Result<Option<Tensor>> + Send + Sync + use<>, GraphError>
    {
        let hook: HookFn = match body {
            Value::Graph(body) => {
                let (body, free, call) = (body.clone(), free.to_vec(), self.call.clone());
                Arc::new(move |grad| {
                    let Some(grad) = grad else { return Ok(None) };
                    let inputs: Vec<Value> = std::iter::once(grad.into()).chain(free.iter().cloned()).collect();
                    let mut runner = EagerRunner { call: &call, device: None };
                    let result = run_module(&mut runner, &body, &inputs).map_err(firebrand_core::Error::user)?;
                    match result.items() {
                        Ok([Value::Tensor(t)]) => Ok(Some(t.clone())),
                        _ => Ok(None),
                    }
                })
            }
            slot => {
                let slot = self.call.hook(slot.scalar()?.to_i64() as usize).map_err(wrapped)?.clone();
                Arc::new(move |grad| slot.run(grad))
            }
        };
        Ok(move |grad: Option<&Tensor>| hook(grad))
    }
}
