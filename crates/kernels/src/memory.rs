//! Storage: reference-counted bytes with a version counter, from a caching allocator.
//!
//! Guarantees: 64-byte aligned; never uninitialized (a fresh block is zeroed, a reused one holds old values); a freed
//! block keeps its pages, because fresh pages cost more than the arithmetic on them. Small blocks live in thread-local
//! intrusive lists (an allocation is a load and a store), large ones in one list all threads share.
//!
//! What is kept is bounded. A thread's list holds about a megabyte per size; what is more goes to the shared list, half
//! of it at a time, and a thread that finds its list empty takes some from there, so one thread may allocate for ever what
//! another frees. The shared list keeps at most twice what was ever in use at once ([`kept_at_most`]). A thread that ends
//! hands over everything. If an allocation fails, cached memory is returned to the system before the error is reported.
//! [`memory_stats`] counts live, peak and cached bytes.
//!
//! Addresses are only obtained through one gate ([`Storage::view`], [`Storage::view_mut`], [`Flat`]) that checks in
//! saturating arithmetic that all elements are inside the storage; meta storages have no memory at all.
//!
//! Concurrency contract, as in PyTorch: a storage may be read from many threads at once, but the caller orders
//! writes against reads (core checks it in debug builds). Kernels touch the bytes through raw pointers only; racing them gives
//! unspecified values.
#![allow(unsafe_code)]

use crate::{DType, View, ViewMut};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::*};

#[repr(C, align(64))]
struct Block {
    refs: AtomicUsize,
    version: AtomicU32,
    class: u32,
    /// Bytes it claims to have.
    nbytes: usize,
    /// Bytes that may be reached from `data`: `nbytes`, but none in a meta storage. Every way to an address is checked
    /// against this one.
    room: usize,
    data: *mut u8,
    next: Cell<*mut Block>,
    /// What keeps `data` alive when it does not lie behind this header (a mapped file).
    owner: Option<Box<dyn Any + Send + Sync>>,
}

const HEADER: usize = size_of::<Block>();
/// Classes are powers of two in quarters from 64 bytes, so at most a quarter is wasted.
const CLASSES: usize = 4 * 42;
/// The largest block: 64 TiB, or 1 GiB where addresses have 32 bits.
const LARGEST: usize = 1 << if usize::BITS == 64 { 46 } else { 30 };
/// Classes below this one (1 MiB) are cached per thread.
const SMALL: usize = class_of(1 << 20) as usize;
/// A block whose data lies elsewhere.
const FOREIGN: u32 = u32::MAX;
/// A block without data.
const META: u32 = u32::MAX - 1;

/// Elements that a view may have and reach: as many of the largest type fill the address space.
pub const MAX_ELEMENTS: usize = isize::MAX as usize / 16;

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

/// Free blocks of one size, of one thread.
struct List {
    head: Cell<*mut Block>,
    /// How many more it takes; 0 before the thread has opened its lists, and again when it ends.
    left: Cell<u32>,
}

/// What a thread keeps for itself.
struct Local {
    free: [List; SMALL],
    /// Bytes taken minus bytes given back since the last flush to `LIVE`.
    delta: Cell<i64>,
    stage: Cell<Stage>,
}

/// The life of a thread's lists.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Nothing was kept or counted so far.
    Untouched,
    /// In use; a destructor will hand over what is left.
    Open,
    /// The thread ends: everything goes to the shared list at once.
    Closed,
}

thread_local! {
    // Const-initialized and without a destructor: access is one segment-relative load, and it works at thread exit.
    static LOCAL: Local = const {
        Local {
            free: [const { List { head: Cell::new(null_mut()), left: Cell::new(0) } }; SMALL],
            delta: Cell::new(0),
            stage: Cell::new(Stage::Untouched),
        }
    };
    static HAND_OVER: HandOver = const { HandOver };
}

/// Blocks that a thread keeps of a class: about a megabyte of them.
const fn room_for(class: usize) -> u32 {
    let n = (1 << 20) / class_bytes(class as u32);
    if n < 4 {
        4
    } else if n > 1024 {
        1024
    } else {
        n as u32
    }
}

static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
/// The largest `LIVE` ever.
static HIGHEST: AtomicI64 = AtomicI64::new(0);
static SHARED_CACHED: AtomicI64 = AtomicI64::new(0);
/// Bytes of blocks that came from the system and did not go back, without their headers.
static RESERVED: AtomicI64 = AtomicI64::new(0);

