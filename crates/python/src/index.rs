//! `x[i]` and `x[i] = v`: Python's indices as those of core.

use crate::convert::{self, int_of, items, scalar_of, tensor_of};
use crate::errors::Raise;
use crate::literal;
use firebrand::indexing::{IndexValue, Indices};
use firebrand::{DType, Index, Tensor};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyList, PySlice, PyTuple};

fn one(item: &Bound<'_, PyAny>) -> PyResult<Index> {
    if item.is_none() {
        return Ok(Index::NewAxis);
    }
    if item.is_instance_of::<PyEllipsis>() {
        return Ok(Index::Ellipsis);
    }
    if let Ok(b) = item.cast::<PyBool>() {
        return Ok(Index::Bool(b.is_true()));
    }
    if let Some(t) = tensor_of(item) {
        return Ok(Index::Tensor(t.clone()));
    }
    if let Ok(s) = item.cast::<PySlice>() {
        let part = |name: &str| -> PyResult<Option<i64>> {
            let value = s.getattr(name)?;
            if value.is_none() {
                return Ok(None);
            }
            let wrong = || PyTypeError::new_err("slice indices must be integers or None or have an __index__ method");
            int_of(&value)?.ok_or_else(wrong).map(Some)
        };
        let step = part("step")?.unwrap_or(1);
        if step <= 0 {
            return Err(PyValueError::new_err("step must be greater than zero"));
        }
        return Ok(Index::Slice { start: part("start")?, end: part("stop")?, step });
    }
    if let Some(i) = int_of(item)? {
        return Ok(Index::At(i));
    }
    if item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>() || item.hasattr("__array_interface__")? {
        let t = literal::tensor_from(item, None)?;
        // An empty list names no position; it has no numbers to tell its dtype from.
        let empty = t.numel() == 0 && t.dtype().is_floating_point();
        return Ok(Index::Tensor(if empty { t.try_to_dtype(DType::I64).raise()? } else { t }));
    }
    Err(PyTypeError::new_err(format!(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
        item.get_type().name()?
    )))
}

/// Whether a list means what a tuple would: it has more in it than numbers.
fn is_tuple_in_disguise(list: &Bound<'_, PyList>) -> bool {
    let part = |o: Bound<'_, PyAny>| {
        o.is_none()
            || o.is_instance_of::<PySlice>()
            || o.is_instance_of::<PyEllipsis>()
            || o.is_instance_of::<PyList>()
            || o.is_instance_of::<PyTuple>()
            || tensor_of(&o).is_some_and(|t| t.ndim() > 0)
    };
    list.len() <= 32 && list.iter().any(part)
}

fn indices(index: &Bound<'_, PyAny>) -> PyResult<Indices> {
    if let Ok(list) = index.cast::<PyList>()
        && is_tuple_in_disguise(list)
    {
        return list.iter().map(|item| one(&item)).collect();
    }
    match index.cast::<PyTuple>() {
        Ok(all) => all.iter().map(|item| one(&item)).collect(),
        Err(_) => Ok(Indices::from_iter([one(index)?])),
    }
}

/// Refuses more items than the tensor has dimensions.
fn check_count(t: &Tensor, index: &Indices) -> PyResult<()> {
    let used = |i: &Index| match i {
        Index::At(_) | Index::Slice { .. } => 1,
        Index::Tensor(mask) if mask.dtype() == DType::Bool => mask.ndim(),
        Index::Tensor(_) => 1,
        Index::NewAxis | Index::Ellipsis | Index::Bool(_) => 0,
    };
    if index.iter().map(used).sum::<usize>() > t.ndim() {
        return Err(PyIndexError::new_err(format!("too many indices for tensor of dimension {}", t.ndim())));
    }
    Ok(())
}

/// `t[index]`.
pub(crate) fn get(py: Python<'_>, t: &Tensor, index: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let index = indices(index)?;
    if t.ndim() == 0 && index.iter().any(|i| matches!(i, Index::At(_))) {
        return Err(PyIndexError::new_err(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number",
        ));
    }
    check_count(t, &index)?;
    py.detach(|| t.try_i(index)).raise()
}

/// `t[index] = value`.
pub(crate) fn set(py: Python<'_>, t: &Tensor, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let index = indices(index)?;
    check_count(t, &index)?;
    let value = if let Some(v) = tensor_of(value) {
        IndexValue::Tensor(v.clone())
    } else if let Some(s) = scalar_of(value)? {
        IndexValue::Number(s)
    } else if items(value)?.is_some() || value.hasattr("__array_interface__")? {
        IndexValue::Tensor(literal::tensor_from(value, Some(t.dtype()))?)
    } else {
        let found = value.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!("can't assign a {found} to a {}", convert::tensor_type(t.dtype()))));
    };
    py.detach(|| t.try_set_i(index, value)).raise()
}
