//! run_decompositions: layers come apart into core ATen, the ops that PyTorch's export keeps.
//!
//! The program is run once on tensors without memory, and what reaches the kernels, taken apart by `rules`, is the new
//! graph. Regions without gradient stay regions, which the reference loses (R4); autocast regions become the casts they
//! make. A program whose path depends on values of tensors (`cond`) is refused.

mod emit;
mod rules;

use super::functionalize::{functionalize_at_hints, writes};
use super::{Context, Report, set_grad};
use crate::call::Runner;
use crate::dynamic::at_all_sizes;
use crate::error::{Error, Result};
use crate::export::{dialect_of, trace_below_autograd};
use crate::interpret::{Value, run_module};
use crate::ir::*;
use crate::program::ExportedProgram;
use emit::Decompose;
use firebrand_core::autograd::set_grad_enabled;
use firebrand_core::dispatch::push_inner_layer;
use firebrand_core::{Device, Spec, Tensor};
use std::cell::Cell;
use std::sync::Arc;

const PASS: &str = "run_decompositions";

/// Runs the pass. A program that writes is made pure first: new values of buffers and inputs become leading results.
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

/// Takes a program that does not write apart, for the sizes that it was exported with.
fn decomposed(program: &ExportedProgram, context: &Context) -> Result<ExportedProgram> {
    let graph = &program.module.graph;
    let mut inputs = Vec::new();
    for n in graph.placeholders() {
        inputs.push((graph[n].name().clone(), outline(&graph[n])?));
    }
    let _mode = set_grad_enabled(context.ambient_grad).scoped();
    let mut module = trace_below_autograd(&inputs, |outlines| {
        let values: Vec<Value> = outlines.iter().map(Value::from).collect();
        let _apart = push_inner_layer(Arc::new(Decompose));
        let result = run_module(&mut Runner::on(Device::Meta), &program.module, &values)?;
        let tensors = |v: &Value| v.tensor().cloned();
        result.items()?.iter().map(tensors).collect()
    })?;
    keep_input_names(&mut module.graph, inputs.iter().map(|(name, _)| name.clone()).collect());
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

/// Gives inputs the names they had, also those that no new node would get, such as `input`.
fn keep_input_names(graph: &mut Graph, names: Vec<Name>) {
    let others: Vec<NodeId> =
        graph.nodes().filter(|&n| !graph[n].is_placeholder() && names.contains(graph[n].name())).collect();
    for n in others {
        let name = graph[n].name().clone();
        // Its own name is taken, by itself: this gives the next free one. The empty one is nobody's.
        graph.rename(n, "");
        graph.rename(n, &name);
    }
    let inputs: Vec<NodeId> = graph.placeholders().collect();
    graph.set_names(inputs.into_iter().zip(names));
}

/// A tensor without memory like the one this placeholder takes.
fn outline(node: &Node) -> Result<Tensor> {
    let fail =
        |message: &str| Error::PassNode { pass: PASS, node: node.name().to_string(), message: message.to_string() };
    let Some(Val::Tensor(meta)) = &node.meta().val else {
        return Err(fail("only programs whose inputs are tensors of known type can be decomposed"));
    };
    let sizes: Option<Vec<usize>> = meta.sizes.iter().map(|s| s.hint().and_then(|v| usize::try_from(v).ok())).collect();
    let (Some(sizes), Some(dtype)) = (sizes, meta.dtype.dtype()) else {
        return Err(fail("its sizes have no value at export, or its dtype cannot be computed with"));
    };
    let tensor = Tensor::try_empty(Spec::new(&sizes, dtype, Device::Meta))?;
    Ok(tensor.try_requires_grad_(meta.requires_grad)?)
}
