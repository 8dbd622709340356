//! A Python object owned by Rust: by a hook, a saved value or a node.
//!
//! Owners are dropped wherever the graph is, often on a thread that is detached from the interpreter. Left to itself the object
//! would be released some time later; here it is released at once, so that weak references and `__del__` behave as
//! they do for objects that Python owns. At the end of the interpreter it is leaked.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

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

impl Held {
    /// The object, for the collector.
    pub(crate) fn object(&self) -> Option<&Py<PyAny>> {
        self.0.as_ref()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.is_some() && Python::try_attach(|_| drop(self.0.take())).is_none() {
            std::mem::forget(self.0.take());
        }
    }
}

/// A Python function that hangs on a tensor or node, which Python's collector can see and cut off.
pub(crate) struct HookSlot(Mutex<Option<Py<PyAny>>>);

/// The owner of a slot: the closure that calls the function.
pub(crate) struct Hook(Arc<HookSlot>);

impl Hook {
    pub(crate) fn new(function: &Bound<'_, PyAny>) -> Hook {
        Hook(Arc::new(HookSlot(Mutex::new(Some(function.clone().unbind())))))
    }

    /// What the object that it was registered on keeps, to show it to the collector.
    pub(crate) fn weak(&self) -> Weak<HookSlot> {
        Arc::downgrade(&self.0)
    }

    /// The function; none after the collector cut it off, when nothing could reach it any more.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.0.lock().as_ref().map(|f| f.bind(py).clone())
    }
}

impl HookSlot {
    /// Lets go of the function, which is not called any more.
    pub(crate) fn clear(&self) {
        let taken = self.lock().take();
        drop(taken);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for HookSlot {
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(|e| e.into_inner());
        if held.is_some() && Python::try_attach(|_| drop(held.take())).is_none() {
            std::mem::forget(held.take());
        }
    }
}

/// The functions that hang on one object.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Weak<HookSlot>>>);

impl Hooks {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<HookSlot>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Remembers one more, and forgets those that were removed.
    pub(crate) fn add(&self, hook: &Hook) {
        let mut list = self.lock();
        list.retain(|slot| slot.strong_count() > 0);
        list.push(hook.weak());
    }

    /// Shows them to the collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for slot in self.lock().iter().filter_map(Weak::upgrade) {
            // Visiting runs no Python code, so nobody can ask for the lock meanwhile.
            visit.call(slot.lock().as_ref())?;
        }
        Ok(())
    }

    /// Cuts them off.
    pub(crate) fn clear(&self) {
        let slots: Vec<_> = self.lock().drain(..).filter_map(|slot| slot.upgrade()).collect();
        for slot in slots {
            slot.clear();
        }
    }
}
