//! Allocation of small objects: the descriptions of tensors and nodes.
//!
//! An eager op makes two or three objects of 100 to 300 bytes and frees as many a moment or a whole backward pass later.
//! The system's allocator caches only a handful of each size; past that, allocating and freeing one costs more than
//! the arithmetic of a small op. Here each thread keeps a list per size (steps of 32 bytes, up to 512), so taking is a
//! load and a store. Objects may be freed by another thread than made them. A list holds at most [`KEEP`] objects and
//! a thread that ends gives its lists back.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

const STEP: usize = 32;
const CLASSES: usize = 16;
const ALIGN: usize = 16;
/// Objects kept per thread and size: at most 2 MiB of the largest.
const KEEP: u32 = if cfg!(miri) { 64 } else { 4096 };
/// The length of a list that takes nothing more, because its thread ends.
const CLOSED: u32 = u32::MAX;

/// A free object: its first word leads to the next.
struct Free {
    next: *mut Free,
}

struct List {
    head: Cell<*mut Free>,
    len: Cell<u32>,
}

thread_local! {
    // Const-initialized and without a destructor: access is one segment-relative load, and it works at thread exit.
    static LISTS: [List; CLASSES] = const { [const { List { head: Cell::new(null_mut()), len: Cell::new(0) } }; CLASSES] };
    static AT_EXIT: GiveBack = const { GiveBack };
}

/// Its destructor runs when the thread ends.
struct GiveBack;
impl Drop for GiveBack {
    fn drop(&mut self) {
        LISTS.with(|lists| {
            for (class, list) in lists.iter().enumerate() {
                list.len.set(CLOSED);
                let mut p = list.head.replace(null_mut());
                while !p.is_null() {
                    // SAFETY: a free object of this class, whose first word is valid.
                    unsafe {
                        let next = (*p).next;
                        dealloc(p.cast(), class_layout(class));
                        p = next;
                    }
                }
            }
        });
    }
}

const fn class_layout(class: usize) -> Layout {
    match Layout::from_size_align((class + 1) * STEP, ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("small sizes fit"),
    }
}

/// The list an object of this layout belongs to; none if the system's allocator serves it.
#[inline(always)]
const fn class_of(layout: Layout) -> Option<usize> {
    let n = layout.size();
    if n == 0 || n > CLASSES * STEP || layout.align() > ALIGN { None } else { Some((n - 1) / STEP) }
}

/// Uninitialised memory for one object of `layout`, which is not of size zero.
#[inline]
pub(crate) fn take(layout: Layout) -> NonNull<u8> {
    let Some(class) = class_of(layout) else { return system(layout) };
    LISTS.with(|lists| {
        let list = &lists[class];
        let p = list.head.get();
        if p.is_null() {
            return system(class_layout(class));
        }
        // SAFETY: an object in the list is unused and its first word is valid.
        list.head.set(unsafe { (*p).next });
        list.len.set(list.len.get() - 1);
        // SAFETY: just tested.
        unsafe { NonNull::new_unchecked(p.cast()) }
    })
}

#[cold]
fn system(layout: Layout) -> NonNull<u8> {
    // SAFETY: the size is not zero.
    let ask = || NonNull::new(unsafe { alloc(layout) });
    // What storages keep for reuse may be what is missing.
    ask().or_else(|| (crate::empty_cache(), ask()).1).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Takes an object's memory back.
///
/// # Safety
/// `p` came from [`take`] with the same layout, on any thread, and nothing uses it any more.
#[inline]
pub(crate) unsafe fn give(p: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's promise.
    let Some(class) = class_of(layout) else { return unsafe { dealloc(p.as_ptr(), layout) } };
    LISTS.with(|lists| {
        let list = &lists[class];
        let len = list.len.get();
        if len == 0 {
            AT_EXIT.try_with(|_| ()).ok(); // registers the destructor on first use
        }
        if len >= KEEP {
            // SAFETY: it was made with the layout of its class.
            return unsafe { dealloc(p.as_ptr(), class_layout(class)) };
        }
        let free = p.as_ptr().cast::<Free>();
        // SAFETY: the memory is unused, aligned for a pointer and large enough for one.
        unsafe { free.write(Free { next: list.head.get() }) };
        list.head.set(free);
        list.len.set(len + 1);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Moved(NonNull<u8>);
    // SAFETY: unused memory, which belongs to the holder of the pointer.
    unsafe impl Send for Moved {}

    /// What is given back is handed out again, also after more objects than a list keeps, and on another thread.
    #[test]
    fn reuses() {
        let layout = Layout::new::<[u64; 20]>();
        let all: Vec<_> = (0..KEEP as usize + 10).map(|_| take(layout)).collect();
        let addresses: std::collections::HashSet<_> = all.iter().map(|p| p.as_ptr().addr()).collect();
        assert_eq!(addresses.len(), all.len());
        for p in all {
            // SAFETY: taken above with this layout.
            unsafe { give(p, layout) }
        }
        let again = take(layout);
        assert!(addresses.contains(&again.as_ptr().addr()));
        let address = again.as_ptr().addr();
        let again = Moved(again);
        std::thread::spawn(move || {
            let again = again;
            // SAFETY: taken above with this layout, and moved here.
            unsafe { give(again.0, layout) }
            assert_eq!(take(layout).as_ptr().addr(), address);
        })
        .join()
        .expect("the thread ends well");
    }
}
