//! The tensor as a Python object: its description, its numbers, its operators and what ties it to autograd.
//!
//! The object holds one handle and nothing else that could change; methods that are ops come from the table (`ops`), the rest of
//! what Python people expect is written in Python. Reading values never happens behind a lock.

use crate::autograd::{self, Handle};
use crate::bind::{self, Call};
use crate::convert::{self, PyDType, PyDevice, PyLayout, scalar_of, tensor_of};
use crate::errors::Raise;
use crate::held::Hooks;
use crate::identity;
use crate::index;
use crate::interop;
use crate::node;
use crate::table;
use firebrand::dispatch::{Op, Value};
use firebrand::{DType, ErrorKind, PrintOptions, Scalar, Tensor};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyFloat, PyList, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// A multi-dimensional array with autograd history.
#[pyclass(name = "Tensor", module = "firebrand", frozen, dict, weakref, subclass)]
pub(crate) struct PyTensor {
    pub(crate) tensor: Tensor,
    /// The object itself; null until it is registered.
    pub(crate) object: AtomicPtr<ffi::PyObject>,
    /// Python functions that hang on this leaf.
    pub(crate) hooks: Hooks,
}

impl PyTensor {
    pub(crate) fn new(tensor: Tensor) -> PyTensor {
        PyTensor { tensor, object: AtomicPtr::new(std::ptr::null_mut()), hooks: Hooks::default() }
    }

    /// Where the collector finds a hook on this tensor: with its node, or with the leaf.
    fn add_hook(&self, register: impl FnOnce(&Hooks) -> PyResult<Handle>) -> PyResult<Handle> {
        match self.tensor.try_grad_fn_edge().raise()? {
            Some(edge) => register(&node::hooks(&edge.node)),
            None => register(&self.hooks),
        }
    }
}

impl Drop for PyTensor {
    fn drop(&mut self) {
        if !self.object.load(Relaxed).is_null() {
            Python::attach(|py| identity::retire(py, self));
            // Dropping the tensor may run Python code, and the collector with it: it must not look in here any more.
            self.object.store(std::ptr::null_mut(), Relaxed);
        }
    }
}

type Any<'py> = Bound<'py, PyAny>;
type This<'py> = Bound<'py, PyTensor>;

/// An operand that ops take: tensors and numbers as they are, arrays as tensors over their memory.
fn operand_of<'py>(other: &Any<'py>) -> PyResult<Option<Any<'py>>> {
    if tensor_of(other).is_some() || scalar_of(other)?.is_some() {
        return Ok(Some(other.clone()));
    }
    if !other.hasattr("__array_interface__")? {
        return Ok(None);
    }
    Ok(Some(identity::wrap(other.py(), interop::from_array(other)?)?.into_any()))
}

/// An operator with another operand: the op of this name, or `NotImplemented` for what no op takes.
fn operator<'py>(name: &str, this: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
    let py = this.py();
    let Some(other) = operand_of(other)? else { return Ok(py.NotImplemented().into_bound(py)) };
    let args = std::slice::from_ref(&other);
    bind::call(py, table::known(name), &Call { this: Some(this.as_any()), args, kwargs: None })
}

/// An operator with its operands swapped, both arguments of the function.
fn swapped<'py>(name: &str, this: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
    let py = this.py();
    let Some(other) = operand_of(other)? else { return Ok(py.NotImplemented().into_bound(py)) };
    let args = [other, this.as_any().clone()];
    bind::call(py, table::known(name), &Call { this: None, args: &args, kwargs: None })
}

/// An operator without another operand.
fn unary<'py>(name: &str, this: &This<'py>) -> PyResult<Any<'py>> {
    bind::call(this.py(), table::known(name), &Call { this: Some(this.as_any()), args: &[], kwargs: None })
}

