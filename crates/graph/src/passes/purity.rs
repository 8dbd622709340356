//! Side effects of nodes.

use crate::ir::*;
use crate::schema::Schema;

/// Ops that only assert something; they return no useful value.
const ASSERTIONS: &[&str] = &[
    "aten::_assert_async",
    "aten::_assert_async.msg",
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
    "aten::_functional_assert_async.msg",
    "aten::_functional_sym_constrain_range",
];

/// Whether this op only asserts something.
pub(super) fn is_assertion(op: &OpOverload) -> bool {
    ASSERTIONS.contains(&op.qualified())
}

/// Whether two calls of this op with the same arguments may differ.
pub(super) fn is_random(node: &Node, op: &OpOverload) -> bool {
    let Some(id) = op.op() else { return false };
    if !op.draws() {
        return false;
    }
    // A dropout that is switched off draws nothing.
    let schema = Schema::of_op(id);
    let flag = ["train", "training"].iter().find_map(|name| schema.position(name));
    let value = flag.and_then(|i| {
        let named = node.kwargs().iter().find(|(k, _)| &**k == schema.args[i].name).map(|(_, a)| a);
        node.args().get(i).or(named)
    });
    value != Some(&Argument::Bool(false))
}

/// Whether a node must stay even if it is unused.
pub(super) fn is_impure(module: &GraphModule, node: &Node) -> bool {
    match node.kind() {
        Kind::Placeholder(_) | Kind::Output | Kind::CallMethod(_) => true,
        Kind::GetAttr(_) => false,
        Kind::CallModule(path) => module.subgraph(path).is_none_or(|g| has_effects(g)),
        Kind::CallFunction(Target::Function(f)) => {
            matches!(
                f,
                Function::SetGradEnabled
                    | Function::EnterAutocast
                    | Function::ExitAutocast
                    | Function::CallHost
                    | Function::Other(_)
            )
        }
        Kind::CallFunction(Target::Hop(Hop::ExportTracepoint | Hop::WithEffects | Hop::Other(_))) => true,
        Kind::CallFunction(Target::Hop(_)) => {
            let bodies = node.args().iter().filter_map(Argument::node).filter_map(|n| {
                let path = module.graph[n].attr_path()?;
                module.subgraph(path)
            });
            bodies.into_iter().any(|g| has_effects(g))
        }
        Kind::CallFunction(Target::Op(op)) => {
            // An op this build does not know may do anything.
            is_assertion(op) || is_random(node, op) || op.schema().is_none_or(Schema::mutates)
        }
    }
}

/// Whether running a sub-graph has side effects.
pub(super) fn has_effects(module: &GraphModule) -> bool {
    let graph = &module.graph;
    let mut nodes = graph.nodes().filter(|&n| !matches!(graph[n].kind(), Kind::Placeholder(_) | Kind::Output));
    nodes.any(|n| is_impure(module, &graph[n]))
}
