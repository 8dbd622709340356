//! functionalize_side_effectful_ops_pass: orders assertions by tokens, so that dead code elimination keeps them.

use super::{Context, Report};
use crate::error::Result;
use crate::ir::*;
use crate::program::ExportedProgram;
use firebrand_core::dispatch::Op;
use std::sync::Arc;

fn functional(target: &Target) -> Option<&'static str> {
    [
        (Op::SYM_CONSTRAIN_RANGE, "_functional_sym_constrain_range.default"),
        (Op::_ASSERT_ASYNC_MSG, "_functional_assert_async.msg"),
    ]
    .into_iter()
    .find_map(|(op, functional)| target.is_op(op).then_some(functional))
}

/// Runs the pass on the top graph: each op takes the token before it and makes the next; the last one is returned.
pub fn functionalize_side_effectful_ops_pass(
    program: &ExportedProgram,
    _: &Context,
) -> Result<(ExportedProgram, Report)> {
    let graph = &program.module.graph;
    let found: Vec<NodeId> = graph.nodes().filter(|&n| graph[n].target().and_then(functional).is_some()).collect();
    let Some(&first) = found.first() else { return Ok((program.clone(), Report::default())) };
    let mut module = (*program.module).clone();
    let graph = &mut module.graph;
    let make = Kind::CallFunction(Target::aten("_make_dep_token.default"));
    let mut token = graph.inserting(InsertPoint::Before(first), |g| g.create_node(make, [], [], Some("dep_token0")));
    for (i, &n) in found.iter().enumerate() {
        let target = graph[n].target().and_then(functional).expect("found by it");
        let mut kwargs = graph[n].kwargs().to_vec();
        kwargs.push(("dep_token".into(), token.into()));
        let (args, name) = (graph[n].args().to_vec(), format!("dep_token{}", i + 1));
        let kind = Kind::CallFunction(Target::aten(target));
        let new = graph.inserting(InsertPoint::Before(n), |g| g.create_node(kind, args, kwargs, Some(&name)));
        *graph.meta_mut(new) = graph[n].meta().clone();
        graph.replace_all_uses_with(n, new);
        graph.erase(n)?;
        token = new;
    }
    if let Some(output) = graph.output_node() {
        let mut items = graph[output].args()[0].items().map_or_else(|| graph[output].args().to_vec(), <[_]>::to_vec);
        items.push(token.into());
        graph.set_args(output, [Argument::Tuple(items.into())]);
    }
    Ok((ExportedProgram { module: Arc::new(module), ..program.clone() }, Report::of(found.len())))
}
