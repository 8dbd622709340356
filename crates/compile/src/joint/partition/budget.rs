//! The memory budget: between saving what the minimum cut saves and recomputing everything.
//!
//! A budget below one turns expensive values into ones that are recomputed, those first that give the most bytes for
//! the least work: a knapsack over the values the cut would keep.

use super::min_cut::{Marks, solve};
use super::{Joint, PartitionOptions, Parts, ops};
use crate::error::Result;
use firebrand_graph::ir::{NodeId, OpOverload, Target};
use std::collections::HashSet;

/// Steps in which bytes are counted.
const STEPS: usize = 512;

/// The values to keep under the options.
pub(super) fn choose(joint: &Joint, parts: &Parts, options: &PartitionOptions) -> Result<HashSet<NodeId>> {
    let keep_results = options.keep_saved_results;
    let all = solve(joint, parts, keep_results, &Marks::default())?;
    let budget = options.activation_memory_budget.clamp(0.0, 1.0);
    if budget >= 1.0 {
        return Ok(all);
    }
    let graph = &joint.module.graph;
    // Inputs are there anyway, random numbers come but once, and what was decided stays so.
    let free = |n: &NodeId| joint.primals.contains(n) || draws(joint, *n) || ops::decides(graph, *n);
    let items: Vec<NodeId> = graph.nodes().filter(|n| all.contains(n) && !free(n)).collect();
    let bytes: Vec<f64> = items.iter().map(|&n| ops::bytes(&graph[n]).unwrap_or(0.0)).collect();
    let total: f64 = bytes.iter().sum();
    let room = (budget * STEPS as f64).floor() as usize;
    let size = |b: f64| if total > 0.0 { (b / total * STEPS as f64).ceil() as usize } else { 0 };
    let kept = knapsack(
        &items.iter().map(|&n| work(joint, n)).collect::<Vec<_>>(),
        &bytes.iter().map(|&b| size(b)).collect::<Vec<_>>(),
        room,
    );
    let mut marks = Marks::default();
    for (n, kept) in items.iter().zip(kept) {
        if !kept {
            // The value, and whatever expensive stands between it and the inputs.
            marks.recompute.insert(*n);
        }
    }
    let keeps: HashSet<NodeId> = items.iter().copied().filter(|n| !marks.recompute.contains(n)).collect();
    let mut stack: Vec<NodeId> = marks.recompute.iter().copied().collect();
    let mut seen = keeps;
    while let Some(n) = stack.pop() {
        for i in graph.input_nodes(n) {
            if !free(&i) && parts.forward.contains(&i) && !ops::is_recomputable(&graph[i]) && seen.insert(i) {
                marks.recompute.insert(i);
            }
            if !free(&i) && parts.forward.contains(&i) {
                stack.push(i);
            }
        }
    }
    solve(joint, parts, keep_results, &marks)
}

/// Whether it consists of random numbers: itself, or as a part of a random op's results.
fn draws(joint: &Joint, n: NodeId) -> bool {
    let graph = &joint.module.graph;
    ops::is_random(&graph[n])
        || (ops::bytes(&graph[n]).is_some() && graph.input_nodes(n).any(|i| ops::is_random(&graph[i])))
}

/// About how many operations computing it again takes.
fn work(joint: &Joint, n: NodeId) -> f64 {
    let graph = &joint.module.graph;
    let own = ops::bytes(&graph[n]).unwrap_or(0.0) / 4.0;
    let base = graph[n].target().and_then(Target::overload).map_or("", OpOverload::base);
    match base {
        "mm" | "addmm" | "bmm" | "baddbmm" | "matmul" | "convolution" => {
            let inputs: f64 = graph.input_nodes(n).filter_map(|i| ops::bytes(&graph[i])).sum::<f64>() / 4.0;
            // A product of m x k and k x n takes 2mnk; inputs hold (m + n) k numbers.
            2.0 * own.sqrt() * inputs
        }
        _ => own,
    }
}

/// Which items to take so that their values are the largest and their sizes fit.
fn knapsack(values: &[f64], sizes: &[usize], room: usize) -> Vec<bool> {
    let mut best = vec![vec![0.0f64; room + 1]; values.len() + 1];
    for (i, (value, size)) in values.iter().zip(sizes).enumerate() {
        for r in 0..=room {
            let without = best[i][r];
            let with = if *size <= r { best[i][r - size] + value } else { f64::NEG_INFINITY };
            best[i + 1][r] = without.max(with);
        }
    }
    let (mut taken, mut r) = (vec![false; values.len()], room);
    for i in (0..values.len()).rev() {
        if best[i + 1][r] != best[i][r] {
            taken[i] = true;
            r -= sizes[i];
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_is_worth_most() {
        assert_eq!(knapsack(&[6.0, 10.0, 12.0], &[1, 2, 3], 5), [false, true, true]);
        assert_eq!(knapsack(&[1.0], &[2], 1), [false]);
        assert_eq!(knapsack(&[], &[], 0), Vec::<bool>::new());
    }
}
