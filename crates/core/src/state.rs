//! What a thread is doing: one word of mode bits that every op tests, and the rarely used stacks behind it.
//!
//! A bit in the word says that a stack behind it is not empty, so an op that finds the word in its usual state never
//! looks further. All of it is restored on unwind (by guards) and can be copied to another thread ([`ThreadState`]).

use crate::autograd::hooks::CreationHook;
use crate::autograd::saved::SavedHooks;
use crate::dispatch::Interpreter;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Operations are recorded.
pub(crate) const GRAD: u32 = 1;
/// New tensors are inference tensors: no version, no view tracking.
pub(crate) const INFERENCE: u32 = 1 << 1;
/// A dual level is active.
pub(crate) const DUAL: u32 = 1 << 2;
/// Layers above autograd are active (capture, modes, transforms).
pub(crate) const LAYERS: u32 = 1 << 3;
/// Layers below autograd are active.
pub(crate) const INNER: u32 = 1 << 4;
/// New nodes remember where they were made.
pub(crate) const ANOMALY: u32 = 1 << 5;
/// The engine looks for NaN.
pub(crate) const CHECK_NAN: u32 = 1 << 6;
/// Saved tensors pass through hooks.
pub(crate) const SAVED_HOOKS: u32 = 1 << 7;
/// New nodes are shown to creation hooks.
pub(crate) const CREATION: u32 = 1 << 8;
/// The engine keeps everything on the calling thread.
pub(crate) const SINGLE_THREAD: u32 = 1 << 9;
/// Gradients keep whatever layout they arrive in.
pub(crate) const FREE_GRAD_LAYOUT: u32 = 1 << 10;
/// A creation hook is running.
pub(crate) const IN_CREATION: u32 = 1 << 11;

/// Saved tensors are cloned before they are written.
pub(crate) const MUTATION_WATCH: u32 = 1 << 12;

struct State {
    word: Cell<u32>,
    sequence: Cell<u64>,
}

thread_local! {
    // Const-initialised and without a destructor: reading it is one segment-relative load.
    static STATE: State = const { State { word: Cell::new(GRAD), sequence: Cell::new(0) } };
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks::new()) };
}

/// The stacks behind the bits.
#[derive(Clone)]
pub(crate) struct Stacks {
    pub(crate) layers: Vec<Arc<dyn Interpreter>>,
    pub(crate) inner: Vec<Arc<dyn Interpreter>>,
    pub(crate) saved_hooks: Vec<Arc<SavedHooks>>,
    pub(crate) saved_hooks_disabled: Option<String>,
    pub(crate) creation_hooks: Vec<CreationHook>,
}

impl Stacks {
    const fn new() -> Stacks {
        Stacks {
            layers: Vec::new(),
            inner: Vec::new(),
            saved_hooks: Vec::new(),
            saved_hooks_disabled: None,
            creation_hooks: Vec::new(),
        }
    }
}

/// The mode bits of this thread.
#[inline(always)]
pub(crate) fn word() -> u32 {
    STATE.with(|s| s.word.get())
}

#[inline]
pub(crate) fn set_word(w: u32) {
    STATE.with(|s| s.word.set(w))
}

#[inline]
pub(crate) fn is(bit: u32) -> bool {
    word() & bit != 0
}

/// The next sequence number of this thread.
#[inline]
pub(crate) fn next_sequence() -> u64 {
    STATE.with(|s| s.sequence.replace(s.sequence.get() + 1))
}

/// Access to the stacks; never held while user code runs.
pub(crate) fn stacks<R>(f: impl FnOnce(&mut Stacks) -> R) -> R {
    STACKS.with_borrow_mut(f)
}

/// Restores the word when dropped, also on unwind.
#[must_use = "the mode lasts while the guard lives"]
pub struct ModeGuard {
    mask: u32,
    before: u32,
    /// Guards belong to the thread that made them.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl ModeGuard {
    /// Sets the bits of `on`, clears those of `off`.
    pub(crate) fn new(on: u32, off: u32) -> ModeGuard {
        let before = word();
        set_word((before | on) & !off);
        ModeGuard { mask: on | off, before, _not_send: std::marker::PhantomData }
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        set_word((word() & !self.mask) | (self.before & self.mask))
    }
}

/// A copy of everything, to continue on another thread.
#[derive(Clone)]
pub struct ThreadState {
    word: u32,
    stacks: Stacks,
}

impl ThreadState {
    /// The state of this thread.
    pub fn capture() -> ThreadState {
        ThreadState { word: word(), stacks: stacks(|s| s.clone()) }
    }

    /// Runs `f` in this state on whatever thread this is called from.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore(u32, Option<Stacks>);
        impl Drop for Restore {
            fn drop(&mut self) {
                set_word(self.0);
                if let Some(old) = self.1.take() {
                    stacks(|s| *s = old)
                }
            }
        }
        let old = stacks(|s| std::mem::replace(s, self.stacks.clone()));
        let _restore = Restore(word(), Some(old));
        set_word(self.word);
        f()
    }
}
