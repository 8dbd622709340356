//! Marks: hints from the caller about the sizes of a tensor before a function is compiled for it.

use firebrand_core::{Tensor, WeakTensor, capture};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

/// The mark of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Varies; an error if it cannot.
    Dynamic,
    /// Varies if it can.
    MaybeDynamic,
    /// Never becomes a symbol.
    Static,
}

type Marks = HashMap<usize, (WeakTensor, Vec<(usize, Mark)>)>;

static MARKS: LazyLock<Mutex<Marks>> = LazyLock::new(Mutex::default);
/// Whether there ever was a mark.
static IN_USE: AtomicBool = AtomicBool::new(false);

#[track_caller]
fn mark(t: &Tensor, dim: usize, mark: Mark) {
    if let Err(e) = capture::leave("a mark of a size") {
        e.raise();
    }
    let t = &capture::real(t);
    assert!(dim < t.ndim(), "a tensor of {} dimensions has no dimension {dim} to mark", t.ndim());
    IN_USE.store(true, Relaxed);
    let mut marks = MARKS.lock().unwrap_or_else(|e| e.into_inner());
    marks.retain(|_, (weak, _)| weak.upgrade().is_some());
    let (_, dims) = marks.entry(t.id()).or_insert_with(|| (t.downgrade(), Vec::new()));
    dims.retain(|(d, _)| *d != dim);
    dims.push((dim, mark));
}

/// Marks dimension `dim` as dynamic: functions are compiled for any size of it from the start. If a function does not work for every size, its
/// compilation is an error that says why.
///
/// # Panics
/// If there is no such dimension.
#[track_caller]
pub fn mark_dynamic(t: &Tensor, dim: usize) {
    mark(t, dim, Mark::Dynamic)
}

/// Like [`mark_dynamic`], but a function that works for one size only is compiled for that size.
///
/// # Panics
/// If there is no such dimension.
#[track_caller]
pub fn maybe_mark_dynamic(t: &Tensor, dim: usize) {
    mark(t, dim, Mark::MaybeDynamic)
}

/// Marks dimension `dim` as static: every size gets its own graph.
///
/// # Panics
/// If there is no such dimension.
#[track_caller]
pub fn mark_static(t: &Tensor, dim: usize) {
    mark(t, dim, Mark::Static)
}

/// The marks of the dimensions of a tensor.
pub(crate) fn of(t: &Tensor) -> Vec<(usize, Mark)> {
    if !IN_USE.load(Relaxed) {
        return Vec::new();
    }
    let marks = MARKS.lock().unwrap_or_else(|e| e.into_inner());
    let found = marks.get(&t.id()).filter(|(weak, _)| weak.upgrade().is_some_and(|w| w.is_same(t)));
    found.map_or(Vec::new(), |(_, dims)| dims.clone())
}
