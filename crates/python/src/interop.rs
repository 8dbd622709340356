//! Memory shared with other libraries, never copied: numpy by its array interface, everyone else by DLPack.
//!
//! What is lent out keeps the memory alive until the borrower lets go, whatever happens to the tensor; what is borrowed is
//! kept alive by the storage that shows it. Only this file hands raw addresses over or takes them.
#![allow(unsafe_code)] // addresses and structs of a foreign interface; each block says why it may trust them

use crate::convert::{PyDType, tensor_of};
use crate::errors::Raise;
use crate::held::Held;
use crate::identity;
use crate::tensor::PyTensor;
use firebrand::{DType, Device, Layout, Spec, Tensor};
use firebrand_core::Storage;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::any::Any;
use std::ffi::{CStr, c_void};

// ---- numpy

/// The memory of a tensor as numpy asks for it; keeps it alive.
#[pyclass(frozen)]
struct ArrayView(Tensor);

/// None for what numpy does not have.
fn typestr(d: DType) -> Option<String> {
    let kind = match d {
        DType::BF16 => return None,
        DType::Bool => 'b',
        DType::U8 => 'u',
        d if d.is_integer() => 'i',
        d if d.is_complex() => 'c',
        _ => 'f',
    };
    let order = if d.size() == 1 { '|' } else { '<' };
    Some(format!("{order}{kind}{}", d.size()))
}

#[pymethods]
impl ArrayView {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let t = &self.0;
        let size = t.dtype().size();
        let described = PyDict::new(py);
        described.set_item("version", 3)?;
        described.set_item("typestr", typestr(t.dtype()))?;
        described.set_item("shape", PyTuple::new(py, t.shape())?)?;
        described.set_item("strides", PyTuple::new(py, t.strides().iter().map(|s| s * size))?)?;
        described.set_item("data", (t.data_ptr() as usize, false))?;
        Ok(described)
    }
}

/// What is said of a sample of a batch, which has no memory of its own.
pub(crate) const NO_STORAGE: &str = "Cannot access data pointer of Tensor that doesn't have storage: it stands for one sample of a batch inside vmap. Return it from the mapped function, and share the result";

/// Refuses a tensor that has no memory of its own at strides.
fn need_strided(t: &Tensor) -> PyResult<()> {
    if t.is_batched() {
        Err(PyRuntimeError::new_err(NO_STORAGE))
    } else if t.is_sparse() {
        Err(PyTypeError::new_err("a sparse tensor has no memory to share; call to_dense() first"))
    } else {
        Ok(())
    }
}

/// What numpy makes an array of, without copying.
#[pyfunction]
fn array_view(tensor: &Bound<'_, PyTensor>) -> PyResult<ArrayView> {
    let t = &tensor.get().tensor;
    need_strided(t)?;
    if t.requires_grad() {
        return Err(PyRuntimeError::new_err(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        ));
    }
    if t.is_meta() {
        return Err(PyTypeError::new_err("can't convert meta device type tensor to numpy"));
    }
    if typestr(t.dtype()).is_none() {
        return Err(PyTypeError::new_err("Got unsupported ScalarType BFloat16"));
    }
    // A handle of its own: the tensor may be given other data.
    Ok(ArrayView(t.data()))
}

/// A tensor over memory that `owner` keeps alive.
///
/// # Safety
/// While `owner` lives, `data` points to the memory that sizes and strides (in elements) of `dtype` describe, and nobody moves it.
unsafe fn borrowed(
    data: *mut u8,
    dtype: DType,
    sizes: &[usize],
    strides: &[usize],
    owner: Box<dyn Any + Send + Sync>,
) -> PyResult<Tensor> {
    if sizes.contains(&0) {
        return Tensor::try_empty(Spec::new(sizes, dtype, Device::Cpu).raise()?).raise();
    }
    let part = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
    if !(data as usize).is_multiple_of(part) {
        return Err(PyValueError::new_err("the memory is not aligned to its elements; copy the array first"));
    }
    let layout = Layout::strided(sizes, strides, 0).raise()?;
    let bytes = layout.end() * dtype.size();
    // SAFETY: the caller's promise, for exactly the bytes that the layout reaches.
    let storage = unsafe { Storage::from_raw(data, bytes, owner) };
    Tensor::try_from_storage(&storage, dtype, layout).raise()
}

