//! Cuts a part out of a graph: from these inputs to these results.

use crate::error::{Error, Result};
use firebrand_graph::ir::{Argument, GraphModule, NodeId};
use std::collections::{HashMap, HashSet};

/// A graph that computes `outputs` of `module` from `inputs`. What `kept` names runs too, even if nothing reads it.
///
/// # Errors
/// If an input of the whole graph is needed that is not among `inputs`.
pub(crate) fn extract(
    module: &GraphModule,
    inputs: &[NodeId],
    outputs: &[Argument],
    kept: &[NodeId],
) -> Result<GraphModule> {
    let graph = &module.graph;
    let given: HashSet<NodeId> = inputs.iter().copied().collect();
    let mut needed: HashSet<NodeId> = HashSet::new();
    let mut stack: Vec<NodeId> = kept.to_vec();
    outputs.iter().for_each(|a| a.for_each_node(&mut |n| stack.push(n)));
    while let Some(n) = stack.pop() {
        if !given.contains(&n) && needed.insert(n) {
            if graph[n].is_placeholder() {
                return Err(Error::internal(format!(
                    "%{} is needed, but was neither saved nor passed in",
                    graph[n].name()
                )));
            }
            stack.extend(graph.input_nodes(n));
        }
    }
    let mut part = GraphModule::default();
    let mut copies: HashMap<NodeId, Argument> = HashMap::new();
    for &n in inputs {
        let node = &graph[n];
        let placeholder = part.graph.placeholder(node.name());
        part.graph.meta_mut(placeholder).val = node.meta().val.clone();
        copies.insert(n, placeholder.into());
    }
    for n in graph.nodes().filter(|n| needed.contains(n)) {
        if let Some(path) = graph[n].attr_path()
            && let Some(attribute) = module.attributes.get(path)
        {
            part.attributes.set(path, attribute.clone());
        }
        let copy = part.graph.node_copy(&graph[n], |i| copies[&i].clone());
        copies.insert(n, copy.into());
    }
    let returned = outputs.iter().map(|a| a.map_nodes(&mut |n| copies[&n].clone()));
    part.graph.output(Argument::tuple(returned));
    Ok(part)
}
