//! One Python object per tensor and per node, as long as the object lives.
//!
//! A registry maps the tensor's (or node's) number to the address of its object; the object's drop takes it out. When the
//! object dies before the tensor does (the graph holds a leaf whose variable went away), its class and attributes wait in
//! the tensor, and the next object for it has them again. Weak references and `id` do not survive that; nothing that could
//! compare them was left.
//!
//! Everything here happens while the thread is attached to the interpreter, which orders it; the lock is for the compiler and
//! is never held while Python runs.
#![allow(unsafe_code)] // objects are found by address and looked at while they are torn down

use crate::held::Held;
use crate::tensor::PyTensor;
use firebrand::Tensor;
use foldhash::fast::FixedState;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

type Addresses = HashMap<usize, usize, FixedState>;

/// Objects by the number of what they stand for.
pub(crate) struct Registry(Mutex<Option<Addresses>>);

/// The objects of tensors.
static TENSORS: Registry = Registry::new();

impl Registry {
    pub(crate) const fn new() -> Registry {
        Registry(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Addresses>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The object that stands for `key`, unless it is being torn down.
    pub(crate) fn get<'py>(&self, py: Python<'py>, key: usize) -> Option<Bound<'py, PyAny>> {
        let guard = self.lock();
        let object = *guard.as_ref()?.get(&key)? as *mut ffi::PyObject;
        // SAFETY: we are attached, and whoever frees the object takes it out of the registry first, attached too; so it
        // points to an object. One without references is being torn down and is left alone.
        unsafe {
            if ffi::Py_REFCNT(object) <= 0 {
                return None;
            }
            Some(Bound::from_borrowed_ptr(py, object))
        }
    }

    /// Makes `object` stand for `key` until it is taken out.
    pub(crate) fn put(&self, key: usize, object: &Bound<'_, PyAny>) {
        self.lock().get_or_insert_default().insert(key, object.as_ptr() as usize);
    }

    /// Takes an object out; another one that stands for `key` by now stays.
    pub(crate) fn remove(&self, key: usize, object: *mut ffi::PyObject) {
        let mut guard = self.lock();
        if let Some(map) = guard.as_mut()
            && map.get(&key) == Some(&(object as usize))
        {
            map.remove(&key);
        }
    }
}

/// What is left of an object whose tensor lives on.
struct Dormant {
    class: Held,
    attributes: Option<Held>,
}

thread_local! {
    /// The tensor of the object that `Tensor.__new__` makes next.
    static PENDING: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

/// The tensor that is waiting for its object.
pub(crate) fn pending() -> Option<Tensor> {
    PENDING.with_borrow_mut(Option::take)
}

/// The object of a tensor.
#[inline]
pub(crate) fn wrap(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyTensor>> {
    if let Some(object) = TENSORS.get(py, tensor.id()) {
        // SAFETY: only objects of tensors are put there.
        return Ok(unsafe { object.cast_into_unchecked() });
    }
    match tensor.foreign() {
        None => register(Bound::new(py, PyTensor::new(tensor))?),
        Some(kept) => wake(py, tensor, kept),
    }
}

pub(crate) fn register(object: Bound<'_, PyTensor>) -> PyResult<Bound<'_, PyTensor>> {
    object.get().object.store(object.as_ptr(), Relaxed);
    TENSORS.put(object.get().tensor.id(), object.as_any());
    Ok(object)
}

#[cold]
fn wake<'py>(
    py: Python<'py>,
    tensor: Tensor,
    kept: Arc<dyn std::any::Any + Send + Sync>,
) -> PyResult<Bound<'py, PyTensor>> {
    drop(tensor.set_foreign(None));
    let Some(dormant) = kept.downcast_ref::<Dormant>() else {
        return register(Bound::new(py, PyTensor::new(tensor))?);
    };
    let object = wrap_as(dormant.class.get(py).cast::<PyType>()?, tensor)?;
    if let Some(attributes) = &dormant.attributes {
        let own = object.getattr("__dict__")?;
        own.cast::<PyDict>()?.update(attributes.get(py).cast::<PyDict>()?.as_mapping())?;
    }
    Ok(object)
}

/// A new object of this class for a tensor that has none.
pub(crate) fn wrap_as<'py>(class: &Bound<'py, PyType>, tensor: Tensor) -> PyResult<Bound<'py, PyTensor>> {
    let py = class.py();
    PENDING.with_borrow_mut(|slot| *slot = Some(tensor));
    let made = py.get_type::<PyTensor>().call_method1("__new__", (class,));
    drop(pending());
    register(made?.cast_into::<PyTensor>()?)
}

/// What an object leaves behind when it is torn down.
pub(crate) fn retire(py: Python<'_>, this: &PyTensor) {
    let object = this.object.load(Relaxed);
    if object.is_null() {
        return;
    }
    TENSORS.remove(this.tensor.id(), object);
    if !this.tensor.is_shared() {
        return;
    }
    // SAFETY: called from the object's own drop, before its dictionary and its memory are released: the type is alive as long as
    // the instance's memory, and the slot at the offset that the type states holds null or the dictionary.
    let (class, attributes) = unsafe {
        let class = Bound::from_borrowed_ptr(py, ffi::Py_TYPE(object).cast());
        let slot = object.byte_offset(dict_offset(py)).cast::<*mut ffi::PyObject>();
        (class, Bound::from_borrowed_ptr_or_opt(py, *slot))
    };
    let attributes = attributes.filter(|d| d.len().is_ok_and(|n| n > 0));
    if attributes.is_some() || !class.is(py.get_type::<PyTensor>()) {
        let dormant = Dormant { class: Held::new(&class), attributes: attributes.as_ref().map(Held::new) };
        drop(this.tensor.set_foreign(Some(Arc::new(dormant))));
    }
}

/// Where an object keeps the pointer to its dictionary.
fn dict_offset(py: Python<'_>) -> isize {
    static OFFSET: PyOnceLock<isize> = PyOnceLock::new();
    let read = || py.get_type::<PyTensor>().getattr("__dictoffset__").and_then(|o| o.extract()).unwrap_or(0);
    *OFFSET.get_or_init(py, read)
}
