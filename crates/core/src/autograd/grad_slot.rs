//! The storage slot of a gradient: additions to it are serialized, so none is lost.
//!
//! A plain addition runs under the lock. One that user code may watch (a layer, a hook that sees new nodes) runs outside it
//! and is stored if nothing changed meanwhile, else repeated unobserved on the current value; so an observer may read,
//! replace or add to the same gradient. Memory that is read or written outside the lock is never written by another thread: a
//! plain addition then makes a new tensor. Nothing is dropped under the lock.

use crate::sync::{Mutex, MutexGuard};
use smallvec::SmallVec;

struct Place<T> {
    value: Option<T>,
    /// Counts every change of the value.
    changes: u64,
    /// How many additions read the value outside the lock.
    readers: usize,
    /// Whether an addition writes the value's memory outside the lock.
    writing: bool,
    /// What arrived during a write: the writer adds it.
    arrived: Vec<T>,
}

/// How an addition changes the present gradient.
pub(crate) enum Sum<T> {
    /// It was written in place.
    InPlace,
    /// This is to be there.
    New(T),
}

/// A gradient, or none yet.
pub(crate) struct GradSlot<T>(Mutex<Place<T>>);

impl<T> Default for GradSlot<T> {
    fn default() -> Self {
        GradSlot(Mutex::new(Place { value: None, changes: 0, readers: 0, writing: false, arrived: Vec::new() }))
    }
}

impl<T> GradSlot<T> {
    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The gradient, if there is one.
    pub(crate) fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        self.lock().value.clone()
    }

    /// Whether there is one.
    pub(crate) fn is_some(&self) -> bool {
        self.lock().value.is_some()
    }

    /// Puts another in its place; the old one is returned, to be dropped outside the lock.
    pub(crate) fn replace(&self, new: Option<T>) -> Option<T> {
        let mut place = self.lock();
        place.changes += 1;
        std::mem::replace(&mut place.value, new)
    }
}

impl<T: Clone> GradSlot<T> {
    /// Adds `g`, by code that runs no user code: `add` gets the present gradient, the new one, and whether it may write what is
    /// there. Nothing changes on error.
    pub(crate) fn add<E>(
        &self,
        mut g: T,
        mut add: impl FnMut(Option<&T>, T, bool) -> Result<Sum<T>, E>,
    ) -> Result<(), E> {
        let mut before = SmallVec::<[T; 1]>::new();
        let mut place = self.lock();
        if place.writing {
            place.arrived.push(g);
            return Ok(());
        }
        loop {
            let may_write = place.readers == 0;
            if let Sum::New(new) = add(place.value.as_ref(), g, may_write)? {
                before.extend(place.value.replace(new));
            }
            place.changes += 1;
            // A writer that failed left it behind.
            match place.arrived.pop() {
                Some(next) => g = next,
                None => return Ok(()),
            }
        }
    }

    /// Puts a gradient where there is none; gives it back if there is one.
    pub(crate) fn set_first(&self, g: T) -> Option<T> {
        let mut place = self.lock();
        if place.value.is_some() || place.writing {
            return Some(g);
        }
        place.changes += 1;
        place.value = Some(g);
        None
    }

    /// Adds `g`, by code that user code may watch, and that may therefore come back here. `in_place` says whether `add`
    /// would write what is there if it may. `unseen` is the same addition where nothing sees it: each gradient is shown once,
    /// so user code that adds to what it watches comes to an end.
    pub(crate) fn add_watched<E>(
        &self,
        g: T,
        in_place: impl Fn(&T) -> bool,
        add: impl FnOnce(Option<&T>, T, bool) -> Result<Sum<T>, E>,
        mut unseen: impl FnMut(Option<&T>, T, bool) -> Result<Sum<T>, E>,
    ) -> Result<(), E> {
        let mut place = self.lock();
        if place.writing {
            // The memory is being written further up this stack or on another thread. Waiting could be for ever,
            // since they may wait for us: they add this when they are done.
            place.arrived.push(g);
            return Ok(());
        }
        let (old, changes) = (place.value.clone(), place.changes);
        let may_write = place.readers == 0 && old.as_ref().is_some_and(in_place);
        if may_write {
            place.writing = true
        } else {
            place.readers += 1
        }
        drop(place);
        let turn = Turn { slot: self, writes: may_write };
        // On error the turn ends by being dropped.
        let stored = add(old.as_ref(), g.clone(), may_write).map(|sum| turn.finish(sum, changes));
        // What others left with us is added whatever became of our own.
        let left = std::mem::take(&mut self.lock().arrived);
        left.into_iter().try_for_each(|g| self.add(g, &mut unseen))?;
        if stored? { Ok(()) } else { self.add(g, unseen) }
    }
}

/// An addition outside the lock: ends when dropped, also on unwind.
struct Turn<'a, T> {
    slot: &'a GradSlot<T>,
    writes: bool,
}

impl<T> Turn<'_, T> {
    fn end(&self, place: &mut Place<T>) {
        if self.writes { place.writing = false } else { place.readers -= 1 }
    }

    /// Ends the turn and stores its sum in one step: between the two, another addition could write in place what this one
    /// has read, and be lost. False if the value changed since `changes`, and the sum must be made again.
    fn finish(self, sum: Sum<T>, changes: u64) -> bool {
        let slot = self.slot;
        let mut place = slot.lock();
        self.end(&mut place);
        std::mem::forget(self);
        let before = match sum {
            // Only `replace` can have come between, and what it put there is to stay.
            Sum::InPlace => None,
            Sum::New(new) if place.changes == changes => place.value.replace(new),
            Sum::New(_) => return false,
        };
        place.changes += 1;
        drop(place);
        drop(before);
        true
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut place = self.slot.lock();
        self.end(&mut place);
    }
}
