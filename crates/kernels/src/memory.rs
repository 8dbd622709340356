//! Storage: counted bytes with a version counter, from a caching allocator.
//!
//! Guarantees: 64-byte aligned; never uninitialised (a fresh block is zeroed, a reused one holds old numbers); a freed
//! block keeps its pages, because fresh pages cost more than the arithmetic on them. Small blocks live in thread-local
//! intrusive lists (an allocation is a load and a store), large ones in one list all threads share.
//! A thread that ends hands its blocks to the shared list. [`memory_stats`] counts live, peak and cached bytes.
//!
//! Concurrency contract, as in PyTorch: a storage may be read from many threads at once, but the caller orders
//! writes against reads. Kernels touch the bytes through raw pointers only; racing them gives unspecified numbers.
#![allow(unsafe_code)]

use crate::{DType, View, ViewMut};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::*, fence};

#[repr(C, align(64))]
struct Block {
    refs: AtomicUsize,
    version: AtomicU32,
    class: u32,
    nbytes: usize,
    data: *mut u8,
    next: Cell<*mut Block>,
    /// What keeps `data` alive when it does not lie behind this header (a mapped file).
    owner: Option<Box<dyn Any + Send + Sync>>,
}

const HEADER: usize = size_of::<Block>();
/// Classes are powers of two in quarters from 64 bytes, so at most a quarter is wasted.
const CLASSES: usize = 4 * 42;
/// Classes below this one (1 MiB) are cached per thread.
const SMALL: usize = class_of(1 << 20) as usize;
/// A block whose data lies elsewhere or nowhere.
const FOREIGN: u32 = u32::MAX;

const fn class_of(bytes: usize) -> u32 {
    let n = if bytes < 64 { 64 } else { bytes };
    let p = (n - 1).ilog2() + 1; // n <= 2^p
    if p <= 6 {
        return 0;
    }
    let half = 1usize << (p - 1); // half < n <= 2 half
    let quarter = half / 4;
    let k = (n - half).div_ceil(quarter) as u32; // 1..=4
    (p - 7) * 4 + k
}

const fn class_bytes(class: u32) -> usize {
    if class == 0 {
        return 64;
    }
    let (p, k) = ((class - 1) / 4 + 7, (class - 1) % 4 + 1);
    let half = 1usize << (p - 1);
    half + half / 4 * k as usize
}

thread_local! {
    // Const-initialised and without a destructor: access is one segment-relative load, and it works at thread exit.
    static FREE: [Cell<*mut Block>; SMALL] = const { [const { Cell::new(null_mut()) }; SMALL] };
    /// Bytes taken minus bytes given back on this thread since the last flush to `LIVE`.
    static DELTA: Cell<i64> = const { Cell::new(0) };
    static CACHED: Cell<i64> = const { Cell::new(0) };
    static HAND_OVER: HandOver = const { HandOver };
}

static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
static SHARED_CACHED: AtomicI64 = AtomicI64::new(0);

/// Free blocks any thread may take: all large ones, and what dead threads left.
struct SharedList([*mut Block; CLASSES]);
// SAFETY: the blocks in the list belong to nobody; the mutex around it orders access.
unsafe impl Send for SharedList {}
static SHARED: Mutex<SharedList> = Mutex::new(SharedList([null_mut(); CLASSES]));

fn shared() -> std::sync::MutexGuard<'static, SharedList> {
    SHARED.lock().unwrap_or_else(|e| e.into_inner())
}

/// Its destructor runs when the thread ends.
struct HandOver;
impl Drop for HandOver {
    fn drop(&mut self) {
        empty_thread_cache();
        flush_counts();
    }
}

/// Moves this thread's free blocks to the shared list.
fn empty_thread_cache() {
    let mut list = shared();
    FREE.with(|free| {
        for (class, slot) in free.iter().enumerate() {
            let mut p = slot.replace(null_mut());
            while !p.is_null() {
                // SAFETY: blocks in the list are unused and their `next` is valid.
                unsafe {
                    let next = (*p).next.replace(list.0[class]);
                    list.0[class] = p;
                    p = next;
                }
            }
        }
    });
    SHARED_CACHED.fetch_add(CACHED.replace(0), Relaxed);
}

fn flush_counts() {
    let live = LIVE.fetch_add(DELTA.replace(0), Relaxed);
    PEAK.fetch_max(live.max(LIVE.load(Relaxed)), Relaxed);
}

