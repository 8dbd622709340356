//! InnerTrace: records what reaches the kernels while code runs on meta tensors, derivatives included.
//!
//! Traced code must not mutate; a program is functionalized first. Grad mode is noted on each node instead of being a marker.

use super::layer::TraceLayer;
use crate::error::Result;
use crate::interpret::Value;
use crate::ir::{GraphModule, Name, Node, OpOverload, Target};
use crate::trace::{DRAWS, SAVED_RESULT, UNRECORDED};
use firebrand_core::Tensor;
use firebrand_core::dispatch::{self, Interpreter};
use std::sync::Arc;

/// A graph under construction, below autograd.
#[derive(Clone)]
pub struct InnerTrace(Arc<TraceLayer>);

impl Default for InnerTrace {
    fn default() -> InnerTrace {
        InnerTrace::new()
    }
}

impl InnerTrace {
    /// An empty graph.
    pub fn new() -> InnerTrace {
        InnerTrace(Arc::new(TraceLayer::below()))
    }

    /// Adds an input, which is a meta tensor; returns its name.
    pub fn input(&self, name: &str, tensor: &Tensor) -> Name {
        self.0.input(name, tensor)
    }

    /// Runs `f` and records the ops below autograd, those of derivatives too.
    pub fn trace<R>(&self, f: impl FnOnce() -> R) -> R {
        let _layer = dispatch::push_inner_layer(Arc::clone(&self.0) as Arc<dyn Interpreter>);
        f()
    }

    /// Records a call that is not an op; its result is `result`, a meta tensor.
    pub fn call(&self, target: impl Into<Target>, args: &[Value], result: Option<&Tensor>) -> Result<()> {
        self.0.call_node(target.into(), args, result)
    }

    /// Like [`InnerTrace::call`], for a call that gives a tuple, parts of which may be absent.
    pub fn call_tuple(&self, target: impl Into<Target>, args: &[Value], results: &[Option<Tensor>]) -> Result<()> {
        self.0.call_tuple(target.into(), args, results)
    }

    /// Ends the graph, which returns these as a tuple; absent ones are none.
    pub fn finish(&self, results: &[Option<Tensor>]) -> Result<GraphModule> {
        self.0.finish_some(results)
    }
}

fn has_note(node: &Node, key: &str) -> bool {
    node.meta().other.as_ref().is_some_and(|notes| notes.contains_key(key))
}

impl Node {
    /// Whether it ran with grad mode off: for derivatives it is a constant.
    pub fn is_unrecorded(&self) -> bool {
        has_note(self, UNRECORDED)
    }

    /// Whether it draws random numbers: an op that does, or a call a tracer wrote down of a sub-graph with one.
    pub fn draws(&self) -> bool {
        has_note(self, DRAWS) || self.target().and_then(Target::overload).is_some_and(OpOverload::draws)
    }

    /// Whether a tracer saw a derivative read this value as its op's result.
    pub fn is_saved_result(&self) -> bool {
        has_note(self, SAVED_RESULT)
    }
}
