//! cond: a data-dependent branch that programs can represent.
//!
//! In eager mode, one branch runs. While a function is exported or compiled, both branches are recorded as sub-graphs of a
//! `cond` node: the layer that records ops also receives the call ([`dispatch::cond`]) and passes it to [`record_cond`]. Tensors
//! that a branch captures become operands of both, in one order. Both branches must return values of the same types.

use crate::interpret::{Value, attach, entered, owned};
use crate::ir::{Argument, Attribute, GraphModule, Hop, TensorMeta};
use crate::trace::{Free, Trace, TraceStack, outline};
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::dispatch::{self, Branch, Cond};
use firebrand_core::{Error, Result, Tensor, capture};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `true_fn(operands)` if `pred` holds, else `false_fn(operands)`.
///
/// `pred` has one element. Gradients flow through the branch that ran; operands that only the other branch uses get zeros.
/// The branches may only compute: while they are recorded they must not read values, write cells or register hooks. Their
/// results never alias operands: a branch that returns an operand, or a view of one, returns a copy.
///
/// ```
/// use firebrand_core::Tensor;
/// use firebrand_graph::{cond, export};
/// let f = |x: &[Tensor]| cond(&x[0].sum().gt_scalar(0.0), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![x[0].cos()]), &[&x[0]]);
/// let program = export(f, &[Tensor::new(&[1.0f64])], &[])?;
/// let run = |v: f64| Ok::<_, firebrand_graph::Error>(program.run(&[Tensor::new(&[v])])?[0].tensor()?.to_vec::<f64>()[0]);
/// assert_eq!((run(2.0)?, run(-2.0)?), (2.0f64.sin(), 2.0f64.cos()));
/// # Ok::<(), firebrand_graph::Error>(())
/// ```
///
/// # Errors
/// If `pred` has more than one element, or the branches return values of different types.
pub fn cond(
    pred: &Tensor,
    true_fn: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    false_fn: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    operands: &[&Tensor],
) -> Result<Vec<Tensor>> {
    if pred.layout().numel() != 1 {
        let sizes = pred.layout().sizes();
        return Err(Error::argument("cond", format!("the predicate has sizes {sizes:?}; it must have one element")));
    }
    if let Some(recorded) = dispatch::cond(&Cond { pred, sides: [&true_fn, &false_fn], operands }) {
        return recorded;
    }
    let operands = Value::List(operands.iter().map(|t| Value::from(*t)).collect());
    let operands = entered(&operands).map_err(Error::user)?;
    let given: Vec<Tensor> = operands.tensors().into_iter().cloned().collect();
    let results = if pred.try_scalar_value()?.to_bool() { true_fn(&given)? } else { false_fn(&given)? };
    let values = Value::List(results.iter().map(Value::from).collect());
    let attached = owned(values, &operands).and_then(|v| attach(v, &operands)).map_err(Error::user)?;
    Ok(attached.tensors().into_iter().cloned().collect())
}

/// A recorded branch.
struct Side {
    graph: GraphModule,
    results: Vec<Tensor>,
    /// What it uses from outside that was not known yet.
    captured: Vec<Tensor>,
}

/// Where the branches of conditionals are recorded: the traces of a layer, and how it handles stand-ins.
struct Recorder<'a, S> {
    traces: &'a Mutex<S>,
    prepare: &'a dyn Fn(&Tensor),
}

impl<S: AsMut<TraceStack>> Recorder<'_, S> {
    fn lock(&self) -> MutexGuard<'_, S> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records both branches of a conditional, and the node that holds them, in the traces of a layer. `prepare` sees every meta
/// tensor that stands for an operand or a result before the function does.
pub fn record_cond<S: AsMut<TraceStack>>(
    traces: &Mutex<S>,
    prepare: &dyn Fn(&Tensor),
    call: &Cond<'_>,
) -> Result<Vec<Tensor>> {
    let recorder = Recorder { traces, prepare };
    let Cond { pred, sides: [yes, no], operands } = *call;
    let mut captured = Vec::new();
    let mut first = side(&recorder, yes, operands, &captured)?;
    captured.append(&mut first.captured);
    let mut second = side(&recorder, no, operands, &captured)?;
    if !second.captured.is_empty() {
        // Both take what either uses.
        captured.append(&mut second.captured);
        first = side(&recorder, yes, operands, &captured)?;
    }
    let results = alike(prepare, &first.results, &second.results)?;
    let all: Vec<&Tensor> = operands.iter().copied().chain(&captured).collect();
    write(recorder.lock().as_mut(), pred, &all, [&first.graph, &second.graph], &results).map_err(Error::user)?;
    Ok(results)
}

