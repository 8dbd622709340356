//! Run-time assertions: removing them, and inserting them for symbols that are known only at run time.

use super::nested::rewrite_all;
use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::{ExportedProgram, ValueRange};
use firebrand_core::dispatch::Op;
use indexmap::IndexMap;
use std::collections::HashSet;

const REMOVED: &[Op] = &[
    Op::_ASSERT_ASYNC_MSG,
    Op::_ASSERT_SCALAR,
    Op::SYM_CONSTRAIN_RANGE,
    Op::SYM_CONSTRAIN_RANGE_FOR_SIZE,
    Op::_ASSERT_TENSOR_METADATA,
];

/// Erases unused assertions. What they compared stays until dead code elimination.
pub fn remove_runtime_assertions(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        let graph = &mut module.graph;
        let is = |n: &NodeId| {
            let node = &graph[*n];
            node.num_users() == 0 && node.target().is_some_and(|t| REMOVED.iter().any(|&op| t.is_op(op)))
        };
        let found: Vec<NodeId> = graph.nodes().filter(is).collect();
        for &n in &found {
            graph.erase(n)?;
        }
        Ok(found.len())
    })
}

/// Inserts checks for symbols that ops create (`u0`, …), from the program's range constraints. A symbol that an assertion
/// guards already is left alone.
pub fn add_runtime_assertions_for_inline_constraints_pass(
    program: &ExportedProgram,
    _: &Context,
) -> Result<(ExportedProgram, Report)> {
    let mut handled: HashSet<String> = HashSet::new();
    let ranges = &program.range_constraints;
    rewrite_all(program, |module| insert(module, ranges, &mut handled))
}

const PASS: &str = "add_runtime_assertions_for_inline_constraints_pass";

/// The name of a bare symbol that an op makes.
fn unbacked(size: &SymInt) -> Option<&str> {
    size.expr()?.symbol().filter(|s| s.starts_with('u'))
}

fn insert(
    module: &mut GraphModule,
    ranges: &IndexMap<String, ValueRange>,
    handled: &mut HashSet<String>,
) -> Result<usize> {
    for symbol in guarded(&module.graph) {
        if !ranges.contains_key(&symbol) {
            let message = format!("an assertion guards {symbol}, which has no range constraint");
            return Err(Error::Pass { pass: PASS, message });
        }
        handled.insert(symbol);
    }
    let order: Vec<NodeId> = module.graph.nodes().filter(|&n| module.graph[n].target().is_some()).collect();
    let mut inserted = 0;
    for n in order {
        let graph = &mut module.graph;
        // (symbol, dimension of the tensor whose size it is)
        let mut found: Vec<(String, Option<usize>)> = Vec::new();
        match &graph[n].meta().val {
            Some(Val::SymInt(v)) => found.extend(unbacked(v).map(|s| (s.to_string(), None))),
            Some(Val::Tensor(t)) => {
                let sizes = t.sizes.iter().enumerate();
                found.extend(sizes.filter_map(|(d, s)| unbacked(s).map(|s| (s.to_string(), Some(d)))));
            }
            _ => {}
        }
        for (symbol, dim) in found {
            let range = ranges.get(&symbol).copied().unwrap_or_default();
            if !handled.insert(symbol) {
                continue;
            }
            // The largest sizes mean "no bound".
            let max = range.max.filter(|&m| m < i64::MAX - 1);
            inserted += check(graph, n, dim, range.min, max);
        }
    }
    Ok(inserted)
}

/// Symbols that an assertion of a comparison with a number guards.
fn guarded(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for n in graph.nodes().filter(|&n| graph[n].target().is_some_and(|t| t.is_op(Op::_ASSERT_SCALAR))) {
        let Some(test) = graph[n].args().first().and_then(Argument::node) else { continue };
        let compares = matches!(graph[test].target(), Some(Target::Function(Function::Le | Function::Ge)));
        if let ([Argument::Node(value), Argument::Int(_)], true) = (graph[test].args(), compares)
            && let Some(Val::SymInt(v)) = &graph[*value].meta().val
            && let Some(symbol) = unbacked(v)
        {
            found.push(symbol.to_string());
        }
    }
    found
}

/// Puts the checks of one symbol behind the node that makes it; returns how many.
fn check(graph: &mut Graph, node: NodeId, dim: Option<usize>, min: Option<i64>, max: Option<i64>) -> usize {
    let next = graph.next(node).map_or(InsertPoint::End, InsertPoint::Before);
    let name = graph[node].name().clone();
    let end = |v: Option<i64>, none: &str| v.map_or(none.to_string(), |v| v.to_string());
    let place = dim.map_or(String::new(), |d| format!(".shape[{d}]"));
    let range = format!("[{}, {}]", end(min, "-int_oo"), end(max, "int_oo"));
    let message = format!("{name}{place} is outside of inline constraint {range}.");
    graph.inserting(next, |graph| {
        let value = match dim {
            Some(d) => graph.call_function(Target::aten("sym_size.int"), [node.into(), (d as i64).into()]),
            None => node,
        };
        let mut count = 0;
        for (function, bound) in [(Function::Ge, min), (Function::Le, max)] {
            if let Some(bound) = bound {
                let test = graph.call_function(function, [value.into(), bound.into()]);
                let tensor = graph.call_function(Target::aten("scalar_tensor.default"), [test.into()]);
                graph.call_function(Target::aten("_assert_async.msg"), [tensor.into(), message.as_str().into()]);
                count += 1;
            }
        }
        count
    })
}
