//! The machine's peaks, and how close a workload comes to them.
//!
//! The limit of a workload is the sum over its kernels of the longer of two times: of their operations at the measured peak of
//! multiply-adds, and of their bytes at the measured bandwidth of the memory level that they fit into.

use super::{Bench, Done};
use firebrand::profiler::{Profile, Work};
use firebrand::roofline;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes that a thread works on, from the first cache to memory.
const SETS: [(&str, usize); 6] =
    [("16K", 16 << 10), ("128K", 128 << 10), ("1M", 1 << 20), ("8M", 8 << 20), ("64M", 64 << 20), ("256M", 256 << 20)];
/// Rounds of multiply-adds in a measurement: about a millisecond.
const ROUNDS: usize = 200_000;
/// How often everything is measured; the best counts.
const TRIES: usize = 7;
/// Bytes moved in one measurement, at least.
const MOVED: usize = 64 << 20;

/// The peaks of the machine on some number of threads.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    threads: usize,
    /// Operations on f32 a second; a multiply-add is two.
    flops: f64,
    /// Bytes a second, by the bytes that a thread works on.
    bandwidth: Vec<(usize, f64)>,
}

impl Limits {
    /// Measures them; takes about two seconds.
    pub(super) fn measure(threads: usize) -> Limits {
        let flops = peak(threads, |_| (), |()| roofline::multiply_add_f32(ROUNDS));
        let best = |&(_, set): &(&str, usize)| {
            let best = Motion::ALL.map(|m| m.bandwidth(threads, set)).into_iter().fold(0.0, f64::max);
            (set, best)
        };
        Limits { threads, flops, bandwidth: SETS.iter().map(best).collect() }
    }

    /// The least time in which the work can be done.
    fn seconds(&self, work: Work) -> f64 {
        let set = work.bytes as usize / self.threads;
        let fits = self.bandwidth.iter().find(|(size, _)| set <= *size).or(self.bandwidth.last());
        let moving = fits.map_or(0.0, |(_, rate)| work.bytes as f64 / rate);
        moving.max(work.flops as f64 / self.flops)
    }

    /// The least time in which all kernels of a profile can do their work, one after the other.
    pub(super) fn of(&self, profile: &Profile) -> f64 {
        profile.events.iter().map(|e| self.seconds(e.work)).sum()
    }
}

/// Ways to move memory.
#[derive(Clone, Copy)]
enum Motion {
    Read,
    Copy,
    Triad,
}

impl Motion {
    const ALL: [Motion; 3] = [Motion::Read, Motion::Copy, Motion::Triad];

    fn name(self) -> &'static str {
        match self {
            Motion::Read => "read",
            Motion::Copy => "copy",
            Motion::Triad => "triad",
        }
    }

    /// Bytes a second of all threads, each working on `set` bytes of its own.
    fn bandwidth(self, threads: usize, set: usize) -> f64 {
        let streams = match self {
            Motion::Read => 1,
            Motion::Copy => 2,
            Motion::Triad => 3,
        };
        let count = set / streams / size_of::<f32>();
        let repeats = MOVED.div_ceil(set);
        let arrays = move |_| (vec![1f32; count], vec![1f32; if streams > 2 { count } else { 0 }], vec![0f32; count]);
        peak(threads, arrays, |(a, b, to)| {
            (0..repeats)
                .map(|_| match self {
                    Motion::Read => roofline::read(a),
                    Motion::Copy => roofline::copy(a, to),
                    Motion::Triad => roofline::triad(a, b, to),
                })
                .sum()
        })
    }
}

/// What `work` says it did, a second, on several threads at once; the best of several tries.
fn peak<T>(threads: usize, prepare: impl Fn(usize) -> T + Sync, work: impl Fn(&mut T) -> u64 + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let one = |k: usize| {
        let mut state = prepare(k);
        work(&mut state);
        let mut rates = [0.0; TRIES];
        for rate in &mut rates {
            barrier.wait();
            let clock = Instant::now();
            let done = work(&mut state);
            *rate = done as f64 / clock.elapsed().as_secs_f64();
        }
        rates
    };
    let all: Vec<[f64; TRIES]> = std::thread::scope(|scope| {
        let one = &one;
        let others: Vec<_> = (1..threads).map(|k| scope.spawn(move || one(k))).collect();
        let first = one(0);
        std::iter::once(first).chain(others.into_iter().map(|w| w.join().expect("measuring does not panic"))).collect()
    });
    (0..TRIES).map(|t| all.iter().map(|rates| rates[t]).sum()).fold(0.0, f64::max)
}

/// The bench: all peaks, one line each.
pub(super) fn roofline(bench: &Bench) -> Done {
    let threads = bench.threads;
    let flops = |f: fn(usize) -> u64| peak(threads, |_| (), move |()| f(ROUNDS)) * 1e-9;
    bench.emit("multiply_add.f32", flops(roofline::multiply_add_f32), "GFLOPS")?;
    bench.emit("multiply_add.f64", flops(roofline::multiply_add_f64), "GFLOPS")?;
    for motion in Motion::ALL {
        for (size, set) in SETS {
            let rate = motion.bandwidth(threads, set) * 1e-9;
            bench.emit(&format!("{}.{size}", motion.name()), rate, "GB/s")?;
        }
    }
    Ok(())
}