/// Free blocks any thread may take: all large ones, and small ones that threads had too many of or left.
struct SharedList([*mut Block; CLASSES]);
// SAFETY: the blocks in the list belong to nothing; the mutex around it orders access.
unsafe impl Send for SharedList {}
static SHARED: Mutex<SharedList> = Mutex::new(SharedList([null_mut(); CLASSES]));

fn shared() -> std::sync::MutexGuard<'static, SharedList> {
    SHARED.lock().unwrap_or_else(|e| e.into_inner())
}

/// Bytes that the shared list keeps at most.
fn kept_at_most() -> i64 {
    (64 << 20) + 2 * HIGHEST.load(Relaxed)
}

impl SharedList {
    /// Adds `count` blocks, chained from `first` to `last`. If that is more than is kept, other sizes go first: those that
    /// are freed are the ones in use.
    ///
    /// # Safety
    /// They are blocks of this class that nothing uses, each but the last with its `next` set.
    unsafe fn give(&mut self, class: usize, first: *mut Block, last: *mut Block, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { (*last).next.set(self.0[class]) };
        self.0[class] = first;
        let cached = (count * class_bytes(class as u32)) as i64;
        let limit = kept_at_most();
        if SHARED_CACHED.fetch_add(cached, Relaxed) + cached > limit {
            (0..CLASSES).filter(|&c| c != class).for_each(|c| self.release(c, i64::MIN));
            self.release(class, limit);
        }
    }

    /// A free block of this class, if there is one.
    fn take(&mut self, class: usize) -> Option<NonNull<Block>> {
        let p = NonNull::new(self.0[class])?;
        // SAFETY: a block in the list is unused and its `next` is valid.
        self.0[class] = unsafe { p.as_ref() }.next.get();
        SHARED_CACHED.fetch_sub(class_bytes(class as u32) as i64, Relaxed);
        Some(p)
    }

    /// Gives blocks of a class back to the system until the list keeps no more than `limit` bytes.
    fn release(&mut self, class: usize, limit: i64) {
        while SHARED_CACHED.load(Relaxed) > limit
            && let Some(p) = self.take(class)
        {
            // SAFETY: a free block from `fresh` with this layout; its owner field is None.
            unsafe { dealloc(p.as_ptr().cast(), layout_of(class as u32)) }
            RESERVED.fetch_sub(class_bytes(class as u32) as i64, Relaxed);
        }
    }
}

/// Its destructor runs when the thread ends.
struct HandOver;
impl Drop for HandOver {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            local.hand_over();
            local.free.iter().for_each(|list| list.left.set(0));
            local.stage.set(Stage::Closed);
            flush_counts(local);
        });
    }
}

impl Local {
    /// Makes sure that a destructor will hand over what this thread keeps and counts.
    fn open(&self) {
        if self.stage.get() != Stage::Untouched {
            return;
        }
        // Refused while the thread's destructors run.
        if HAND_OVER.try_with(|_| ()).is_err() {
            return self.stage.set(Stage::Closed);
        }
        self.stage.set(Stage::Open);
        self.free.iter().enumerate().for_each(|(class, list)| list.left.set(room_for(class)));
    }

    /// Moves up to `count` blocks of one list to the shared list.
    fn spill(&self, class: usize, count: u32, shared: &mut SharedList) {
        let list = &self.free[class];
        let first = list.head.get();
        if first.is_null() || count == 0 {
            return;
        }
        let (mut last, mut moved) = (first, 1);
        // SAFETY: blocks in the list are unused and their `next` is valid.
        unsafe {
            while moved < count && !(*last).next.get().is_null() {
                last = (*last).next.get();
                moved += 1;
            }
            list.head.set((*last).next.get());
            list.left.set(list.left.get() + moved);
            shared.give(class, first, last, moved as usize);
        }
    }

    /// Moves all free blocks to the shared list.
    fn hand_over(&self) {
        let mut shared = shared();
        (0..SMALL).for_each(|class| self.spill(class, u32::MAX, &mut shared));
    }

    /// Keeps a small block that the list of its class has no room for: opens the list, or makes room in it.
    #[cold]
    fn keep(&self, p: NonNull<Block>, class: usize) {
        self.open();
        let list = &self.free[class];
        if self.stage.get() == Stage::Closed {
            // SAFETY: the block is unused.
            unsafe { shared().give(class, p.as_ptr(), p.as_ptr(), 1) };
            return flush_counts(self);
        }
        if list.left.get() == 0 {
            self.spill(class, room_for(class).div_ceil(2), &mut shared());
        }
        self.push(p, list);
    }

