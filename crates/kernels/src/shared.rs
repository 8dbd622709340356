//! A reference-counted pointer with one difference from std's `Arc`: the sole owner drops it without an atomic read-modify-write.
//!
//! Both counts share one word, so a single load can tell "one owner, no weak handle": then nothing else can make
//! another, and plain code may free it. std keeps two words and must subtract from each. A read-modify-write costs
//! about 8 ns and most tensors and nodes die with one owner, so this is worth a fifth of an eager op.
//! The memory comes from the thread's lists of small objects. What it leaves out: unsizing and `make_mut`.
#![allow(unsafe_code)]

use crate::small;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, drop_in_place};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Owners in the low half; weak handles, plus one for all owners together, in the high half.
const WEAK: u64 = 1 << 32;
const SOLE: u64 = WEAK + 1;

/// Ends the process if a count of handles, as it was before one was added, is about to run over: they were leaked by the
/// billion, and the next step would free what is in use. As std does.
#[inline]
fn check(count: u64) {
    if count as u32 > i32::MAX as u32 {
        std::process::abort()
    }
}

/// A value with its counts.
struct Cell<T> {
    counts: AtomicU64,
    value: T,
}

/// A shared owner of a `T`.
pub struct Arc<T>(NonNull<Cell<T>>, PhantomData<Cell<T>>);

/// A handle that does not keep its target alive.
pub struct Weak<T>(NonNull<Cell<T>>);

// SAFETY: the counts are atomic and the value is only shared, as in std.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Arc<T> {
    /// A new value with one owner.
    #[inline]
    pub fn new(value: T) -> Arc<T> {
        Arc::make(|| value)
    }

    /// Like [`Arc::new`], of a value that is built where it stays. A value built first is written to the stack word by word and
    /// copied at once by wide loads, which wait for all of these stores: a tenth of an eager op. If `value` panics, the
    /// memory is not used again.
    #[inline(always)]
    pub fn make(value: impl FnOnce() -> T) -> Arc<T> {
        let p = small::take(Layout::new::<Cell<T>>()).cast::<Cell<T>>();
        // SAFETY: fresh memory of this layout, whose two parts are written one by one.
        unsafe {
            (&raw mut (*p.as_ptr()).counts).write(AtomicU64::new(SOLE));
            (&raw mut (*p.as_ptr()).value).write(value());
        }
        Arc(p, PhantomData)
    }

    #[inline]
    fn counts(&self) -> &AtomicU64 {
        // SAFETY: alive while a handle exists.
        unsafe { &self.0.as_ref().counts }
    }

    /// How many owners there are.
    #[inline]
    pub fn strong_count(this: &Self) -> usize {
        this.counts().load(Acquire) as u32 as usize
    }

    /// Exclusive access, if this is the only handle of any kind.
    #[inline]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        if this.counts().load(Acquire) != SOLE {
            return None;
        }
        // SAFETY: one owner and no weak handle, borrowed exclusively.
        Some(unsafe { &mut this.0.as_mut().value })
    }

    /// A handle that does not keep the value alive.
    pub fn downgrade(this: &Self) -> Weak<T> {
        check(this.counts().fetch_add(WEAK, Relaxed) >> 32);
        Weak(this.0)
    }

    /// Whether both own the same value.
    #[inline]
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        std::ptr::addr_eq(a.0.as_ptr(), b.0.as_ptr())
    }

    /// An address that identifies the value while it lives.
    #[inline]
    pub fn addr(this: &Self) -> usize {
        this.0.as_ptr().cast::<u8>() as usize
    }
}

impl<T> Weak<T> {
    /// The value, if some owner is left.
    pub fn upgrade(&self) -> Option<Arc<T>> {
        // SAFETY: the cell outlives its weak handles.
        let counts = unsafe { &self.0.as_ref().counts };
        check(counts.fetch_update(Acquire, Relaxed, |c| (c as u32 != 0).then_some(c + 1)).ok()?);
        Some(Arc(self.0, PhantomData))
    }

    /// How many owners are left.
    pub fn strong_count(&self) -> usize {
        // SAFETY: the cell outlives its weak handles.
        unsafe { &self.0.as_ref().counts }.load(Acquire) as u32 as usize
    }

    /// Whether both point to the same value.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        std::ptr::addr_eq(a.0.as_ptr(), b.0.as_ptr())
    }
}

impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        // SAFETY: the cell outlives its weak handles.
        check(unsafe { &self.0.as_ref().counts }.fetch_add(WEAK, Relaxed) >> 32);
        Weak(self.0)
    }
}

impl<T> std::ops::Deref for Arc<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive while a handle exists.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> Clone for Arc<T> {
    #[inline]
    fn clone(&self) -> Self {
        check(self.counts().fetch_add(1, Relaxed));
        Arc(self.0, PhantomData)
    }
}

