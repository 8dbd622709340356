//! record(inner): stores the graphs it is given and passes them on.

use crate::backend::{Backend, ExampleInput, Executable};
use crate::error::Result;
use firebrand_graph::ir::GraphModule;
use std::sync::{Arc, Mutex};

/// A graph and its inputs, as a backend got them.
pub type Recorded = (GraphModule, Vec<ExampleInput>);

/// A backend that stores the graphs it was given.
pub struct Recorder {
    inner: Arc<dyn Backend>,
    graphs: Mutex<Vec<Recorded>>,
}

/// Stores the graphs that `inner` is given.
pub fn record(inner: Arc<dyn Backend>) -> Arc<Recorder> {
    Arc::new(Recorder { inner, graphs: Mutex::default() })
}

impl Recorder {
    fn keep(&self, graph: &GraphModule, examples: &[ExampleInput]) {
        let kept = (graph.clone(), examples.to_vec());
        self.graphs.lock().unwrap_or_else(|e| e.into_inner()).push(kept);
    }

    /// The graphs so far, in order.
    pub fn graphs(&self) -> Vec<Recorded> {
        self.graphs.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Backend for Recorder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        self.keep(graph, examples);
        self.inner.compile(graph, examples)
    }

    fn compile_transformed(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        self.keep(graph, examples);
        self.inner.compile_transformed(graph, examples)
    }
}
