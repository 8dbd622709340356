//! Anomaly mode: nodes record where they were created, and NaN gradients are errors.

use super::node::Node;
use crate::capture;
use crate::error::expect_ok;
use crate::slot::Slot;
use crate::state::{self, ModeGuard};
use crate::warnings::warn;
use std::sync::OnceLock;

/// The node that is executed here, for `parent_` of nodes built meanwhile.
static EXECUTING: Slot<Option<Node>> = Slot::new(|| None);

/// A scope in which errors in backward show the forward call they come from. Slow; warns when entered.
#[track_caller]
pub fn detect_anomaly(check_nan: bool) -> ModeGuard {
    warn("anomaly detection is on, which makes forward and backward slower; use it for debugging only");
    set_detect_anomaly(true, check_nan)
}

/// Turns anomaly mode on or off while the guard lives.
#[track_caller]
pub fn set_detect_anomaly(on: bool, check_nan: bool) -> ModeGuard {
    expect_ok(capture::leave("anomaly mode"));
    match (on, check_nan) {
        (true, true) => ModeGuard::new(state::ANOMALY | state::CHECK_NAN, 0),
        (true, false) => ModeGuard::new(state::ANOMALY, state::CHECK_NAN),
        (false, _) => ModeGuard::new(0, state::ANOMALY | state::CHECK_NAN),
    }
}

/// Whether anomaly mode is on.
pub fn is_anomaly_enabled() -> bool {
    capture::observed("anomaly mode", || i64::from(state::is(state::ANOMALY))) != 0
}

/// What says where a forward call was made.
static TRACE: OnceLock<fn() -> Option<String>> = OnceLock::new();

/// Sets the function that locates a forward call, for programs that are not written in Rust; the first one stays. If it returns `None`,
/// Rust's backtrace is used.
pub fn set_trace_provider(provider: fn() -> Option<String>) {
    let _ = TRACE.set(provider);
}

/// Stores the forward stack, and the executing node if a backward builds the graph.
pub(crate) fn remember(node: &Node) {
    let provided = TRACE.get().and_then(|provider| provider());
    let trace = provided.unwrap_or_else(|| std::backtrace::Backtrace::force_capture().to_string());
    node.insert_metadata("traceback_", std::sync::Arc::new(trace));
    if let Some(p) = EXECUTING.get() {
        node.insert_metadata("parent_", std::sync::Arc::new(p));
    }
}

/// Marks `node` as executing while the guard lives.
pub(crate) fn executing(node: &Node) -> impl Drop + use<> {
    EXECUTING.enter(Some(node.clone()))
}

/// Warns with the forward trace of a node that failed, and with those of the nodes whose backward created it.
pub(crate) fn report(node: &Node) {
    let of = |n: &Node| {
        let meta = n.metadata();
        let trace = meta.get("traceback_").and_then(|t| t.downcast_ref::<String>().cloned());
        let parent = meta.get("parent_").and_then(|p| p.downcast_ref::<Node>().cloned());
        (trace, parent)
    };
    let (mut trace, mut parent) = of(node);
    let mut message = format!("Error detected in {}. ", node.name());
    message += &match trace.take() {
        Some(t) => format!("Traceback of forward call that caused the error:\n{t}"),
        None => {
            "No forward pass information available. Enable detect anomaly during forward pass for more information."
                .to_string()
        }
    };
    warn(message);
    while let Some(p) = parent {
        let (t, next) = of(&p);
        let mut message = format!("Previous calculation was induced by {}. ", p.name());
        message += &match t {
            Some(t) => format!("Traceback of forward call that induced the previous calculation:\n{t}"),
            None => "No forward pass information available.".to_string(),
        };
        warn(message);
        parent = next;
    }
}