impl<T> Drop for Arc<T> {
    #[inline]
    fn drop(&mut self) {
        if self.counts().load(Acquire) == SOLE {
            // SAFETY: nothing else has or can get a handle.
            return unsafe {
                drop_in_place(&raw mut (*self.0.as_ptr()).value);
                small::give(self.0.cast(), Layout::new::<Cell<T>>());
            };
        }
        if self.counts().fetch_sub(1, Release) as u32 == 1 {
            last(self.0)
        }
    }
}

/// The last owner while weak handles exist (or a race among owners): drop the value, then one weak for all owners.
#[cold]
fn last<T>(p: NonNull<Cell<T>>) {
    // SAFETY: the owners' weak handle still holds the cell. A load that acquires what other owners released; a fence would
    // do, but ThreadSanitizer does not know fences.
    let _ = unsafe { p.as_ref() }.counts.load(Acquire);
    // SAFETY: no owner is left, so the value is ours to drop; the owners' weak handle still holds the memory.
    unsafe { drop_in_place(&raw mut (*p.as_ptr()).value) };
    drop(Weak(p));
}

impl<T> Drop for Weak<T> {
    fn drop(&mut self) {
        // SAFETY: the cell outlives its weak handles.
        let counts = unsafe { &self.0.as_ref().counts };
        if counts.fetch_sub(WEAK, Release) >> 32 == 1 {
            let _ = counts.load(Acquire);
            // SAFETY: last handle of any kind; the value was dropped before.
            unsafe { small::give(self.0.cast(), Layout::new::<Cell<T>>()) }
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_goes_with_its_last_owner_and_the_memory_with_the_last_handle() {
        let dropped = std::sync::atomic::AtomicUsize::new(0);
        struct Counts<'a>(&'a std::sync::atomic::AtomicUsize);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let a = Arc::new(Counts(&dropped));
        let weak = Arc::downgrade(&a);
        let b = weak.upgrade().expect("an owner is left");
        drop(a);
        assert_eq!((dropped.load(Relaxed), Arc::strong_count(&b)), (0, 1));
        let second = weak.clone();
        drop(b);
        assert!(dropped.load(Relaxed) == 1 && weak.upgrade().is_none() && second.upgrade().is_none());
    }

    #[test]
    fn owners_on_many_threads() {
        let all = Arc::new(std::sync::Mutex::new(0));
        std::thread::scope(|s| {
            for _ in 0..4 {
                let (mine, weak) = (all.clone(), Arc::downgrade(&all));
                s.spawn(move || {
                    for _ in 0..20 {
                        *weak.upgrade().expect("this thread owns one").lock().expect("not poisoned") += 1;
                        let _ = mine.clone();
                    }
                });
            }
        });
        assert_eq!((*all.lock().expect("not poisoned"), Arc::strong_count(&all)), (80, 1));
    }

    /// Counts one step before they run over end the process: asked of a child, by an environment variable.
    #[cfg(not(miri))]
    #[test]
    fn leaked_handles_end_the_process() {
        const WHICH: &str = "FIREBRAND_TEST_LEAKED_HANDLES";
        if let Ok(which) = std::env::var(WHICH) {
            let a = Arc::new(0u8);
            let (owners, weak) = (i32::MAX as u64 + 1, (i32::MAX as u64 + 1) << 32);
            let w = Arc::downgrade(&a);
            a.counts().fetch_add(if which == "owners" || which == "upgrade" { owners } else { weak }, Relaxed);
            match &*which {
                "owners" => std::mem::forget(a.clone()),
                "upgrade" => std::mem::forget(w.upgrade()),
                "downgrade" => std::mem::forget(Arc::downgrade(&a)),
                _ => std::mem::forget(w.clone()),
            }
            std::process::exit(0)
        }
        let name = std::thread::current().name().expect("tests have names").to_string();
        // `FIREBRAND_TEST_RUNNER`: the emulator under which this program runs, if it does.
        let runner = std::env::var("FIREBRAND_TEST_RUNNER").unwrap_or_default();
        let program = std::env::current_exe().expect("this program").display().to_string();
        let mut words = runner.split_whitespace().chain([&*program]);
        let first = words.next().expect("a program at least");
        let rest: Vec<&str> = words.collect();
        for which in ["owners", "upgrade", "downgrade", "weak"] {
            let mut child = std::process::Command::new(first);
            let out = child.args(&rest).args([&*name, "--exact"]).env(WHICH, which).output().expect("the child runs");
            assert!(!out.status.success() && out.status.code().is_none(), "{which}: {:?}", out.status);
        }
    }
}
