//! run_decompositions: decomposes composite ops into core ATen, the ops that PyTorch's export keeps.
//!
//! The program is functionalized, then run on meta tensors, and what reaches the kernels, decomposed by `rules`, is
//! the new graph; with sizes that vary this is done at several sizes. Regions without gradient stay regions, which PyTorch loses (R4); autocast regions become the casts they
//! make; both branches of a conditional are decomposed. Loops whose length depends on values of tensors are errors.

mod emit;
mod rules;

use super::functionalize::{functionalize_at_hints, writes};
use super::{Context, Report, set_grad};
use crate::call::Runner;
use crate::dynamic::at_all_sizes;
use crate::error::{Error, Result};
use crate::export::{TraceLayer, dialect_of, trace_below_autograd};
use crate::interpret::{Call, Value, run_module};
use crate::ir::*;
use crate::program::ExportedProgram;
use emit::Decompose;
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
use firebrand_core::dispatch::{Decomposition, Derivative, Op, push_inner_layer};
use firebrand_core::state::ThreadState;
use firebrand_core::{Device, Layout, Spec, Tensor};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

const PASS: &str = "run_decompositions";

/// Runs the pass. A program with mutations is functionalized first: new values of buffers and inputs become leading results.
pub fn run_decompositions(program: &ExportedProgram, context: &Context) -> Result<(ExportedProgram, Report)> {
    let count = Cell::new(0);
    let result = at_all_sizes(program, PASS, |program| {
        let result = match writes(program) {
            true => decomposed(&functionalize_at_hints(program, context)?.0, context)?,
            false => decomposed(program, context)?,
        };
        count.set(result.module.graph.len());
        Ok(result)
    })?;
    Ok((result, Report::of(count.get())))
}

/// Ops that are composite here and that PyTorch keeps.
fn stays_whole(op: Op) -> bool {
    op.info().decomposition == Decomposition::Kept && op.info().derivative == Derivative::Composite
}

/// Returns an error for ops whose decomposition would change their meaning.
fn check(module: &GraphModule) -> Result<()> {
    let graph = &module.graph;
    for n in graph.nodes() {
        let op = graph[n].target().and_then(Target::overload).and_then(OpOverload::op);
        // Its slopes are drawn while it runs, if it trains.
        let draws = |op: Op| op == Op::RRELU && graph[n].args().get(3) == Some(&Argument::Bool(true));
        if op.is_some_and(|op| op.info().decomposition == Decomposition::Refused || draws(op)) {
            let message = "its decomposition depends on the values of its arguments".to_string();
            return Err(Error::PassNode { pass: PASS, node: graph[n].name().to_string(), message });
        }
    }
    module.subgraphs().try_for_each(|(_, g)| check(g))
}

/// Decomposes a functional program, for the sizes that it was exported with.
fn decomposed(program: &ExportedProgram, context: &Context) -> Result<ExportedProgram> {
    let graph = &program.module.graph;
    check(&program.module)?;
    let mut inputs = Vec::new();
    for n in graph.placeholders() {
        inputs.push((graph[n].name().clone(), outline(&graph[n])?));
    }
    let _mode = set_grad_enabled(context.ambient_grad).scoped();
    let mut module = trace(&program.module, &inputs)?;
    keep_input_names(&mut module.graph, &inputs);
    let mut result = ExportedProgram { dialect: dialect_of(&module), ..program.clone() };
    if let Some(signature) = &mut result.signature {
        let signature = Arc::make_mut(signature);
        let returned = module.graph.result().and_then(Argument::items).unwrap_or(&[]);
        for (spec, node) in signature.outputs.iter_mut().zip(returned.iter().filter_map(Argument::node)) {
            spec.arg.set_name(module.graph[node].name().clone());
        }
    }
    result.module = Arc::new(module);
    let (result, _) = set_grad::replace_set_grad_with_hop_pass(&result, context)?;
    Ok(result)
}

