//! Running a graph node by node: what unoptimised back ends do with forward and backward graphs, and what runs a
//! captured graph that cannot be traced as a whole.

use crate::backend::{Backend, Call, ExampleInput, Executable, Value};
use crate::error::{Error, Result};
use firebrand_core::Tensor;
use firebrand_graph::interpret::{self, NodeRunner, run_call, run_module};
use firebrand_graph::ir::{Function, GraphModule, Kind, Target};
use std::sync::Arc;

/// The back end that compiles nothing: every run interprets the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpret;

impl Backend for Interpret {
    fn name(&self) -> &str {
        "interpret"
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
        match run_module(&mut Runner { call }, &self.graph, inputs)? {
            Value::List(items) => Ok(items),
            one => Ok(vec![one]),
        }
    }
}

/// Runs nodes for real, with the hooks and functions of one call.
struct Runner<'a> {
    call: &'a Call,
}

/// Puts a hook on a tensor as a plain run does.
pub(crate) fn register_hook(call: &Call, tensor: &Tensor, body: &Value, free: &[Value]) -> Result<()> {
    match body {
        Value::Graph(body) => {
            let (body, free, call) = (body.clone(), free.to_vec(), call.clone());
            tensor.try_register_hook(move |g: &Tensor| -> firebrand_core::Result<Option<Tensor>> {
                let inputs: Vec<Value> = std::iter::once(g.into()).chain(free.iter().cloned()).collect();
                let result = run_module(&mut Runner { call: &call }, &body, &inputs).map_err(Error::from)?;
                let first = match &result {
                    Value::List(items) => items.first().unwrap_or(&Value::NONE),
                    one => one,
                };
                Ok(if first.is_none() { None } else { Some(first.tensor().map_err(Error::from)?.clone()) })
            })?;
        }
        slot => {
            let slot = usize::try_from(slot.scalar()?.to_i64()).map_err(|_| Error::internal("a slot is no number"))?;
            let slot = call.hook(slot)?.clone();
            tensor.register_hook_any(move |g| slot.run(g))?;
        }
    }
    Ok(())
}

impl Runner<'_> {
    fn special(&mut self, call: &interpret::Call<'_>, target: &Target) -> Result<Option<Value>> {
        match (target, &call.args[..]) {
            (Target::Function(Function::CallHook), [slot, grad]) => self.call.call_hook(slot, grad).map(Some),
            (Target::Function(Function::CallHost), args) => self.call.call_host(args.to_vec()).map(Some),
            (Target::Function(Function::RegisterHook), [Value::Tensor(t), body, free @ ..]) => {
                register_hook(self.call, t, body, free)?;
                Ok(Some(t.into()))
            }
            (Target::Function(Function::ApplyFunction), [slot, inputs @ ..]) => {
                let slot =
                    usize::try_from(slot.scalar()?.to_i64()).map_err(|_| Error::internal("a slot is no number"))?;
                let function = self.call.function(slot)?.clone();
                let tensors = inputs.iter().map(|v| Ok(v.tensor()?.clone())).collect::<Result<Vec<_>>>()?;
                let results = firebrand_core::autograd::apply_function(function, tensors)?;
                Ok(Some(Value::List(results.into_iter().map(Value::Tensor).collect())))
            }
            _ => Ok(None),
        }
    }
}

impl NodeRunner for Runner<'_> {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> firebrand_graph::Result<Value> {
        let Kind::CallFunction(target) = call.module.graph[call.node].kind() else { return run_call(self, call) };
        match self.special(call, target) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => run_call(self, call),
            Err(Error::Graph(e)) => Err(e),
            Err(e) => Err(firebrand_graph::Error::Core(e.into())),
        }
    }
}
