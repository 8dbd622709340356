//! Reports of the fused backend: counters, plans as text.

use super::plan::{Plan, Step};
use firebrand_graph::ir::GraphModule;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Statistics of one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanStats {
    /// Call nodes of the graph.
    pub nodes: usize,
    /// Kernels generated.
    pub kernels: usize,
    /// Nodes that became part of a kernel.
    pub fused_nodes: usize,
    /// Nodes that run by their own kernels.
    pub calls: usize,
    /// Results that reuse the memory of an operand.
    pub taken_over: usize,
}

/// Statistics of all plans of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FusionCounters {
    /// Plans made.
    pub plans: u64,
    /// Kernels generated.
    pub kernels: u64,
    /// Call nodes before fusion.
    pub nodes: u64,
}

static PLANS: AtomicU64 = AtomicU64::new(0);
static KERNELS: AtomicU64 = AtomicU64::new(0);
static NODES: AtomicU64 = AtomicU64::new(0);

pub(super) fn count(stats: &PlanStats) {
    PLANS.fetch_add(1, Relaxed);
    KERNELS.fetch_add(stats.kernels as u64, Relaxed);
    NODES.fetch_add(stats.nodes as u64, Relaxed);
}

/// Counters of the process.
pub fn counters() -> FusionCounters {
    FusionCounters { plans: PLANS.load(Relaxed), kernels: KERNELS.load(Relaxed), nodes: NODES.load(Relaxed) }
}

/// Sets the counters to zero.
pub fn reset_counters() {
    [&PLANS, &KERNELS, &NODES].into_iter().for_each(|c| c.store(0, Relaxed));
}

pub(super) fn describe(plan: &Plan, module: &GraphModule) -> String {
    let mut text = String::new();
    for (k, (step, _)) in plan.steps.iter().enumerate() {
        let _ = match step {
            Step::Kernel { emitted, made, names } => {
                let over = made.iter().filter(|m| m.from.is_some()).count();
                let over = if over > 0 { format!(", {over} in place") } else { String::new() };
                let (i, r, w) = (emitted.program.len(), emitted.inputs.len(), emitted.outputs.len());
                writeln!(text, "{k}: kernel of {i} instructions, reads {r}, writes {w}{over}: {names}")
            }
            Step::Call(o) => {
                let node = &module.graph[o.node];
                let target = match &o.op {
                    Some(op) => op.to_string(),
                    None => node.target().map(ToString::to_string).unwrap_or_default(),
                };
                writeln!(text, "{k}: call of {target}: {}", node.name())
            }
        };
    }
    text
}
