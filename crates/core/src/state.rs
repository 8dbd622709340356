//! Thread state: one word of mode bits that every op tests, and the rarely used stacks behind it.
//!
//! A bit in the word says that a stack behind it is not empty, so an op that finds the word in its usual state never
//! looks further. Scopes that ops do not ask for, and those of the crates above, are in [`Slot`]s that their owners declare.
//! All of it is restored on unwind (by guards) and moves along to another thread ([`ThreadState`]); what stays behind (caches,
//! the depth of the stack, queues of nodes to drop) belongs to the thread and not to what the user is doing.

use crate::autograd::autocast::Region;
use crate::autograd::hooks::CreationHook;
use crate::autograd::runner::BackwardRunner;
use crate::autograd::saved::SavedHooks;
use crate::capture::Tracer;
use crate::dispatch::Interpreter;
use crate::func::functional_call::Replacements;
use crate::func::level::Level;
use crate::slot::Slots;
use crate::tensor::WeakTensor;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

pub use crate::slot::{Slot, SlotGuard};

/// Operations are recorded.
pub(crate) const GRAD: u32 = 1;
/// New tensors are inference tensors: no version, no view tracking.
pub(crate) const INFERENCE: u32 = 1 << 1;
/// A dual level is active. No bit in a build that has none: what looks for it is not compiled.
pub(crate) const DUAL: u32 = if cfg!(feature = "transforms") { 1 << 2 } else { 0 };
/// Layers above autograd are active (capture, modes, transforms).
pub(crate) const LAYERS: u32 = 1 << 3;
/// Layers below autograd are active.
pub(crate) const INNER: u32 = 1 << 4;
/// New nodes remember where they were created (anomaly mode).
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

/// Recording is off because the engine runs without `create_graph`: that concerns the level of its graph and those above
/// it, not the levels below, unlike `no_grad`.
pub(crate) const ENGINE_OFF: u32 = 1 << 13;

/// A runner may execute the engine's runs (`autograd::runner`).
pub(crate) const RUNNER: u32 = 1 << 14;

/// Ops are timed (`profiler`).
pub(crate) const PROFILE: u32 = 1 << 15;
/// Below autograd, what makes an op leave its typed path.
pub(crate) const APART: u32 = INNER | PROFILE;

/// How many function transforms (`func`) are active. A tensor's flags keep the number it was born under, at the same bits.
pub(crate) const DEPTH: u32 = 0xff << 16;
pub(crate) const DEPTH_ONE: u32 = 1 << 16;
/// How many of them wrap tensors (`func::level`); kept in the flags of tensors too.
pub(crate) const LEVEL: u32 = 0xff << 24;
pub(crate) const LEVEL_ONE: u32 = 1 << 24;

struct State {
    word: Cell<u32>,
    sequence: Cell<u64>,
    /// How often a view made where nothing is recorded was asked for its history: it requires grad as its base does,
    /// and has none.
    loose_edges: Cell<u64>,
    /// The level of the graph that the innermost running engine works on, as in [`LEVEL`].
    engine_level: Cell<u32>,
}

thread_local! {
    // Const-initialized and without a destructor: reading it is one segment-relative load.
    static STATE: State = const {
        State {
            word: Cell::new(GRAD),
            sequence: Cell::new(0),
            loose_edges: Cell::new(0),
            engine_level: Cell::new(0),
        }
    };
    /// Never held while user code runs, nor while a user's value is dropped.
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
    /// Tensors that got a tangent at the active dual level; `None` outside one.
    pub(crate) dual: Option<DualTensors>,
    /// The depth (as in [`DEPTH`]) of the innermost transform that forbids writing what was born outside it.
    pub(crate) frozen_below: u32,
    pub(crate) autocast: Region,
    /// Tensors that ops get instead of others (`func::functional_call`).
    pub(crate) replacements: Option<Replacements>,
    /// The tracer that captures what this thread does.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    /// The runner that executes the engine's runs in its place.
    pub(crate) runner: Option<Arc<dyn BackwardRunner>>,
    /// The level that wraps tensors here and the state below it; `None` at the bottom.
    pub(crate) level: Option<Box<Below>>,
}

