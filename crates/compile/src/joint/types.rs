//! Types of a graph that comes without: captured graphs say of every value what it is, graphs built by hand need not.
//!
//! The graph runs once on meta tensors, with the grad mode of the moment; grad-mode markers become regions first, as in captured
//! graphs. Where that fails nothing is known, and the graph has to be interpreted.

use super::stages;
use super::trace::{Input, outline};
use crate::error::{Error, Result};
use firebrand_core::Device;
use firebrand_core::autograd::{GraphView, Saved, is_grad_enabled, iter_graph, set_grad_enabled};
use firebrand_core::state::ThreadState;
use firebrand_graph::ExportedProgram;
use firebrand_graph::interpret::{self, NodeRunner, Value, run_call, run_module};
use firebrand_graph::ir::{Function, GraphModule, Hop, Kind, NodeId, Target, TensorMeta, Val};
use firebrand_graph::passes::{Context, replace_set_grad_with_hop_pass};
use std::collections::HashMap;
use std::sync::Arc;

/// Whether something is known of the values it computes.
pub(super) fn is_typed(graph: &GraphModule) -> bool {
    let g = &graph.graph;
    let mut calls = g.nodes().filter(|&n| matches!(g[n].kind(), Kind::CallFunction(_))).peekable();
    calls.peek().is_none() || calls.any(|n| g[n].meta().val.is_some())
}

/// The graph, with what its values are for these inputs.
pub(super) fn typed(graph: &GraphModule, inputs: &[Input]) -> Result<GraphModule> {
    let recording = is_grad_enabled();
    let program = ExportedProgram { module: Arc::new(graph.clone()), ..ExportedProgram::default() };
    let context = Context { ambient_grad: recording, compat: false };
    let (program, _) = replace_set_grad_with_hop_pass(&program, &context)?;
    let mut module = Arc::unwrap_or_clone(program.module);
    let mut types = Types { found: HashMap::new(), of: &module };
    ThreadState::isolated(|| {
        let _mode = set_grad_enabled(recording).scoped();
        let value = |i: &Input| match i {
            Input::Number(v) => Ok(v.clone()),
            Input::Tensor(meta) => Ok(Value::Tensor(outline(meta)?)),
        };
        let values = inputs.iter().map(value).collect::<Result<Vec<_>>>()?;
        for (n, v) in module.graph.placeholders().zip(&values) {
            types.see(n, v);
        }
        Ok::<_, Error>(run_module(&mut types, &module, &values).map(drop)?)
    })?;
    for (n, val) in types.found {
        module.graph.meta_mut(n).val = Some(val);
    }
    Ok(module)
}

/// Whether an eager run of the graph keeps a value for a derivative and writes it later. It refuses that derivative, where a functional
/// graph would compute it from the value before the write. Where nothing is known, no.
pub(super) fn spoils(graph: &GraphModule, inputs: &[Input]) -> bool {
    let mut types = Types { found: HashMap::new(), of: graph };
    let run = || -> Result<bool> {
        let _mode = set_grad_enabled(true).scoped();
        let value = |i: &Input| match i {
            Input::Number(v) => Ok(v.clone()),
            // With a history of its own: a leaf may not be written.
            Input::Tensor(meta) if meta.requires_grad => Ok(Value::Tensor(outline(meta)?.try_clone_tensor()?)),
            Input::Tensor(meta) => Ok(Value::Tensor(outline(meta)?)),
        };
        let values = inputs.iter().map(value).collect::<Result<Vec<_>>>()?;
        let results = run_module(&mut types, graph, &values)?;
        let mut last = Vec::new();
        for v in results.items()? {
            if let Value::Tensor(t) = v {
                last.push(t.try_grad_fn_edge()?.map(|edge| edge.node));
            }
        }
        Ok(iter_graph(last).iter().any(|node| matches!(GraphView::saved(node), Saved::Stale)))
    };
    stages::writes(graph) && ThreadState::isolated(run).unwrap_or(false)
}

/// Notes what each node of a graph gives.
struct Types<'a> {
    found: HashMap<NodeId, Val>,
    of: &'a GraphModule,
}

impl Types<'_> {
    fn see(&mut self, n: NodeId, value: &Value) {
        if let Value::Tensor(t) = value {
            self.found.insert(n, TensorMeta::of(t).into());
        }
    }
}

impl NodeRunner for Types<'_> {
    fn run_node(&mut self, call: &interpret::Call<'_>) -> firebrand_graph::Result<Value> {
        let value = match (call.module.graph[call.node].kind(), &call.args[..]) {
            (Kind::CallFunction(Target::Function(Function::RegisterHook)), [of, ..]) => of.clone(),
            // Both sides give values of one type.
            (Kind::CallFunction(Target::Hop(Hop::Cond)), [_, yes, _, operands]) => {
                let result = run_module(self, yes.graph()?, operands.items()?)?;
                recorded(result, operands.items()?)?
            }
            _ => run_call(self, call)?,
        };
        if std::ptr::eq(call.module, self.of) {
            self.see(call.node, &value);
        }
        Ok(value)
    }

    fn device(&self) -> Option<Device> {
        Some(Device::Meta)
    }
}

/// Results of a conditional: they have a history if an operand has one, whichever side ran.
fn recorded(result: Value, operands: &[Value]) -> firebrand_graph::Result<Value> {
    let wanted = is_grad_enabled() && operands.iter().any(|v| matches!(v, Value::Tensor(t) if t.requires_grad()));
    let one = |v: &Value| match v {
        Value::Tensor(t) => Ok(Value::Tensor(t.detach().try_requires_grad_(wanted && t.dtype().is_differentiable())?)),
        other => Ok(other.clone()),
    };
    match &result {
        Value::List(items) => Ok(Value::List(items.iter().map(one).collect::<firebrand_graph::Result<_>>()?)),
        v => one(v),
    }
}
