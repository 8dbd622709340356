//! Values between Python and core, and the small objects that stand for dtypes, devices and memory formats.
//!
//! There is one Python object per dtype, as `t.dtype is firebrand.float32` asks for. Conversions look at exact kinds and never
//! convert silently: a bool is not an integer, a string not a number.

use crate::errors::Raise;
use crate::identity;
use crate::tensor::PyTensor;
use firebrand::autograd::SavedValue;
use firebrand::dispatch::{MemoryFormat, Value};
use firebrand::{DType, Device, Scalar, Tensor};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use std::cell::RefCell;

/// An element type.
#[pyclass(name = "dtype", module = "firebrand", frozen)]
pub(crate) struct PyDType(pub(crate) DType);

static DTYPES: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// The object of a dtype.
pub(crate) fn dtype(py: Python<'_>, d: DType) -> PyResult<Bound<'_, PyDType>> {
    let all =
        DTYPES.get_or_try_init(py, || DType::ALL.iter().map(|&d| Py::new(py, PyDType(d))).collect::<PyResult<_>>())?;
    let at = DType::ALL.iter().position(|&known| known == d).expect("every dtype is listed");
    Ok(all[at].bind(py).clone())
}

#[pymethods]
impl PyDType {
    fn __repr__(&self) -> String {
        format!("firebrand.{}", self.0.name())
    }
    fn __reduce__(&self) -> String {
        self.0.name().to_string()
    }
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_floating_point()
    }
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }
    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, DType::Bool | DType::U8)
    }
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }
    fn to_real<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDType>> {
        dtype(py, self.0.to_real())
    }
    fn to_complex<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDType>> {
        dtype(py, self.0.to_complex())
    }
}

/// Where a tensor is.
#[pyclass(name = "device", module = "firebrand", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyDevice(pub(crate) Device);

fn named_device(name: &str) -> PyResult<Device> {
    match name.split(':').next() {
        Some("cpu") => Ok(Device::Cpu),
        Some("meta") => Ok(Device::Meta),
        _ => Err(PyRuntimeError::new_err(format!("device '{name}' is not known; expected 'cpu' or 'meta'"))),
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<u32>) -> PyResult<PyDevice> {
        let _ = index; // there is one of each
        device_of(r#type)?.map(PyDevice).ok_or_else(|| PyTypeError::new_err("expected a device or its name"))
    }
    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.name()
    }
    #[getter]
    fn index(&self) -> Option<u32> {
        None
    }
    fn __repr__(&self) -> String {
        format!("device(type='{}')", self.0.name())
    }
    fn __str__(&self) -> &'static str {
        self.0.name()
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDevice>(), (self.0.name(),))
    }
    /// Tensors are made on this device until the end of the block, if nothing else is said.
    fn __enter__<'py>(slf: &Bound<'py, PyDevice>) -> Bound<'py, PyDevice> {
        MAKING_ON.with_borrow_mut(|stack| stack.push(slf.get().0));
        slf.clone()
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        MAKING_ON.with_borrow_mut(Vec::pop);
    }
}

thread_local! {
    /// The devices of the blocks that this thread is in.
    static MAKING_ON: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

/// Where tensors are made if nothing else is said, if a block says so.
pub(crate) fn making_on() -> Option<Device> {
    MAKING_ON.with_borrow(|stack| stack.last().copied())
}

/// The order of elements in memory.
#[pyclass(name = "memory_format", module = "firebrand", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyMemoryFormat(pub(crate) MemoryFormat);

#[pymethods]
impl PyMemoryFormat {
    fn __hash__(&self) -> u64 {
        self.0 as u64
    }

    fn __repr__(&self) -> &'static str {
        match self.0 {
            MemoryFormat::Contiguous => "firebrand.contiguous_format",
            MemoryFormat::ChannelsLast => "firebrand.channels_last",
            MemoryFormat::Preserve => "firebrand.preserve_format",
        }
    }
}

/// How a tensor keeps its elements: in memory at strides, or as coordinates and values.
#[pyclass(name = "layout", module = "firebrand", frozen, eq, hash)]
#[derive(PartialEq, Hash)]
pub(crate) struct PyLayout {
    pub(crate) sparse: bool,
}

#[pymethods]
impl PyLayout {
    fn __repr__(&self) -> &'static str {
        if self.sparse { "firebrand.sparse_coo" } else { "firebrand.strided" }
    }
}

/// The dtype that an object names: a dtype, or one of Python's number types.
pub(crate) fn dtype_of(object: &Bound<'_, PyAny>) -> Option<DType> {
    if let Ok(d) = object.cast::<PyDType>() {
        return Some(d.get().0);
    }
    let class = object.cast::<PyType>().ok()?;
    let py = object.py();
    if class.is(py.get_type::<PyFloat>()) {
        Some(firebrand::dtype::default_dtype())
    } else if class.is(py.get_type::<PyBool>()) {
        Some(DType::Bool)
    } else if class.is(py.get_type::<PyInt>()) {
        Some(DType::I64)
    } else if class.is(py.get_type::<PyComplex>()) {
        Some(firebrand::dtype::default_dtype().to_complex())
    } else {
        None
    }
}

