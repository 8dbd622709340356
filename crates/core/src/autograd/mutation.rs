//! A scope in which saved tensors may be overwritten: they are cloned just before.
//!
//! While the scope lives, saving keeps the tensor behind a handle, and every in-place write first looks for handles whose
//! elements it is about to change. Aliases are found by storage and element range, so saved views with an offset are
//! found too.

use super::saved_scopes::{SavedHooksGuard, saved_tensors_hooks};
use crate::state::{self, ModeGuard};
use crate::{Error, ErrorKind, Result, Tensor, ops};
use std::cell::RefCell;
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

    /// Keeps a copy in place of the original, unless somebody else has copied it meanwhile.
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

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// What [`allow_mutation_on_saved_tensors`] holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationCounts {
    /// Saved tensors that were cloned because they were about to be written.
    pub cloned: usize,
    /// Saved tensors that are still themselves.
    pub original: usize,
}

/// Ends the scope when dropped: what was saved in it can no longer be read.
#[must_use = "writes are allowed while the guard lives"]
pub struct MutationGuard {
    _hooks: SavedHooksGuard,
    _mode: ModeGuard,
}

impl MutationGuard {
    /// How many saved tensors the scope holds.
    pub fn counts(&self) -> MutationCounts {
        let all = |s: &Scope| s.handles.values().flatten().filter_map(|(h, _)| h.upgrade()).collect();
        let handles: Vec<Arc<Handle>> = SCOPE.with_borrow(|s| s.as_ref().map(all)).unwrap_or_default();
        let cloned = handles.iter().filter(|h| matches!(*h.lock(), Kept::Cloned(_))).count();
        MutationCounts { cloned, original: handles.len() - cloned }
    }

    /// Forgets everything that was saved: reading it is an error from now on.
    pub fn clear(&self) {
        SCOPE.with_borrow_mut(|s| {
            if let Some(s) = s {
                s.id = next_id();
                s.handles.clear();
            }
        })
    }
}

impl Drop for MutationGuard {
    fn drop(&mut self) {
        SCOPE.with_borrow_mut(|s| *s = None)
    }
}

fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Relaxed)
}

/// While the guard lives, tensors saved for backward may be written in place: the graph keeps their old values. Backward
/// must run inside the scope. Scopes do not nest.
pub fn allow_mutation_on_saved_tensors() -> Result<MutationGuard> {
    if SCOPE.with_borrow(Option::is_some) {
        return Err(ErrorKind::MutationCtxNested.into());
    }
    let hooks = saved_tensors_hooks(|t| Ok(keep(t)), |h: &Arc<Handle>| read(h))?;
    SCOPE.with_borrow_mut(|s| *s = Some(Scope { id: next_id(), handles: HashMap::new() }));
    Ok(MutationGuard { _hooks: hooks, _mode: ModeGuard::new(state::MUTATION_WATCH, 0) })
}

fn keep(t: &Tensor) -> Arc<Handle> {
    let (address, version) = (t.storage().addr(), t.version_counter());
    // The same tensor at the same version shares one handle.
    let same = handles_of(t).into_iter().filter(|(_, v)| *v == version).map(|(h, _)| h).find(|h| {
        matches!(&*h.lock(),
            Kept::Original(o) if o.layout().same_geometry(t.layout()) && o.storage_offset() == t.storage_offset())
    });
    if let Some(same) = same {
        return same;
    }
    let value = Mutex::new(Kept::Original(t.detach())); // an op that layers see
    SCOPE.with_borrow_mut(|s| {
        let Some(scope) = s else { return Arc::new(Handle { scope: 0, value }) };
        let h = Arc::new(Handle { scope: scope.id, value });
        let list = scope.handles.entry(address).or_default();
        list.retain(|(h, _)| h.strong_count() > 0);
        list.push((Arc::downgrade(&h), version));
        h
    })
}

/// What is saved of the memory of `t`, with the versions it had. No user code runs while the scope is borrowed, and nothing
/// is dropped.
fn handles_of(t: &Tensor) -> Vec<(Arc<Handle>, u32)> {
    let living = |list: &Vec<(Weak<Handle>, u32)>| list.iter().filter_map(|(h, v)| Some((h.upgrade()?, *v))).collect();
    let found = SCOPE.with_borrow(|s| s.as_ref().and_then(|s| s.handles.get(&t.storage().addr()).map(living)));
    found.unwrap_or_default()
}

fn read(h: &Arc<Handle>) -> Result<Tensor> {
    if SCOPE.with_borrow(|s| s.as_ref().map(|s| s.id)) != Some(h.scope) {
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
