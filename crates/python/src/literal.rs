//! Tensors from Python's data: numbers, nested sequences, arrays.

use crate::convert::{device_of, dtype_of, items, making_on, requiring_grad, scalar_of, tensor_of};
use crate::errors::Raise;
use crate::identity;
use crate::interop;
use crate::tensor::PyTensor;
use firebrand::{DType, Device, Scalar, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The numbers of nested sequences, and the sizes of the nesting.
#[derive(Default)]
struct Numbers {
    sizes: Vec<usize>,
    values: Vec<Scalar>,
}

impl Numbers {
    fn read(&mut self, data: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if let Some(s) = scalar_of(data)? {
            return self.number(s, depth);
        }
        if let Some(t) = tensor_of(data) {
            if t.ndim() == 0 {
                return self.number(t.detach().try_scalar_value().raise()?, depth);
            }
            let rows =
                (0..t.shape()[0]).map(|i| t.detach().try_select(0, i as i64).raise()).collect::<PyResult<Vec<_>>>()?;
            self.sequence(rows.len(), depth)?;
            return rows.into_iter().try_for_each(|row| self.read(identity::wrap(data.py(), row)?.as_any(), depth + 1));
        }
        let Some(list) = items(data)? else {
            if data.hasattr("__array_interface__")? {
                let t = interop::from_array(data)?;
                return self.read(identity::wrap(data.py(), t)?.as_any(), depth);
            }
            if data.hasattr("__len__")? && data.hasattr("__getitem__")? {
                let list = data.try_iter()?.collect::<PyResult<Vec<_>>>()?;
                self.sequence(list.len(), depth)?;
                return list.iter().try_for_each(|item| self.read(item, depth + 1));
            }
            return Err(PyRuntimeError::new_err(format!("Could not infer dtype of {}", data.get_type().name()?)));
        };
        self.sequence(list.len(), depth)?;
        list.iter().try_for_each(|item| self.read(item, depth + 1))
    }

    fn number(&mut self, s: Scalar, depth: usize) -> PyResult<()> {
        if depth < self.sizes.len() {
            return Err(PyTypeError::new_err("not a sequence"));
        }
        self.values.push(s);
        Ok(())
    }

    fn sequence(&mut self, n: usize, depth: usize) -> PyResult<()> {
        if depth > 64 {
            return Err(PyValueError::new_err("too many dimensions"));
        }
        match self.sizes.get(depth) {
            None if self.values.is_empty() => self.sizes.push(n),
            None => return Err(PyTypeError::new_err("must be a number, not a sequence")),
            Some(&known) if known == n => {}
            Some(&known) => {
                let message = format!("expected sequence of length {known} at dim {depth} (got {n})");
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(())
    }

    fn dtype(&self) -> DType {
        let mut kind = None;
        for s in &self.values {
            let d = s.dtype();
            kind = Some(kind.map_or(d, |k| firebrand::dtype::promote(k, d)));
        }
        kind.unwrap_or_else(firebrand::dtype::default_dtype)
    }

    fn tensor(self, dtype: DType) -> firebrand::Result<Tensor> {
        let (sizes, values) = (&self.sizes[..], &self.values);
        let t = match dtype {
            DType::Bool => Tensor::try_from_vec(values.iter().map(|s| s.to_bool()).collect(), sizes)?,
            d if d.is_integer() => Tensor::try_from_vec(values.iter().map(|s| s.to_i64()).collect(), sizes)?,
            d if d.is_complex() => Tensor::try_from_vec(values.iter().map(|s| s.to_complex()).collect(), sizes)?,
            _ => Tensor::try_from_vec(values.iter().map(|s| s.to_f64()).collect(), sizes)?,
        };
        if t.dtype() == dtype { Ok(t) } else { t.try_to_dtype(dtype) }
    }
}

/// A new tensor with these data.
pub(crate) fn tensor_from(data: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    let py = data.py();
    if let Some(t) = tensor_of(data) {
        let copy = || t.detach().try_clone_tensor().and_then(|c| dtype.map_or(Ok(c.clone()), |d| c.try_to_dtype(d)));
        return py.detach(copy).raise();
    }
    if data.hasattr("__array_interface__")? && scalar_of(data)?.is_none() {
        let t = interop::from_array(data)?;
        let copy = || t.try_clone_tensor().and_then(|c| dtype.map_or(Ok(c.clone()), |d| c.try_to_dtype(d)));
        return py.detach(copy).raise();
    }
    let mut numbers = Numbers::default();
    numbers.read(data, 0)?;
    let own = if dtype.is_none() && numbers.sizes.is_empty() { interop::dtype_of_number(data)? } else { None };
    let dtype = dtype.or(own).unwrap_or_else(|| numbers.dtype());
    py.detach(|| numbers.tensor(dtype)).raise()
}

/// A tensor from numbers, nested sequences, an array or another tensor; always a copy.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, device=None, requires_grad=false, pin_memory=false))]
fn tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
    pin_memory: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let _ = pin_memory; // host memory is all there is
    let wrong = |found: &Bound<'_, PyAny>, what: &str| {
        PyTypeError::new_err(format!("tensor(): argument '{what}' must be firebrand.{what}, not {}", found.get_type()))
    };
    let dtype = dtype.map(|d| dtype_of(d).ok_or_else(|| wrong(d, "dtype"))).transpose()?;
    let device = device.map(|d| device_of(d)?.ok_or_else(|| wrong(d, "device"))).transpose()?.or_else(making_on);
    let mut t = tensor_from(data, dtype)?;
    if device == Some(Device::Meta) {
        t = t.try_to_device(Device::Meta).raise()?;
    }
    identity::wrap(data.py(), if requires_grad { requiring_grad(t)? } else { t })
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(tensor, m)?)
}
