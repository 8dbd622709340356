//! insert_custom_op_guards: checks dtype, device and layout of what named ops are given.

use super::Report;
use super::nested::rewrite_all;
use crate::error::Result;
use crate::ir::*;
use crate::program::ExportedProgram;
use std::sync::Arc;

/// Puts `_assert_tensor_metadata` before each call of these ops, one for every tensor argument, positional ones first.
pub fn insert_custom_op_guards(program: &ExportedProgram, ops: &[OpOverload]) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        let graph = &mut module.graph;
        let is = |n: &NodeId| graph[*n].target().and_then(Target::overload).is_some_and(|op| ops.contains(op));
        let calls: Vec<NodeId> = graph.nodes().filter(is).collect();
        for &call in &calls {
            let mut tensors: Vec<NodeId> = Vec::new();
            graph[call].arguments().for_each(|a| a.for_each_node(&mut |n| tensors.push(n)));
            for tensor in tensors {
                if let Some(Val::Tensor(meta)) = graph[tensor].meta().val.clone() {
                    assert_metadata(graph, call, tensor, &meta);
                }
            }
        }
        Ok(calls.len())
    })
}

/// Inserts one assertion before a node, and says of it what the metadata hook says of new nodes.
pub(super) fn assert_metadata(graph: &mut Graph, before: NodeId, tensor: NodeId, meta: &TensorMeta) -> NodeId {
    let kwargs: [(Name, Argument); 3] = [
        ("dtype".into(), meta.dtype.into()),
        ("device".into(), meta.device.clone().into()),
        ("layout".into(), meta.layout.into()),
    ];
    let kind = Kind::CallFunction(Target::aten("_assert_tensor_metadata.default"));
    let new = graph.inserting(InsertPoint::Before(before), |g| g.create_node(kind, [tensor.into()], kwargs, None));
    let stack = graph[tensor].meta().nn_module_stack.clone();
    let name = "_assert_tensor_metadata.default";
    let known = graph.meta_mut(new);
    known.val = Some(Val::None);
    known.nn_module_stack = stack;
    known.torch_fn = Some(Arc::new((format!("{name}_0"), format!("OpOverload.{name}"))));
    new
}
