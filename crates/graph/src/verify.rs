//! The verifier. This comment is its specification.
//!
//! A graph is well formed when, node by node in order:
//! 1. every argument belongs to this graph and is defined before it is used;
//! 2. no two nodes have one name;
//! 3. placeholders have at most one argument (their default), `get_attr` none, `output` exactly one;
//! 4. every `get_attr` path names an attribute of the owning module, every `call_module` path a sub-graph;
//! 5. and every sub-graph that a `get_attr` or `call_module` names is well formed in turn.
//!
//! Where a rule breaks, the violation names the graph (by path), the node and the rule. Verification is linear in nodes
//! and references. It reads no tensor and runs no op.

use crate::ir::{Attribute, GraphModule, Kind, NodeId};
use std::collections::HashSet;
use std::sync::Arc;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}node %{node}: {message}", if .graph.is_empty() { String::new() } else { format!("in {}, ", .graph) })]
pub struct Violation {
    /// Path of the sub-graph; empty for the top graph.
    pub graph: String,
    /// The node.
    pub node: String,
    /// Which rule it breaks.
    pub message: String,
}

/// Checks a module and all sub-graphs it uses.
pub fn verify_module(module: &GraphModule) -> Result<(), Violation> {
    verify_at(module, "", &mut HashSet::new())
}

fn verify_at(module: &GraphModule, path: &str, seen: &mut HashSet<*const GraphModule>) -> Result<(), Violation> {
    let graph = &module.graph;
    let fail =
        |node: &str, message: String| Err(Violation { graph: path.to_string(), node: node.to_string(), message });
    let mut defined = vec![false; graph.capacity()];
    let mut names: HashSet<&str> = HashSet::with_capacity(graph.len());
    for n in graph.nodes() {
        let node = &graph[n];
        let mut wrong: Option<String> = None;
        for argument in node.arguments() {
            argument.for_each_node(&mut |used: NodeId| {
                if wrong.is_some() {
                } else if !graph.owns(used) {
                    wrong = Some("an argument belongs to another graph".to_string());
                } else if !defined[used.index()] {
                    wrong = Some(format!("argument %{} is used before definition", graph[used].name()));
                }
            });
        }
        if let Some(message) = wrong {
            return fail(node.name(), message);
        }
        if !names.insert(node.name()) {
            return fail(node.name(), "two nodes have this name".to_string());
        }
        let count = node.arguments().count();
        let wrong_count = match node.kind() {
            Kind::Placeholder(_) => count > 1,
            Kind::GetAttr(_) => count > 0,
            Kind::Output => count != 1,
            _ => false,
        };
        if wrong_count {
            return fail(node.name(), format!("has {count} arguments, which its kind does not take"));
        }
        match node.kind() {
            Kind::GetAttr(p) if module.attributes.get(p).is_none() => {
                return fail(node.name(), format!("the module has no attribute {p}"));
            }
            Kind::CallModule(p) if !matches!(module.attributes.get(p), Some(Attribute::Graph(_))) => {
                return fail(node.name(), format!("the module has no sub-graph {p}"));
            }
            _ => {}
        }
        defined[n.index()] = true;
    }
    for n in graph.nodes() {
        if let Kind::GetAttr(p) | Kind::CallModule(p) = graph[n].kind()
            && let Some(inner) = module.subgraph(p)
            && seen.insert(Arc::as_ptr(inner))
        {
            let inner_path = if path.is_empty() { p.to_string() } else { format!("{path}.{p}") };
            verify_at(inner, &inner_path, seen)?;
        }
    }
    Ok(())
}
