//! eliminate_dead_code: erases unused pure nodes, backwards, here and in every sub-graph.

use super::nested::rewrite_all;
use super::purity::is_impure;
use super::{Context, Report};
use crate::error::Result;
use crate::ir::{GraphModule, NodeId};
use crate::program::ExportedProgram;

/// Runs the pass. Nodes with effects stay: see `purity`.
pub fn eliminate_dead_code(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    crate::verify::verify_module(&program.module)?;
    rewrite_all(program, sweep)
}

/// Erases the dead nodes of one module; returns how many.
pub(super) fn sweep(module: &mut GraphModule) -> Result<usize> {
    let order: Vec<NodeId> = module.graph.nodes().rev().collect();
    let mut erased = 0;
    for n in order {
        let node = &module.graph[n];
        if node.num_users() == 0 && !is_impure(module, node) {
            module.graph.erase(n)?;
            erased += 1;
        }
    }
    if erased > 0 {
        module.delete_all_unused_submodules();
    }
    Ok(erased)
}