/// The decomposition of a graph, for inputs like these.
fn trace(module: &GraphModule, inputs: &[(Name, Tensor)]) -> Result<GraphModule> {
    trace_below_autograd(inputs, stays_whole, |layer, outlines| {
        let values: Vec<Value> = outlines.iter().map(Value::from).collect();
        let layer = Arc::clone(layer);
        let mut runner = Runner::on(Device::Meta).with_conditional(move |call| conditional(&layer, call));
        let _apart = push_inner_layer(Arc::new(Decompose));
        let result = run_module(&mut runner, module, &values)?;
        result.items()?.iter().map(|v| v.tensor().cloned()).collect()
    })
}

/// A conditional: each side is traced in a state of its own, where nothing of this trace is switched on.
fn conditional(layer: &Arc<TraceLayer>, call: &Call<'_>) -> Result<Value> {
    let [Value::Tensor(pred), yes, no, operands] = &call.args[..] else {
        return Err(Error::Value("cond takes a predicate, two branches and operands".into()));
    };
    let operands: Vec<&Tensor> = operands.items()?.iter().map(Value::tensor).collect::<Result<_>>()?;
    let grad = is_grad_enabled();
    let side = |body: &Value| -> Result<GraphModule> {
        let graph = &body.graph()?.graph;
        let names = graph.placeholders().map(|n| graph[n].name().clone());
        let inputs: Vec<(Name, Tensor)> = names.zip(operands.iter().map(|t| (*t).clone())).collect();
        let body = body.graph()?;
        ThreadState::isolated(|| {
            let _mode = set_grad_enabled(grad).scoped();
            let mut module = trace(body, &inputs)?;
            keep_input_names(&mut module.graph, &inputs);
            Ok(module)
        })
    };
    let sides = [side(yes)?, side(no)?];
    let graph = &sides[0].graph;
    let returned = graph.result().and_then(Argument::items).unwrap_or(&[]);
    let results = returned.iter().filter_map(Argument::node).map(|n| outline(&graph[n])).collect::<Result<Vec<_>>>()?;
    layer.conditional(pred, &operands, [&sides[0], &sides[1]], &results)?;
    Ok(Value::List(results.into_iter().map(Value::Tensor).collect()))
}

/// Gives inputs the names they had, also those that no new node would get, such as `input`.
fn keep_input_names(graph: &mut Graph, inputs: &[(Name, Tensor)]) {
    let names: HashSet<&Name> = inputs.iter().map(|(name, _)| name).collect();
    let others: Vec<NodeId> =
        graph.nodes().filter(|&n| !graph[n].is_placeholder() && names.contains(graph[n].name())).collect();
    for n in others {
        let name = graph[n].name().clone();
        // Its own name is taken, by itself: this gives the next free one. The empty one is nothing's.
        graph.rename(n, "");
        graph.rename(n, &name);
    }
    let placeholders: Vec<NodeId> = graph.placeholders().collect();
    graph.set_names(placeholders.into_iter().zip(inputs.iter().map(|(name, _)| name.clone())));
}

/// A meta tensor like the value of a node.
fn outline(node: &Node) -> Result<Tensor> {
    let fail =
        |message: &str| Error::PassNode { pass: PASS, node: node.name().to_string(), message: message.to_string() };
    let Some(Val::Tensor(meta)) = &node.meta().val else {
        return Err(fail("only programs of tensors whose types are known can be decomposed"));
    };
    let hint = |s: &SymInt| s.hint().and_then(|v| usize::try_from(v).ok());
    let sizes: Option<Vec<usize>> = meta.sizes.iter().map(hint).collect();
    let strides: Option<Vec<usize>> = meta.strides.iter().map(hint).collect();
    let (Some(sizes), Some(strides), Some(dtype)) = (sizes, strides, meta.dtype.dtype()) else {
        return Err(fail("its sizes have no value at export, or its dtype cannot be computed with"));
    };
    let layout = Layout::strided(&sizes, &strides, hint(&meta.storage_offset).unwrap_or(0))?;
    let tensor = Tensor::try_empty(Spec { layout, dtype, device: Device::Meta })?;
    Ok(tensor.try_requires_grad_(meta.requires_grad)?)
}
