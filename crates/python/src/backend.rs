//! Backends written in Python: functions that get a captured graph and give back what runs it.

use crate::autograd::attached;
use crate::convert::{self, scalar_of, tensor_of};
use crate::errors::{exception, runtime};
use crate::held::Held;
use firebrand::compile::{
    self, Backend, Call, Error, ExampleInput, ExampleValue, Executable, Result, Value, backends::eager,
};
use firebrand::graph::ir::{GraphModule, Kind};
use firebrand::graph::text::{Form, print_module};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The calls of compiled functions that are under way: their hooks and custom functions belong to them, not to the graph.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// Takes the call off again, however it ends.
struct Running;

impl Running {
    fn new(call: &Call) -> Running {
        CALLS.with_borrow_mut(|calls| calls.push(call.clone()));
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let call = CALLS.with_borrow_mut(Vec::pop);
        drop(call);
    }
}

pub(crate) fn raised(e: Error) -> PyErr {
    match e {
        Error::Core(e) => exception(e),
        Error::Graph(firebrand::graph::Error::Core(e)) => exception(e),
        other => match firebrand::Error::from(other) {
            e if matches!(e.kind(), firebrand::ErrorKind::User(_)) => runtime(e),
            e => exception(e),
        },
    }
}

/// A backend by its name, or a Python function that is one.
pub(crate) fn backend_of(backend: &Bound<'_, PyAny>) -> PyResult<Arc<dyn Backend>> {
    if let Ok(name) = backend.extract::<String>() {
        return compile::backend(&name).map_err(|e| PyValueError::new_err(e.to_string()));
    }
    if !backend.is_callable() {
        return Err(PyTypeError::new_err("a backend is a name or a function of a graph and its inputs"));
    }
    Ok(Arc::new(Written(Held::new(backend))))
}

fn object(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    match value {
        Value::Tensor(t) => convert::optional(py, Some(t)),
        Value::Scalar(s) => convert::number(py, s),
        Value::List(list) => {
            let all = list.into_iter().map(|v| object(py, v)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, all)?.into_any())
        }
        v if v.is_none() => Ok(py.None().into_bound(py)),
        other => Err(runtime(format!("a value of this kind has no form in Python: {other:?}"))),
    }
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(t) = tensor_of(object) {
        return Ok(Value::Tensor(t.clone()));
    }
    if object.is_none() {
        return Ok(Value::NONE);
    }
    if let Some(s) = scalar_of(object)? {
        return Ok(Value::Scalar(s));
    }
    match convert::items(object)? {
        Some(list) => Ok(Value::List(list.iter().map(value).collect::<PyResult<_>>()?)),
        None => Err(PyTypeError::new_err("a graph takes and gives tensors, numbers and None")),
    }
}

/// The Python function.
struct Written(Held);

impl Backend for Written {
    fn name(&self) -> &str {
        "python"
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        let made = attached(|py| {
            let graph = Bound::new(py, Graph { graph: Arc::new(graph.clone()), examples: examples.to_vec() })?;
            let inputs = graph.get().example_inputs(py)?;
            let run = self.0.get(py).call1((graph, inputs))?;
            if !run.is_callable() {
                return Err(PyTypeError::new_err("a backend gives back the function that runs the graph"));
            }
            Ok(Held::new(&run))
        });
        Ok(Arc::new(Returned(made.map_err(Error::Core)?)))
    }
}

/// What the Python function gave back.
struct Returned(Held);

impl Executable for Returned {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let _running = Running::new(call);
        let results = attached(|py| {
            let inputs = inputs.iter().map(|v| object(py, v.clone())).collect::<PyResult<Vec<_>>>()?;
            match value(&self.0.get(py).call1(PyTuple::new(py, inputs)?)?)? {
                Value::List(results) => Ok(results),
                one => Ok(vec![one]),
            }
        });
        results.map_err(Error::Core)
    }
}

/// A graph that was captured.
#[pyclass(module = "firebrand", name = "Graph", frozen, dict, weakref)]
pub(crate) struct Graph {
    graph: Arc<GraphModule>,
    examples: Vec<ExampleInput>,
}

impl Graph {
    /// Tensors without memory, and numbers, like those the graph was captured with.
    fn example_inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let one = |e: &ExampleInput| match &e.value {
            ExampleValue::Int(n) => Ok(n.into_pyobject(py)?.into_any()),
            ExampleValue::Float(x) => Ok(x.into_pyobject(py)?.into_any()),
            ExampleValue::Tensor(meta) => {
                let sizes: Vec<i64> = meta.sizes.iter().map(|n| n.hint().unwrap_or(1)).collect();
                let dtype = meta.dtype.dtype().ok_or_else(|| runtime("an input of a dtype that is not there"))?;
                let dtype = convert::dtype(py, dtype)?;
                let empty = py.import("firebrand")?.getattr("empty")?;
                let settings = pyo3::types::PyDict::new(py);
                settings.set_item("dtype", dtype)?;
                settings.set_item("device", "meta")?;
                empty.call((sizes,), Some(&settings))
            }
        };
        PyList::new(py, self.examples.iter().map(one).collect::<PyResult<Vec<_>>>()?)
    }
}

#[pymethods]
impl Graph {
    /// Its nodes as (kind, name, target).
    fn node_list(&self) -> Vec<(&'static str, String, String)> {
        let graph = &self.graph.graph;
        let one = |n| {
            let node = &graph[n];
            let (kind, target) = match node.kind() {
                Kind::Placeholder(name) => ("placeholder", name.to_string()),
                Kind::GetAttr(name) => ("get_attr", name.to_string()),
                Kind::CallFunction(target) => ("call_function", target.to_string()),
                Kind::CallMethod(name) => ("call_method", name.to_string()),
                Kind::CallModule(name) => ("call_module", name.to_string()),
                Kind::Output => ("output", "output".to_string()),
            };
            (kind, node.name().to_string(), target)
        };
        graph.nodes().map(one).collect()
    }

    /// The graph as text; with types and attributes if `long`.
    #[pyo3(signature = (long=false))]
    fn text(&self, long: bool) -> String {
        print_module(&self.graph, if long { Form::Long } else { Form::Short })
    }

    /// Runs the graph op by op.
    #[pyo3(signature = (*inputs))]
    fn forward<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        let run = eager().compile(&self.graph, &self.examples).map_err(raised)?;
        execute(py, &*run, inputs)
    }

    #[pyo3(signature = (*inputs))]
    fn __call__<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        self.forward(py, inputs)
    }

    /// The graph, compiled by another backend.
    fn compiled(&self, py: Python<'_>, backend: &Bound<'_, PyAny>) -> PyResult<CompiledGraph> {
        let backend = backend_of(backend)?;
        py.detach(|| backend.compile(&self.graph, &self.examples)).map(CompiledGraph).map_err(raised)
    }
}

/// Runs it with the hooks and functions of the call that is under way.
fn execute<'py>(py: Python<'py>, run: &dyn Executable, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    let inputs = inputs.iter().map(|v| value(&v)).collect::<PyResult<Vec<_>>>()?;
    let call = CALLS.with_borrow(|calls| calls.last().cloned()).unwrap_or_default();
    let results = py.detach(|| run.run(&inputs, &call)).map_err(raised)?;
    PyTuple::new(py, results.into_iter().map(|v| object(py, v)).collect::<PyResult<Vec<_>>>()?)
}

/// A graph that a backend compiled.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct CompiledGraph(Arc<dyn Executable>);

#[pymethods]
impl CompiledGraph {
    #[pyo3(signature = (*inputs))]
    fn __call__<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        execute(py, &*self.0, inputs)
    }
}
