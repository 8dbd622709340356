//! The accuracy check: compares a backend's results with eager execution, and finds the node to blame.
//!
//! Distances are relative to the largest value of a result, and both runs are measured against eager execution in f64 where
//! the graph allows it: a compiled graph that is closer to the truth than eager execution is never blamed.

use super::extract::{Piece, examples, node_values, returned};
use crate::backend::{Backend, Call, ExampleInput, Executable, Value};
use crate::error::{Error, Result};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Tensor};
use firebrand_graph::interpret::{Eager, run_module};
use firebrand_graph::ir::{GraphModule, Name};
use std::sync::Arc;

/// A node that a backend computes differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// The node.
    pub node: Name,
    /// What it calls.
    pub target: String,
    /// How far off it is, relative to its largest value.
    pub error: f64,
}

/// The result of an accuracy check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccuracyReport {
    /// How far each result is from the reference.
    pub errors: Vec<f64>,
    /// Results that are too far off, by position.
    pub wrong: Vec<usize>,
    /// The first nodes that are off by themselves, given the eager run's operands.
    pub blame: Vec<Deviation>,
}

impl AccuracyReport {
    /// Whether every result is near enough.
    pub fn is_accurate(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl std::fmt::Display for AccuracyReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for k in &self.wrong {
            writeln!(f, "result {k} is off by {:.2e} of its largest value", self.errors[*k])?;
        }
        for d in &self.blame {
            writeln!(f, "%{} = {} is off by {:.2e} by itself", d.node, d.target, d.error)?;
        }
        if self.is_accurate() { writeln!(f, "every result is accurate") } else { Ok(()) }
    }
}

fn numbers(t: &Tensor) -> Result<Vec<f64>> {
    Ok(t.detach().try_to_dtype(DType::F64)?.contiguous().to_vec())
}

/// The distance of two results: infinite if they are not of one kind.
fn distance(got: &Value, reference: &Value) -> Result<f64> {
    let (Value::Tensor(a), Value::Tensor(b)) = (got, reference) else { return Ok(0.0) };
    if a.shape() != b.shape() {
        return Ok(f64::INFINITY);
    }
    let (a, b) = (numbers(a)?, numbers(b)?);
    let scale = b.iter().filter(|v| v.is_finite()).fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let apart = |(x, y): (&f64, &f64)| match (x == y || x.is_nan() && y.is_nan(), (x - y).is_nan()) {
        (true, _) => 0.0,
        (_, true) => f64::INFINITY,
        _ => (x - y).abs() / scale,
    };
    Ok(a.iter().zip(&b).map(apart).fold(0.0, f64::max))
}

fn plain(graph: &GraphModule, inputs: &[Value]) -> Result<Vec<Value>> {
    match no_grad(|| run_module(&mut Eager::default(), graph, inputs))? {
        Value::List(items) => Ok(items),
        one => Ok(vec![one]),
    }
}

/// Copies, so that a graph which writes its inputs can be run again; floats as f64 if requested.
fn copies(inputs: &[Value], wide: bool) -> Result<Vec<Value>> {
    let copy = |v: &Value| match v {
        Value::Tensor(t) if wide && t.is_floating_point() => Ok(Value::Tensor(t.detach().try_to_dtype(DType::F64)?)),
        Value::Tensor(t) => Ok(Value::Tensor(t.detach().clone_tensor())),
        other => Ok(other.clone()),
    };
    inputs.iter().map(copy).collect()
}

/// How far each result of `got` is from the truth, and whether that is too far.
fn judge(graph: &GraphModule, inputs: &[Value], got: &[Value], tolerance: f64) -> Result<(Vec<f64>, Vec<usize>)> {
    let plainly = plain(graph, &copies(inputs, false)?)?;
    if plainly.len() != got.len() {
        return Err(Error::internal(format!(
            "the backend returned {} results, the graph has {}",
            got.len(),
            plainly.len()
        )));
    }
    // Random numbers and dtypes that are written in the graph have no wide run.
    let widely = plain(graph, &copies(inputs, true)?).ok().filter(|w| w.len() == got.len());
    let (mut errors, mut wrong) = (Vec::new(), Vec::new());
    for (k, value) in got.iter().enumerate() {
        let mut error = distance(value, &plainly[k])?;
        if error > tolerance
            && let Some(wide) = &widely
            && distance(&plainly[k], &wide[k])? > tolerance / 2.0
        {
            // The eager run itself is far from the truth: only more than twice as far counts.
            let allowed = 2.0 * distance(&plainly[k], &wide[k])?;
            let own = distance(value, &wide[k])?;
            error = if own > allowed { own } else { 0.0 };
        }
        if error > tolerance {
            wrong.push(k);
        }
        errors.push(error);
    }
    Ok((errors, wrong))
}