    /// Puts an unused block into a list that has room.
    #[inline]
    fn push(&self, p: NonNull<Block>, list: &List) {
        // SAFETY: nothing uses the block, so it is ours to write.
        unsafe { p.as_ref() }.next.set(list.head.replace(p.as_ptr()));
        list.left.set(list.left.get() - 1);
    }

    /// Bytes in the lists.
    fn cached(&self) -> i64 {
        if self.stage.get() != Stage::Open {
            return 0;
        }
        let kept = |(class, list): (usize, &List)| {
            i64::from(room_for(class) - list.left.get()) * class_bytes(class as u32) as i64
        };
        self.free.iter().enumerate().map(kept).sum()
    }

    #[inline]
    fn count(&self, bytes: i64) {
        let d = self.delta.get() + bytes;
        self.delta.set(d);
        if d.unsigned_abs() > 1 << 16 {
            flush_counts(self)
        }
    }
}

#[cold]
#[inline(never)]
fn flush_counts(local: &Local) {
    let delta = local.delta.replace(0);
    let live = LIVE.fetch_add(delta, Relaxed) + delta;
    PEAK.fetch_max(live, Relaxed);
    HIGHEST.fetch_max(live, Relaxed);
}

/// Bytes held by storages, now and at the peak, and bytes cached for reuse. Storages are counted by the bytes that were requested,
/// as PyTorch's profiler counts them; the blocks behind them, which `cached` counts, are up to a quarter larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in live storages.
    pub live: usize,
    /// The largest `live` since the start or the last [`reset_peak_memory`].
    pub peak: usize,
    /// Free bytes kept by the shared list and by this thread.
    pub cached: usize,
    /// Bytes allocated from the system: storages, and what all threads cache for reuse.
    pub reserved: usize,
}

/// Current memory statistics. Other threads report their small blocks in steps of 64 KiB, so `live` and `peak` are accurate to that.
pub fn memory_stats() -> MemoryStats {
    LOCAL.with(flush_counts);
    let of = |v: i64| usize::try_from(v).unwrap_or(0);
    MemoryStats {
        live: of(LIVE.load(Relaxed)),
        peak: of(PEAK.load(Relaxed)),
        cached: of(SHARED_CACHED.load(Relaxed) + LOCAL.with(Local::cached)),
        reserved: of(RESERVED.load(Relaxed)),
    }
}

/// Resets the peak to the current use.
pub fn reset_peak_memory() {
    LOCAL.with(flush_counts);
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// Returns cached memory to the system: the shared list and this thread's. Other threads keep their lists, which are
/// bounded.
pub fn empty_cache() {
    LOCAL.with(Local::hand_over);
    let mut shared = shared();
    (0..CLASSES).for_each(|class| shared.release(class, i64::MIN));
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
    /// The address of the first element, for foreign code: the elements follow it. What is done with it is under the contract
    /// at the head.
    pub fn as_ptr(&self, dtype: DType) -> *mut u8 {
        self.elements(dtype)
    }

    /// The address of the first element, from which `len` elements of `dtype` lie inside the storage. Of no elements, the
    /// address means nothing.
    ///
    /// # Panics
    /// If they do not, and if the storage is a meta storage.
    #[inline]
    pub(crate) fn elements(&self, dtype: DType) -> *mut u8 {
        let (shift, block) = (dtype.size().trailing_zeros(), self.storage.block());
        // Saturated, it fits no storage.
        if self.offset.saturating_add(self.len) > block.room >> shift {
            if self.len == 0 {
                return block.data;
            }
            refuse(self.storage, dtype, self.offset, &[self.len], &[1])
        }
        // SAFETY: inside the block, by the check: sizes of dtypes are powers of two.
        unsafe { block.data.add(self.offset << shift) }
    }
}

/// More memory was requested than the address space or the system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes requested.
    pub bytes: usize,
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot allocate {} bytes", self.bytes)
    }
}
impl std::error::Error for OutOfMemory {}

