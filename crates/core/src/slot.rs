//! Slots: typed places in the state of a thread, one per scope that its owner declares.
//!
//! A scope is something the user has enabled temporarily (a generator, a warnings collector, a capture).
//! Its owner declares a `static` [`Slot`], in whatever crate it lives; what is in the slots is part of
//! [`ThreadState`](crate::state::ThreadState), so it moves with it: to the thread on which the engine
//! continues a deep backward pass, and to the user's threads. State that both threads write is shared (an `Arc`), state that only
//! concerns the code that runs is copied.
//!
//! Nothing here is on the path of an op: an op tests the mode word, and looks at a slot only where it has to.

use std::any::Any;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A place in the state of every thread.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::state::{Slot, ThreadState};
/// static DEPTH: Slot<u32> = Slot::new(|| 0);
///
/// let _scope = DEPTH.enter(3);
/// let here = ThreadState::capture();
/// let there = std::thread::spawn(move || here.run(|| DEPTH.get()));
/// assert_eq!(there.join().unwrap(), 3);
/// ```
pub struct Slot<T> {
    key: OnceLock<usize>,
    empty: fn() -> T,
}

/// A value in a slot, which can be copied to another thread.
trait Held: Any + Send + Sync {
    fn copy(&self) -> Box<dyn Held>;
    fn any(&mut self) -> &mut dyn Any;
}

impl<T: Clone + Send + Sync + 'static> Held for T {
    fn copy(&self) -> Box<dyn Held> {
        Box::new(self.clone())
    }
    fn any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Everything in the slots of a thread.
#[derive(Default)]
pub(crate) struct Slots(Vec<Option<Box<dyn Held>>>);

impl Clone for Slots {
    fn clone(&self) -> Slots {
        Slots(self.0.iter().map(|held| held.as_ref().map(|held| (**held).copy())).collect())
    }
}

thread_local! {
    /// Never held while user code runs, nor while a user's value is dropped.
    static SLOTS: RefCell<Slots> = const { RefCell::new(Slots(Vec::new())) };
}

impl Slots {
    /// What is in the slots of this thread.
    pub(crate) fn here() -> Slots {
        SLOTS.with_borrow(Slots::clone)
    }

    /// Replaces the slots of this thread, and returns the old ones.
    pub(crate) fn swap_in(self) -> Slots {
        SLOTS.with_borrow_mut(|slots| std::mem::replace(slots, self))
    }
}

impl<T: Clone + Send + Sync + 'static> Slot<T> {
    /// A slot that holds `empty()` on a thread that has not set it.
    pub const fn new(empty: fn() -> T) -> Slot<T> {
        Slot { key: OnceLock::new(), empty }
    }

    fn key(&self) -> usize {
        static KEYS: AtomicUsize = AtomicUsize::new(0);
        *self.key.get_or_init(|| KEYS.fetch_add(1, Relaxed))
    }

    /// What is in it.
    pub fn get(&self) -> T {
        let held = SLOTS.with_borrow_mut(|slots| {
            let held = slots.0.get_mut(self.key())?.as_mut()?;
            (**held).any().downcast_ref().cloned()
        });
        held.unwrap_or_else(self.empty)
    }

    /// Reads or changes what is in it. `f` runs no user code, and what it takes out it returns, so that it is dropped outside.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let key = self.key();
        SLOTS.with_borrow_mut(|slots| {
            if slots.0.len() <= key {
                slots.0.resize_with(key + 1, || None);
            }
            let held = slots.0[key].get_or_insert_with(|| Box::new((self.empty)()));
            f((**held).any().downcast_mut().expect("a key belongs to one slot"))
        })
    }

    /// Puts another value in it and returns the old one.
    pub fn replace(&self, value: T) -> T {
        self.with(|held| std::mem::replace(held, value))
    }

    /// Puts a value in it until the guard is dropped, also on unwind.
    pub fn enter(&'static self, value: T) -> SlotGuard<T> {
        SlotGuard { slot: self, before: Some(self.replace(value)), _not_send: std::marker::PhantomData }
    }
}

/// Restores what was in a slot when it is dropped.
#[must_use = "the scope lasts while the guard lives"]
pub struct SlotGuard<T: Clone + Send + Sync + 'static> {
    slot: &'static Slot<T>,
    before: Option<T>,
    /// Guards belong to the thread that made them.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl<T: Clone + Send + Sync + 'static> Drop for SlotGuard<T> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            drop(self.slot.replace(before));
        }
    }
}
