//! The place of a gradient: every read-modify-write of it happens under one lock, so none is lost.

use crate::sync::Mutex;

/// A gradient, or none yet.
pub(crate) struct GradSlot<T>(Mutex<Option<T>>);

impl<T> Default for GradSlot<T> {
    fn default() -> Self {
        GradSlot(Mutex::new(None))
    }
}

impl<T> GradSlot<T> {
    /// The gradient, if there is one.
    pub(crate) fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Whether there is one.
    pub(crate) fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).is_some()
    }

    /// Puts another in its place; the old one is returned, to be dropped outside the lock.
    pub(crate) fn replace(&self, new: Option<T>) -> Option<T> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()), new)
    }

    /// Adds to it: `f` gets what is there and changes it, or returns what shall be there. Nothing changes on error.
    pub(crate) fn update<E>(&self, f: impl FnOnce(Option<&T>) -> Result<Option<T>, E>) -> Result<(), E> {
        let mut slot = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(new) = f(slot.as_ref())? {
            *slot = Some(new);
        }
        Ok(())
    }
}