#[inline]
fn count(bytes: i64) {
    let d = DELTA.get() + bytes;
    DELTA.set(d);
    if d.unsigned_abs() > 1 << 16 {
        flush_counts()
    }
}

/// Bytes held by storages, now and at most, and bytes kept for reuse. Storages are counted by the bytes they were asked for,
/// as PyTorch's profiler counts them; the blocks behind them, which `cached` counts, are up to a quarter larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in storages that someone owns.
    pub live: usize,
    /// The largest `live` since the start or the last [`reset_peak_memory`].
    pub peak: usize,
    /// Free bytes kept by the shared list and by this thread.
    pub cached: usize,
}

/// Memory in use. Other threads report their small blocks in steps of 64 KiB, so `live` and `peak` are exact to that.
pub fn memory_stats() -> MemoryStats {
    flush_counts();
    let of = |v: i64| usize::try_from(v).unwrap_or(0);
    MemoryStats {
        live: of(LIVE.load(Relaxed)),
        peak: of(PEAK.load(Relaxed)),
        cached: of(SHARED_CACHED.load(Relaxed) + CACHED.get()),
    }
}

/// Starts a new measurement of the peak.
pub fn reset_peak_memory() {
    flush_counts();
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// Gives cached memory back to the system: the shared list and this thread's.
pub fn empty_cache() {
    empty_thread_cache();
    let mut list = shared();
    let mut freed = 0;
    for (class, slot) in list.0.iter_mut().enumerate() {
        let mut p = std::mem::replace(slot, null_mut());
        while !p.is_null() {
            // SAFETY: a free block from `fresh` with this layout; its owner field is None.
            unsafe {
                let next = (*p).next.get();
                dealloc(p.cast(), layout_of(class as u32));
                p = next;
            }
            freed += class_bytes(class as u32) as i64;
        }
    }
    SHARED_CACHED.fetch_sub(freed, Relaxed);
}

fn layout_of(class: u32) -> Layout {
    Layout::from_size_align(HEADER + class_bytes(class), 64).expect("classes fit the address space")
}

/// Shared bytes with a version counter. Cloning shares.
pub struct Storage(NonNull<Block>);

// SAFETY: count and version are atomic; the data is reached through raw pointers under the contract at the head.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

/// A row-major run of elements in a storage.
#[derive(Clone, Copy)]
pub struct Flat<'a> {
    /// Where they lie.
    pub storage: &'a Storage,
    /// The first element.
    pub offset: usize,
    /// How many.
    pub len: usize,
}

impl Flat<'_> {
    /// The address of the first element, from which `len` elements of `dtype` lie inside the storage.
    ///
    /// # Panics
    /// If they do not.
    #[inline]
    pub(crate) fn elements(&self, dtype: DType) -> *mut u8 {
        let size = dtype.size();
        assert!((self.offset + self.len) * size <= self.storage.nbytes(), "elements outside their storage");
        // SAFETY: inside the block, by the check.
        unsafe { self.storage.data().add(self.offset * size) }
    }
}

/// More memory was asked for than the address space or the system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: usize,
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot allocate {} bytes", self.bytes)
    }
}
impl std::error::Error for OutOfMemory {}

impl Storage {
    /// `nbytes` bytes of unspecified (never uninitialised) content.
    #[inline]
    pub fn new(nbytes: usize) -> Result<Storage, OutOfMemory> {
        if nbytes > 1 << 46 {
            return Err(OutOfMemory { bytes: nbytes });
        }
        let class = class_of(nbytes);
        count(nbytes as i64);
        let mut p = null_mut();
        if (class as usize) < SMALL {
            p = FREE.with(|f| {
                let p = f[class as usize].get();
                if !p.is_null() {
                    // SAFETY: a block in the list is unused and its `next` is valid.
                    f[class as usize].set(unsafe { (*p).next.get() });
                    CACHED.set(CACHED.get() - class_bytes(class) as i64);
                }
                p
            });
        }
        if p.is_null() {
            p = fresh(class).ok_or_else(|| {
                count(-(nbytes as i64));
                OutOfMemory { bytes: nbytes }
            })?;
        }
        // SAFETY: the block is ours alone and its data area holds at least `nbytes` initialised bytes.
        unsafe {
            let data = p.cast::<u8>().add(HEADER);
            p.write(Block {
                refs: AtomicUsize::new(1),
                version: AtomicU32::new(0),
                class,
                nbytes,
                data,
                next: Cell::new(null_mut()),
                owner: None,
            });
            Ok(Storage(NonNull::new_unchecked(p)))
        }
    }

