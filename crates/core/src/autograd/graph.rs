//! Walking a graph from outside, and settings that only matter on other devices.

use super::node::Node;
use crate::{Error, ErrorKind, Result};
use std::collections::{HashSet, VecDeque};

/// Every node reachable from the roots, breadth first, once; `None` roots are skipped.
pub fn iter_graph(roots: impl IntoIterator<Item = Option<Node>>) -> Vec<Node> {
    let mut seen = HashSet::new();
    let mut queue: VecDeque<Node> = roots.into_iter().flatten().filter(|n| seen.insert(n.addr())).collect();
    let mut out = Vec::new();
    while let Some(node) = queue.pop_front() {
        for e in node.next_functions().iter().flatten() {
            if seen.insert(e.node.addr()) {
                queue.push_back(e.node.clone());
            }
        }
        out.push(node);
    }
    out
}

/// A memory budget for a compiled region. It only applies to compiled code; in eager mode this always returns an error.
///
/// The budget is a number; anything else does not compile (B-31).
pub fn region_activation_memory_budget(budget: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&budget) {
        return Err(ErrorKind::BudgetRange { value: budget }.into());
    }
    Err(Error::from(ErrorKind::EagerBudget))
}

/// Whether gradients that arrive on another accelerator stream warn. Kept for programs that set it; a CPU has no streams.
pub fn set_warn_on_accumulate_grad_stream_mismatch(_on: bool) {}

/// Whether a stale capture stream is overridden. Kept for programs that set it; a CPU has no streams.
pub fn set_override_stale_capture_stream(_on: bool) {}
