//! The minimum cut: which values to save so that the fewest bytes are saved and everything else can be recomputed.
//!
//! Every value is an edge whose capacity is the cost of keeping it; values that may not be recomputed hang on the
//! source, the backward hangs on the sink. A value far from the backward costs more to keep than a near one, and one that
//! a loop would not have to write costs double.

use super::{Joint, Parts, flow::Network, nodes_of, ops};
use crate::error::{Error, Result};
use firebrand_graph::ir::{Graph, NodeId};
use std::collections::{HashMap, HashSet};

/// Decisions that come from outside.
#[derive(Default)]
pub(super) struct Marks {
    /// Values that are recomputed, whatever it costs.
    pub(super) recompute: HashSet<NodeId>,
}

struct Cut<'a> {
    graph: &'a Graph,
    joint: &'a Joint,
    parts: &'a Parts,
    keep_saved_results: bool,
    distance: HashMap<NodeId, u32>,
}

const FAR: u32 = 1_000_000_000;

impl<'a> Cut<'a> {
    fn new(joint: &'a Joint, parts: &'a Parts, keep_saved_results: bool) -> Cut<'a> {
        let graph = &joint.module.graph;
        let mut distance = HashMap::new();
        for n in graph.nodes().rev() {
            let far = match graph[n].is_output() {
                true => FAR,
                false if !parts.forward.contains(&n) => 0,
                false => graph.users(n).map(|u| distance.get(&u).copied().unwrap_or(FAR) + 1).min().unwrap_or(FAR),
            };
            distance.insert(n, far.min(FAR));
        }
        Cut { graph, joint, parts, keep_saved_results, distance }
    }

    fn fuses(&self, a: NodeId, b: NodeId) -> bool {
        ops::is_fusible(&self.graph[a]) && ops::is_fusible(&self.graph[b])
    }

    /// Whether the backward needs it in memory in any case.
    fn is_materialized_in_backward(&self, n: NodeId) -> bool {
        if ops::is_view(&self.graph[n]) {
            return false;
        }
        let mut stack = vec![n];
        while let Some(at) = stack.pop() {
            for user in self.graph.users(at) {
                let in_backward = !self.parts.forward.contains(&user) && !self.graph[user].is_output();
                if in_backward && !self.fuses(at, user) {
                    return true;
                }
                if ops::is_view(&self.graph[user]) {
                    stack.push(user);
                }
            }
        }
        false
    }

    /// Whether it must not be recomputed.
    fn is_banned(&self, n: NodeId) -> bool {
        let node = &self.graph[n];
        if !ops::is_recomputable(node)
            || ops::decides(self.graph, n)
            || (self.keep_saved_results && node.is_saved_result())
        {
            return true;
        }
        if self.is_materialized_in_backward(n) {
            return true;
        }
        // A reduction that gives little for much is kept.
        let inputs: f64 = self.graph.input_nodes(n).filter_map(|i| ops::bytes(&self.graph[i])).sum();
        !ops::is_view(node) && node.target().is_some() && ops::total_bytes(node) * 4.0 < inputs
    }

    /// What keeping it costs.
    fn weight(&self, n: NodeId) -> f64 {
        let node = &self.graph[n];
        let Some(bytes) = ops::bytes(node) else { return f64::INFINITY };
        if let Some(k) = self.joint.primals.iter().position(|p| *p == n)
            && self.joint.is_static[k]
        {
            return 0.0;
        }
        let cost = (bytes * 1.1f64.powi(self.distance[&n].clamp(1, 100) as i32)).floor();
        let written = node.is_placeholder() || self.graph.users(n).any(|u| !self.fuses(n, u));
        if written { cost } else { cost * 2.0 }
    }
}

/// The values to keep.
pub(super) fn solve(joint: &Joint, parts: &Parts, keep_saved_results: bool, marks: &Marks) -> Result<HashSet<NodeId>> {
    let graph = &joint.module.graph;
    let cut = Cut::new(joint, parts, keep_saved_results);
    let capacity = graph.capacity();
    let (source, sink) = (2 * capacity, 2 * capacity + 1);
    let (enter, leave) = (|n: NodeId| 2 * n.index(), |n: NodeId| 2 * n.index() + 1);
    let mut network = Network::new(2 * capacity + 2);
    let returned: HashSet<NodeId> = nodes_of(&joint.grads).into_iter().collect();
    for n in graph.nodes().filter(|&n| !graph[n].is_output()) {
        if parts.backward.contains(&n) {
            if !graph[n].is_placeholder() {
                network.edge(enter(n), sink, f64::INFINITY);
            }
            continue;
        }
        if !parts.needed.contains(&n) {
            continue;
        }
        let primal = joint.primals.contains(&n);
        let recompute = marks.recompute.contains(&n);
        if primal || (parts.forward.contains(&n) && !recompute && cut.is_banned(n)) {
            network.edge(source, enter(n), f64::INFINITY);
        }
        network.edge(enter(n), leave(n), if recompute { f64::INFINITY } else { cut.weight(n) });
        for user in graph.users(n).filter(|u| !graph[*u].is_output()) {
            network.edge(leave(n), enter(user), f64::INFINITY);
        }
        // A gradient that is a value of the forward is read by the backward's end.
        if returned.contains(&n) {
            network.edge(leave(n), sink, f64::INFINITY);
        }
    }
    let side = network.source_side(source, sink).ok_or_else(|| unsolvable(joint, parts, &cut))?;
    let kept = |n: &NodeId| side[enter(*n)] && !side[leave(*n)];
    Ok(graph.nodes().filter(kept).collect())
}

/// Names a value that can be neither kept nor recomputed.
fn unsolvable(joint: &Joint, parts: &Parts, cut: &Cut<'_>) -> Error {
    let graph = &joint.module.graph;
    let stuck = graph.nodes().find(|n| {
        parts.needed.contains(n) && parts.forward.contains(n) && cut.is_banned(*n) && ops::bytes(&graph[*n]).is_none()
    });
    let name = stuck.map_or("a value".to_string(), |n| format!("%{}", graph[n].name()));
    Error::internal(format!(
        "{name} can be neither saved (it is not a tensor) nor recomputed (its op is random, expensive or unknown)"
    ))
}
