//! Plain data in files as `torch.save` writes them: tensors, numbers, text and containers of them. Nothing in a file is executed.

use crate::convert::tensor_of;
use crate::errors::runtime;
use crate::identity;
use firebrand::io::torch_save::{self, Object};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::path::PathBuf;

/// How deep containers may nest: as deep as files are read.
const DEPTH: usize = 128;

fn object(data: &Bound<'_, PyAny>, depth: usize) -> PyResult<Object> {
    if depth > DEPTH {
        return Err(PyValueError::new_err(format!("containers nest deeper than {DEPTH}")));
    }
    let all =
        |items: Vec<Bound<'_, PyAny>>| items.iter().map(|item| object(item, depth + 1)).collect::<PyResult<Vec<_>>>();
    if let Some(t) = tensor_of(data) {
        return Ok(Object::Tensor(t.clone()));
    }
    Ok(if data.is_none() {
        Object::None
    } else if data.is_instance_of::<PyBool>() {
        Object::Bool(data.extract()?)
    } else if data.is_instance_of::<PyInt>() {
        Object::Int(data.extract()?)
    } else if data.is_instance_of::<PyFloat>() {
        Object::Float(data.extract()?)
    } else if data.is_instance_of::<PyString>() {
        Object::Str(data.extract()?)
    } else if let Ok(dict) = data.cast::<PyDict>() {
        let pair = |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((object(&k, depth + 1)?, object(&v, depth + 1)?));
        Object::Dict(dict.iter().map(pair).collect::<PyResult<_>>()?)
    } else if let Ok(list) = data.cast::<PyList>() {
        Object::List(all(list.iter().collect())?)
    } else if let Ok(tuple) = data.cast::<PyTuple>() {
        Object::Tuple(all(tuple.iter().collect())?)
    } else {
        return Err(PyTypeError::new_err(format!(
            "save writes programs and plain data (tensors, numbers, text, lists, tuples and dictionaries), found a {}; save its \
             state_dict(), or use pickle",
            data.get_type().name()?
        )));
    })
}

fn python<'py>(py: Python<'py>, object: Object) -> PyResult<Bound<'py, PyAny>> {
    let all = |items: Vec<Object>| items.into_iter().map(|item| python(py, item)).collect::<PyResult<Vec<_>>>();
    Ok(match object {
        Object::None => py.None().into_bound(py),
        Object::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Object::Int(value) => value.into_pyobject(py)?.into_any(),
        Object::Float(value) => value.into_pyobject(py)?.into_any(),
        Object::Str(text) => PyString::new(py, &text).into_any(),
        Object::Tuple(items) => PyTuple::new(py, all(items)?)?.into_any(),
        Object::List(items) => PyList::new(py, all(items)?)?.into_any(),
        Object::Dict(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(python(py, key)?, python(py, value)?)?;
            }
            dict.into_any()
        }
        Object::Tensor(t) => identity::wrap(py, t)?.into_any(),
    })
}

/// Writes plain data to a file; without a path, gives the file's bytes.
#[pyfunction]
#[pyo3(signature = (data, path=None))]
fn save_plain(py: Python<'_>, data: &Bound<'_, PyAny>, path: Option<PathBuf>) -> PyResult<Option<Vec<u8>>> {
    let data = object(data, 0)?;
    py.detach(|| match path {
        Some(path) => torch_save::write_torch_object(path, &data).map(|()| None),
        None => torch_save::torch_object_to_bytes(&data).map(Some),
    })
    .map_err(runtime)
}

/// Reads plain data from a file.
#[pyfunction]
fn load_plain(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    python(py, py.detach(|| torch_save::read_torch_save(path)).map_err(runtime)?)
}

/// Reads plain data from the bytes of a file.
#[pyfunction]
fn load_plain_bytes(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bound<'_, PyAny>> {
    python(py, py.detach(|| torch_save::from_bytes(bytes)).map_err(runtime)?)
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(save_plain, m)?)?;
    m.add_function(wrap_pyfunction!(load_plain, m)?)?;
    m.add_function(wrap_pyfunction!(load_plain_bytes, m)?)
}
