//! Shared: a cell that a function and its caller both hold.
//!
//! Inside a captured function, reading a cell makes its tensors inputs of the graph (every call reads them again) and
//! its host values guards; writing it is an effect that every call replays, in program order, after the graph ran. A cell
//! may also be an argument: then each call uses its own.

use crate::front::binding;
use crate::front::capture;
use firebrand_core::state::Slot;
use firebrand_core::tree::{Leaf, Rebuild, SharedRef, TensorTree};
use firebrand_core::{Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// Set where a cell is used, for observers.
static USED: Slot<Option<Arc<AtomicBool>>> = Slot::new(|| None);

fn note_use() {
    if let Some(used) = USED.get() {
        used.store(true, Relaxed);
    }
}

/// Runs `f` and says whether it used a cell.
pub(crate) fn watching<R>(f: impl FnOnce() -> R) -> (R, bool) {
    let used = Arc::new(AtomicBool::new(false));
    let result = {
        let _scope = USED.enter(Some(used.clone()));
        f()
    };
    let used = used.load(Relaxed);
    if used {
        note_use();
    }
    (result, used)
}

struct Cell<T> {
    value: Mutex<T>,
}

/// A cell. Cloning the handle shares it.
pub struct Shared<T>(Arc<Cell<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Shared(Arc::new(Cell { value: Mutex::new(T::default()) }))
    }
}

impl<T: Send + 'static> Shared<T> {
    /// A cell with this content.
    pub fn new(value: T) -> Shared<T> {
        Shared(Arc::new(Cell { value: Mutex::new(value) }))
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The cell that this one stands for in the call that runs now.
    fn cell(&self) -> Arc<Cell<T>> {
        note_use();
        let bound = binding::shared(self.address());
        bound.and_then(|cell| cell.downcast().ok()).unwrap_or_else(|| self.0.clone())
    }

    fn lock(cell: &Cell<T>) -> MutexGuard<'_, T> {
        cell.value.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Reads or changes the content immediately, like any host code: inside a captured function that is once per compilation.
    /// Hooks and recorded effects use this; they run at every call.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut Self::lock(&self.cell()))
    }

    /// Changes the content at every call.
    pub fn update(&self, f: impl Fn(&mut T) + Send + Sync + 'static) {
        let cell = self.clone();
        if let Some(session) = capture::session() {
            session.change_cell(self.address());
        }
        capture::effect(move || cell.with(|v| f(v)));
    }
}

impl<T: TensorTree + Send> Shared<T> {
    /// The content. Inside a captured function its tensors and numbers are read at every call.
    pub fn get(&self) -> T {
        if let Some(session) = capture::session() {
            let here = self.clone();
            return session.load_cell(self.address(), Arc::new(move || Self::copy(&here.cell())));
        }
        Self::copy(&self.cell())
    }

    fn copy(cell: &Cell<T>) -> T {
        Self::lock(cell).clone()
    }

    /// Replaces the content, at every call.
    pub fn set(&self, value: T)
    where
        T: Sync,
    {
        match capture::session() {
            Some(session) => {
                let here = self.clone();
                session.store_cell(self.address(), value, move |value| here.with(|v| *v = value));
            }
            None => self.with(|v| *v = value),
        }
    }
}

impl<T: TensorTree + Send + Sync> Shared<Vec<T>> {
    /// Appends a value, at every call.
    pub fn push(&self, value: T) {
        match capture::session() {
            Some(session) => {
                let here = self.clone();
                session.change_cell(self.address());
                session.effect_with(value, move |value| here.with(|v| v.push(value)));
            }
            None => self.with(|v| v.push(value)),
        }
    }
}

impl<T: Send + 'static> TensorTree for Shared<T> {
    type With<X> = Self;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Shared(SharedRef { address: self.address(), cell: self.0.clone() }))
    }
    fn rebuild(&self, _: &mut dyn Rebuild) -> Self {
        self.clone()
    }
    fn map_leaves<X>(&self, _: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self> {
        Ok(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrand_core::state::ThreadState;

    /// A cell that is used on another thread for the code that is watched counts.
    #[test]
    fn a_use_elsewhere_is_seen() {
        let cell = Shared::new(1);
        let read = || {
            let here = ThreadState::capture();
            std::thread::scope(|s| s.spawn(|| here.run(|| cell.with(|v| *v))).join())
        };
        assert!(watching(read).1);
        assert!(watching(|| watching(read).1).1, "an outer watch sees it too");
        assert!(!watching(|| ()).1);
    }
}