/// The tensors of a dual level; shared with workers, so that what they made is erased with the rest.
pub(crate) type DualTensors = Arc<Mutex<Vec<WeakTensor>>>;

/// What lies below a wrapping level: the state its inner calls run in.
#[derive(Clone)]
pub(crate) struct Below {
    pub(crate) level: Arc<Level>,
    word: u32,
    stacks: Stacks,
}

impl Stacks {
    const fn new() -> Stacks {
        Stacks {
            layers: Vec::new(),
            inner: Vec::new(),
            saved_hooks: Vec::new(),
            saved_hooks_disabled: None,
            creation_hooks: Vec::new(),
            dual: None,
            frozen_below: 0,
            autocast: Region::OFF,
            replacements: None,
            tracer: None,
            runner: None,
            level: None,
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

/// The sequence number the next node of this thread gets.
pub(crate) fn next_sequence_peek() -> u64 {
    STATE.with(|s| s.sequence.get())
}

/// A number that has grown if this thread recorded an operand that requires grad only as a view of its base does.
pub(crate) fn loose_edges() -> u64 {
    STATE.with(|s| s.loose_edges.get())
}

/// Counts one of them.
pub(crate) fn count_loose_edge() {
    STATE.with(|s| s.loose_edges.set(s.loose_edges.get() + 1));
}

/// Access to the stacks; never held while user code runs. What `f` takes out it returns, so that it is dropped outside.
pub(crate) fn stacks<R>(f: impl FnOnce(&mut Stacks) -> R) -> R {
    STACKS.with_borrow_mut(f)
}

/// Restores the word when dropped, also on unwind.
#[derive(Debug)]
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

    /// Its end leaves these bits on.
    pub(crate) fn leave_on(&mut self, bits: u32) {
        self.before |= bits;
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        set_word((word() & !self.mask) | (self.before & self.mask))
    }
}

/// How an engine records while it lives, on a graph of the level `graph` (as in [`LEVEL`]).
pub(crate) struct EngineMode {
    before: u32,
    _mode: ModeGuard,
}

impl EngineMode {
    pub(crate) fn new(create_graph: bool, graph: u32) -> EngineMode {
        let mode = if create_graph && !is(INFERENCE) {
            ModeGuard::new(GRAD, ENGINE_OFF)
        } else if is(LEVEL) {
            ModeGuard::new(ENGINE_OFF, GRAD)
        } else {
            ModeGuard::new(0, GRAD)
        };
        EngineMode { before: STATE.with(|s| s.engine_level.replace(graph)), _mode: mode }
    }
}

impl Drop for EngineMode {
    fn drop(&mut self) {
        STATE.with(|s| s.engine_level.set(self.before))
    }
}

/// A wrapping level: lasts while it lives. Nothing of the state outside is seen inside but by descending.
pub(crate) struct LevelGuard {
    _not_send: std::marker::PhantomData<*const ()>,
}

impl LevelGuard {
    /// Enters a level. Layers, hooks and dual levels of the caller stay below it.
    pub(crate) fn new(level: Arc<Level>) -> LevelGuard {
        let word = word();
        assert!(word & DEPTH != DEPTH && word & LEVEL != LEVEL, "function transforms nest 255 deep at most");
        let stand_ins = crate::capture::has_stand_ins();
        let autocast = stacks(|s| {
            let autocast = s.autocast.clone();
            let disabled = s.saved_hooks_disabled.clone();
            let replacements = s.replacements.clone();
            let tracer = s.tracer.clone();
            let below = std::mem::replace(s, Stacks::new());
            s.autocast = autocast;
            s.saved_hooks_disabled = disabled;
            s.replacements = replacements;
            // What is not an op is shown to it on every level; ops are when they have come down.
            s.tracer = tracer;
            s.level = Some(Box::new(Below { level, word, stacks: below }));
            let seen = s.autocast.enabled() || s.replacements.is_some() || s.tracer.is_some() || stand_ins;
            if seen { LAYERS } else { 0 }
        });
        let kept = word & !(LAYERS | DUAL | SAVED_HOOKS | CREATION | MUTATION_WATCH);
        set_word((kept | autocast | INNER) + LEVEL_ONE + DEPTH_ONE);
        LevelGuard { _not_send: std::marker::PhantomData }
    }
}

impl Drop for LevelGuard {
    fn drop(&mut self) {
        let ended = stacks(|s| {
            let frame = s.level.take()?;
            set_word(frame.word);
            Some((std::mem::replace(s, frame.stacks), frame.level))
        });
        drop(ended);
    }
}

/// Runs `f` one level down, in the state the level was entered in: but what is not recorded above is not recorded below.
pub(crate) fn descend<R>(f: impl FnOnce() -> R) -> R {
    struct Ascend {
        frame: Option<Box<Below>>,
        word: u32,
    }
    impl Drop for Ascend {
        fn drop(&mut self) {
            if let Some(mut frame) = self.frame.take() {
                stacks(|s| {
                    std::mem::swap(s, &mut frame.stacks);
                    s.level = Some(frame);
                });
                set_word(self.word);
            }
        }
    }
    let upper = word();
    let frame = stacks(|s| {
        let mut frame = s.level.take()?;
        std::mem::swap(s, &mut frame.stacks);
        Some(frame)
    });
    if let Some(frame) = &frame {
        let mut below = frame.word | (upper & INFERENCE);
        if upper & GRAD == 0 {
            if upper & ENGINE_OFF == 0 {
                below &= !GRAD;
            } else if frame.word & LEVEL >= STATE.with(|s| s.engine_level.get()) {
                below = (below & !GRAD) | ENGINE_OFF;
            }
        }
        set_word(below);
    }
    let _ascend = Ascend { frame, word: upper };
    f()
}

/// The mode word one level down.
pub(crate) fn word_below() -> u32 {
    stacks(|s| s.level.as_ref().map_or(0, |f| f.word))
}

/// The level that wraps tensors here.
pub(crate) fn level() -> Option<Arc<Level>> {
    stacks(|s| s.level.as_ref().map(|f| f.level.clone()))
}

/// A copy of all modes and scopes that are active on this thread, to continue on another one.
#[derive(Clone)]
pub struct ThreadState {
    word: u32,
    engine_level: u32,
    stacks: Stacks,
    slots: Slots,
}

impl ThreadState {
    /// The state of this thread.
    pub fn capture() -> ThreadState {
        ThreadState {
            word: word(),
            engine_level: STATE.with(|s| s.engine_level.get()),
            stacks: stacks(|s| s.clone()),
            slots: Slots::here(),
        }
    }

    /// The state of a thread with no active modes or scopes.
    fn fresh() -> ThreadState {
        ThreadState { word: GRAD, engine_level: 0, stacks: Stacks::new(), slots: Slots::default() }
    }

    /// Runs `f` as on a new thread: no mode or scope of this one applies.
    ///
    /// ```
    /// # use firebrand_core as firebrand;
    /// use firebrand::autograd::{is_grad_enabled, no_grad};
    /// use firebrand::state::ThreadState;
    /// no_grad(|| {
    ///     assert!(ThreadState::isolated(is_grad_enabled));
    ///     assert!(!is_grad_enabled());
    /// });
    /// ```
    pub fn isolated<R>(f: impl FnOnce() -> R) -> R {
        ThreadState::fresh().enter(f)
    }

    /// Runs `f` in this state on whatever thread this is called from.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        self.clone().enter(f)
    }

    fn enter<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<ThreadState>);
        impl Drop for Restore {
            fn drop(&mut self) {
                drop(self.0.take().map(ThreadState::swap_in));
            }
        }
        let _restore = Restore(Some(self.swap_in()));
        f()
    }

    /// Replaces the state of this thread, and returns the old one.
    fn swap_in(self) -> ThreadState {
        let ThreadState { word: new_word, engine_level, stacks: new_stacks, slots } = self;
        let before = ThreadState {
            word: word(),
            engine_level: STATE.with(|s| s.engine_level.replace(engine_level)),
            stacks: stacks(|s| std::mem::replace(s, new_stacks)),
            slots: slots.swap_in(),
        };
        set_word(new_word);
        before
    }
}