/// An operator that writes its left operand.
fn written<'py>(name: &str, this: &This<'py>, other: &Any<'py>) -> PyResult<()> {
    // What no op takes is refused by the op.
    let other = operand_of(other)?.unwrap_or_else(|| other.clone());
    let args = std::slice::from_ref(&other);
    bind::call(this.py(), table::known(name), &Call { this: Some(this.as_any()), args, kwargs: None }).map(drop)
}

/// A number as a tensor that is weak in type promotion, where an op takes two tensors.
fn operand(object: &Any<'_>) -> PyResult<Option<Tensor>> {
    match (tensor_of(object), scalar_of(object)?) {
        (Some(t), _) => Ok(Some(t.clone())),
        (None, Some(s)) => Tensor::try_wrapped_number(s).raise().map(Some),
        (None, None) => Ok(None),
    }
}

/// An op of two tensors with a number on the left.
fn from_number<'py>(op: Op, this: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
    let py = this.py();
    let other = operand_of(other)?;
    let left = other.as_ref().map(operand).transpose()?.flatten();
    let Some(left) = left else { return Ok(py.NotImplemented().into_bound(py)) };
    let values = [Value::Tensor(left), Value::Tensor(this.get().tensor.clone())];
    convert::object(py, bind::run_values(py, op, &values)?)
}

/// A value that was read; inside vmap, where there are many, what was done to read it is refused.
fn unbatched(value: firebrand::Result<Scalar>, done: &str) -> PyResult<Scalar> {
    value.map_err(|e| match e.kind() {
        ErrorKind::BatchedData { .. } => PyRuntimeError::new_err(format!(
            "vmap: It looks like you're {done}. We don't support vmap over {done}, please try to rewrite what you're doing."
        )),
        _ => crate::errors::exception(e),
    })
}