/// Runs one branch on meta tensors and records it; its inputs are the operands and `captured`.
fn side<S: AsMut<TraceStack>>(
    recorder: &Recorder<'_, S>,
    f: Branch<'_>,
    operands: &[&Tensor],
    captured: &[Tensor],
) -> Result<Side> {
    /// Discards a branch that failed.
    struct End<'a, S: AsMut<TraceStack>>(Option<&'a Recorder<'a, S>>);
    impl<S: AsMut<TraceStack>> Drop for End<'_, S> {
        fn drop(&mut self) {
            let ended = self.0.map(|recorder| recorder.lock().as_mut().end());
            drop(ended);
        }
    }
    let mut trace = Trace::new(is_grad_enabled(), Free::Input);
    let mut stand_ins = Vec::with_capacity(operands.len());
    for (i, t) in operands.iter().enumerate() {
        let stand_in = outline(t)?;
        (recorder.prepare)(&stand_in);
        trace.input(&format!("operand_{i}"), &stand_in);
        stand_ins.push(stand_in);
    }
    for (i, t) in captured.iter().enumerate() {
        trace.input(&format!("captured_{i}"), t);
    }
    recorder.lock().as_mut().begin(trace);
    let mut end = End(Some(recorder));
    let results = f(&stand_ins)?;
    end.0 = None;
    let mut trace = recorder.lock().as_mut().end();
    let nodes = results.iter().map(|t| Ok(trace.node(t)?.into())).collect::<crate::Result<Vec<Argument>>>();
    let nodes = nodes.map_err(Error::user)?;
    let captured = trace.captured().iter().map(|(t, _)| t.clone()).collect();
    Ok(Side { graph: trace.finish(nodes), results, captured })
}

/// The meta tensors of the results: like those of both branches, with a history if either has one.
fn alike(prepare: &dyn Fn(&Tensor), yes: &[Tensor], no: &[Tensor]) -> Result<Vec<Tensor>> {
    let kind = |t: &Tensor| TensorMeta { requires_grad: false, ..TensorMeta::of(t) };
    let shown = |list: &[Tensor]| list.iter().map(|t| kind(t).to_string()).collect::<Vec<_>>().join(", ");
    let same = |(a, b): (&Tensor, &Tensor)| a.dtype() == b.dtype() && a.layout().sizes() == b.layout().sizes();
    if yes.len() != no.len() || !yes.iter().zip(no).all(same) {
        let message = format!("the branches return ({}) and ({}); they must match", shown(yes), shown(no));
        return Err(Error::argument("cond", message));
    }
    let one = |(a, b): (&Tensor, &Tensor)| {
        // A copy, made unseen: a side may return its operand.
        let result = capture::suspended(|| if a.requires_grad() { a } else { b }.try_clone_tensor())?;
        prepare(&result);
        Ok(result)
    };
    yes.iter().zip(no).map(one).collect()
}

/// Records the node of a conditional with these branches.
pub(crate) fn write(
    trace: &mut Trace,
    pred: &Tensor,
    operands: &[&Tensor],
    sides: [&GraphModule; 2],
    results: &[Tensor],
) -> crate::Result<()> {
    let mut args: Vec<Argument> = vec![trace.node(pred)?.into()];
    let number = trace.module().attributes.len() / 2;
    for (side, name) in sides.into_iter().zip(["true_graph", "false_graph"]) {
        let module = trace.module_mut();
        let mut path = format!("{name}_{number}");
        while module.attributes.get(&path).is_some() {
            path.push('_');
        }
        module.attributes.set(&path, Attribute::Graph(Arc::new(side.clone())));
        args.push(module.graph.get_attr(&path).into());
    }
    let operands = operands.iter().map(|t| Ok(trace.node(t)?.into())).collect::<crate::Result<Vec<Argument>>>()?;
    args.push(Argument::tuple(operands));
    trace.record_function(Hop::Cond, args, results);
    Ok(())
}
