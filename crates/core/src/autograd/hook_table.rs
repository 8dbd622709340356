//! A table of hooks: run without copying them, and modified at any time, even by the running hooks.
//!
//! Running holds the list for reading, which costs two atomic operations however many hooks there are. A change waits
//! in a queue and is applied as soon as no hook of the table runs, so a change made by a hook takes effect from the next time
//! and a hook that was removed is dropped then. Nothing ever waits to write, so a hook may run its own table again (a
//! backward inside a hook). Handles are weak: they never keep a tensor or node alive.

use crate::sync::{AtomicBool, Mutex, Ordering::*, RwLock};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, compiler_fence, fence};
use std::sync::{Arc, TryLockError, Weak};

type List<F> = SmallVec<[(u64, F); 1]>;

#[derive(Clone)]
enum Change<F> {
    Insert { id: u64, hook: F, first: bool },
    Remove { id: u64 },
}

impl<F> Change<F> {
    /// Returns what was removed, to be dropped by the caller outside all locks: it may own a tensor whose drop comes
    /// back here.
    fn apply(self, list: &mut List<F>) -> Option<F> {
        match self {
            Change::Insert { id, hook, first } => {
                let at = if first { 0 } else { list.len() };
                list.insert(at, (id, hook));
                None
            }
            Change::Remove { id } => list.iter().position(|(k, _)| *k == id).map(|at| list.remove(at).1),
        }
    }
}

struct Entries<F> {
    list: RwLock<List<F>>,
    waiting: Mutex<Vec<Change<F>>>,
    /// Whether `waiting` may hold something; tested without a lock.
    dirty: AtomicBool,
}

impl<F> Entries<F> {
    fn change(&self, change: Change<F>) {
        // Nearly always nothing runs and nothing waits: no need of the queue then.
        if let Ok(mut list) = self.list.try_write()
            && !self.dirty.load(SeqCst)
        {
            let removed = change.apply(&mut list);
            drop(list);
            drop(removed);
            // What came while the list was held waits for us.
            self.settle();
            return;
        }
        self.waiting.lock().unwrap_or_else(|e| e.into_inner()).push(change);
        self.dirty.store(true, SeqCst);
        // Pairs with the fence of `Settle`: either we find the list free, or its holder finds the flag.
        fence(SeqCst);
        self.settle();
    }

    /// Applies pending changes, unless hooks are running: then the last to finish does. Returns whether nothing is pending.
    fn settle(&self) -> bool {
        while self.dirty.load(SeqCst) {
            let mut list = match self.list.try_write() {
                Ok(list) => list,
                Err(TryLockError::Poisoned(e)) => e.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            let changes = {
                let mut waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner());
                self.dirty.store(false, SeqCst);
                std::mem::take(&mut *waiting)
            };
            let removed: SmallVec<[F; 1]> = changes.into_iter().filter_map(|c| c.apply(&mut list)).collect();
            drop(list);
            drop(removed);
        }
        true
    }

    /// A copy with all that waits applied.
    fn copy(&self) -> List<F>
    where
        F: Clone,
    {
        // The list is held while the queue is read: else what waits could move from one to the other unseen.
        let held = self.list.read().unwrap_or_else(|e| e.into_inner());
        let waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let mut list = held.clone();
        drop(held);
        waiting.into_iter().for_each(|c| drop(c.apply(&mut list)));
        list
    }
}

/// Applies changes that came while hooks ran, also after an error or panic.
struct Settle<'a, F>(&'a Entries<F>);

impl<F> Drop for Settle<'_, F> {
    #[inline]
    fn drop(&mut self) {
        after_unlock();
        if self.0.dirty.load(Acquire) {
            self.0.settle();
        }
    }
}

/// Orders giving the list back before reading the flag; see `Entries::change`. Giving a lock back is a locked instruction
/// on x86-64, which is a full barrier already: there only the compiler must be kept from moving the read up.
#[inline]
fn after_unlock() {
    if cfg!(target_arch = "x86_64") { compiler_fence(SeqCst) } else { fence(SeqCst) }
}

/// Hooks in order.
pub(crate) struct HookTable<F>(Arc<Entries<F>>);

impl<F> Default for HookTable<F> {
    fn default() -> Self {
        let (list, waiting) = (RwLock::new(List::new()), Mutex::new(Vec::new()));
        HookTable(Arc::new(Entries { list, waiting, dirty: AtomicBool::new(false) }))
    }
}

