//! Reduces a program that differs to what matters: nodes and results are left out one by one, as long as it still differs.

use crate::Program;
use firebrand_graph::ir::{Argument, NodeId};

/// The least program found for which `differs` still holds.
pub(crate) fn reduced(program: &Program, differs: &dyn Fn(&Program) -> bool) -> Program {
    let mut least = program.clone();
    loop {
        let candidates = without_results(&least).into_iter().chain(without_nodes(&least));
        match candidates.into_iter().find(|p| differs(p)) {
            Some(less) => least = less,
            None => return least,
        }
    }
}

/// The program without one of its results each.
fn without_results(program: &Program) -> Vec<Program> {
    let g = &program.graph.graph;
    let results = g.result().and_then(Argument::items).unwrap_or(&[]).to_vec();
    let places = if results.len() > 1 { 0..results.len() } else { 0..0 };
    let without = |k: usize| {
        let (mut less, mut results) = (program.clone(), results.clone());
        results.remove(k);
        less.chosen.remove(k);
        let output = less.graph.graph.output_node().expect("a program has results");
        less.graph.graph.set_args(output, vec![Argument::tuple(results)]);
        less
    };
    places.map(without).collect()
}

/// The program without one of its calls each: what used the call uses its operand.
fn without_nodes(program: &Program) -> Vec<Program> {
    let g = &program.graph.graph;
    let calls: Vec<NodeId> = g.nodes().filter(|&n| g[n].target().is_some()).collect();
    let without = |&n: &NodeId| {
        let mut less = program.clone();
        let graph = &mut less.graph.graph;
        match graph[n].args().first().and_then(Argument::node) {
            Some(of) => drop(graph.replace_all_uses_with(n, of)),
            None if graph[n].num_users() > 0 => return None,
            None => {}
        }
        graph.erase(n).ok()?;
        Some(less)
    };
    calls.iter().rev().filter_map(without).collect()
}