fn dtype_of_typestr(text: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|&d| typestr(d).as_deref() == Some(text))
}

/// The dtype of a number of numpy's: it has one, where Python's numbers have none.
pub(crate) fn dtype_of_number(number: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if !number.hasattr("__array_interface__")? {
        return Ok(None);
    }
    let text: String = number.getattr("dtype")?.getattr("str")?.extract()?;
    Ok(dtype_of_typestr(&text))
}

/// A tensor over the memory of an array.
pub(crate) fn from_array(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let described = array.getattr("__array_interface__")?;
    let text: String = described.get_item("typestr")?.extract()?;
    let dtype = dtype_of_typestr(&text).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "can't convert an array of type {text}. The only supported types are: float64, float32, float16, complex64, \
             complex128, int64, int32, int16, int8, uint8, and bool."
        ))
    })?;
    let sizes: Vec<usize> = described.get_item("shape")?.extract()?;
    let strides: Option<Vec<isize>> =
        described.get_item("strides").ok().and_then(|s| s.extract::<Option<Vec<isize>>>().ok()).flatten();
    let (address, _): (usize, bool) = described.get_item("data")?.extract()?;
    let strides = match strides {
        None => firebrand::layout::contiguous_strides(&sizes).to_vec(),
        Some(bytes) => in_elements(&bytes, dtype)?,
    };
    // SAFETY: the array states where its memory is, and it is kept; numpy does not move the memory of an array that others refer to.
    unsafe { borrowed(address as *mut u8, dtype, &sizes, &strides, Box::new(Held::new(array))) }
}

fn in_elements(bytes: &[isize], dtype: DType) -> PyResult<Vec<usize>> {
    let size = dtype.size() as isize;
    let one = |&s: &isize| match s {
        s if s < 0 => Err(PyValueError::new_err(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently \
             supported. (You can probably work around this by making a copy of your array with array.copy().)",
        )),
        s if s % size != 0 => {
            Err(PyValueError::new_err("given numpy array strides not a multiple of the element byte size"))
        }
        s => Ok((s / size) as usize),
    };
    bytes.iter().map(one).collect()
}

/// A tensor that shares the memory of a numpy array.
#[pyfunction]
fn from_numpy<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
    if !array.hasattr("__array_interface__")? {
        return Err(PyTypeError::new_err(format!("expected np.ndarray (got {})", array.get_type().name()?)));
    }
    let (_, read_only): (usize, bool) = array.getattr("__array_interface__")?.get_item("data")?.extract()?;
    if read_only {
        return Err(PyValueError::new_err(
            "the array is not writable, and a tensor over it would be; copy it with array.copy()",
        ));
    }
    identity::wrap(array.py(), from_array(array)?)
}

// ---- DLPack

#[repr(C)]
struct DLDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

#[repr(C)]
struct DLVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLVersioned)>,
    flags: u64,
    tensor: DLTensor,
}

const CPU: i32 = 1;
const READ_ONLY: u64 = 1;
const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// The code and width of a dtype.
fn code(d: DType) -> (u8, u8) {
    let bits = (d.size() * 8) as u8;
    match d {
        DType::Bool => (6, 8),
        DType::U8 => (1, bits),
        DType::BF16 => (4, bits),
        d if d.is_integer() => (0, bits),
        d if d.is_complex() => (5, bits),
        _ => (2, bits),
    }
}