/// Nested lists of numbers.
fn nested<'py>(py: Python<'py>, sizes: &[usize], values: &mut impl Iterator<Item = Scalar>) -> PyResult<Any<'py>> {
    match sizes.split_first() {
        None => convert::number(py, values.next().unwrap_or(Scalar::Int(0))),
        Some((&n, rest)) => {
            let items = (0..n).map(|_| nested(py, rest, values)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
    }
}

fn values(t: &Tensor) -> firebrand::Result<Vec<Scalar>> {
    let t = t.detach();
    Ok(match t.dtype() {
        DType::Bool => t.try_to_vec::<bool>()?.into_iter().map(Scalar::Bool).collect(),
        d if d.is_integer() => t.try_to_dtype(DType::I64)?.try_to_vec::<i64>()?.into_iter().map(Scalar::Int).collect(),
        d if d.is_complex() => t
            .try_to_dtype(DType::C128)?
            .try_to_vec::<firebrand::Complex<f64>>()?
            .into_iter()
            .map(Scalar::Complex)
            .collect(),
        _ => t.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?.into_iter().map(Scalar::Float).collect(),
    })
}

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn make(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<PyTensor> {
        if let Some(tensor) = identity::pending() {
            return Ok(PyTensor::new(tensor));
        }
        let made = args.py().import("firebrand._tensor")?.getattr("_construct")?.call(args, kwargs)?;
        let wrong = || PyTypeError::new_err("Tensor() takes sizes, a sequence or a Tensor");
        tensor_of(&made).cloned().map(PyTensor::new).ok_or_else(wrong)
    }

    /// Makes this object the one of its tensor, if it was made by its constructor.
    fn _register(slf: This<'_>) -> PyResult<()> {
        if slf.get().object.load(Relaxed).is_null() { identity::register(slf).map(drop) } else { Ok(()) }
    }

    /// An object of another class over the same memory, without history.
    #[staticmethod]
    #[pyo3(signature = (cls, data, require_grad=false))]
    fn _make_subclass<'py>(cls: &Bound<'py, PyType>, data: &This<'py>, require_grad: bool) -> PyResult<This<'py>> {
        let t = data.get().tensor.data();
        t.try_set_requires_grad(require_grad).raise()?;
        identity::wrap_as(cls, t)
    }

    // ---- description

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        convert::size(py, self.tensor.shape())
    }

    #[pyo3(signature = (dim=None))]
    fn size<'py>(&self, py: Python<'py>, dim: Option<i64>) -> PyResult<Any<'py>> {
        match dim {
            None => convert::size(py, self.tensor.shape()),
            Some(d) => Ok(self.tensor.shape()[self.dimension(d)?].into_pyobject(py)?.into_any()),
        }
    }

    #[pyo3(signature = (dim=None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<i64>) -> PyResult<Any<'py>> {
        match dim {
            None => Ok(PyTuple::new(py, self.tensor.strides())?.into_any()),
            Some(d) => Ok(self.tensor.strides()[self.dimension(d)?].into_pyobject(py)?.into_any()),
        }
    }

    fn storage_offset(&self) -> usize {
        self.tensor.storage_offset()
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.ndim()
    }

    fn dim(&self) -> usize {
        self.tensor.ndim()
    }

    fn numel(&self) -> usize {
        self.tensor.numel()
    }

    fn nelement(&self) -> usize {
        self.tensor.numel()
    }

    fn element_size(&self) -> usize {
        self.tensor.dtype().size()
    }

    #[getter]
    fn itemsize(&self) -> usize {
        self.tensor.dtype().size()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.numel() * self.tensor.dtype().size()
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDType>> {
        convert::dtype(py, self.tensor.dtype())
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.tensor.device())
    }

    #[getter]
    fn layout(&self) -> PyLayout {
        PyLayout { sparse: self.tensor.is_sparse() }
    }

    #[getter]
    fn is_sparse(&self) -> bool {
        self.tensor.is_sparse()
    }

    #[getter]
    fn is_meta(&self) -> bool {
        self.tensor.is_meta()
    }

    fn is_floating_point(&self) -> bool {
        self.tensor.is_floating_point()
    }

    fn is_complex(&self) -> bool {
        self.tensor.is_complex()
    }

    fn is_inference(&self) -> bool {
        self.tensor.is_inference()
    }

    /// The address of the first element.
    fn data_ptr(&self) -> PyResult<usize> {
        if self.tensor.is_batched() {
            return Err(PyRuntimeError::new_err(crate::interop::NO_STORAGE));
        }
        Ok(self.tensor.data_ptr() as usize)
    }

    /// How many bytes of memory there are, shown or not.
    fn _storage_bytes(&self) -> usize {
        self.tensor.storage_bytes()
    }

    /// Whether both show the same memory.
    fn _shares_storage(&self, other: &This<'_>) -> bool {
        self.tensor.shares_storage(&other.get().tensor)
    }

    // ---- values

    fn item<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        if self.tensor.numel() != 1 {
            let n = self.tensor.numel();
            return Err(PyRuntimeError::new_err(format!("a Tensor with {n} elements cannot be converted to Scalar")));
        }
        let read = || unbatched(self.tensor.try_scalar_value(), "calling .item() on a Tensor");
        convert::number(py, read()?)
    }

    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        let values = py.detach(|| values(&self.tensor)).raise()?;
        nested(py, self.tensor.shape(), &mut values.into_iter())
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(&n) => Ok(n),
            None => Err(PyTypeError::new_err("len() of a 0-d tensor")),
        }
    }

    fn __bool__(&self) -> PyResult<bool> {
        match self.tensor.numel() {
            1 => {
                Ok(unbatched(self.tensor.try_scalar_value(), "using a Tensor in data-dependent control flow")?
                    .to_bool())
            }
            0 => Err(PyRuntimeError::new_err("Boolean value of Tensor with no values is ambiguous")),
            _ => Err(PyRuntimeError::new_err("Boolean value of Tensor with more than one value is ambiguous")),
        }
    }

    fn __index__(&self) -> PyResult<i64> {
        if self.tensor.numel() != 1 || self.tensor.dtype().is_differentiable() {
            return Err(PyTypeError::new_err("only integer tensors of a single element can be converted to an index"));
        }
        Ok(self.tensor.try_scalar_value().raise()?.to_i64())
    }

    /// As Python converts the number: what is not finite is refused, and large numbers stay exact.
    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        match self.single()? {
            Scalar::Float(x) => PyFloat::new(py, x).call_method0("__int__"),
            s => convert::number(py, Scalar::Int(s.to_i64())),
        }
    }

    fn __float__(&self) -> PyResult<f64> {
        match self.single()? {
            Scalar::Complex(c) if c.im != 0.0 => {
                Err(PyRuntimeError::new_err("value cannot be converted to type double without overflow"))
            }
            s => Ok(s.to_f64()),
        }
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        convert::number(py, Scalar::Complex(self.single()?.to_complex()))
    }

    fn __hash__(slf: &This<'_>) -> isize {
        slf.as_ptr() as isize >> 4
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Any<'py>) -> PyResult<This<'py>> {
        identity::wrap(py, index::get(py, &self.tensor, index)?)
    }

    fn __setitem__(&self, py: Python<'_>, index: &Any<'_>, value: &Any<'_>) -> PyResult<()> {
        index::set(py, &self.tensor, index, value)
    }

    /// The text of its values, without what Python adds.
    /// The tensor as text; `options` are digits, threshold, elements at the ends, length of a line, and whether scientific.
    fn _text(&self, py: Python<'_>, options: (usize, usize, usize, usize, Option<bool>)) -> PyResult<String> {
        let (precision, threshold, edge_items, line_width, scientific) = options;
        let options = PrintOptions { precision, threshold, edge_items, line_width, scientific };
        let t = self.tensor.detach();
        py.detach(|| {
            // Values that cannot be read, inside vmap, are an error and not a panic.
            if !t.is_meta() && !t.is_sparse() {
                t.try_to_vec::<f64>()?;
            }
            Ok(t.display_with(options).to_string())
        })
        .raise()
    }

    /// Inside `vmap`, the tensor with all samples, their dimension, and the level; nothing for other tensors.
    fn _all_samples<'py>(&self, py: Python<'py>) -> PyResult<Option<(Any<'py>, usize, usize)>> {
        let one = |(t, dim, level): (Tensor, usize, usize)| Ok((identity::wrap(py, t)?.into_any(), dim, level));
        self.tensor.all_samples().map(one).transpose()
    }

    // ---- autograd

    #[getter]
    fn requires_grad(&self) -> bool {
        self.tensor.requires_grad()
    }

    #[setter]
    fn set_requires_grad(&self, on: bool) -> PyResult<()> {
        self.tensor.try_set_requires_grad(on).raise()
    }

    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &This<'py>, requires_grad: bool) -> PyResult<This<'py>> {
        slf.get().tensor.try_set_requires_grad(requires_grad).raise()?;
        Ok(slf.clone())
    }

    #[getter]
    fn is_leaf(&self) -> bool {
        self.tensor.is_leaf()
    }

    #[getter]
    fn output_nr(&self) -> usize {
        self.tensor.output_nr()
    }

    #[getter]
    fn grad_fn<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        match py.detach(|| self.tensor.try_grad_fn_edge()).raise()? {
            Some(edge) => node::wrap(py, edge.node),
            None => Ok(py.None().into_bound(py)),
        }
    }

    #[getter]
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        let (grad, warnings) = firebrand::collect_warnings(|| self.tensor.grad());
        autograd::warn(py, warnings)?;
        convert::optional(py, grad)
    }

    #[setter]
    fn set_grad(&self, grad: Option<&Any<'_>>) -> PyResult<()> {
        let grad = match grad {
            None => None,
            Some(g) if g.is_none() => None,
            Some(g) => {
                let wrong = || {
                    PyTypeError::new_err(format!(
                        "assigned grad expected to be a Tensor or None but got {}",
                        g.get_type()
                    ))
                };
                Some(tensor_of(g).ok_or_else(wrong)?)
            }
        };
        self.tensor.try_set_grad(grad).raise()
    }

    #[deleter(grad)]
    fn delete_grad(&self) -> PyResult<()> {
        self.tensor.try_set_grad(None).raise()
    }

    #[getter]
    fn retains_grad(&self) -> bool {
        self.tensor.retains_grad()
    }

    fn retain_grad(&self) -> PyResult<()> {
        if firebrand::func::active().transforms > 0 {
            let text = "You are attempting to call Tensor.retain_grad() inside of a function transform. This is unsupported, \
                        please attempt to use the transforms (e.g. grad, vjp) or call retain_grad() outside of them instead.";
            return Err(PyRuntimeError::new_err(text));
        }
        self.tensor.try_retain_grad().raise()
    }

    #[getter]
    fn _version(&self) -> PyResult<u32> {
        self.tensor.try_version().raise()
    }

    #[getter]
    fn _base<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        convert::optional(py, self.tensor.base().cloned())
    }

    fn _is_view(&self) -> bool {
        self.tensor.is_view()
    }

    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<This<'py>> {
        if self.tensor.is_batched() {
            return Err(PyRuntimeError::new_err("accessing `data` under vmap transform is not allowed"));
        }
        identity::wrap(py, self.tensor.data())
    }

    #[setter]
    fn set_data(&self, other: &Any<'_>) -> PyResult<()> {
        let other = tensor_of(other).ok_or_else(|| PyTypeError::new_err("data must be a Tensor"))?;
        if self.tensor.is_batched() || other.is_batched() {
            let text = "mutating directly with `.data` under vmap transform is not allowed.";
            return Err(PyRuntimeError::new_err(text));
        }
        self.tensor.try_set_data(other).raise()
    }

    #[deleter(data)]
    fn delete_data(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err("Deleting tensor data is not allowed. Delete tensor instead!"))
    }

    #[deleter(requires_grad)]
    fn delete_requires_grad(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err("cannot delete requires_grad"))
    }

    #[deleter(grad_fn)]
    fn delete_grad_fn(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err("cannot delete grad_fn"))
    }

    /// A copy of a leaf, gradient included.
    fn _deep_copy<'py>(&self, py: Python<'py>) -> PyResult<This<'py>> {
        let copy = py.detach(|| self.tensor.try_deep_copy()).raise()?;
        identity::wrap(py, copy)
    }

    fn register_hook(&self, hook: &Any<'_>) -> PyResult<Handle> {
        self.add_hook(|hooks| autograd::register_tensor_hook(&self.tensor, hook, hooks))
    }

    fn register_post_accumulate_grad_hook(&self, hook: &Any<'_>) -> PyResult<Handle> {
        autograd::register_post_accumulate_hook(&self.tensor, hook, &self.hooks)
    }

    // ---- collection

    /// What only this object reaches through its tensor: hooks, and the context of a custom function. The class visits its attributes.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Null before the object is complete and once it is being torn down.
        if self.object.load(Relaxed).is_null() {
            return Ok(());
        }
        if !self.tensor.is_shared() {
            self.hooks.traverse(&visit)?;
        }
        match self.tensor.sole_history() {
            Some(node) => node::traverse(&node, &visit),
            None => Ok(()),
        }
    }

    fn __clear__(slf: &This<'_>) {
        if !slf.get().tensor.is_shared() {
            slf.get().hooks.clear();
        }
        if let Some(node) = slf.get().tensor.sole_history() {
            node::clear(&node);
        }
        if let Ok(attributes) = slf.getattr("__dict__")
            && let Ok(attributes) = attributes.cast::<PyDict>()
        {
            attributes.clear();
        }
    }

    // ---- operators

    fn __add__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("add", slf, other)
    }
    fn __radd__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("add", slf, other)
    }
    fn __sub__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("sub", slf, other)
    }
    fn __rsub__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        let py = slf.py();
        let Some(other) = operand_of(other)? else { return Ok(py.NotImplemented().into_bound(py)) };
        let args = [slf.as_any().clone(), other];
        bind::call(py, table::known("rsub"), &Call { this: None, args: &args, kwargs: None })
    }
    fn __mul__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("mul", slf, other)
    }
    fn __rmul__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("mul", slf, other)
    }
    fn __truediv__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("div", slf, other)
    }
    fn __rtruediv__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        let inverse = unary("reciprocal", slf)?;
        operator("mul", inverse.cast::<PyTensor>()?, other)
    }
    fn __floordiv__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("floor_divide", slf, other)
    }
    fn __rfloordiv__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        from_number(Op::FLOOR_DIVIDE, slf, other)
    }
    fn __mod__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("remainder", slf, other)
    }
    fn __rmod__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        swapped("remainder", slf, other)
    }
    fn __pow__<'py>(slf: &This<'py>, other: &Any<'py>, modulo: &Any<'py>) -> PyResult<Any<'py>> {
        if !modulo.is_none() {
            return Err(PyTypeError::new_err("pow() of tensors takes no modulus"));
        }
        operator("pow", slf, other)
    }
    fn __rpow__<'py>(slf: &This<'py>, other: &Any<'py>, _modulo: &Any<'py>) -> PyResult<Any<'py>> {
        swapped("pow", slf, other)
    }
    fn __matmul__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("matmul", slf, other)
    }
    fn __and__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_and", slf, other)
    }
    fn __rand__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_and", slf, other)
    }
    fn __or__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_or", slf, other)
    }
    fn __ror__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_or", slf, other)
    }
    fn __xor__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_xor", slf, other)
    }
    fn __rxor__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_xor", slf, other)
    }
    fn __lshift__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_left_shift", slf, other)
    }
    fn __rshift__<'py>(slf: &This<'py>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operator("bitwise_right_shift", slf, other)
    }
    fn __neg__<'py>(slf: &This<'py>) -> PyResult<Any<'py>> {
        unary("neg", slf)
    }
    fn __pos__<'py>(slf: &This<'py>) -> This<'py> {
        slf.clone()
    }
    fn __abs__<'py>(slf: &This<'py>) -> PyResult<Any<'py>> {
        unary("abs", slf)
    }
    fn __invert__<'py>(slf: &This<'py>) -> PyResult<Any<'py>> {
        unary("bitwise_not", slf)
    }
    fn __iadd__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("add_", slf, other)
    }
    fn __isub__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("sub_", slf, other)
    }
    fn __imul__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("mul_", slf, other)
    }
    fn __itruediv__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("div_", slf, other)
    }
    fn __ifloordiv__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("floor_divide_", slf, other)
    }
    fn __imod__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("remainder_", slf, other)
    }
    fn __ipow__(slf: &This<'_>, other: &Any<'_>, _modulo: &Any<'_>) -> PyResult<()> {
        written("pow_", slf, other)
    }
    fn __iand__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("bitwise_and_", slf, other)
    }
    fn __ior__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("bitwise_or_", slf, other)
    }
    fn __ixor__(slf: &This<'_>, other: &Any<'_>) -> PyResult<()> {
        written("bitwise_xor_", slf, other)
    }
    fn __richcmp__<'py>(slf: &This<'py>, other: &Any<'py>, op: CompareOp) -> PyResult<Any<'py>> {
        let name = match op {
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        };
        operator(name, slf, other)
    }
}

impl PyTensor {
    /// A dimension counted from the front.
    fn dimension(&self, dim: i64) -> PyResult<usize> {
        let n = self.tensor.ndim() as i64;
        let at = if dim < 0 { dim + n } else { dim };
        usize::try_from(at).ok().filter(|&k| k < n as usize).ok_or_else(|| {
            let n = n.max(1);
            let text =
                format!("Dimension out of range (expected to be in range of [{}, {}], but got {dim})", -n, n - 1);
            PyIndexError::new_err(text)
        })
    }

    /// The value of the only element.
    fn single(&self) -> PyResult<Scalar> {
        if self.tensor.numel() != 1 {
            return Err(PyValueError::new_err("only one element tensors can be converted to Python scalars"));
        }
        self.tensor.try_scalar_value().raise()
    }
}
