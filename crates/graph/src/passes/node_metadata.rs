//! Metadata for nodes that passes insert: their abstract value and their origin.
//!
//! As a hook ([`node_metadata_hook`]) it completes nodes when they are made; as a pass it gives every call of a program
//! that has no value one. Values are computed by running the op on meta tensors; where sizes are symbolic, or
//! the op is not of this build, the value stays unknown.

use super::nested::rewrite_all;
use super::purity::is_assertion;
use super::{Context, Report};
use crate::error::Result;
use crate::interpret::{Value, call_function, call_op, materialize};
use crate::ir::*;
use crate::program::ExportedProgram;
use firebrand_core::autograd::no_grad;
use firebrand_core::{Device, Scalar, SymInt as Size, Tensor, ops};
use std::sync::Arc;

/// Marks the module stack of a node whose first argument has none.
const NO_STACK: &str = "_empty_nn_module_stack_from_metadata_hook";

/// Gives every call without an abstract value one, here and in every sub-graph.
pub fn node_metadata_pass(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        let graph = &mut module.graph;
        let unknown = |n: &NodeId| graph[*n].target().is_some() && graph[*n].meta().val.is_none();
        let calls: Vec<NodeId> = graph.nodes().filter(unknown).collect();
        let mut filled = 0;
        for n in calls {
            if let Some(val) = abstract_value(graph, n) {
                graph.meta_mut(n).val = Some(val);
                filled += 1;
            }
        }
        Ok(filled)
    })
}

/// Completes the metadata of a new call: its abstract value, the modules and notes of its first argument, and what was called. Existing
/// metadata is preserved. For [`Graph::register_create_node_hook`].
pub fn node_metadata_hook(graph: &mut Graph, node: NodeId) {
    let Some(target) = graph[node].target() else { return };
    let (name, class) = match target {
        Target::Op(op) => (format!("{}.{}", op.base(), op.overload()), "OpOverload"),
        Target::Hop(hop) => (hop.name().to_string(), "HigherOrderOperator"),
        Target::Function(f) => {
            (f.name().rsplit('.').next().unwrap_or_default().to_string(), "builtin_function_or_method")
        }
    };
    let val = graph[node].meta().val.clone().or_else(|| abstract_value(graph, node));
    let first = graph.input_nodes(node).next().map(|n| graph[n].meta().clone());
    let known = graph.meta_mut(node);
    known.val = val;
    let Some(first) = first else { return };
    known.nn_module_stack.get_or_insert_with(|| {
        first.nn_module_stack.unwrap_or_else(|| {
            let entry = (NO_STACK.to_string(), (NO_STACK.to_string(), NO_STACK.to_string()));
            Arc::new([entry].into_iter().collect())
        })
    });
    known.torch_fn.get_or_insert_with(|| Arc::new((format!("{name}_0"), format!("{class}.{name}"))));
    if known.other.is_none()
        && let Some(custom) = first.other.as_ref().and_then(|o| o.get("custom"))
    {
        known.other = Some(Arc::new([("custom".to_string(), custom.clone())].into_iter().collect()));
    }
}

/// Whether an op is called for what it does only; assertions are, also those that this build cannot run.
fn returns_nothing(op: &OpOverload) -> bool {
    let only_checks = is_assertion(op) && !op.base().starts_with("_functional");
    only_checks || op.schema().is_some_and(|s| s.returns.is_empty())
}

/// The abstract value of a call by the abstract values of its arguments; none if it cannot be known.
fn abstract_value(graph: &Graph, node: NodeId) -> Option<Val> {
    let call = &graph[node];
    if call.target().and_then(Target::overload).is_some_and(returns_nothing) {
        return Some(Val::None);
    }
    let mut value = |n: NodeId| concrete(graph[n].meta().val.as_ref());
    let args: Vec<Value> = call.args().iter().map(|a| materialize(a, &mut value)).collect::<Result<_>>().ok()?;
    let named = call.kwargs().iter().map(|(k, a)| Ok((k.clone(), materialize(a, &mut value)?)));
    let kwargs: Vec<(Name, Value)> = named.collect::<Result<_>>().ok()?;
    let result = no_grad(|| match call.target()? {
        Target::Op(op) => call_op(op, &args, &kwargs, Some(Device::Meta)).ok(),
        Target::Function(f) => call_function(f, &args).ok(),
        Target::Hop(_) => None,
    });
    result.as_ref().and_then(abstracted)
}

/// A value to compute with: a meta tensor, or a number that is known.
fn concrete(val: Option<&Val>) -> Result<Value> {
    let unknown = || crate::Error::Value("its value is not known before it runs".to_string());
    match val.ok_or_else(unknown)? {
        Val::None => Ok(Value::NONE),
        Val::Tensor(meta) => {
            let known = |list: &[SymInt]| list.iter().map(|s| s.known().map(Size::from)).collect::<Option<Vec<_>>>();
            let (sizes, strides) = known(&meta.sizes).zip(known(&meta.strides)).ok_or_else(unknown)?;
            let dtype = meta.dtype.dtype().ok_or_else(unknown)?;
            Ok(Value::Tensor(ops::empty_strided(&sizes, &strides, Some(dtype), Some(Device::Meta))?))
        }
        Val::SymInt(s) => s.known().map(Value::from).ok_or_else(unknown),
        Val::SymFloat(s) => s.known().map(Value::from).ok_or_else(unknown),
        Val::SymBool(s) => s.known().map(Value::from).ok_or_else(unknown),
        Val::Constant(argument) => materialize(argument, &mut |_| Err(unknown())),
        Val::Tuple(items) | Val::List(items) => {
            Ok(Value::List(items.iter().map(|v| concrete(Some(v))).collect::<Result<_>>()?))
        }
        Val::CustomObj { .. } | Val::Token => Err(unknown()),
    }
}

/// What is known of a value.
fn abstracted(value: &Value) -> Option<Val> {
    let tensor = |t: &Tensor| Val::from(TensorMeta::of(t));
    Some(match value {
        Value::Tensor(t) => tensor(t),
        Value::Scalar(Scalar::Int(v)) => Val::SymInt(Symbolic::Known(*v)),
        Value::Scalar(Scalar::Float(v)) => Val::SymFloat(Symbolic::Known(*v)),
        Value::Scalar(Scalar::Bool(v)) => Val::SymBool(Symbolic::Known(*v)),
        Value::Scalar(Scalar::Complex(v)) => Val::Constant(Argument::Complex(v.re, v.im)),
        Value::List(items) => Val::Tuple(items.iter().map(abstracted).collect::<Option<Vec<_>>>()?.into()),
        Value::Constant(Argument::None) => Val::None,
        Value::Constant(argument) => Val::Constant(argument.clone()),
        Value::Dict(_) | Value::Graph(_) => return None,
    })
}
