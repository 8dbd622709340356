//! The layer that records ops: above autograd for export, below it for decompositions and derivatives.

use crate::cond::record_cond;
use crate::error::Result;
use crate::ir::*;
use crate::trace::{Free, Trace, TraceStack, outline};
use firebrand_core::Tensor;
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::autograd::{autocast_dtype, call_with_autocast, is_autocast_enabled};
use firebrand_core::dispatch::{self, Autocast, Cond, Interpreter, Next, Op, Outputs, Value};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A graph under construction that sees every op.
pub(crate) struct TraceLayer {
    traces: Mutex<TraceStack>,
    /// Whether an op is being recorded: its parts are not recorded separately.
    busy: AtomicBool,
    /// For a trial: the first op that failed. The function is left there.
    failed: Option<Mutex<Option<firebrand_core::Error>>>,
    /// Whether autocast regions are marked; otherwise they become the casts they make.
    regions: bool,
}

/// How a function whose trial has failed is left; this unwinding is silent.
struct Failed;

impl TraceLayer {
    /// An empty graph; `ambient` is the grad mode around it.
    pub(crate) fn new(ambient: bool) -> TraceLayer {
        TraceLayer {
            traces: Mutex::new(TraceStack::new(Trace::new(ambient, Free::Constant))),
            busy: AtomicBool::new(false),
            failed: None,
            regions: true,
        }
    }

    /// An empty graph for a function that may not work at the sizes it is tried at; see [`TraceLayer::attempt`].
    pub(crate) fn trial(ambient: bool) -> TraceLayer {
        TraceLayer { failed: Some(Mutex::new(None)), ..TraceLayer::new(ambient) }
    }

    /// An empty graph for derivatives; see [`Trace::below`].
    pub(crate) fn below() -> TraceLayer {
        TraceLayer { traces: Mutex::new(TraceStack::new(Trace::below())), ..TraceLayer::new(true) }
    }

    fn trace(&self) -> MutexGuard<'_, TraceStack> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a call that is not an op, with its `result`.
    pub(crate) fn call_node(
        &self,
        target: Target,
        args: &[crate::interpret::Value],
        result: Option<&Tensor>,
    ) -> Result<()> {
        self.trace().record_call(target, args, result)
    }

    /// As `call_node`, for a call that gives a tuple.
    pub(crate) fn call_tuple(
        &self,
        target: Target,
        args: &[crate::interpret::Value],
        results: &[Option<Tensor>],
    ) -> Result<()> {
        self.trace().record_tuple(target, args, results)
    }

    /// Records a conditional with these branches.
    pub(crate) fn conditional(
        &self,
        pred: &Tensor,
        operands: &[&Tensor],
        sides: [&GraphModule; 2],
        results: &[Tensor],
    ) -> Result<()> {
        crate::cond::write(&mut self.trace(), pred, operands, sides, results)
    }

    /// Adds an input; returns its name.
    pub(crate) fn input(&self, name: &str, tensor: &Tensor) -> Name {
        let mut trace = self.trace();
        let node = trace.input(name, tensor);
        trace.module().graph[node].name().clone()
    }

    /// Runs `f` above autograd. An op that fails ends it, whatever `f` would do with the error: the message says why, and
    /// the number how many nodes there were.
    pub(crate) fn attempt<R>(
        self: &Arc<TraceLayer>,
        f: impl FnOnce() -> firebrand_core::Result<R>,
    ) -> Result<R, (usize, String)> {
        let result = catch_unwind(AssertUnwindSafe(|| above_autograd(self, f)));
        let failed = self.failed.as_ref().and_then(|f| f.lock().unwrap_or_else(PoisonError::into_inner).take());
        let message = match (failed, result) {
            (Some(e), _) => e.to_string(),
            (None, Ok(Ok(result))) => return Ok(result),
            (None, Ok(Err(e))) => e.to_string(),
            (None, Err(_)) => "the function panics".to_string(),
        };
        Err((self.trace().module().graph.len(), message))
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

/// Runs `f` and records every op it calls, composite ops without decomposing them.
pub(crate) fn above_autograd<R>(
    layer: &Arc<TraceLayer>,
    f: impl FnOnce() -> firebrand_core::Result<R>,
) -> firebrand_core::Result<R> {
    let _layer = dispatch::push_layer(Arc::clone(layer) as Arc<dyn Interpreter>);
    f()
}

/// Runs `f` on outlines of `inputs` and records what reaches the kernels: composite ops are decomposed into the ops they are
/// composed of, except for those in `whole`. The placeholders keep these names.
pub(crate) fn trace_below_autograd(
    inputs: &[(Name, Tensor)],
    whole: fn(Op) -> bool,
    f: impl FnOnce(&Arc<TraceLayer>, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<GraphModule> {
    let layer = Arc::new(TraceLayer { regions: false, ..TraceLayer::new(is_grad_enabled()) });
    let mut outlines = Vec::new();
    for (name, tensor) in inputs {
        let outline = outline(tensor)?;
        layer.input(name, &outline);
        outlines.push(outline);
    }
    let results = {
        let _whole = dispatch::push_layer(Arc::new(Whole { layer: Arc::clone(&layer), stays: whole }));
        let _layer = dispatch::push_inner_layer(Arc::clone(&layer) as Arc<dyn Interpreter>);
        f(&layer, &outlines)?
    };
    layer.finish(&results)
}

/// The layer above autograd that records some ops before they are decomposed.
struct Whole {
    layer: Arc<TraceLayer>,
    stays: fn(Op) -> bool,
}

impl Interpreter for Whole {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> firebrand_core::Result<Outputs> {
        match (self.stays)(op) {
            // Its casts are ops of their own, and it comes back here outside the region.
            true if is_autocast_enabled() && !matches!(op.info().autocast, Autocast::AsIs | Autocast::Whole) => {
                call_with_autocast(op, args)
            }
            true => self.layer.call(op, args, next),
            false => next.call(op, args),
        }
    }
}

impl Interpreter for TraceLayer {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> firebrand_core::Result<Outputs> {
        if self.busy.load(Ordering::Relaxed) {
            // An autocast region opens layers; the layer is what is recorded.
            return next.call(op, args);
        }
        let (outlined, given) = {
            let mut trace = self.trace();
            (trace.outlined(op, args)?, trace.arguments(args).map_err(firebrand_core::Error::user)?)
        };
        let results = {
            let _busy = Busy::new(&self.busy);
            next.call(op, &outlined)
        };
        let results = match (results, &self.failed) {
            (Ok(results), _) => results,
            (Err(e), None) => return Err(e),
            (Err(e), Some(failed)) => {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                resume_unwind(Box::new(Failed))
            }
        };
        let mut trace = self.trace();
        let region = (self.regions && is_autocast_enabled()).then(autocast_dtype);
        trace.set_regions(is_grad_enabled(), region);
        trace.record(op, given, &results).map_err(firebrand_core::Error::user)?;
        Ok(results)
    }

    fn cond(&self, call: &Cond<'_>) -> Option<firebrand_core::Result<Vec<Tensor>>> {
        Some(record_cond(&self.traces, &|_| (), call))
    }
}

/// Sets a flag while it lives.
struct Busy<'a>(&'a AtomicBool);

impl<'a> Busy<'a> {
    fn new(flag: &'a AtomicBool) -> Busy<'a> {
        flag.store(true, Ordering::Relaxed);
        Busy(flag)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
