//! Compiled functions and compiled backward passes.
//!
//! A Python function has no guards: what it reads (globals, attributes, closures) can change unseen. So it is captured at every
//! call, on meta tensors, and the graph is looked up among those compiled before, by its text. With `static` it is captured once
//! per set of guards on its tensors, as core's functions are, and Python code in it runs only then.

use crate::autograd::{call_flat, need_tensors};
use crate::convert;
use crate::errors::{exception, runtime};
use crate::held::Held;
use firebrand::Tensor;
use firebrand::compile::{
    self, Backend, Compiled, Dynamic, Error, ExampleInput, Executable, Options, backward, compile_with,
};
use firebrand::graph::ir::GraphModule;
use firebrand::graph::text::{Form, print_module};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

fn raised(e: Error) -> PyErr {
    match e {
        Error::Core(e) => exception(e),
        other => runtime(other),
    }
}

/// A backend that compiles each graph once.
struct Remembering {
    inner: Arc<dyn Backend>,
    known: Mutex<HashMap<String, Arc<dyn Executable>>>,
    compiled: AtomicUsize,
    ops: AtomicUsize,
}

impl Remembering {
    fn new(inner: Arc<dyn Backend>) -> Remembering {
        Remembering { inner, known: Mutex::default(), compiled: AtomicUsize::new(0), ops: AtomicUsize::new(0) }
    }

    /// What tells a graph from others; none if it holds tensors or graphs, which its text does not show.
    fn key(graph: &GraphModule, examples: &[ExampleInput]) -> Option<String> {
        graph.attributes.is_empty().then(|| format!("{}{examples:?}", print_module(graph, Form::Long)))
    }
}

impl Backend for Remembering {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> compile::Result<Arc<dyn Executable>> {
        let key = Remembering::key(graph, examples);
        let lock = || self.known.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(found) = key.as_ref().and_then(|k| lock().get(k).cloned()) {
            return Ok(found);
        }
        let made = self.inner.compile(graph, examples)?;
        self.compiled.fetch_add(1, Relaxed);
        self.ops.fetch_add(graph.graph.nodes().filter(|&n| graph.graph[n].target().is_some()).count(), Relaxed);
        if let Some(key) = key {
            lock().insert(key, made.clone());
        }
        Ok(made)
    }

    fn compile_transformed(
        &self,
        graph: &GraphModule,
        examples: &[ExampleInput],
    ) -> compile::Result<Arc<dyn Executable>> {
        self.inner.compile_transformed(graph, examples)
    }
}

/// A compiled function of lists.
type OfLists = Compiled<Vec<Tensor>, Vec<Tensor>>;

/// A function of a flat list of tensors with its compiled graphs.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct CompiledFunction {
    options: Options,
    backend: Arc<Remembering>,
    /// With `static`: the function, captured by guards on its tensors.
    once: Mutex<HashMap<String, OfLists>>,
}

fn dynamic(wish: Option<bool>) -> Dynamic {
    match wish {
        None => Dynamic::Automatic,
        Some(true) => Dynamic::Always,
        Some(false) => Dynamic::Never,
    }
}

fn named(backend: &str) -> PyResult<Arc<dyn Backend>> {
    compile::backend(backend).map_err(|e| PyValueError::new_err(e.to_string()))
}

#[pymethods]
impl CompiledFunction {
    #[new]
    fn new(name: String, backend: &str, fullgraph: bool, dynamic_sizes: Option<bool>) -> PyResult<CompiledFunction> {
        let backend = Arc::new(Remembering::new(named(backend)?));
        let options = Options {
            backend: backend.clone(),
            fullgraph,
            dynamic: dynamic(dynamic_sizes),
            name: Some(name),
            ..Options::default()
        };
        Ok(CompiledFunction { options, backend, once: Mutex::default() })
    }

    /// Captures and runs `f` on tensors; graphs that were compiled before are not compiled again.
    fn call<'py>(
        &self,
        py: Python<'py>,
        f: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (held, inputs) = (Held::new(f), need_tensors(inputs)?);
        let compiled = compile_with(move |t: &Vec<Tensor>| call_flat(&held, t), self.options.clone());
        convert::list(py, py.detach(|| compiled.try_call(&inputs)).map_err(raised)?)
    }

    /// As `call`, but captures only when guards on the tensors fail. `key` tells calls apart that differ in other things.
    fn call_static<'py>(
        &self,
        py: Python<'py>,
        key: String,
        f: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (held, inputs) = (Held::new(f), need_tensors(inputs)?);
        let compiled = {
            let mut known = self.once.lock().unwrap_or_else(|e| e.into_inner());
            let make = || compile_with(move |t: &Vec<Tensor>| call_flat(&held, t), self.options.clone());
            known.entry(key).or_insert_with(make).clone()
        };
        convert::list(py, py.detach(|| compiled.try_call(&inputs)).map_err(raised)?)
    }

    /// How many graphs were compiled, and how many ops they have.
    fn counts(&self) -> (usize, usize) {
        (self.backend.compiled.load(Relaxed), self.backend.ops.load(Relaxed))
    }
}

/// Backward passes of this thread are compiled until it is left.
#[pyclass(unsendable)]
pub(crate) struct CompiledBackwardScope {
    guard: Option<backward::Guard>,
}

#[pymethods]
impl CompiledBackwardScope {
    #[new]
    fn new(backend: &str, dynamic: bool, fullgraph: bool) -> PyResult<CompiledBackwardScope> {
        let options = backward::Options { backend: named(backend)?, dynamic, fullgraph, ..Default::default() };
        Ok(CompiledBackwardScope { guard: Some(backward::enable(options)) })
    }

    /// How many structures were captured so far.
    fn captures(&self) -> usize {
        self.guard.as_ref().map_or(0, backward::Guard::captures)
    }

    fn leave(&mut self) {
        self.guard = None;
    }
}

#[pyfunction]
fn list_backends() -> Vec<&'static str> {
    compile::list_backends()
}

#[pyfunction]
fn is_compiling() -> bool {
    compile::is_compiling()
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<CompiledFunction>()?;
    m.add_class::<CompiledBackwardScope>()?;
    m.add_function(wrap_pyfunction!(list_backends, m)?)?;
    m.add_function(wrap_pyfunction!(is_compiling, m)?)
}
