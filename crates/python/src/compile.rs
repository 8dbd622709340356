//! Compiled functions and compiled backward passes.
//!
//! A Python function has no guards: what it reads (globals, attributes, closures) can change unseen. So it is captured at every
//! call, on meta tensors, and the graph is looked up among those compiled before, by its text. With `static` it is captured once
//! per set of guards on its tensors, as core's functions are, and Python code in it runs only then.

use crate::autograd::{call_flat, need_tensors};
use crate::backend::{self, backend_of, raised};
use crate::convert;
use crate::held::Held;
use firebrand::Tensor;
use firebrand::compile::{self, Backend, Compiled, Dynamic, ExampleInput, Executable, Options, backward, compile_with};
use firebrand::graph::ir::GraphModule;
use firebrand::graph::text::{Form, print_module};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

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
        let ops = graph.graph.nodes().filter(|&n| graph.graph[n].target().is_some()).count();
        if ops == 0 {
            // Nothing to compile.
            return compile::backends::eager().compile(graph, examples);
        }
        let made = self.inner.compile(graph, examples)?;
        self.compiled.fetch_add(1, Relaxed);
        self.ops.fetch_add(ops, Relaxed);
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

/// The graphs that one backend compiled, for any number of functions.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct Graphs(Arc<Remembering>);

#[pymethods]
impl Graphs {
    #[new]
    fn new(backend: &Bound<'_, PyAny>) -> PyResult<Graphs> {
        Ok(Graphs(Arc::new(Remembering::new(backend_of(backend)?))))
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

#[pymethods]
impl CompiledFunction {
    #[new]
    fn new(name: String, graphs: &Bound<'_, Graphs>, fullgraph: bool, dynamic_sizes: Option<bool>) -> CompiledFunction {
        let backend = graphs.get().0.clone();
        let options = Options {
            backend: backend.clone(),
            fullgraph,
            dynamic: dynamic(dynamic_sizes),
            name: Some(name),
            ..Options::default()
        };
        CompiledFunction { options, backend, once: Mutex::default() }
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

/// Compiled backward passes, for any number of scopes.
#[pyclass(name = "CompiledBackward", module = "firebrand", frozen)]
pub(crate) struct PyCompiledBackward(backward::CompiledBackward);

#[pymethods]
impl PyCompiledBackward {
    #[new]
    fn new(
        backend: &Bound<'_, PyAny>,
        dynamic: bool,
        dynamic_graphs: bool,
        fullgraph: bool,
    ) -> PyResult<PyCompiledBackward> {
        let backend = backend_of(backend)?;
        let options = backward::Options { backend, dynamic, dynamic_graphs, fullgraph, ..Default::default() };
        Ok(PyCompiledBackward(backward::CompiledBackward::new(options)))
    }

    /// How many structures were captured so far.
    fn captures(&self) -> usize {
        self.0.captures()
    }

    /// Backward passes of this thread are compiled until the scope is left.
    fn enter(&self) -> CompiledBackwardScope {
        CompiledBackwardScope(Some(self.0.enable()))
    }
}

/// Backward passes of this thread are not compiled until the scope is left.
#[pyfunction]
fn plain_backward() -> CompiledBackwardScope {
    CompiledBackwardScope(Some(backward::disable()))
}

#[pyclass(unsendable)]
pub(crate) struct CompiledBackwardScope(Option<backward::Guard>);

#[pymethods]
impl CompiledBackwardScope {
    fn leave(&mut self) {
        self.0 = None;
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
    m.add_class::<Graphs>()?;
    m.add_class::<backend::Graph>()?;
    m.add_class::<backend::CompiledGraph>()?;
    m.add_class::<PyCompiledBackward>()?;
    m.add_class::<CompiledBackwardScope>()?;
    m.add_function(wrap_pyfunction!(plain_backward, m)?)?;
    m.add_function(wrap_pyfunction!(list_backends, m)?)?;
    m.add_function(wrap_pyfunction!(is_compiling, m)?)
}
