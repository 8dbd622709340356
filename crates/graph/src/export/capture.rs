//! The layer that writes ops down: above autograd for export, below it for decompositions and derivatives.

use crate::error::Result;
use crate::ir::*;
use crate::trace::{Free, Trace, outline};
use firebrand_core::Tensor;
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::dispatch::{self, Interpreter, Next, Op, Outputs, Value};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) use crate::trace::{SAVED_RESULT, UNRECORDED};

/// A graph in the making that sees every op.
pub(crate) struct Capture {
    trace: Mutex<Trace>,
}

impl Capture {
    /// An empty graph; `ambient` is the grad mode around it.
    pub(crate) fn new(ambient: bool) -> Capture {
        Capture { trace: Mutex::new(Trace::new(ambient, Free::Constant)) }
    }

    /// An empty graph of what derivatives are made of; see [`Trace::below`].
    pub(crate) fn below() -> Capture {
        Capture { trace: Mutex::new(Trace::below()) }
    }

    fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writes a call down that is no op; `result` is what it gives.
    pub(crate) fn call_node(
        &self,
        target: Target,
        args: &[crate::interpret::Value],
        result: Option<&Tensor>,
    ) -> Result<()> {
        self.trace().record_call(target, args, result)
    }

    /// Adds an input; returns its name.
    pub(crate) fn input(&self, name: &str, tensor: &Tensor) -> Name {
        let mut trace = self.trace();
        let node = trace.input(name, tensor);
        trace.module().graph[node].name().clone()
    }

    /// Ends the graph with these results.
    pub(crate) fn finish(&self, results: &[Tensor]) -> Result<GraphModule> {
        let mut trace = self.trace();
        let results = results.iter().map(|t| Ok(trace.node(t)?.into())).collect::<Result<_>>()?;
        Ok(trace.finish(results))
    }

    /// Ends the graph with these results, some of which may be absent.
    pub(crate) fn finish_some(&self, results: &[Option<Tensor>]) -> Result<GraphModule> {
        let mut trace = self.trace();
        let one = |t: &Option<Tensor>| match t {
            Some(t) => Ok(trace.node(t)?.into()),
            None => Ok(Argument::None),
        };
        let results = results.iter().map(one).collect::<Result<_>>()?;
        Ok(trace.finish(results))
    }
}

/// Runs `f` and writes down every op it calls, whole layers as they are.
pub(crate) fn above_autograd<R>(
    capture: &Arc<Capture>,
    f: impl FnOnce() -> firebrand_core::Result<R>,
) -> firebrand_core::Result<R> {
    let _layer = dispatch::push_layer(Arc::clone(capture) as Arc<dyn Interpreter>);
    f()
}

/// Runs `f` on outlines of `inputs` and writes down what reaches the kernels: layers come apart into the ops they are
/// made of. The placeholders keep these names.
pub(crate) fn trace_below_autograd(
    inputs: &[(Name, Tensor)],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<GraphModule> {
    let capture = Arc::new(Capture::new(is_grad_enabled()));
    let mut outlines = Vec::new();
    for (name, tensor) in inputs {
        let outline = outline(tensor)?;
        capture.input(name, &outline);
        outlines.push(outline);
    }
    let results = {
        let _layer = dispatch::push_inner_layer(Arc::clone(&capture) as Arc<dyn Interpreter>);
        f(&outlines)?
    };
    capture.finish(&results)
}

impl Interpreter for Capture {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> firebrand_core::Result<Outputs> {
        let (outlined, given) = {
            let mut trace = self.trace();
            (trace.outlined(op, args)?, trace.arguments(args).map_err(firebrand_core::Error::user)?)
        };
        let results = next.call(op, &outlined)?;
        self.trace().record(op, given, &results).map_err(firebrand_core::Error::user)?;
        Ok(results)
    }
}
