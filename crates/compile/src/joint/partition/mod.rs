//! Partitioning: a joint graph becomes a forward graph that saves values, and a backward graph that reads them.
//!
//! The default rule saves every value of the forward that the backward reads. The minimum cut saves as few bytes as it
//! can by recomputing cheap values. Both are deterministic: values are saved in the order of the joint graph, and
//! ties are broken by it. What may be recomputed is decided in `ops`; nothing here runs anything.

mod budget;
mod extract;
mod flow;
mod min_cut;
mod ops;

pub(crate) use extract::extract;

use crate::error::Result;
use firebrand_graph::ir::{Argument, Function, Graph, GraphModule, NodeId};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How the values to save are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Partitioner {
    /// Every value of the forward that the backward reads.
    Default,
    /// As few bytes as possible; cheap values are recomputed.
    #[default]
    MinCut,
}

/// How a joint graph is partitioned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartitionOptions {
    /// The rule.
    pub partitioner: Partitioner,
    /// Whether a result that a derivative reads (of `exp`, `tanh`, `relu`) is saved rather than recomputed. An
    /// interpreter gains nothing from computing it twice; a backend that fuses does.
    pub keep_saved_results: bool,
    /// The fraction of the bytes saved by the minimum cut that may be saved, from 0 (recompute everything) to 1.
    pub activation_memory_budget: f64,
}

impl Default for PartitionOptions {
    fn default() -> PartitionOptions {
        let partitioner = Partitioner::default();
        PartitionOptions { partitioner, keep_saved_results: true, activation_memory_budget: 1.0 }
    }
}

/// A joint graph and what its inputs and results are.
pub(crate) struct Joint {
    pub(crate) module: GraphModule,
    /// Inputs of the function.
    pub(crate) primals: Vec<NodeId>,
    /// Which of them are there anyway.
    pub(crate) is_static: Vec<bool>,
    /// Gradients of its results that take part.
    pub(crate) tangents: Vec<NodeId>,
    /// Results of the forward.
    pub(crate) outputs: Vec<Argument>,
    /// Gradients of the inputs; none where there is none.
    pub(crate) grads: Vec<Argument>,
}

/// Which part of the joint graph a node belongs to.
pub(crate) struct Parts {
    /// Needed for the results.
    pub(crate) forward: HashSet<NodeId>,
    /// Depends on tangents, or calls a hook.
    pub(crate) backward: HashSet<NodeId>,
    /// Needed for the gradients.
    pub(crate) needed: HashSet<NodeId>,
}

fn nodes_of(arguments: &[Argument]) -> Vec<NodeId> {
    let mut list = Vec::new();
    arguments.iter().for_each(|a| a.for_each_node(&mut |n| list.push(n)));
    list
}

fn ancestors(graph: &Graph, from: Vec<NodeId>) -> HashSet<NodeId> {
    let mut seen: HashSet<NodeId> = HashSet::new();
    let mut stack = from;
    while let Some(n) = stack.pop() {
        if seen.insert(n) {
            stack.extend(graph.input_nodes(n));
        }
    }
    seen
}

impl Joint {
    /// What must run in the backward even if nothing reads it.
    pub(crate) fn hooks(&self) -> Vec<NodeId> {
        let graph = &self.module.graph;
        graph.nodes().filter(|&n| ops::is_hook(&graph[n])).collect()
    }

    /// What must run in the forward even if nothing reads it: the generator advances as in an eager run.
    pub(crate) fn draws(&self) -> Vec<NodeId> {
        let graph = &self.module.graph;
        graph.nodes().filter(|&n| ops::is_random(&graph[n])).collect()
    }

    pub(crate) fn parts(&self) -> Parts {
        let graph = &self.module.graph;
        let mut backward: HashSet<NodeId> = self.tangents.iter().copied().chain(self.hooks()).collect();
        for n in graph.nodes().filter(|&n| !graph[n].is_output()) {
            if graph.input_nodes(n).any(|i| backward.contains(&i)) {
                backward.insert(n);
            }
        }
        let mut roots = nodes_of(&self.outputs);
        roots.extend(self.draws().into_iter().filter(|n| !backward.contains(n)));
        let mut forward = ancestors(graph, roots);
        forward.extend(&self.primals);
        // A tuple is unpacked where it was made.
        for n in graph.nodes() {
            let is_item = graph[n].target().is_some_and(|t| t.is_function(&Function::GetItem));
            if is_item && graph.input_nodes(n).all(|i| forward.contains(&i) && ops::bytes(&graph[i]).is_none()) {
                forward.insert(n);
            }
        }
        let mut roots = nodes_of(&self.grads);
        roots.extend(self.hooks());
        let needed = ancestors(graph, roots);
        Parts { forward, backward, needed }
    }
}

/// For each node, what it is computed by and on which side, as a number: equal for equal computations. Random ops are told
/// apart by name. What forward and backward both compute stays twice, so that the cut is free to keep or recompute it.
pub(crate) fn keys(graph: &Graph, outputs: &[Argument]) -> HashMap<NodeId, u64> {
    let forward = ancestors(graph, nodes_of(outputs));
    let mut keys: HashMap<NodeId, u64> = HashMap::new();
    for n in graph.nodes() {
        let node = &graph[n];
        let mut hasher = DefaultHasher::new();
        let told_apart = node.is_placeholder() || ops::is_random(node) || ops::is_hook(node);
        (format!("{:?}", node.kind()), told_apart.then(|| node.name().clone())).hash(&mut hasher);
        for argument in node.arguments() {
            let known = argument.map_nodes(&mut |i| Argument::Str(format!("{:x}", keys[&i]).into()));
            format!("{known:?}").hash(&mut hasher);
        }
        keys.insert(n, hasher.finish());
    }
    keys.iter_mut().for_each(|(n, key)| *key = *key << 1 | u64::from(forward.contains(n)));
    keys
}

/// The values to keep, in the order of the joint graph.
pub(crate) fn saved_values(joint: &Joint, options: &PartitionOptions) -> Result<Vec<NodeId>> {
    let parts = joint.parts();
    let kept = match options.partitioner {
        Partitioner::Default => default_rule(joint, &parts),
        Partitioner::MinCut => budget::choose(joint, &parts, options)?,
    };
    Ok(joint.module.graph.nodes().filter(|n| kept.contains(n)).collect())
}

fn default_rule(joint: &Joint, parts: &Parts) -> HashSet<NodeId> {
    let graph = &joint.module.graph;
    let reads = |n: NodeId| {
        graph.users(n).any(|u| parts.needed.contains(&u) && !parts.forward.contains(&u) && !graph[u].is_output())
    };
    let returned = nodes_of(&joint.grads);
    let tensor = |n: NodeId| ops::bytes(&graph[n]).is_some();
    parts.forward.iter().copied().filter(|&n| tensor(n) && (reads(n) || returned.contains(&n))).collect()
}
