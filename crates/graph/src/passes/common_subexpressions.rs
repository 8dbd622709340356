//! eliminate_common_subexpressions: merges calls that compute the same result from the same values.
//!
//! Only graphs without writes are touched: where memory changes, equal calls may differ. Random ops, assertions and
//! higher-order calls stay as they are.

use super::nested::rewrite_all;
use super::purity::is_impure;
use super::{Context, Report};
use crate::error::Result;
use crate::ir::*;
use crate::program::ExportedProgram;
use std::collections::HashMap;

/// Runs the pass.
pub fn eliminate_common_subexpressions(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, merge)
}

fn merge(module: &mut GraphModule) -> Result<usize> {
    let pure = |n: NodeId| !is_impure(module, &module.graph[n]);
    let inner = |n: &NodeId| !matches!(module.graph[*n].kind(), Kind::Placeholder(_) | Kind::Output);
    if !module.graph.nodes().filter(inner).all(pure) {
        return Ok(0);
    }
    // Two calls are equal when they print the same apart from their own name.
    let mut seen: HashMap<String, NodeId> = HashMap::new();
    let order: Vec<NodeId> = module.graph.nodes().collect();
    let mut merged = 0;
    for n in order {
        let graph = &mut module.graph;
        let line = crate::text::print_node(graph, n);
        match graph[n].kind() {
            Kind::CallFunction(Target::Hop(_)) | Kind::Placeholder(_) | Kind::Output => continue,
            _ => {}
        }
        let Some((_, call)) = line.split_once(" = ") else { continue };
        match seen.get(call) {
            Some(&first) => {
                graph.replace_all_uses_with(n, first);
                graph.erase(n)?;
                merged += 1;
            }
            None => {
                seen.insert(call.to_string(), n);
            }
        }
    }
    Ok(merged)
}
