//! replace_view_ops_with_view_copy_ops_pass: replaces views with copies, so that no result shares memory.

use super::nested::rewrite_all;
use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;
use firebrand_core::dispatch::Op;

const PASS: &str = "replace_view_ops_with_view_copy_ops_pass";

/// Runs the pass. An op that may return its argument itself (`reshape`, `contiguous`, `to`) has no copying variant and is
/// an error: decompose it first. New calls are named after their op.
pub fn replace_view_ops_with_view_copy_ops_pass(
    program: &ExportedProgram,
    _: &Context,
) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        let graph = &mut module.graph;
        let order: Vec<NodeId> = graph.nodes().collect();
        let mut count = 0;
        for n in order {
            let Some(op) = graph[n].target().and_then(Target::overload) else { continue };
            if let Some(copy) = copying_form(op, graph[n].name())? {
                let base = copy.base().to_string();
                graph.set_kind(n, Kind::CallFunction(copy.into()));
                graph.rename(n, &base);
                count += 1;
            }
        }
        Ok(count)
    })
}

fn copying_form(op: &OpOverload, node: &str) -> Result<Option<OpOverload>> {
    if op.is(Op::_UNSAFE_VIEW) {
        return Ok(Some(OpOverload::new("aten::view_copy")));
    }
    let aliases = op.schema().is_some_and(|s| s.args.first().is_some_and(|a| a.aliased && !a.written));
    if op.namespace() != "aten" || !aliases {
        return Ok(None);
    }
    let overload = if op.overload() == "default" { String::new() } else { format!(".{}", op.overload()) };
    match Op::from_name(&format!("aten::{}_copy{overload}", op.base())) {
        Some(copy) => Ok(Some(copy.into())),
        None => {
            let message = format!("{op} has no copying form; decompose the program first");
            Err(Error::PassNode { pass: PASS, node: node.to_string(), message })
        }
    }
}