/// Runs a graph eagerly and through a backend, compares the results, and if they differ compares node by node.
/// `tolerance` is relative to the largest value of each result; 1e-3 is usual for f32.
pub fn check_accuracy(
    backend: &dyn Backend,
    graph: &GraphModule,
    inputs: &[Value],
    tolerance: f64,
) -> Result<AccuracyReport> {
    let compiled = backend.compile(graph, &examples(inputs)?)?;
    let got = compiled.run(&copies(inputs, false)?, &Call::default())?;
    let (errors, wrong) = judge(graph, inputs, &got, tolerance)?;
    let blame = if wrong.is_empty() { Vec::new() } else { blame(backend, graph, inputs, tolerance)? };
    Ok(AccuracyReport { errors, wrong, blame })
}

/// The nodes that are off by themselves, each run alone on the operands of the eager run.
fn blame(backend: &dyn Backend, graph: &GraphModule, inputs: &[Value], tolerance: f64) -> Result<Vec<Deviation>> {
    let values = node_values(graph, &copies(inputs, false)?)?;
    let whole = Piece { outputs: returned(graph), ..Piece::default() };
    let mut found = Vec::new();
    for n in whole.calls(graph) {
        let is_tensor = |n| matches!(values.get(&n), Some(Value::Tensor(_) | Value::Scalar(_)));
        if !is_tensor(n) || graph.graph.input_nodes(n).any(|m| graph.graph[m].target().is_some() && !is_tensor(m)) {
            continue;
        }
        let cut = graph.graph.input_nodes(n).filter(|&m| is_tensor(m)).collect();
        let (piece, given) = Piece { outputs: vec![n], cut, ..Piece::default() }.build(graph, &values)?;
        let compiled = backend.compile(&piece, &examples(&given)?)?;
        let got = compiled.run(&copies(&given, false)?, &Call::default())?;
        let (errors, wrong) = judge(&piece, &given, &got, tolerance)?;
        if !wrong.is_empty() {
            let node = &graph.graph[n];
            let target = node.target().map(ToString::to_string).unwrap_or_default();
            found.push(Deviation { node: node.name().clone(), target, error: errors[0] });
        }
    }
    Ok(found)
}

/// A backend that checks another at every call: a result that is off is an error which names the nodes to blame.
pub struct Checked<B> {
    inner: Arc<B>,
    tolerance: f64,
}

impl<B: Backend> Checked<B> {
    /// Checks `inner` with this tolerance, relative to the largest value of each result.
    pub fn new(inner: B, tolerance: f64) -> Checked<B> {
        Checked { inner: Arc::new(inner), tolerance }
    }
}

struct CheckedGraph<B> {
    inner: Arc<B>,
    graph: GraphModule,
    compiled: Arc<dyn Executable>,
    tolerance: f64,
}

impl<B: Backend + 'static> Backend for Checked<B> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        let compiled = self.inner.compile(graph, examples)?;
        let (inner, graph) = (Arc::clone(&self.inner), graph.clone());
        Ok(Arc::new(CheckedGraph { inner, graph, compiled, tolerance: self.tolerance }))
    }
}

impl<B: Backend> Executable for CheckedGraph<B> {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let before = copies(inputs, false)?;
        let got = self.compiled.run(inputs, call)?;
        let (errors, wrong) = judge(&self.graph, &before, &got, self.tolerance)?;
        if wrong.is_empty() {
            return Ok(got);
        }
        let blame = blame(&*self.inner, &self.graph, &before, self.tolerance)?;
        let report = AccuracyReport { errors, wrong, blame };
        Err(Error::Accuracy { backend: self.inner.name().to_string(), report: report.to_string() })
    }
}
