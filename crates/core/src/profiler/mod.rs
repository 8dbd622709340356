//! Profiler: which ops ran, for how long, on how many bytes and with how many operations.
//!
//! [`profile`] sets one bit of the thread's mode word. With it, each op leaves its typed path just above its kernel and
//! comes back through `call`, which takes the time; so a profile sees what runs, forward, backward and in optimizers, and the
//! same kernels run as without it. Ops composed of others are seen as their parts; compiled kernels report themselves
//! (`kernel`). Without a profile nothing is tested that was not tested before.
//! Knows nothing of files and terminals.

mod summary;
mod work;

pub use summary::{Average, Order};
pub use work::Work;

use crate::Result;
use crate::autograd::current_graph_task_id;
use crate::dispatch::{Op, Outputs, Value};
use crate::slot::{Slot, SlotGuard};
use crate::state::{self, ModeGuard};
use crate::system::Instant;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What an event stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventKind {
    /// A kernel of an op.
    Op,
    /// A compiled kernel.
    Compiled,
    /// A labeled part of the program ([`record_function`]).
    Function,
}

/// Something that ran while a profile was taken.
#[derive(Clone, Debug)]
pub struct Event {
    /// `aten::mm`, or the label.
    pub name: Cow<'static, str>,
    /// What it stands for.
    pub kind: EventKind,
    /// Whether a backward pass ran it.
    pub backward: bool,
    /// When it began, counted from the beginning of the profile.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// The thread it ran on, numbered in the order in which threads appear.
    pub thread: u32,
    /// What it had to do at least; zero for labels.
    pub work: Work,
    /// The sizes of its tensors; empty for labels.
    pub sizes: Vec<Vec<usize>>,
    /// The innermost label around it.
    pub within: Option<Arc<str>>,
}

/// What [`profile`] recorded.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// In the order in which they ended.
    pub events: Vec<Event>,
    /// How long all of it took.
    pub duration: Duration,
}

struct Recorder {
    began: Instant,
    events: Mutex<Vec<Event>>,
}

/// The profile that is taken of this code, and the innermost label around it.
#[derive(Clone, Default)]
struct Scope {
    recorder: Option<Arc<Recorder>>,
    within: Option<Arc<str>>,
}

static SCOPE: Slot<Scope> = Slot::new(Scope::default);

static THREADS: AtomicU32 = AtomicU32::new(0);
thread_local! {
    static THREAD: u32 = THREADS.fetch_add(1, Relaxed);
}

/// Runs `f` and records each op it runs, on this thread and on those it hands its state to.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::profiler::{Order, profile};
/// use firebrand::{DType, Tensor};
/// let x = Tensor::randn([64, 64], DType::F32).requires_grad_();
/// let ((), profile) = profile(|| x.matmul(&x).sum().backward());
/// let averages = profile.averages();
/// let products = averages.iter().find(|a| a.name == "aten::mm" && !a.backward).unwrap();
/// assert_eq!((products.calls, products.work.flops), (1, 2 * 64 * 64 * 64));
/// println!("{}", profile.table(Order::Time, 10));
/// ```
#[track_caller]
pub fn profile<R>(f: impl FnOnce() -> R) -> (R, Profile) {
    // A graph's kernels run when the function is called, not while it is captured.
    crate::error::expect_ok(crate::capture::leave("profile"));
    let recorder = Arc::new(Recorder { began: Instant::now(), events: Mutex::default() });
    let result = {
        let _scope = SCOPE.enter(Scope { recorder: Some(recorder.clone()), within: None });
        let _mode = ModeGuard::new(state::PROFILE, 0);
        f()
    };
    let duration = recorder.began.elapsed();
    let events = std::mem::take(&mut *recorder.events.lock().unwrap_or_else(|e| e.into_inner()));
    (result, Profile { events, duration })
}

/// Whether a profile is taken of this code.
#[inline]
pub fn is_profiling() -> bool {
    state::is(state::PROFILE)
}

/// Labels what runs while the guard lives; costs a test where no profile is taken.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::profiler::{profile, record_function};
/// let ((), profile) = profile(|| {
///     let _label = record_function("attention");
/// });
/// assert_eq!(profile.events[0].name, "attention");
/// ```
pub fn record_function(label: &str) -> RecordFunction {
    if !is_profiling() {
        return RecordFunction(None);
    }
    let outer = SCOPE.get();
    let Some(recorder) = outer.recorder.clone() else { return RecordFunction(None) };
    let label: Arc<str> = label.into();
    let inner = SCOPE.enter(Scope { within: Some(label.clone()), ..outer.clone() });
    let start = recorder.began.elapsed();
    RecordFunction(Some(Labeled { recorder, label, start, outer: outer.within, _inner: inner }))
}

/// A label; see [`record_function`].
#[must_use = "the label lasts while the guard lives"]
pub struct RecordFunction(Option<Labeled>);

struct Labeled {
    recorder: Arc<Recorder>,
    label: Arc<str>,
    start: Duration,
    outer: Option<Arc<str>>,
    _inner: SlotGuard<Scope>,
}

impl Drop for RecordFunction {
    fn drop(&mut self) {
        let Some(done) = self.0.take() else { return };
        let event = Event {
            name: done.label.to_string().into(),
            kind: EventKind::Function,
            backward: current_graph_task_id() >= 0,
            start: done.start,
            duration: done.recorder.began.elapsed() - done.start,
            thread: THREAD.with(|t| *t),
            work: Work::default(),
            sizes: Vec::new(),
            within: done.outer.clone(),
        };
        done.recorder.push(event);
    }
}

impl Recorder {
    fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(|e| e.into_inner()).push(event)
    }

    /// Records something that began at `start` and ends now.
    fn end(&self, name: Cow<'static, str>, kind: EventKind, start: Duration, work: Work, sizes: Vec<Vec<usize>>) {
        let duration = self.began.elapsed() - start;
        let within = SCOPE.with(|s| s.within.clone());
        let (backward, thread) = (current_graph_task_id() >= 0, THREAD.with(|t| *t));
        self.push(Event { name, kind, backward, start, duration, thread, work, sizes, within })
    }
}

/// Runs an op below autograd and records it.
#[cold]
pub(crate) fn call(op: Op, args: &[Value]) -> Result<Outputs> {
    // What an op's kernel runs in turn is part of it.
    let _off = ModeGuard::new(0, state::PROFILE);
    let info = op.info();
    let Some(recorder) = SCOPE.with(|s| s.recorder.clone()) else { return info.below(args) };
    let start = recorder.began.elapsed();
    let outputs = info.below(args)?;
    let sizes = work::tensors(args).map(|t| t.shape().to_vec()).collect();
    recorder.end(info.name.into(), EventKind::Op, start, Work::of(op, args, &outputs), sizes);
    Ok(outputs)
}

/// Runs a kernel that has no typed path of its own (a compiled one, an optimizer's step) and records it, if a profile is taken.
pub(crate) fn kernel(
    kind: EventKind,
    name: impl FnOnce() -> String,
    work: impl FnOnce() -> Work,
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !is_profiling() {
        return run();
    }
    let Some(recorder) = SCOPE.with(|s| s.recorder.clone()) else { return run() };
    let start = recorder.began.elapsed();
    {
        let _off = ModeGuard::new(0, state::PROFILE);
        run()?;
    }
    recorder.end(name().into(), kind, start, work(), Vec::new());
    Ok(())
}
