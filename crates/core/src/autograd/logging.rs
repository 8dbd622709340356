//! Logging of backward: which node runs with which gradients, at debug level of `tracing`'s target `firebrand::autograd`.
//!
//! A subscriber that listens to that level sees every backward; without one a run pays a single test.

use super::graph::iter_graph;
use super::hook_table::RemovableHandle;
use super::node::Node;
use crate::{DType, Tensor};
use tracing::{Level, debug, enabled};

const TARGET: &str = "firebrand::autograd";

/// A dtype as in logs and graph listings: `f64`, `i32`, `b8`.
pub(crate) fn abbreviation(dtype: DType) -> String {
    let name = dtype.name();
    let kinds = [("bfloat", "bf"), ("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "i")];
    match kinds.iter().find_map(|(long, short)| Some(format!("{short}{}", name.strip_prefix(long)?))) {
        Some(short) => short,
        None => "b8".into(),
    }
}

fn shown(grad: &Option<Tensor>) -> String {
    grad.as_ref().map_or("None".into(), |g| format!("{}{:?}", abbreviation(g.dtype()), g.shape()))
}

/// Removes logging hooks when dropped.
#[derive(Debug)]
#[must_use = "nodes are logged while the guard lives"]
pub struct LoggingHooks(Vec<RemovableHandle>);

impl Drop for LoggingHooks {
    fn drop(&mut self) {
        self.0.iter().for_each(RemovableHandle::remove)
    }
}

/// While the guard lives, every node that the outputs reach logs when it is executed, and with which gradients.
pub fn register_logging_hooks_on_whole_graph(outputs: &[&Tensor]) -> LoggingHooks {
    attach(outputs.iter().map(|t| t.grad_fn()))
}

fn attach(roots: impl IntoIterator<Item = Option<Node>>) -> LoggingHooks {
    let log = |node: Node| {
        // The name, not the node: a node must not own itself.
        let name = format!("{node:?}");
        node.register_prehook(move |grads| {
            let grads = grads.iter().map(shown).collect::<Vec<_>>().join(",");
            debug!(target: TARGET, "Executing: {name} with grad_outputs: [{grads}]");
            Ok(None)
        })
    };
    LoggingHooks(iter_graph(roots).into_iter().map(log).collect())
}

/// Attaches logging for one run, if a subscriber listens.
#[inline]
pub(crate) fn for_run<'a>(roots: impl Iterator<Item = &'a Node>) -> Option<LoggingHooks> {
    enabled!(target: TARGET, Level::DEBUG).then(|| attach(roots.cloned().map(Some)))
}