impl Storage {
    /// `nbytes` bytes of unspecified (never uninitialized) content.
    #[inline]
    pub fn new(nbytes: usize) -> Result<Storage, OutOfMemory> {
        if nbytes > LARGEST {
            return Err(OutOfMemory { bytes: nbytes });
        }
        let class = class_of(nbytes);
        let p = LOCAL.with(|local| {
            local.count(nbytes as i64);
            if let Some(list) = local.free.get(class as usize)
                && let Some(p) = NonNull::new(list.head.get())
            {
                // SAFETY: a block in the list is unused and its `next` is valid.
                list.head.set(unsafe { p.as_ref() }.next.get());
                list.left.set(list.left.get() + 1);
                return Some(p);
            }
            fresh(local, class, nbytes)
        });
        let Some(p) = p else { return Err(OutOfMemory { bytes: nbytes }) };
        // SAFETY: the block is ours alone and its data area holds at least `nbytes` initialized bytes.
        unsafe {
            let data = p.as_ptr().cast::<u8>().add(HEADER);
            p.as_ptr().write(Block {
                refs: AtomicUsize::new(1),
                version: AtomicU32::new(0),
                class,
                nbytes,
                room: nbytes,
                data,
                next: Cell::new(null_mut()),
                owner: None,
            });
            Ok(Storage(p))
        }
    }

    /// `nbytes` zero bytes.
    pub fn zeroed(nbytes: usize) -> Result<Storage, OutOfMemory> {
        let s = Storage::new(nbytes)?;
        // SAFETY: the block is ours alone and holds `room` bytes.
        unsafe { s.block().data.write_bytes(0, s.block().room) };
        Ok(s)
    }

    /// A copy of the bytes; of a meta storage, another one.
    pub fn duplicate(&self) -> Result<Storage, OutOfMemory> {
        if self.is_meta() {
            return Ok(Storage::meta(self.nbytes()));
        }
        let s = Storage::new(self.nbytes())?;
        // SAFETY: both hold `room` bytes, and the new block is ours alone.
        unsafe { s.block().data.copy_from_nonoverlapping(self.block().data, self.block().room) };
        Ok(s)
    }

    /// A storage with a copy of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Storage, OutOfMemory> {
        let s = Storage::new(bytes.len())?;
        // SAFETY: the new block is ours alone and holds as many bytes.
        unsafe { s.block().data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(s)
    }

    /// What keeps foreign memory alive.
    pub(crate) fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.block().owner.as_deref()
    }

    /// A meta storage, which claims `nbytes` but has no memory: identity and version of a tensor on the meta device. No view with
    /// elements can be made of it.
    pub fn meta(nbytes: usize) -> Storage {
        Storage::elsewhere(META, std::ptr::without_provenance_mut(HEADER), nbytes, 0, None)
    }

    /// Whether it is a meta storage.
    #[inline]
    pub fn is_meta(&self) -> bool {
        self.block().class == META
    }

    /// Memory that someone else owns, such as a mapped file.
    ///
    /// # Safety
    /// `data` is valid for reads and writes of `nbytes` bytes, and 64-byte alignment is not assumed, while `owner` lives.
    pub unsafe fn from_raw(data: *mut u8, nbytes: usize, owner: Box<dyn Any + Send + Sync>) -> Storage {
        Storage::elsewhere(FOREIGN, data, nbytes, nbytes, Some(owner))
    }

    fn elsewhere(
        class: u32,
        data: *mut u8,
        nbytes: usize,
        room: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Storage {
        let block = Block {
            refs: AtomicUsize::new(1),
            version: AtomicU32::new(0),
            class,
            nbytes,
            room,
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

    /// Restores the counter, for scopes that hide their writes.
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

    /// A view of the elements from `offset` on, with sizes and strides (both in elements).
    ///
    /// # Panics
    /// If some element would lie outside, or there are more than [`MAX_ELEMENTS`]; so a meta storage has only views without
    /// elements. Layouts are checked when they are made, so that is a bug of the caller.
    #[inline]
    pub fn view<'a>(&'a self, dtype: DType, offset: usize, sizes: &'a [usize], strides: &'a [usize]) -> View<'a> {
        let start = self.start(dtype, offset, sizes, strides);
        // SAFETY: every element lies inside the block, by the check, which lives while the borrow does.
        unsafe { View::new(self.block().data.add(start), dtype, sizes, strides) }
    }

    /// Like [`Storage::view`], for writing. Takes `&self`: the contract at the head of this file applies.
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
        unsafe { ViewMut::new(self.block().data.add(start), dtype, sizes, strides) }
    }

    /// The byte at which a view starts, all of whose elements lie inside. A view of no elements may be declared anywhere
    /// (a column of a matrix without rows is); it starts at the front.
    #[inline]
    fn start(&self, dtype: DType, offset: usize, sizes: &[usize], strides: &[usize]) -> usize {
        // What saturates is larger than any storage, so one test at the end covers every step.
        let (mut last, mut count, mut empty) = (offset, 1usize, false);
        for (&n, &s) in sizes.iter().zip(strides) {
            empty |= n == 0;
            count = count.saturating_mul(n.max(1));
            last = last.saturating_add(n.saturating_sub(1).saturating_mul(s));
        }
        let fits = empty || last.saturating_add(1).saturating_mul(dtype.size()) <= self.block().room;
        if sizes.len() != strides.len() || count > MAX_ELEMENTS || !fits {
            refuse(self, dtype, offset, sizes, strides)
        }
        if empty { 0 } else { offset * dtype.size() }
    }
}

