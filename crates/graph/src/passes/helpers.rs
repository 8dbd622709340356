//! Small helpers for writing passes.

use crate::error::Result;
use crate::ir::{Graph, NodeId};

/// The nodes that match, in order.
pub fn nodes_filter(graph: &Graph, mut wanted: impl FnMut(NodeId) -> bool) -> Vec<NodeId> {
    graph.nodes().filter(|&n| wanted(n)).collect()
}

/// The first node that matches.
pub fn nodes_first(graph: &Graph, mut wanted: impl FnMut(NodeId) -> bool) -> Option<NodeId> {
    graph.nodes().find(|&n| wanted(n))
}

/// How many nodes match.
pub fn nodes_count(graph: &Graph, mut wanted: impl FnMut(NodeId) -> bool) -> usize {
    graph.nodes().filter(|&n| wanted(n)).count()
}

/// Calls `f` on each of these nodes in turn; `f` may change the graph. Stops at the first error.
pub fn nodes_map(
    graph: &mut Graph,
    nodes: Vec<NodeId>,
    mut f: impl FnMut(&mut Graph, NodeId) -> Result<()>,
) -> Result<Vec<NodeId>> {
    for &n in &nodes {
        f(graph, n)?;
    }
    Ok(nodes)
}

/// Replaces all uses of `old` by `new`, and erases `old`.
pub fn node_replace_(graph: &mut Graph, old: NodeId, new: NodeId) -> Result<()> {
    graph.replace_all_uses_with(old, new);
    graph.erase(old)?;
    Ok(())
}