/// What a capsule keeps alive, and the arrays it points to.
struct Lent {
    _tensor: Tensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn described(t: &Tensor, lent: &mut Lent) -> DLTensor {
    let (code, bits) = code(t.dtype());
    DLTensor {
        data: t.data_ptr().cast(),
        device: DLDevice { kind: CPU, id: 0 },
        ndim: lent.shape.len() as i32,
        dtype: DLDataType { code, bits, lanes: 1 },
        shape: lent.shape.as_mut_ptr(),
        strides: lent.strides.as_mut_ptr(),
        byte_offset: 0,
    }
}

unsafe extern "C" fn delete_plain(managed: *mut DLManagedTensor) {
    // SAFETY: made by `Box::into_raw` in `lend`; whoever owns the struct calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Lent>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLVersioned) {
    // SAFETY: as above.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Lent>()));
    }
}

/// Runs when a capsule is dropped: if nobody took what is in it, it is deleted here.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python gives the capsule that is being dropped; a name that still is the first one says that the pointer is ours.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// A capsule over the memory of a tensor.
#[pyfunction]
fn to_dlpack<'py>(py: Python<'py>, tensor: &Bound<'py, PyTensor>, versioned: bool) -> PyResult<Bound<'py, PyAny>> {
    let t = &tensor.get().tensor;
    need_strided(t)?;
    if t.requires_grad() {
        return Err(PyBufferError::new_err("Can't export tensors that require gradient, use tensor.detach()"));
    }
    if t.is_meta() {
        return Err(PyBufferError::new_err("Can't export a tensor on the meta device: it has no memory"));
    }
    let t = t.data();
    let signed = |list: &[usize]| list.iter().map(|&n| n as i64).collect();
    let mut lent = Box::new(Lent { shape: signed(t.shape()), strides: signed(t.strides()), _tensor: t.clone() });
    let tensor = described(&t, &mut lent);
    let context = Box::into_raw(lent).cast();
    let (pointer, name): (*mut c_void, &CStr) = if versioned {
        let managed = DLVersioned { major: 1, minor: 0, context, deleter: Some(delete_versioned), flags: 0, tensor };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
    } else {
        let managed = DLManagedTensor { tensor, context, deleter: Some(delete_plain) };
        (Box::into_raw(Box::new(managed)).cast(), PLAIN)
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor knows both kinds of content.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(drop_capsule))) }
}

/// What was taken out of a capsule; deleted when the last tensor over it goes.
enum Taken {
    Plain(*mut DLManagedTensor),
    Versioned(*mut DLVersioned),
}

// SAFETY: the struct is only touched by its deleter, once, and DLPack asks of deleters that any thread may call them.
unsafe impl Send for Taken {}
// SAFETY: as above; shared references do nothing.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: we took the struct over from its capsule, which does not delete it any more.
        unsafe {
            match *self {
                Taken::Plain(p) => (*p).deleter.map(|delete| delete(p)),
                Taken::Versioned(p) => (*p).deleter.map(|delete| delete(p)),
            };
        }
    }
}

