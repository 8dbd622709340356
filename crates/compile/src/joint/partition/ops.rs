//! Facts about ops for the partitioner: which may be recomputed, and which share a loop.

use firebrand_core::dispatch::Cost;
use firebrand_graph::ir::{Argument, Function, Graph, Hop, Kind, Node, NodeId, OpOverload, Target, TensorMeta, Val};
use firebrand_graph::schema::Schema;

fn op(node: &Node) -> Option<&OpOverload> {
    node.target().and_then(Target::overload)
}

/// Whether two runs may differ.
pub(super) fn is_random(node: &Node) -> bool {
    node.draws()
}

/// Whether it says which side of a conditional runs. Computed again it might say otherwise, by a rounding.
pub(super) fn decides(graph: &Graph, n: NodeId) -> bool {
    let takes = |u: NodeId| graph[u].args().first().and_then(Argument::node) == Some(n);
    graph.users(n).any(|u| graph[u].target() == Some(&Hop::Cond.into()) && takes(u))
}

/// Whether it computes nothing: its result shares the memory of its argument.
pub(super) fn is_view(node: &Node) -> bool {
    op(node).and_then(OpOverload::schema).is_some_and(Schema::is_view)
}

/// Whether it calls a hook that comes with the call.
pub(super) fn is_hook(node: &Node) -> bool {
    node.target().is_some_and(|t| t.is_function(&Function::CallHook))
}

/// Whether computing it twice is cheap.
pub(super) fn is_recomputable(node: &Node) -> bool {
    match node.kind() {
        Kind::GetAttr(_) => true,
        Kind::CallFunction(Target::Function(Function::GetItem)) => true,
        Kind::CallFunction(Target::Op(op)) => {
            !is_random(node) && op.op().is_some_and(|op| op.info().cost != Cost::Heavy)
        }
        _ => false,
    }
}

/// Whether it shares a loop with neighbors that do.
pub(super) fn is_fusible(node: &Node) -> bool {
    is_recomputable(node) || (op(node).is_some() && is_random(node))
}

fn bytes_of(meta: &TensorMeta) -> f64 {
    let elements: f64 = meta.sizes.iter().map(|s| s.hint().unwrap_or(1) as f64).product();
    elements * meta.dtype.dtype().map_or(8.0, |d| d.size() as f64)
}

/// How many bytes a value takes; `None` if it is not a tensor.
pub(super) fn bytes(node: &Node) -> Option<f64> {
    match &node.meta().val {
        Some(Val::Tensor(meta)) => Some(bytes_of(meta)),
        _ => None,
    }
}

/// How many bytes all results of a node take.
pub(super) fn total_bytes(node: &Node) -> f64 {
    let one = |val: &Val| val.tensor().map_or(0.0, bytes_of);
    match &node.meta().val {
        Some(Val::Tuple(items) | Val::List(items)) => items.iter().map(one).sum(),
        Some(val) => one(val),
        None => 0.0,
    }
}
