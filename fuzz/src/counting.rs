//! Counts what the program allocates, so that a target can assert what a reader may take.
//!
//! The only unsafe code outside `kernels` and `capi`: an allocator cannot be written without. It hands every call to the
//! system's allocator unchanged and counts on the way.
#![allow(unsafe_code)]

use firebrand_io::FACTOR;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What readers may spend here beyond [`FACTOR`] times the input: less than users get, so that short inputs show it.
pub(crate) const SPARE: u64 = 1 << 20;
/// What no budget counts: state of decompressors, buffers, a message.
const OVERHEAD: u64 = 256 << 10;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn grown(by: usize) {
    let now = NOW.fetch_add(by, Relaxed) + by;
    if now > PEAK.load(Relaxed) {
        PEAK.fetch_max(now, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while the content moves.
        grown(size);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads an input of so many bytes, and fails if that took more memory than the input justifies.
#[track_caller]
pub(crate) fn measured<T>(bytes: usize, read: impl FnOnce() -> T) -> T {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = read();
    let (took, limit) = ((PEAK.load(Relaxed) - before) as u64, FACTOR * bytes as u64 + SPARE + OVERHEAD);
    assert!(took <= limit, "{took} bytes of memory were taken for an input of {bytes}, at most {limit} are allowed");
    result
}