impl<F: Clone + Send + Sync + 'static> HookTable<F> {
    /// Appends a hook.
    pub(crate) fn add(&self, hook: F) -> RemovableHandle {
        self.insert(hook, false)
    }

    /// Appends a hook, or inserts it in front of all others.
    pub(crate) fn insert(&self, hook: F, first: bool) -> RemovableHandle {
        let id = next_id();
        let tracer = crate::capture::tracer().map(|t| (t, hook.clone()));
        self.0.change(Change::Insert { id, hook, first });
        let table: Weak<dyn Removable> = Arc::downgrade(&self.0) as _;
        let handle = RemovableHandle { id, table };
        if let Some((tracer, hook)) = tracer {
            let table = HookTable(self.0.clone());
            tracer.registered(&handle, Arc::new(move || table.insert(hook.clone(), first)));
        }
        handle
    }

    /// Calls `run` with the current hooks, in order, until one fails.
    #[inline]
    pub(crate) fn try_for_each<E>(&self, mut run: impl FnMut(&F) -> Result<(), E>) -> Result<(), E> {
        let entries = &*self.0;
        if entries.dirty.load(Acquire) && !entries.settle() {
            // Another thread is running the hooks, so the changes cannot be applied to the list itself.
            return entries.copy().iter().try_for_each(|(_, hook)| run(hook));
        }
        let _settle = Settle(entries);
        let list = entries.list.read().unwrap_or_else(|e| e.into_inner());
        list.iter().try_for_each(|(_, hook)| run(hook))
    }

    /// A copy of the current hooks.
    pub(crate) fn snapshot(&self) -> SmallVec<[F; 2]> {
        self.0.settle();
        self.0.copy().into_iter().map(|(_, hook)| hook).collect()
    }

    /// The ids of the current hooks.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.0.settle();
        self.0.copy().into_iter().map(|(id, _)| id).collect()
    }

    /// The current number of hooks.
    pub(crate) fn len(&self) -> usize {
        self.0.settle();
        self.0.list.read().unwrap_or_else(|e| e.into_inner()).len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.snapshot().is_empty()
    }
}

/// The owner of hooks that a [`RemovableHandle`] removes.
pub trait Removable: Send + Sync {
    /// Removes the hook with this id, if it is registered.
    fn remove(&self, id: u64);
    /// Whether it is registered.
    fn contains(&self, id: u64) -> bool;
}

// Not modelled: which number a hook gets decides nothing.
static IDS: AtomicU64 = AtomicU64::new(1);

/// The number of the next handle.
fn next_id() -> u64 {
    IDS.fetch_add(1, Relaxed)
}

/// A number that grows with every change of any table.
pub(crate) fn changes() -> u64 {
    IDS.load(Relaxed)
}

/// Something like a hook was registered or removed elsewhere.
pub(crate) fn note_change() {
    next_id();
}

impl<F: Clone + Send + Sync + 'static> Removable for Entries<F> {
    fn remove(&self, id: u64) {
        self.change(Change::Remove { id });
        note_change();
    }
    fn contains(&self, id: u64) -> bool {
        self.copy().iter().any(|(k, _)| *k == id)
    }
}

/// Removes a hook. Dropping the handle leaves the hook in place; [`RemovableHandle::scoped`] gives one that does not.
#[derive(Clone)]
pub struct RemovableHandle {
    id: u64,
    table: Weak<dyn Removable>,
}

impl RemovableHandle {
    /// A handle with its own id to something that is not one of the engine's tables. Owners of hooks are marked
    /// by their type; a plain map is not one (J-55).
    pub fn new<R: Removable + 'static>(owner: &Arc<R>) -> RemovableHandle {
        let table: Weak<dyn Removable> = Arc::downgrade(owner) as _;
        RemovableHandle { id: next_id(), table }
    }

    /// Unique and increasing over the process.
    #[track_caller]
    pub fn id(&self) -> u64 {
        match crate::capture::tracer() {
            Some(tracer) => tracer.handle_id(self, std::panic::Location::caller()),
            None => crate::capture::handle_here(self.id).map_or(self.id, |handle| handle.id),
        }
    }

    /// The id of this handle object; what [`RemovableHandle::id`] returns outside a capture.
    pub fn key(&self) -> u64 {
        self.id
    }

    /// Removes the hook and drops what it captured (once it has returned, if it is running); does nothing if it or
    /// its owner is gone.
    #[track_caller]
    pub fn remove(&self) {
        if let Some(tracer) = crate::capture::tracer()
            && !tracer.owns(self)
        {
            // Which hook that is differs from call to call.
            crate::error::expect_ok(crate::capture::leave("remove"));
        }
        if let Some(handle) = crate::capture::handle_here(self.id) {
            return handle.remove();
        }
        if let Some(t) = self.table.upgrade() {
            t.remove(self.id)
        }
    }

    /// Whether it was created for this owner.
    pub fn belongs_to<R: Removable + 'static>(&self, owner: &Arc<R>) -> bool {
        std::ptr::addr_eq(self.table.as_ptr(), Arc::as_ptr(owner))
    }

    /// Whether the hook is still registered.
    pub fn is_registered(&self) -> bool {
        if let Some(handle) = crate::capture::handle_here(self.id) {
            return handle.is_registered();
        }
        self.table.upgrade().is_some_and(|t| t.contains(self.id))
    }

    /// A guard that removes the hook when it goes out of scope.
    pub fn scoped(self) -> HookGuard {
        HookGuard(self)
    }
}

/// Removes its hook when dropped.
#[derive(Debug)]
#[must_use = "the hook lasts while the guard lives"]
pub struct HookGuard(RemovableHandle);

impl Drop for HookGuard {
    fn drop(&mut self) {
        self.0.remove()
    }
}
