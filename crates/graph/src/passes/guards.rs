//! Checks of what ops are given: dtype, device and layout of their tensors, as `_assert_tensor_metadata` calls.

use super::nested::rewrite_all;
use super::node_metadata::node_metadata_hook;
use super::{Context, Report};
use crate::error::Result;
use crate::ir::*;
use crate::program::ExportedProgram;
use firebrand_core::dispatch::Op;

/// Puts `_assert_tensor_metadata` before each call of these ops, one for every tensor argument, positional ones first.
pub fn insert_custom_op_guards(program: &ExportedProgram, ops: &[OpOverload]) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        let graph = &mut module.graph;
        let is = |n: &NodeId| graph[*n].target().and_then(Target::overload).is_some_and(|op| ops.contains(op));
        let calls: Vec<NodeId> = graph.nodes().filter(is).collect();
        for &call in &calls {
            let mut tensors: Vec<NodeId> = Vec::new();
            graph[call].arguments().for_each(|a| a.for_each_node(&mut |n| tensors.push(n)));
            tensors.into_iter().for_each(|tensor| assert_metadata(graph, call, tensor));
        }
        Ok(calls.len())
    })
}

/// Inserts the same check before each conversion (`to.dtype` and related ops): what a conversion does depends on what it is
/// given, and a trace knows only what it saw. A conversion that already follows its check is left alone.
pub fn insert_conversion_guards_pass(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        let graph = &mut module.graph;
        let converts = |n: &NodeId| {
            let target = graph[*n].target();
            target.is_some_and(|t| [Op::TO_DEVICE, Op::TO_DTYPE, Op::TO_DTYPE_LAYOUT].into_iter().any(|op| t.is_op(op)))
        };
        let calls: Vec<NodeId> = graph.nodes().filter(converts).collect();
        let mut inserted = 0;
        for call in calls {
            let Some(tensor) = graph[call].args().first().and_then(Argument::node) else { continue };
            let checked = graph.prev(call).is_some_and(|p| {
                graph[p].target().is_some_and(|t| t.is_op(Op::_ASSERT_TENSOR_METADATA))
                    && graph[p].args().first() == Some(&tensor.into())
            });
            if !checked {
                assert_metadata(graph, call, tensor);
                inserted += 1;
            }
        }
        Ok(inserted)
    })
}

/// Inserts one check before a node; a value that is not a tensor of known type has nothing to check.
fn assert_metadata(graph: &mut Graph, before: NodeId, tensor: NodeId) {
    let Some(Val::Tensor(meta)) = graph[tensor].meta().val.clone() else { return };
    let kwargs: [(Name, Argument); 3] = [
        ("dtype".into(), meta.dtype.into()),
        ("device".into(), meta.device.clone().into()),
        ("layout".into(), meta.layout.into()),
    ];
    let kind = Kind::CallFunction(Target::aten("_assert_tensor_metadata.default"));
    let new = graph.inserting(InsertPoint::Before(before), |g| g.create_node(kind, [tensor.into()], kwargs, None));
    node_metadata_hook(graph, new);
}
