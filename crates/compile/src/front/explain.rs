//! explain: describes the result of compiling a function for an input.

use crate::backend::ExampleInput;
use crate::backend::count_ops;
use crate::backends;
use crate::breaks::GraphBreak;
use crate::error::Result;
use crate::front::compiled::compile_with;
use crate::front::options::Options;
use firebrand_core::tree::{Outcome, TensorTree};
use firebrand_graph::ir::GraphModule;
use std::fmt;

/// The result of compiling a function for one input.
#[derive(Debug)]
pub struct Explanation {
    /// The graphs and their inputs, in order.
    pub graphs: Vec<(GraphModule, Vec<ExampleInput>)>,
    /// The graph breaks.
    pub breaks: Vec<GraphBreak>,
    /// The guards, as text.
    pub guards: Vec<String>,
}

impl Explanation {
    /// The total number of calls in the graphs.
    pub fn ops(&self) -> usize {
        self.graphs.iter().map(|(g, _)| count_ops(g)).sum()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graphs: {}, breaks: {}, ops: {}", self.graphs.len(), self.breaks.len(), self.ops())?;
        for (i, found) in self.breaks.iter().enumerate() {
            writeln!(f, "break {i}: {found}")?;
        }
        for guard in &self.guards {
            writeln!(f, "guard: {guard}")?;
        }
        Ok(())
    }
}

/// Runs a function once on an input and reports what it was compiled to. The function's effects take place.
pub fn explain<I, R, F>(f: F, input: &I) -> Result<Explanation>
where
    I: TensorTree,
    R: Outcome,
    R::Tree: Send + Sync,
    F: Fn(&I) -> R + Send + Sync + 'static,
{
    let recorder = backends::record(backends::eager());
    let compiled = compile_with(f, Options::with_backend(recorder.clone()));
    compiled.try_call(input)?;
    Ok(Explanation {
        graphs: recorder.graphs(),
        breaks: compiled.graph_breaks(),
        guards: compiled.guards().into_iter().flatten().collect(),
    })
}
