//! Work split over threads: a small pool whose workers spin briefly, then sleep.
//!
//! A call publishes one borrowed closure; the caller and all workers that are awake take chunks by an atomic counter, so a worker
//! that the system has not scheduled holds nothing up. Nothing is allocated or queued.
//! Guarantees: a call returns only after every chunk has finished, also when one panics (the panic is passed on);
//! a nested call, or a second caller at the same time, runs its chunks alone. Chunk boundaries depend on the sizes
//! only, never on the number of threads, so results that are combined in chunk order are the same for any number.
#![allow(unsafe_code)]

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, RwLock};
use std::thread::Thread;

/// About 20 microseconds: longer than the gap between two ops, shorter than anyone notices.
const SPINS: usize = if cfg!(miri) { 4 } else { 2000 };

struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    parts: usize,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Takes chunks until none is left.
    fn work(&self) {
        loop {
            let i = self.next.fetch_add(1, Relaxed);
            if i >= self.parts {
                return;
            }
            if let Err(p) = catch_unwind(AssertUnwindSafe(|| (self.task)(i))) {
                self.next.store(self.parts, Relaxed); // the rest would be wasted
                let mut first = self.panic.lock().unwrap_or_else(|e| e.into_inner());
                match &*first {
                    None => *first = Some(p),
                    // Not dropped: its destructor may panic too, and a worker that unwinds would never leave the gate.
                    Some(_) => std::mem::forget(p),
                }
            }
        }
    }
}

/// One round of the gate: the epoch in the high half (odd while a job is open), workers inside in the low half.
const EPOCH: u64 = 1 << 32;

struct Pool {
    gate: AtomicU64,
    job: AtomicPtr<Job<'static>>,
    busy: AtomicBool,
    workers: RwLock<Vec<(Thread, &'static AtomicBool)>>,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        gate: AtomicU64::new(0),
        job: AtomicPtr::new(std::ptr::null_mut()),
        busy: AtomicBool::new(false),
        workers: RwLock::default(),
    })
}

/// Whether the platform has threads. Where it has none, everything runs on the caller's.
pub const HAVE_THREADS: bool = !cfg!(all(target_family = "wasm", not(target_feature = "atomics")));

/// The number of threads kernels use: `FIREBRAND_NUM_THREADS`, or the number of cores, unless set with [`set_num_threads`].
#[inline]
pub fn num_threads() -> usize {
    match THREADS.load(Relaxed) {
        0 => default_threads(),
        n => n,
    }
}

#[cold]
fn default_threads() -> usize {
    let n = std::env::var("FIREBRAND_NUM_THREADS").ok().and_then(|v| v.parse().ok()).filter(|&n| n > 0);
    let n = n.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    set_num_threads(n);
    THREADS.load(Relaxed)
}

/// More would only wait for each other.
const MOST_THREADS: usize = 256;

/// Uses `n` threads (at least one, at most 256) from now on.
pub fn set_num_threads(n: usize) {
    THREADS.store(n.clamp(1, MOST_THREADS), Relaxed);
}

