//! Function transforms on flat lists of tensors; Python flattens arguments and results.

use crate::autograd::{call_flat, need_tensors};
use crate::convert;
use crate::errors::Raise;
use crate::held::Held;
use firebrand::Tensor;
use firebrand::func::{self, Randomness, Vjp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

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
    let run = || {
        let mut mapped = func::vmap(|args: &Flat| call_flat(&f, args)).in_dims(in_dims).randomness(randomness);
        if let Some(n) = chunk_size {
            mapped = mapped.chunk_size(n);
        }
        mapped.call(&inputs)
    };
    convert::list(py, py.detach(run).raise()?)
}

fn rows<'py>(py: Python<'py>, found: Vec<Flat>) -> PyResult<Vec<Bound<'py, PyList>>> {
    found.into_iter().map(|row| convert::list(py, row)).collect()
}

/// For every output, its derivative with respect to every input, by reverse mode.
#[pyfunction]
fn jacrev<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyList>>> {
    let (f, inputs) = (Held::new(f), need_tensors(inputs)?);
    rows(py, py.detach(|| func::jacrev(|args: &Flat| call_flat(&f, args))(&inputs)).raise()?)
}

/// As `jacrev`, by forward mode.
#[pyfunction]
fn jacfwd<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyList>>> {
    let (f, inputs) = (Held::new(f), need_tensors(inputs)?);
    rows(py, py.detach(|| func::jacfwd(|args: &Flat| call_flat(&f, args))(&inputs)).raise()?)
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let transforms = PyModule::new(m.py(), "transforms")?;
    transforms.add_function(wrap_pyfunction!(vjp, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(jvp, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(vmap, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(jacrev, &transforms)?)?;
    transforms.add_function(wrap_pyfunction!(jacfwd, &transforms)?)?;
    m.add_submodule(&transforms)
}
