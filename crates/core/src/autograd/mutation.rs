//! A scope in which saved tensors may be overwritten: they are cloned just before the write.
//!
//! While the scope lives, saving keeps the tensor behind a handle, and every in-place write first looks for handles whose
//! elements it is about to change. Aliases are found by storage and element range, so saved views with an offset are
//! found too.

use super::saved_scopes::{SavedHooksGuard, saved_tensors_hooks};
use crate::slot::{Slot, SlotGuard};
use crate::state::{self, ModeGuard};
use crate::{Error, ErrorKind, Result, Tensor, ops};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// One saved tensor at one version.
struct Handle {
    scope: u64,
    value: Mutex<Kept>,
}

enum Kept {
    Original(Tensor),
    Cloned(Tensor),
}

impl Handle {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.value.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Keeps a copy in place of the original, unless another thread has copied it meanwhile.
    fn keep_copy(&self, copy: Tensor) {
        let mut value = self.lock();
        if matches!(*value, Kept::Original(_)) {
            let original = std::mem::replace(&mut *value, Kept::Cloned(copy));
            drop(value);
            drop(original);
        }
    }
}

struct Scope {
    id: u64,
    /// By storage address; entries die with the graph that holds the handles.
    handles: HashMap<usize, Vec<(Weak<Handle>, u32)>>,
}

/// The scope that this code runs in; shared, so that what another thread saves or writes for it is seen here.
static SCOPE: Slot<Option<Arc<Mutex<Scope>>>> = Slot::new(|| None);

/// Access to the scope; `None` outside one. No user code runs meanwhile, and no user value is dropped.
fn scope<R>(f: impl FnOnce(&mut Scope) -> R) -> Option<R> {
    SCOPE.get().map(|s| f(&mut s.lock().unwrap_or_else(|e| e.into_inner())))
}

/// What [`allow_mutation_on_saved_tensors`] holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationCounts {
    /// Saved tensors that were cloned because they were about to be written.
    pub cloned: usize,
    /// Saved tensors that have not been cloned.
    pub original: usize,
}

/// Ends the scope when dropped: what was saved in it can no longer be read.
#[must_use = "writes are allowed while the guard lives"]
pub struct MutationGuard {
    _scope: SlotGuard<Option<Arc<Mutex<Scope>>>>,
    _hooks: SavedHooksGuard,
    _mode: ModeGuard,
}

impl MutationGuard {
    /// How many saved tensors the scope holds.
    pub fn counts(&self) -> MutationCounts {
        let all = |s: &mut Scope| s.handles.values().flatten().filter_map(|(h, _)| h.upgrade()).collect();
        let handles: Vec<Arc<Handle>> = scope(all).unwrap_or_default();
        let cloned = handles.iter().filter(|h| matches!(*h.lock(), Kept::Cloned(_))).count();
        MutationCounts { cloned, original: handles.len() - cloned }
    }

    /// Drops everything that was saved: reading it is an error from now on.
    pub fn clear(&self) {
        scope(|s| {
            s.id = next_id();
            s.handles.clear();
        });
    }
}

fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Relaxed)
}

/// While the guard lives, tensors saved for backward may be written in place: the graph keeps their old values. Backward
/// must run inside the scope. Scopes do not nest.
#[track_caller]
pub fn allow_mutation_on_saved_tensors() -> Result<MutationGuard> {
    crate::capture::leave("allow_mutation_on_saved_tensors")?;
    if SCOPE.get().is_some() {
        return Err(ErrorKind::MutationCtxNested.into());
    }
    let hooks = saved_tensors_hooks(|t| Ok(keep(t)), |h: &Arc<Handle>| read(h))?;
    let scope = Arc::new(Mutex::new(Scope { id: next_id(), handles: HashMap::new() }));
    let mode = ModeGuard::new(state::MUTATION_WATCH, 0);
    Ok(MutationGuard { _scope: SCOPE.enter(Some(scope)), _hooks: hooks, _mode: mode })
}

fn keep(t: &Tensor) -> Arc<Handle> {
    let (address, version) = (t.storage().addr(), t.version_counter());
    // The same tensor at the same version shares one handle.
    let same = handles_of(t).into_iter().filter(|(_, v)| *v == version).map(|(h, _)| h).find(|h| {
        matches!(&*h.lock(),
            Kept::Original(o) if o.layout().same_geometry(t.layout()) && o.layout().offset() == t.layout().offset())
    });
    if let Some(same) = same {
        return same;
    }
    let value = Mutex::new(Kept::Original(t.detach())); // an op that layers see
    let h = Arc::new(Handle { scope: scope(|s| s.id).unwrap_or(0), value });
    scope(|s| {
        let list = s.handles.entry(address).or_default();
        list.retain(|(h, _)| h.strong_count() > 0);
        list.push((Arc::downgrade(&h), version));
    });
    h
}

/// What is saved of the memory of `t`, with the versions it had. No user code runs while the scope is borrowed, and nothing
/// is dropped.
fn handles_of(t: &Tensor) -> Vec<(Arc<Handle>, u32)> {
    let living = |list: &Vec<(Weak<Handle>, u32)>| list.iter().filter_map(|(h, v)| Some((h.upgrade()?, *v))).collect();
    scope(|s| s.handles.get(&t.storage().addr()).map(living)).flatten().unwrap_or_default()
}

fn read(h: &Arc<Handle>) -> Result<Tensor> {
    if scope(|s| s.id) != Some(h.scope) {
        return Err(Error::from(ErrorKind::MutationCtxOutside));
    }
    Ok(match &*h.lock() {
        Kept::Original(t) | Kept::Cloned(t) => t.clone(),
    })
}

/// Clones what is saved of the elements that are about to be written.
#[cold]
pub(crate) fn before_write(target: &Tensor) -> Result<()> {
    for (h, _) in handles_of(target) {
        let original = match &*h.lock() {
            Kept::Original(t) => t.clone(),
            Kept::Cloned(_) => continue,
        };
        if ops::inplace::overlap(&original, target) == ops::inplace::Overlap::No {
            continue;
        }
        let copy = {
            let _plain = ModeGuard::new(0, state::GRAD | state::MUTATION_WATCH | state::SAVED_HOOKS | state::DUAL);
            ops::clone(&original, None)?
        };
        h.keep_copy(copy);
    }
    Ok(())
}