    /// `nbytes` zero bytes.
    pub fn zeroed(nbytes: usize) -> Result<Storage, OutOfMemory> {
        let s = Storage::new(nbytes)?;
        // SAFETY: the block is ours alone and holds `nbytes`.
        unsafe { s.data().write_bytes(0, nbytes) };
        Ok(s)
    }

    /// A copy of the bytes.
    pub fn duplicate(&self) -> Result<Storage, OutOfMemory> {
        if self.block().class == FOREIGN && self.owner().is_none() {
            return Ok(Storage::meta(self.nbytes()));
        }
        let s = Storage::new(self.nbytes())?;
        // SAFETY: both hold `nbytes`, and the new block is ours alone.
        unsafe { s.data().copy_from_nonoverlapping(self.data(), self.nbytes()) };
        Ok(s)
    }

    /// A storage with a copy of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Storage, OutOfMemory> {
        let s = Storage::new(bytes.len())?;
        // SAFETY: the new block is ours alone and holds as many bytes.
        unsafe { s.data().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(s)
    }

    /// What keeps foreign memory alive.
    pub(crate) fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.block().owner.as_deref()
    }

    /// A storage that claims `nbytes` but has none: identity and version of a tensor on the meta device.
    pub fn meta(nbytes: usize) -> Storage {
        Storage::foreign(64 as *mut u8, nbytes, None)
    }

    /// Memory that someone else owns, such as a mapped file.
    ///
    /// # Safety
    /// `data` is valid for reads and writes of `nbytes` bytes, and 64-byte alignment is not assumed, while `owner` lives.
    pub unsafe fn from_raw(data: *mut u8, nbytes: usize, owner: Box<dyn Any + Send + Sync>) -> Storage {
        Storage::foreign(data, nbytes, Some(owner))
    }

    fn foreign(data: *mut u8, nbytes: usize, owner: Option<Box<dyn Any + Send + Sync>>) -> Storage {
        let block = Block {
            refs: AtomicUsize::new(1),
            version: AtomicU32::new(0),
            class: FOREIGN,
            nbytes,
            data,
            next: Cell::new(null_mut()),
            owner,
        };
        Storage(NonNull::from(Box::leak(Box::new(block))))
    }

    #[inline]
    fn block(&self) -> &Block {
        // SAFETY: alive while a handle exists.
        unsafe { self.0.as_ref() }
    }

    /// Size in bytes.
    #[inline]
    pub fn nbytes(&self) -> usize {
        self.block().nbytes
    }

    #[inline]
    fn data(&self) -> *mut u8 {
        self.block().data
    }

    /// How often the memory was written in place.
    #[inline]
    pub fn version(&self) -> u32 {
        self.block().version.load(Relaxed)
    }

    /// Counts a write.
    #[inline]
    pub fn bump_version(&self) {
        self.block().version.fetch_add(1, Relaxed);
    }

    /// Puts the counter back, for scopes that hide their writes.
    pub fn set_version(&self, v: u32) {
        self.block().version.store(v, Relaxed)
    }

    /// Whether this is the only handle to the memory.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.block().refs.load(Acquire) == 1
    }

    /// Whether both handles own the same memory.
    #[inline]
    pub fn ptr_eq(&self, other: &Storage) -> bool {
        self.0 == other.0
    }

    /// An address that identifies the memory while it lives.
    #[inline]
    pub fn addr(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The elements from `offset` on, seen with sizes and strides (both in elements).
    ///
    /// # Panics
    /// If some element would lie outside: layouts are checked when they are made, so that is a bug of the caller.
    #[inline]
    pub fn view<'a>(&'a self, dtype: DType, offset: usize, sizes: &'a [usize], strides: &'a [usize]) -> View<'a> {
        let start = self.start(dtype, offset, sizes, strides);
        // SAFETY: every element lies inside the block, by the check, which lives while the borrow does.
        unsafe { View::new(self.data().add(start), dtype, sizes, strides) }
    }

    /// As [`Storage::view`], for writing. Takes `&self`: the contract at the head of this file applies.
    #[inline]
    pub fn view_mut<'a>(
        &'a self,
        dtype: DType,
        offset: usize,
        sizes: &'a [usize],
        strides: &'a [usize],
    ) -> ViewMut<'a> {
        let start = self.start(dtype, offset, sizes, strides);
        // SAFETY: as in `view`.
        unsafe { ViewMut::new(self.data().add(start), dtype, sizes, strides) }
    }

    /// The byte at which a view starts, all of whose elements lie inside. A view of no elements may be declared anywhere
    /// (a column of a matrix without rows is); it starts at the front.
    #[inline]
    fn start(&self, dtype: DType, offset: usize, sizes: &[usize], strides: &[usize]) -> usize {
        let mut last = offset;
        for (&n, &s) in sizes.iter().zip(strides) {
            if n == 0 {
                return 0;
            }
            last += (n - 1) * s;
        }
        assert!(
            sizes.len() == strides.len() && (last + 1) * dtype.size() <= self.nbytes(),
            "view of {last} + 1 elements of {dtype} does not fit a storage of {} bytes",
            self.nbytes()
        );
        offset * dtype.size()
    }
}

