//! Applies a rewrite to a program's graph and to every sub-graph in it.

use super::Report;
use crate::error::{Error, Result};
use crate::ir::{Attribute, GraphModule};
use crate::program::ExportedProgram;
use std::sync::Arc;

/// How deep sub-graphs may nest.
const MAX_DEPTH: usize = 256;

/// Rewrites every module, innermost first; `rewrite` says how many places it changed. What did not change is shared.
pub(super) fn rewrite_all(
    program: &ExportedProgram,
    mut rewrite: impl FnMut(&mut GraphModule) -> Result<usize>,
) -> Result<(ExportedProgram, Report)> {
    let mut count = 0;
    let module = walk(&program.module, &mut rewrite, &mut count, 0)?;
    Ok((ExportedProgram { module, ..program.clone() }, Report::of(count)))
}

fn walk(
    module: &Arc<GraphModule>,
    rewrite: &mut dyn FnMut(&mut GraphModule) -> Result<usize>,
    count: &mut usize,
    depth: usize,
) -> Result<Arc<GraphModule>> {
    if depth > MAX_DEPTH {
        let message = format!("sub-graphs nest deeper than {MAX_DEPTH} levels");
        return Err(Error::Pass { pass: "rewrite_all", message });
    }
    let mut changed = Vec::new();
    for (name, inner) in module.subgraphs() {
        let new = walk(inner, rewrite, count, depth + 1)?;
        if !Arc::ptr_eq(&new, inner) {
            changed.push((name.clone(), new));
        }
    }
    let mut copy = (**module).clone();
    let any = !changed.is_empty();
    for (name, new) in changed {
        copy.attributes.set(&name, Attribute::Graph(new));
    }
    let here = rewrite(&mut copy)?;
    *count += here;
    Ok(if any || here > 0 { Arc::new(copy) } else { Arc::clone(module) })
}
