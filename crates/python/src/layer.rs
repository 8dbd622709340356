//! Dispatch modes written in Python: layers below autograd that see every op, as `TorchDispatchMode`.
//!
//! A mode is called with the op, its positional arguments and its keywords, and calls the op itself, or not. While it runs, ops
//! that it calls go to the modes below it and then to kernels, never through autograd.

use crate::autograd::attached;
use crate::convert::{self, tensor_of};
use crate::held::Held;
use crate::ops::OpOverload;
use firebrand::dispatch::{self, Interpreter, LayerGuard, Next, Op, Outputs, Value};
use firebrand_core::schema::Type;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// How many modes are running on this thread.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Runs an op where the thread is: below autograd while a mode runs.
pub(crate) fn call(op: Op, values: &[Value]) -> firebrand::Result<Outputs> {
    if RUNNING.get() > 0 { dispatch::call_below(op, values) } else { dispatch::call(op, values) }
}

struct Running;

impl Running {
    fn new() -> Running {
        RUNNING.set(RUNNING.get() + 1);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(RUNNING.get() - 1);
    }
}

struct Mode(Held);

/// An argument as `__torch_dispatch__` sees it: lists are lists.
fn argument<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    let object = convert::object(py, value.clone())?;
    match object.cast::<PyTuple>() {
        Ok(all) => Ok(PyList::new(py, all.iter())?.into_any()),
        Err(_) => Ok(object),
    }
}

/// The results of an op, from what Python returned.
fn results(op: Op, found: &Bound<'_, PyAny>) -> PyResult<Outputs> {
    let count = op.schema().returns.len();
    let one = |object: &Bound<'_, PyAny>, ty: Type| -> PyResult<Value> {
        if object.is_none() {
            return Ok(Value::None);
        }
        if let Some(t) = tensor_of(object) {
            return Ok(Value::Tensor(t.clone()));
        }
        if matches!(ty, Type::Tensors)
            && let Some(list) = convert::tensors_of(object)?
        {
            return Ok(Value::Tensors(list));
        }
        match convert::scalar_of(object)? {
            Some(s) => Ok(match (ty, s) {
                (Type::Int, firebrand::Scalar::Int(i)) => Value::Int(i.into()),
                (Type::Bool, firebrand::Scalar::Bool(b)) => Value::Bool(b),
                (Type::Float, firebrand::Scalar::Float(f)) => Value::Float(f),
                (_, s) => Value::Scalar(s),
            }),
            None => {
                let kind = object.get_type().name()?;
                Err(PyTypeError::new_err(format!(
                    "{}: a dispatch mode returned a {kind}, expected a result of the op",
                    op.name()
                )))
            }
        }
    };
    let types = op.schema().returns;
    if count == 1 {
        return Ok([one(found, types[0])?].into_iter().collect());
    }
    let list = convert::items(found)?.unwrap_or_default();
    if list.len() != count {
        return Err(PyTypeError::new_err(format!(
            "{}: a dispatch mode returned {} results, expected {count}",
            op.name(),
            list.len()
        )));
    }
    list.iter().zip(types).map(|(o, &ty)| one(o, ty)).collect()
}

impl Interpreter for Mode {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> firebrand::Result<Outputs> {
        next.enter(|| {
            attached(|py| {
                let schema = op.schema();
                let mut positional = Vec::new();
                let keywords = PyDict::new(py);
                for (k, arg) in schema.args.iter().enumerate() {
                    let value = args.get(k).unwrap_or(&Value::None);
                    if arg.kwarg_only {
                        if !matches!(value, Value::None) {
                            keywords.set_item(arg.name, argument(py, value)?)?;
                        }
                    } else {
                        positional.push(argument(py, value)?);
                    }
                }
                // Trailing arguments that were left to their defaults are not shown.
                while positional.last().is_some_and(|a| a.is_none())
                    && schema.args.get(positional.len() - 1).is_some_and(|a| a.default.is_some())
                {
                    positional.pop();
                }
                let overload = OpOverload::of(py, op)?;
                let call = (overload, PyTuple::empty(py), PyTuple::new(py, positional)?, keywords);
                let _running = Running::new();
                let found = self.0.get(py).call_method1("__torch_dispatch__", call)?;
                results(op, &found)
            })
        })
    }
}

/// A mode that is on until it is left.
#[pyclass(unsendable)]
pub(crate) struct LayerScope(Option<LayerGuard>);

#[pymethods]
impl LayerScope {
    #[new]
    fn new(mode: &Bound<'_, PyAny>) -> LayerScope {
        LayerScope(Some(dispatch::push_inner_layer(Arc::new(Mode(Held::new(mode))))))
    }

    fn leave(&mut self) {
        self.0 = None;
    }
}