#[cold]
fn fresh(class: u32) -> Option<*mut Block> {
    HAND_OVER.try_with(|_| ()).ok(); // registers the destructor on first use
    let p = {
        let mut list = shared();
        let p = list.0[class as usize];
        if !p.is_null() {
            // SAFETY: a block in the list is unused and its `next` is valid.
            list.0[class as usize] = unsafe { (*p).next.get() };
            SHARED_CACHED.fetch_sub(class_bytes(class) as i64, Relaxed);
        }
        p
    };
    if !p.is_null() {
        return Some(p);
    }
    let layout = layout_of(class);
    // SAFETY: the size is not zero; zeroed so that nobody ever sees uninitialised memory.
    let p: *mut Block = unsafe { alloc_zeroed(layout) }.cast();
    if p.is_null() {
        return None;
    }
    #[cfg(target_os = "linux")]
    if layout.size() >= 4 << 20 {
        let page = (p as usize).next_multiple_of(4096);
        let end = (p as usize + layout.size()) & !4095;
        // SAFETY: advice on pages that lie wholly inside our own allocation.
        unsafe { libc::madvise(page as *mut _, end - page, libc::MADV_HUGEPAGE) };
    }
    Some(p)
}

impl Clone for Storage {
    #[inline]
    fn clone(&self) -> Self {
        self.block().refs.fetch_add(1, Relaxed);
        Storage(self.0)
    }
}

impl Drop for Storage {
    #[inline]
    fn drop(&mut self) {
        // A sole owner needs no atomic subtraction: nobody else can add a reference.
        if self.block().refs.load(Acquire) != 1 {
            if self.block().refs.fetch_sub(1, Release) != 1 {
                return;
            }
            fence(Acquire);
        }
        let (p, class) = (self.0.as_ptr(), self.block().class);
        if class == FOREIGN {
            // SAFETY: made by `foreign` from a box; no handle is left.
            return drop(unsafe { Box::from_raw(p) });
        }
        count(-(self.block().nbytes as i64));
        if (class as usize) < SMALL {
            FREE.with(|f| {
                self.block().next.set(f[class as usize].get());
                f[class as usize].set(p);
            });
            CACHED.set(CACHED.get() + class_bytes(class) as i64);
        } else {
            let mut list = shared();
            self.block().next.set(list.0[class as usize]);
            list.0[class as usize] = p;
            SHARED_CACHED.fetch_add(class_bytes(class) as i64, Relaxed);
        }
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({} bytes, version {})", self.nbytes(), self.version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_and_waste_at_most_a_quarter() {
        for n in (1..5000).chain([1 << 20, (1 << 20) + 1, 3 << 28, (1 << 40) + 12345]) {
            let c = class_of(n);
            assert!(class_bytes(c) >= n, "{n}");
            assert!(n <= 64 || class_bytes(c) as f64 <= 1.25 * n as f64 + 1.0, "{n} -> {}", class_bytes(c));
            assert_eq!(class_of(class_bytes(c)), c);
        }
        assert!((class_of(1 << 46) as usize) < CLASSES);
    }

    #[test]
    fn memory_is_reused_and_counted() {
        let before = memory_stats().live;
        let s = Storage::new(3 << 20).unwrap();
        let addr = s.addr();
        assert!(memory_stats().live >= before + (3 << 20));
        drop(s);
        let s = Storage::new(3 << 20).unwrap();
        assert_eq!(s.addr(), addr);
        assert!(memory_stats().peak >= 3 << 20);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Storage::new(usize::MAX / 2).is_err());
    }

    #[test]
    fn blocks_outlive_their_thread() {
        let s = std::thread::spawn(|| Storage::zeroed(100).unwrap()).join().unwrap();
        let again = s.clone();
        assert!(!s.is_unique());
        drop(s);
        assert!(again.is_unique());
    }
}