/// Calls `f(0) .. f(parts - 1)`, each exactly once, on up to [`num_threads`] threads.
pub fn run(parts: usize, f: &(dyn Fn(usize) + Sync)) {
    let threads = num_threads().min(parts);
    if threads <= 1 {
        return (0..parts).for_each(f);
    }
    let pool = pool();
    if pool.busy.swap(true, Acquire) {
        return (0..parts).for_each(f);
    }
    pool.grow(threads - 1);
    let job = Job { task: f, parts, next: AtomicUsize::new(0), panic: Mutex::new(None) };
    pool.job.store((&raw const job).cast_mut().cast(), Relaxed);
    pool.gate.fetch_add(EPOCH, SeqCst); // odd: open
    for (thread, asleep) in pool.workers.read().unwrap_or_else(|e| e.into_inner()).iter().take(threads - 1) {
        if asleep.load(SeqCst) {
            thread.unpark()
        }
    }
    job.work();
    // Close the gate, so that no thread enters any more, then wait for those inside: after that `job` may go.
    pool.gate.fetch_add(EPOCH, SeqCst);
    let mut n = 0;
    while pool.gate.load(Acquire) as u32 != 0 {
        n += 1;
        if n < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    pool.busy.store(false, Release);
    if let Some(p) = job.panic.into_inner().unwrap_or_else(|e| e.into_inner()) {
        resume_unwind(p)
    }
}

/// Calls `f` on ranges that cover `0..total`, cut at multiples of `grain`; alone if one grain is enough.
#[inline]
pub fn split(total: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    split_dyn(total, grain, &f)
}

/// [`split`], compiled once: a kernel's loop is in one place, whoever runs it.
fn split_dyn(total: usize, grain: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    let grain = grain.max(1);
    if total <= grain || num_threads() == 1 {
        // One thread walks the same chunks, in order, so that callers which combine by chunk see no difference.
        let mut at = 0;
        while at < total {
            f(at..(at + grain).min(total));
            at += grain;
        }
        return;
    }
    run(total.div_ceil(grain), &|i| f(i * grain..((i + 1) * grain).min(total)));
}

impl Pool {
    /// Makes sure that `n` workers exist. Workers are never ended: an idle one sleeps.
    fn grow(&'static self, n: usize) {
        if self.workers.read().unwrap_or_else(|e| e.into_inner()).len() >= n {
            return;
        }
        let mut workers = self.workers.write().unwrap_or_else(|e| e.into_inner());
        while workers.len() < n {
            let asleep: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
            let me = workers.len() + 1;
            let spawned =
                std::thread::Builder::new().name(format!("firebrand-{me}")).spawn(move || self.worker(me, asleep));
            match spawned {
                Ok(handle) => workers.push((handle.thread().clone(), asleep)),
                Err(_) => return, // the system has no thread to give; the caller does the work itself
            }
        }
    }

    fn worker(&self, me: usize, asleep: &AtomicBool) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            let ticket = loop {
                let g = self.gate.load(SeqCst);
                let open = (g / EPOCH) % 2 == 1;
                if open && g / EPOCH != seen && me < num_threads() {
                    // Enter: from here on the caller waits for us.
                    if self.gate.compare_exchange_weak(g, g + 1, Acquire, Relaxed).is_ok() {
                        break g;
                    }
                    continue;
                }
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                    continue;
                }
                // Announce, look once more, sleep: the caller opens the gate before it looks at the flag.
                asleep.store(true, SeqCst);
                if self.gate.load(SeqCst) == g {
                    std::thread::park()
                }
                asleep.store(false, SeqCst);
                spins = 0;
            };
            seen = ticket / EPOCH;
            // SAFETY: we are counted as inside, so the caller keeps the job alive until the subtraction below.
            unsafe { &*self.job.load(Relaxed) }.work();
            self.gate.fetch_sub(1, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_once() {
        for parts in [0, 1, 2, 7, if cfg!(miri) { 50 } else { 1000 }] {
            let hits: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            run(parts, &|i| {
                hits[i].fetch_add(1, Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Relaxed) == 1));
        }
    }

    #[test]
    fn nested_and_concurrent_calls_finish() {
        const ROUNDS: usize = if cfg!(miri) { 3 } else { 200 };
        let total = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..ROUNDS {
                        split(100, 7, |r| {
                            split(r.len(), 2, |q| {
                                total.fetch_add(q.len(), Relaxed);
                            })
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Relaxed), 4 * ROUNDS * 100);
    }

    /// The payload of a panic may itself panic when it is dropped; no worker is lost to that.
    #[test]
    fn payloads_that_panic_in_drop_are_survived() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    panic!("dropped")
                }
            }
        }
        for _ in 0..if cfg!(miri) { 2 } else { 20 } {
            let first = catch_unwind(|| run(64, &|_| std::panic::panic_any(Bomb))).expect_err("every part panics");
            std::mem::forget(first);
            every_part_runs_once();
        }
    }

    #[test]
    fn numbers_of_threads_are_clamped() {
        let before = num_threads();
        for (asked, got) in [(0, 1), (1, 1), (256, 256), (usize::MAX, 256)] {
            set_num_threads(asked);
            assert_eq!(THREADS.load(Relaxed), got);
        }
        set_num_threads(before);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let r = catch_unwind(|| run(8, &|i| assert!(i != 3, "part three")));
        assert!(r.is_err());
        every_part_runs_once();
    }
}
