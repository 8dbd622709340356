//! A Python object owned by Rust: by a hook, a saved value or a node.
//!
//! Owners are dropped wherever the graph is, often on a thread that is detached from the interpreter. Left to itself the object
//! would be released some time later; here it is released at once, so that weak references and `__del__` behave as
//! they do for objects that Python owns. At the end of the interpreter it is leaked.

use pyo3::prelude::*;

/// A Python object that any thread may own and drop.
pub(crate) struct Held(Option<Py<PyAny>>);

impl Held {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Held {
        Held(Some(object.clone().unbind()))
    }

    /// The object.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.0.as_ref().expect("an object is taken out only by drop").bind(py).clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.is_some() && Python::try_attach(|_| drop(self.0.take())).is_none() {
            std::mem::forget(self.0.take());
        }
    }
}
