//! constant_fold: evaluates what depends on constants only.
//!
//! A folded value becomes a buffer `_frozen_param<i>`, read where it was computed. Random ops, constructors without a
//! tensor and ops with effects stay. Values that only feed other folded values are not kept. What would take far more
//! memory than the constants themselves stays too: a few bytes of program can request any amount.

use super::dead_code::sweep;
use super::purity::is_impure;
use super::{Context, Report};
use crate::error::Result;
use crate::interpret::{Call, Eager, NodeRunner, Value};
use crate::ir::*;
use crate::program::ExportedProgram;
use firebrand_core::autograd::no_grad;
use firebrand_core::{Device, Tensor};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Runs the pass on the top graph.
pub fn constant_fold(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    constant_fold_if(program, |_, _| true)
}

/// Like [`constant_fold`], for nodes that `wanted` accepts.
pub fn constant_fold_if(
    program: &ExportedProgram,
    wanted: impl Fn(&Graph, NodeId) -> bool,
) -> Result<(ExportedProgram, Report)> {
    let mut module = (*program.module).clone();
    let folded = no_grad(|| fold_values(&module));
    // Values that only feed other folded values are not kept.
    let inner: HashSet<NodeId> = folded.iter().map(|(n, _)| *n).collect();
    let graph = &module.graph;
    let kept = |n: NodeId| graph.users(n).any(|u| !inner.contains(&u)) && wanted(graph, n);
    let kept: Vec<_> = folded.into_iter().filter(|(n, _)| kept(*n)).collect();
    let mut count = kept.len();
    for (n, tensor) in kept {
        freeze(&mut module, n, &tensor)?;
    }
    count += forget_unread(&mut module)?;
    if count == 0 {
        return Ok((program.clone(), Report::default()));
    }
    Ok((ExportedProgram { module: Arc::new(module), ..program.clone() }, Report::of(count)))
}

/// What folded values may take, besides [`FACTOR`] times the constants.
const SPARE: usize = 64 << 20;
/// How many times the memory of the constants folded values may take.
const FACTOR: usize = 4;
/// Operands up to this many elements in all may go to an op whose result cannot be foreseen, such as `nonzero`.
const FORESEEN: usize = 1 << 20;

/// Bytes that a tensor has to itself at most.
fn bytes(t: &Tensor) -> usize {
    t.numel().saturating_mul(t.dtype().size()).min(t.untyped_storage().nbytes())
}

/// The same value on the meta device.
fn outlined(value: &Value) -> Result<Value> {
    Ok(match value {
        Value::Tensor(t) => t.detach().try_to_device(Device::Meta)?.into(),
        Value::List(items) => Value::List(items.iter().map(outlined).collect::<Result<_>>()?),
        Value::Dict(items) => {
            Value::Dict(items.iter().map(|(k, v)| Ok((k.clone(), outlined(v)?))).collect::<Result<_>>()?)
        }
        other => other.clone(),
    })
}

/// How much memory the result of a call will take, determined without computing it; `None` if unknown.
fn foreseen(call: &Call<'_>) -> Option<usize> {
    let run = || -> Result<usize> {
        let args = call.args.iter().map(outlined).collect::<Result<_>>()?;
        let kwargs = call.kwargs.iter().map(|(k, v)| Ok((k.clone(), outlined(v)?))).collect::<Result<_>>()?;
        let outline = Call { module: call.module, node: call.node, args, kwargs };
        let result = Eager { device: Some(Device::Meta) }.run_node(&outline)?;
        Ok(result.tensors().into_iter().map(bytes).fold(0, usize::saturating_add))
    };
    if let Ok(bytes) = run() {
        return Some(bytes);
    }
    let operands = call.args.iter().chain(call.kwargs.iter().map(|(_, v)| v)).flat_map(Value::tensors);
    (operands.map(Tensor::numel).fold(0, usize::saturating_add) <= FORESEEN).then_some(0)
}

/// The tensors that can be computed now, in order. An op that fails is left to fail when the program runs.
fn fold_values(module: &GraphModule) -> Vec<(NodeId, Tensor)> {
    let graph = &module.graph;
    let constants = module.attributes.iter().filter_map(|(_, a)| a.tensor()).map(bytes);
    let mut left = constants.fold(0, usize::saturating_add).saturating_mul(FACTOR).saturating_add(SPARE);
    let mut known: HashMap<NodeId, Value> = HashMap::new();
    let mut folded = Vec::new();
    for n in graph.nodes() {
        let node = &graph[n];
        if let Some(tensor) = node.attr_path().and_then(|p| module.attributes.get(p)).and_then(Attribute::tensor) {
            known.insert(n, tensor.into());
        }
        let constant = graph[n].num_users() > 0 && graph.input_nodes(n).all(|i| known.contains_key(&i));
        let computes = matches!(node.kind(), Kind::CallFunction(Target::Op(_) | Target::Function(_)));
        if !computes || !constant || graph.input_nodes(n).next().is_none() || is_impure(module, node) {
            continue;
        }
        let value = |a: &Argument| crate::interpret::materialize(a, &mut |n| Ok(known[&n].clone()));
        let args: Result<Vec<Value>> = node.args().iter().map(value).collect();
        let kwargs: Result<Vec<_>> = node.kwargs().iter().map(|(k, a)| Ok((k.clone(), value(a)?))).collect();
        let (Ok(args), Ok(kwargs)) = (args, kwargs) else { continue };
        let call = Call { module, node: n, args, kwargs };
        let Some(rest) = foreseen(&call).and_then(|bytes| left.checked_sub(bytes)) else { continue };
        left = rest;
        if let Ok(result) = Eager::default().run_node(&call) {
            if let Value::Tensor(t) = &result {
                folded.push((n, t.clone()));
            }
            known.insert(n, result);
        }
    }
    folded
}

fn freeze(module: &mut GraphModule, n: NodeId, tensor: &Tensor) -> Result<()> {
    let free = |i: &usize| module.attributes.get(&format!("_frozen_param{i}")).is_none();
    let name = format!("_frozen_param{}", (0..).find(free).expect("there is a free name"));
    let meta = module.graph[n].meta().clone();
    let read = module.graph.inserting(InsertPoint::Before(n), |g| g.get_attr(&name));
    *module.graph.meta_mut(read) = meta;
    module.attributes.set(&name, Attribute::Buffer { tensor: tensor.detach(), persistent: true });
    module.graph.replace_all_uses_with(n, read);
    module.graph.erase(n)?;
    Ok(())
}

/// Erases unused reads and attributes; returns the number of reads.
fn forget_unread(module: &mut GraphModule) -> Result<usize> {
    let dead = sweep(module)?;
    let reads =
        |m: &GraphModule, path: &str| m.graph.nodes().any(|n| m.graph[n].attr_path().is_some_and(|p| &**p == path));
    let tensors = module.attributes.iter().filter(|(_, a)| a.tensor().is_some()).map(|(n, _)| n.clone());
    let unread: Vec<Name> = tensors.filter(|name| !reads(module, name)).collect();
    for name in &unread {
        module.attributes.remove(name);
    }
    Ok(dead + unread.len())
}