/// A tensor over the memory in a capsule.
#[pyfunction]
fn from_capsule<'py>(py: Python<'py>, capsule: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
    let object = capsule.as_ptr();
    // SAFETY: a capsule of one of these names holds the struct of that name; renaming it makes it ours.
    let (taken, tensor) = unsafe {
        if ffi::PyCapsule_IsValid(object, VERSIONED.as_ptr()) == 1 {
            let p = ffi::PyCapsule_GetPointer(object, VERSIONED.as_ptr()).cast::<DLVersioned>();
            if (*p).major != 1 {
                return Err(PyBufferError::new_err(format!("DLPack version {} is not known; expected 1", (*p).major)));
            }
            if (*p).flags & READ_ONLY != 0 {
                return Err(PyBufferError::new_err(
                    "the memory is read-only, and a tensor over it would be writable; copy it",
                ));
            }
            ffi::PyCapsule_SetName(object, VERSIONED_USED.as_ptr());
            (Taken::Versioned(p), &raw const (*p).tensor)
        } else if ffi::PyCapsule_IsValid(object, PLAIN.as_ptr()) == 1 {
            let p = ffi::PyCapsule_GetPointer(object, PLAIN.as_ptr()).cast::<DLManagedTensor>();
            ffi::PyCapsule_SetName(object, PLAIN_USED.as_ptr());
            (Taken::Plain(p), &raw const (*p).tensor)
        } else {
            return Err(PyTypeError::new_err(
                "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once",
            ));
        }
    };
    // SAFETY: the struct lives until `taken` deletes it, and its arrays have `ndim` entries.
    let (data, dtype, sizes, strides) = unsafe {
        let d = &*tensor;
        if d.device.kind != CPU {
            return Err(PyBufferError::new_err(format!("device type {} is not host memory", d.device.kind)));
        }
        let n = usize::try_from(d.ndim).map_err(|_| PyBufferError::new_err("a negative number of dimensions"))?;
        let list = |p: *const i64| if n == 0 { &[][..] } else { std::slice::from_raw_parts(p, n) };
        let positive = |list: &[i64]| list.iter().map(|&v| usize::try_from(v).ok()).collect::<Option<Vec<usize>>>();
        let sizes = positive(list(d.shape)).ok_or_else(|| PyBufferError::new_err("a negative size"))?;
        let strides = if d.strides.is_null() {
            firebrand::layout::contiguous_strides(&sizes).to_vec()
        } else {
            positive(list(d.strides)).ok_or_else(|| PyBufferError::new_err("negative strides are not supported"))?
        };
        let dtype = DType::ALL.into_iter().find(|&t| code(t) == (d.dtype.code, d.dtype.bits) && d.dtype.lanes == 1);
        let dtype = dtype.ok_or_else(|| {
            PyBufferError::new_err(format!("no dtype has DLPack's code {} with {} bits", d.dtype.code, d.dtype.bits))
        })?;
        (d.data.cast::<u8>().byte_add(d.byte_offset as usize), dtype, sizes, strides)
    };
    // SAFETY: DLPack's contract: the memory is there until the deleter runs.
    let t = unsafe { borrowed(data, dtype, &sizes, &strides, Box::new(taken))? };
    identity::wrap(py, t)
}

/// Whether two objects are tensors over the same memory.
#[pyfunction]
fn shares_memory(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    tensor_of(a).zip(tensor_of(b)).is_some_and(|(a, b)| a.shares_storage(b))
}

// ---- bytes

/// A copy of the values, row by row, as bytes.
#[pyfunction]
fn tensor_bytes<'py>(py: Python<'py>, tensor: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyBytes>> {
    need_strided(&tensor.get().tensor)?;
    let t = tensor.get().tensor.data();
    if t.is_meta() {
        return Err(PyTypeError::new_err("a tensor on the meta device has no values to store"));
    }
    let t = py.detach(|| t.try_contiguous()).raise()?;
    let bytes = t.numel() * t.dtype().size();
    if bytes == 0 {
        return Ok(PyBytes::new(py, &[]));
    }
    // SAFETY: a contiguous tensor with elements has this many initialized bytes at its address, and `t` keeps them.
    Ok(PyBytes::new(py, unsafe { std::slice::from_raw_parts(t.data_ptr(), bytes) }))
}

/// The tensor that `tensor_bytes` stored.
#[pyfunction]
fn tensor_from_bytes<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    dtype: &Bound<'py, PyDType>,
    sizes: Vec<usize>,
) -> PyResult<Bound<'py, PyTensor>> {
    let layout = Layout::contiguous(&sizes).raise()?;
    let storage = Storage::from_bytes(data.as_bytes()).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
    identity::wrap(py, Tensor::try_from_storage(&storage, dtype.get().0, layout).raise()?)
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ArrayView>()?;
    m.add_function(wrap_pyfunction!(tensor_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(tensor_from_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(array_view, m)?)?;
    m.add_function(wrap_pyfunction!(from_numpy, m)?)?;
    m.add_function(wrap_pyfunction!(to_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(from_capsule, m)?)?;
    m.add_function(wrap_pyfunction!(shares_memory, m)?)
}