/// The one gate in front of every address.
#[cold]
fn refuse(storage: &Storage, dtype: DType, offset: usize, sizes: &[usize], strides: &[usize]) -> ! {
    let kind = if storage.is_meta() { "meta storage, which has no memory," } else { "storage" };
    panic!(
        "sizes {sizes:?} and strides {strides:?} from element {offset} of {dtype} do not fit a {kind} of {} bytes",
        storage.nbytes()
    )
}

/// A block for a thread whose list of the class is empty: from the shared list, which also fills the thread's own, or from
/// the system.
#[cold]
#[inline(never)]
fn fresh(local: &Local, class: u32, nbytes: usize) -> Option<NonNull<Block>> {
    local.open();
    if local.stage.get() == Stage::Closed {
        flush_counts(local);
    }
    let index = class as usize;
    {
        let mut shared = shared();
        if let Some(p) = shared.take(index) {
            if let Some(list) = local.free.get(index) {
                // A few more, so that the lock is not taken for each.
                for _ in 0..list.left.get().min(room_for(index) / 2) {
                    let Some(p) = shared.take(index) else { break };
                    local.push(p, list);
                }
            }
            return Some(p);
        }
    }
    let found = from_system(class).or_else(|| {
        empty_cache();
        from_system(class)
    });
    if found.is_none() {
        local.count(-(nbytes as i64)); // counted by the caller
    }
    found
}

fn from_system(class: u32) -> Option<NonNull<Block>> {
    let layout = layout_of(class);
    // SAFETY: the size is not zero; zeroed so that nothing ever sees uninitialised memory.
    let p: NonNull<Block> = NonNull::new(unsafe { alloc_zeroed(layout) }.cast())?;
    RESERVED.fetch_add(class_bytes(class) as i64, Relaxed);
    #[cfg(all(target_os = "linux", not(miri)))]
    if layout.size() >= 4 << 20 {
        let start = p.as_ptr().cast::<u8>();
        let skip = start.addr().next_multiple_of(4096) - start.addr();
        let len = (layout.size() - skip) & !4095;
        // SAFETY: advice on pages that lie wholly inside our own allocation.
        unsafe { libc::madvise(start.add(skip).cast(), len, libc::MADV_HUGEPAGE) };
    }
    Some(p)
}

impl Clone for Storage {
    #[inline]
    fn clone(&self) -> Self {
        if self.block().refs.fetch_add(1, Relaxed) > isize::MAX as usize {
            std::process::abort() // leaked handles, as in std
        }
        Storage(self.0)
    }
}

impl Drop for Storage {
    #[inline]
    fn drop(&mut self) {
        // A sole owner needs no atomic subtraction: nothing else can add a reference.
        if self.block().refs.load(Acquire) != 1 {
            if self.block().refs.fetch_sub(1, Release) != 1 {
                return;
            }
            let _ = self.block().refs.load(Acquire); // what others did before they let go
        }
        let (p, class, nbytes) = (self.0, self.block().class, self.block().nbytes);
        if class >= META {
            // SAFETY: made by `elsewhere` from a box; no handle is left.
            return drop(unsafe { Box::from_raw(p.as_ptr()) });
        }
        LOCAL.with(|local| {
            local.count(-(nbytes as i64));
            match local.free.get(class as usize) {
                Some(list) if list.left.get() > 0 => local.push(p, list),
                Some(_) => local.keep(p, class as usize),
                // SAFETY: no handle to the block is left.
                None => unsafe { shared().give(class as usize, p.as_ptr(), p.as_ptr(), 1) },
            }
        })
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
        for n in (1..5000).chain([1 << 20, (1 << 20) + 1, 3 << 28, LARGEST / 64 + 12345]) {
            let c = class_of(n);
            assert!(class_bytes(c) >= n, "{n}");
            assert!(n <= 64 || class_bytes(c) as f64 <= 1.25 * n as f64 + 1.0, "{n} -> {}", class_bytes(c));
            assert_eq!(class_of(class_bytes(c)), c);
        }
        assert!((class_of(LARGEST) as usize) < CLASSES);
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
        assert!(Storage::new(usize::MAX).is_err() && Storage::zeroed(LARGEST + 1).is_err());
    }

