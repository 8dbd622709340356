//! counter(inner): counts the graphs it is given and passes them on.

use crate::backend::{Backend, ExampleInput, Executable};
use crate::error::Result;
use firebrand_graph::ir::{GraphModule, Kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A backend that counts graphs and ops.
pub struct Counter {
    inner: Arc<dyn Backend>,
    frames: AtomicUsize,
    ops: AtomicUsize,
}

/// Counts the graphs that `inner` is given.
pub fn counter(inner: Arc<dyn Backend>) -> Arc<Counter> {
    Arc::new(Counter { inner, frames: AtomicUsize::new(0), ops: AtomicUsize::new(0) })
}

impl Counter {
    /// How many graphs were compiled.
    pub fn frames(&self) -> usize {
        self.frames.load(Relaxed)
    }

    /// The total number of calls in those graphs.
    pub fn ops(&self) -> usize {
        self.ops.load(Relaxed)
    }
}

/// The calls of a graph.
pub(crate) fn count_ops(graph: &GraphModule) -> usize {
    graph.graph.nodes().filter(|&n| matches!(graph.graph[n].kind(), Kind::CallFunction(_))).count()
}

impl Backend for Counter {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        self.frames.fetch_add(1, Relaxed);
        self.ops.fetch_add(count_ops(graph), Relaxed);
        self.inner.compile(graph, examples)
    }

    fn compile_transformed(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        self.frames.fetch_add(1, Relaxed);
        self.ops.fetch_add(count_ops(graph), Relaxed);
        self.inner.compile_transformed(graph, examples)
    }
}