/// The device that an object names, if it is a device or a string.
pub(crate) fn device_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    if let Ok(d) = object.cast::<PyDevice>() {
        return Ok(Some(d.get().0));
    }
    match object.cast::<PyString>() {
        Ok(name) => named_device(name.to_str()?).map(Some),
        Err(_) => Ok(None),
    }
}

/// The tensor behind an object.
pub(crate) fn tensor_of<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Tensor> {
    object.cast::<PyTensor>().ok().map(|t| &t.get().tensor)
}

/// A number, if the object is one of Python's or numpy's.
pub(crate) fn scalar_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    if let Ok(b) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(b.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return int(object).map(|i| Some(Scalar::Int(i)));
    }
    if let Ok(c) = object.cast::<PyComplex>() {
        return Ok(Some(Scalar::Complex(firebrand::Complex::new(c.real(), c.imag()))));
    }
    // A number of numpy: it says what it is.
    if !object.is_instance_of::<PyTensor>() && object.hasattr("dtype")? && object.hasattr("item")? {
        let plain = object.getattr("ndim").and_then(|n| n.extract::<usize>()).unwrap_or(1) == 0;
        if plain {
            let own = object.call_method0("item")?;
            return if own.is_instance_of::<PyTensor>() { Ok(None) } else { scalar_of(&own) };
        }
    }
    Ok(None)
}

fn int(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    object.extract().map_err(|_| PyOverflowError::new_err("Overflow when unpacking long long"))
}

/// An integer; bools are none.
pub(crate) fn int_of(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if object.is_instance_of::<PyInt>() {
        return int(object).map(Some);
    }
    if let Some(t) = tensor_of(object) {
        let whole = t.ndim() == 0 && t.dtype().is_integer() && !t.is_meta();
        return if whole { Ok(Some(t.try_scalar_value().raise()?.to_i64())) } else { Ok(None) };
    }
    match scalar_of(object)? {
        Some(Scalar::Int(i)) => Ok(Some(i)),
        _ => Ok(None),
    }
}

/// A number as Python has it.
pub(crate) fn number(py: Python<'_>, s: Scalar) -> PyResult<Bound<'_, PyAny>> {
    Ok(match s {
        Scalar::Bool(b) => PyBool::new(py, b).to_owned().into_any(),
        Scalar::Int(i) => i.into_pyobject(py)?.into_any(),
        Scalar::Float(f) => PyFloat::new(py, f).into_any(),
        Scalar::Complex(c) => PyComplex::from_doubles(py, c.re, c.im).into_any(),
    })
}

/// Sizes as Python has them.
pub(crate) fn size<'py>(py: Python<'py>, sizes: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    SIZE.import(py, "firebrand._size", "Size")?.call1((PyTuple::new(py, sizes)?,))
}

/// A list or tuple of tensors.
pub(crate) fn tensors_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Tensor>>> {
    let Some(items) = items(object)? else { return Ok(None) };
    Ok(items.iter().map(|i| tensor_of(i).cloned()).collect())
}

/// The items of a list or tuple.
pub(crate) fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if let Ok(t) = object.cast::<PyTuple>() {
        return Ok(Some(t.iter().collect()));
    }
    if let Ok(l) = object.cast::<PyList>() {
        return Ok(Some(l.iter().collect()));
    }
    Ok(None)
}

/// Tensors as a Python list.
pub(crate) fn list<'py>(py: Python<'py>, tensors: impl IntoIterator<Item = Tensor>) -> PyResult<Bound<'py, PyList>> {
    let objects = tensors.into_iter().map(|t| identity::wrap(py, t)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, objects)
}

/// Tensors or none as a Python tuple.
pub(crate) fn tuple<'py>(py: Python<'py>, tensors: &[Option<Tensor>]) -> PyResult<Bound<'py, PyTuple>> {
    let objects = tensors.iter().map(|t| optional(py, t.clone())).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, objects)
}