    fn refused<R>(f: impl FnOnce() -> R) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(f()))).is_err()
    }

    /// Every way from a storage to an address ends at the gate.
    #[test]
    fn meta_storages_have_no_addresses() {
        for nbytes in [0, 1, 64, 1 << 20, 2 * LARGEST, usize::MAX] {
            let meta = Storage::meta(nbytes);
            assert!(meta.is_meta() && meta.nbytes() == nbytes);
            assert!(refused(|| meta.view(DType::U8, 0, &[1], &[1])), "view");
            assert!(refused(|| meta.view(DType::F32, 0, &[], &[])), "view of one element");
            assert!(refused(|| meta.view_mut(DType::U8, 0, &[1, 3], &[0, 0])), "view_mut");
            assert!(refused(|| Flat { storage: &meta, offset: 0, len: 1 }.elements(DType::U8)), "elements");
            let copy = meta.duplicate().expect("nothing is allocated");
            assert!(copy.is_meta() && copy.nbytes() == nbytes && !copy.ptr_eq(&meta), "duplicate");
            let fork = crate::mapped::Fork::default().storage(&meta).expect("nothing is allocated");
            assert!(fork.is_meta() && refused(|| fork.view(DType::U8, 0, &[1], &[1])), "fork");
            assert_eq!(meta.view(DType::F32, 0, &[0, 5], &[5, 1]).numel(), 0, "no elements need no memory");
        }
        assert!(!Storage::new(8).expect("eight bytes").is_meta());
    }

    /// Offsets, sizes and strides whose products or sums run over do not come out small.
    #[test]
    fn views_stay_inside_whatever_is_asked_for() {
        let s = Storage::zeroed(64).expect("64 bytes");
        const TOP: usize = 1 << (usize::BITS - 1);
        let far = 1usize << 20;
        let outside: &[(&[usize], &[usize], usize)] = &[
            (&[2], &[0usize.wrapping_sub(far)], far),
            (&[], &[], usize::MAX),
            (&[], &[], TOP / 2),
            (&[2], &[TOP / 2], 0),
            (&[3], &[TOP], 0),
            (&[usize::MAX], &[1], 0),
            (&[1 << (usize::BITS / 2); 2], &[0, 0], 0),
            (&[5, 5], &[1], 0),
            (&[17], &[1], 0),
            (&[16], &[1], 1),
        ];
        for &(sizes, strides, offset) in outside {
            assert!(refused(|| s.view(DType::F32, offset, sizes, strides)), "{sizes:?} {strides:?} {offset}");
            assert!(refused(|| s.view_mut(DType::C128, offset, sizes, strides)), "{sizes:?} {strides:?} {offset}");
        }
        for (offset, len) in [(usize::MAX, 1), (1, usize::MAX), (TOP / 2, TOP / 2), (TOP / 2, 1), (0, 17), (16, 1)] {
            assert!(refused(|| Flat { storage: &s, offset, len }.elements(DType::F32)), "{offset} {len}");
        }
        s.view(DType::F32, 0, &[16], &[1]);
        s.view(DType::F32, 15, &[1000], &[0]);
        s.view(DType::F32, usize::MAX, &[3, 0], &[7, 7]);
        Flat { storage: &s, offset: usize::MAX, len: 0 }.elements(DType::F32);
    }

    #[test]
    fn sizes_beyond_what_a_thread_keeps_come_back() {
        const MANY: usize = if cfg!(miri) { 1100 } else { 3000 };
        let many: Vec<Storage> = (0..MANY).map(|_| Storage::new(100).expect("100 bytes")).collect();
        let addresses: std::collections::HashSet<usize> = many.iter().map(Storage::addr).collect();
        assert_eq!(addresses.len(), many.len());
        drop(many);
        let again: Vec<Storage> = (0..MANY).map(|_| Storage::new(100).expect("100 bytes")).collect();
        assert_eq!(again.iter().map(Storage::addr).collect::<std::collections::HashSet<usize>>().len(), again.len());
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
