//! Gradients with few entries, as coordinates and values: what Python needs to read them, and to make them.

use crate::convert;
use crate::errors::Raise;
use crate::identity;
use crate::tensor::PyTensor;
use firebrand::Tensor;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

type Wrapped<'py> = PyResult<Bound<'py, PyTensor>>;

fn tensor<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a Tensor> {
    convert::tensor_of(object).ok_or_else(|| PyTypeError::new_err("expected a Tensor"))
}

/// An array of all elements; a dense tensor as it is.
#[pyfunction]
fn sparse_to_dense<'py>(py: Python<'py>, t: &Bound<'py, PyAny>) -> Wrapped<'py> {
    identity::wrap(py, tensor(t)?.try_to_dense().raise()?)
}

/// The tensor with every position once.
#[pyfunction]
fn sparse_coalesce<'py>(py: Python<'py>, t: &Bound<'py, PyAny>) -> Wrapped<'py> {
    identity::wrap(py, tensor(t)?.try_coalesce().raise()?)
}

/// The positions of a coalesced tensor.
#[pyfunction]
fn sparse_indices<'py>(py: Python<'py>, t: &Bound<'py, PyAny>) -> Wrapped<'py> {
    identity::wrap(py, tensor(t)?.try_indices().raise()?)
}

/// The values of a coalesced tensor.
#[pyfunction]
fn sparse_values<'py>(py: Python<'py>, t: &Bound<'py, PyAny>) -> Wrapped<'py> {
    identity::wrap(py, tensor(t)?.try_values().raise()?)
}

#[pyfunction]
fn sparse_is_coalesced(t: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(tensor(t)?.is_coalesced())
}

/// A tensor of positions `[sparse dimensions, entries]` and values `[entries, dense sizes…]`.
#[pyfunction]
fn make_sparse_coo<'py>(
    py: Python<'py>,
    indices: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    shape: Vec<usize>,
) -> Wrapped<'py> {
    identity::wrap(py, Tensor::try_sparse_coo_tensor(tensor(indices)?, tensor(values)?, &shape).raise()?)
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(sparse_to_dense, m)?)?;
    m.add_function(wrap_pyfunction!(sparse_coalesce, m)?)?;
    m.add_function(wrap_pyfunction!(sparse_indices, m)?)?;
    m.add_function(wrap_pyfunction!(sparse_values, m)?)?;
    m.add_function(wrap_pyfunction!(sparse_is_coalesced, m)?)?;
    m.add_function(wrap_pyfunction!(make_sparse_coo, m)?)
}
