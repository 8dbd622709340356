//! Function transforms on flat lists of tensors; Python flattens arguments and results.

use crate::autograd::{attached, call_flat, need_tensors};
use crate::convert;
use crate::errors::Raise;
use crate::held::Held;
use crate::identity;
use firebrand::Tensor;
use firebrand::func::{self, BatchDims, Linear, Randomness, Vjp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::{Arc, OnceLock};

type Flat = Vec<Tensor>;

/// The function that `vjp` gives back.
#[pyclass(module = "firebrand.func", frozen)]
pub(crate) struct Pullback(Vjp<Flat, Flat>);

#[pymethods]
impl Pullback {
    fn __call__<'py>(&self, py: Python<'py>, cotangents: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let cotangents = need_tensors(cotangents)?;
        convert::list(py, py.detach(|| self.0.call(&cotangents)).raise()?)
    }
}

#[pyfunction]
fn vjp<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    primals: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyList>, Pullback)> {
    let (f, primals) = (Held::new(f), need_tensors(primals)?);
    let run = || func::vjp(|args: &Flat| call_flat(&f, args), &primals);
    let (outputs, pullback) = py.detach(run).raise()?;
    Ok((convert::list(py, outputs)?, Pullback(pullback)))
}

#[pyfunction]
fn jvp<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    primals: &Bound<'py, PyAny>,
    tangents: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let (f, primals, tangents) = (Held::new(f), need_tensors(primals)?, need_tensors(tangents)?);
    let run = || func::jvp(|args: &Flat| call_flat(&f, args), &primals, &tangents);
    let (outputs, tangents) = py.detach(run).raise()?;
    Ok((convert::list(py, outputs)?, convert::list(py, tangents)?))
}

#[pyfunction]
fn vmap<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    in_dims: Vec<Option<i64>>,
    randomness: &str,
    chunk_size: Option<usize>,
) -> PyResult<Bound<'py, PyList>> {
    let (f, inputs) = (Held::new(f), need_tensors(inputs)?);
    let randomness = match randomness {
        "error" => Randomness::Error,
        "same" => Randomness::Same,
        "different" => Randomness::Different,
        other => {
            let text = "Only allowed values for randomness are 'error', 'different', or 'same'. Got";
            return Err(PyValueError::new_err(format!("{text} {other}")));
        }
    };
    // Where the results have the batch is known when there are results.
    let out_dims = Arc::new(OnceLock::new());
    let run = || {
        let named = out_dims.clone();
        let body = |args: &Flat| {
            attached(|py| {
                let list = convert::list(py, args.iter().cloned())?;
                let (found, dims): (Bound<'_, PyAny>, Vec<Option<i64>>) = f.get(py).call1((list,))?.extract()?;
                let _ = named.set(dims);
                need_tensors(&found)
            })
        };
        let late = BatchDims::Late(out_dims.clone());
        let mut mapped = func::vmap(body).in_dims(in_dims).out_dims(late).randomness(randomness);
        if let Some(n) = chunk_size {
            mapped = mapped.chunk_size(n);
        }
        mapped.call(&inputs)
    };
    convert::list(py, py.detach(run).raise()?)
}

/// The function that `linearize` gives back.
#[pyclass(module = "firebrand.func", frozen)]
pub(crate) struct Pushforward(Linear<Flat, Flat>);

#[pymethods]
impl Pushforward {
    fn __call__<'py>(&self, py: Python<'py>, tangents: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let tangents = need_tensors(tangents)?;
        convert::list(py, py.detach(|| self.0.call(&tangents)).raise()?)
    }
}

#[pyfunction]
fn linearize<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    primals: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyList>, Pushforward)> {
    let (f, primals) = (Held::new(f), need_tensors(primals)?);
    let run = || func::linearize(|args: &Flat| call_flat(&f, args), &primals);
    let (outputs, linear) = py.detach(run).raise()?;
    Ok((convert::list(py, outputs)?, Pushforward(linear)))
}

/// An argument that is not differentiated, as the function under the innermost transform sees it.
#[pyfunction]
fn argument<'py>(py: Python<'py>, t: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match convert::tensor_of(t) {
        Some(own) => Ok(identity::wrap(py, func::argument(own))?.into_any()),
        None => Ok(t.clone()),
    }
}

/// How many transforms are active here.
#[pyfunction]
fn active() -> u8 {
    func::active().transforms
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let transforms = PyModule::new(m.py(), "transforms")?;
    transforms.add_function(wrap_pyfunction!(vjp, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(jvp, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(vmap, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(linearize, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(active, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(argument, &transforms)?)?;
    m.add_submodule(&transforms)
}