/// A tensor or none.
pub(crate) fn optional(py: Python<'_>, t: Option<Tensor>) -> PyResult<Bound<'_, PyAny>> {
    match t {
        Some(t) => Ok(identity::wrap(py, t)?.into_any()),
        None => Ok(py.None().into_bound(py)),
    }
}

/// A result of an op.
pub(crate) fn object(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Tensor(t) => identity::wrap(py, t)?.into_any(),
        Value::Tensors(list) => {
            let objects = list.into_iter().map(|t| identity::wrap(py, t)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, objects)?.into_any()
        }
        Value::OptTensors(list) => tuple(py, &list)?.into_any(),
        Value::Scalar(s) => number(py, s)?,
        Value::Scalars(list) => {
            PyTuple::new(py, list.into_iter().map(|s| number(py, s)).collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Value::Int(i) => i.int().into_pyobject(py)?.into_any(),
        Value::Ints(list) => PyTuple::new(py, list.iter().map(|i| i.int()))?.into_any(),
        Value::Float(f) => PyFloat::new(py, f).into_any(),
        Value::Floats(list) => PyTuple::new(py, list)?.into_any(),
        Value::Bool(b) => PyBool::new(py, b).to_owned().into_any(),
        Value::Bools(list) => PyTuple::new(py, list)?.into_any(),
        Value::Str(s) => PyString::new(py, &s).into_any(),
        Value::DType(d) => dtype(py, d)?.into_any(),
        Value::Device(d) => Bound::new(py, PyDevice(d))?.into_any(),
        Value::MemoryFormat(f) => Bound::new(py, PyMemoryFormat(f))?.into_any(),
        _ => py.None().into_bound(py),
    })
}

/// What a node saved.
pub(crate) fn saved(py: Python<'_>, value: SavedValue) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        SavedValue::None => py.None().into_bound(py),
        SavedValue::Tensor(t) => identity::wrap(py, t)?.into_any(),
        SavedValue::Tensors(list) => tuple(py, &list)?.into_any(),
        SavedValue::Scalar(s) => number(py, s)?,
        SavedValue::Int(i) => i.into_pyobject(py)?.into_any(),
        SavedValue::Float(f) => PyFloat::new(py, f).into_any(),
        SavedValue::Bool(b) => PyBool::new(py, b).to_owned().into_any(),
        SavedValue::Ints(list) => PyTuple::new(py, list)?.into_any(),
        SavedValue::Floats(list) => PyTuple::new(py, list)?.into_any(),
        SavedValue::Bools(list) => PyTuple::new(py, list)?.into_any(),
        SavedValue::Str(s) => PyString::new(py, &s).into_any(),
        SavedValue::DType(d) => dtype(py, d)?.into_any(),
        other => {
            return Err(PyRuntimeError::new_err(format!(
                "a saved value of this kind has no form in Python: {other:?}"
            )));
        }
    })
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    for d in DType::ALL {
        m.add(d.name(), dtype(py, d)?)?;
    }
    m.add("contiguous_format", PyMemoryFormat(MemoryFormat::Contiguous))?;
    m.add("channels_last", PyMemoryFormat(MemoryFormat::ChannelsLast))?;
    m.add("preserve_format", PyMemoryFormat(MemoryFormat::Preserve))?;
    m.add("strided", PyLayout { sparse: false })?;
    m.add("sparse_coo", PyLayout { sparse: true })?;
    m.add_function(wrap_pyfunction!(get_default_dtype, m)?)?;
    m.add_function(wrap_pyfunction!(set_default_dtype, m)?)?;
    m.add_function(wrap_pyfunction!(manual_seed, m)?)?;
    m.add_function(wrap_pyfunction!(initial_seed, m)?)?;
    m.add_function(wrap_pyfunction!(get_num_threads, m)?)?;
    m.add_function(wrap_pyfunction!(set_num_threads, m)?)?;
    Ok(())
}

/// The dtype of float results that nothing else decides.
#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<Bound<'_, PyDType>> {
    dtype(py, firebrand::dtype::default_dtype())
}

/// Sets the dtype of float results that nothing else decides.
#[pyfunction]
fn set_default_dtype(d: &Bound<'_, PyAny>) -> PyResult<()> {
    match dtype_of(d) {
        Some(d) if d.is_floating_point() => {
            firebrand::set_default_dtype(d);
            Ok(())
        }
        _ => Err(PyTypeError::new_err("only floating-point types are supported as the default type")),
    }
}

/// Seeds the random numbers of all threads.
#[pyfunction]
fn manual_seed(seed: i64) {
    firebrand::random::manual_seed(seed as u64)
}

#[pyfunction]
fn initial_seed() -> u64 {
    firebrand::random::initial_seed()
}

#[pyfunction]
fn get_num_threads() -> usize {
    firebrand::num_threads()
}

#[pyfunction]
fn set_num_threads(n: usize) {
    firebrand::set_num_threads(n)
}

/// How messages call a tensor of this dtype.
pub(crate) fn tensor_type(d: DType) -> String {
    format!("firebrand.Tensor of {}", d.name())
}

/// A tensor that was made with `requires_grad=True`.
pub(crate) fn requiring_grad(t: Tensor) -> PyResult<Tensor> {
    if !t.dtype().is_differentiable() {
        return Err(PyRuntimeError::new_err("Only Tensors of floating point and complex dtype can require gradients"));
    }
    t.try_requires_grad_(true).raise()
}
