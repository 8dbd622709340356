//! Compile time: one clock per stage, process-wide.
//!
//! Stages nest (a joint-graph backend traces, cuts and has its parts fused); each counts only the time in which no inner
//! stage ran, so that the stages add up to the whole. Calls of compiled functions that compile nothing are not counted.

use firebrand_core::state::Slot;
use firebrand_core::system::Instant;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A stage of compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Running the function on meta tensors, and making its guards.
    Capture,
    /// Tracing forward and backward as one functional graph.
    Joint,
    /// Deciding what is saved for the backward, and partitioning the graph.
    Partition,
    /// Fusing, planning memory and generating programs.
    Fuse,
    /// Everything else a backend does.
    Backend,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 5] = [Stage::Capture, Stage::Joint, Stage::Partition, Stage::Fuse, Stage::Backend];

    fn name(self) -> &'static str {
        match self {
            Stage::Capture => "capture",
            Stage::Joint => "joint graph",
            Stage::Partition => "partition",
            Stage::Fuse => "fusion",
            Stage::Backend => "backend",
        }
    }
}

struct Clock {
    runs: AtomicU64,
    nanos: AtomicU64,
}

static CLOCKS: [Clock; 5] = [const { Clock { runs: AtomicU64::new(0), nanos: AtomicU64::new(0) } }; 5];

/// Nanoseconds that stages inside the current one took so far.
static INNER: Slot<Option<Arc<AtomicU64>>> = Slot::new(|| None);

/// Runs a part of compiling and counts its time.
pub(crate) fn timed<T>(stage: Stage, run: impl FnOnce() -> T) -> T {
    let inner = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let result = {
        let _scope = INNER.enter(Some(inner.clone()));
        run()
    };
    let all = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let clock = &CLOCKS[stage as usize];
    clock.runs.fetch_add(1, Relaxed);
    clock.nanos.fetch_add(all.saturating_sub(inner.load(Relaxed)), Relaxed);
    if let Some(outer) = INNER.get() {
        outer.fetch_add(all, Relaxed);
    }
    result
}

/// How often a stage ran, and its total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTime {
    /// How often.
    pub runs: u64,
    /// Total time, excluding inner stages.
    pub time: Duration,
}

/// Compile time by stage; prints as a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileTimes([StageTime; 5]);

impl CompileTimes {
    /// The time of one stage.
    pub fn stage(&self, stage: Stage) -> StageTime {
        self.0[stage as usize]
    }

    /// The time of all.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|s| s.time).sum()
    }

    /// The difference from an earlier reading.
    pub fn since(&self, earlier: &CompileTimes) -> CompileTimes {
        CompileTimes(std::array::from_fn(|i| StageTime {
            runs: self.0[i].runs.saturating_sub(earlier.0[i].runs),
            time: self.0[i].time.saturating_sub(earlier.0[i].time),
        }))
    }
}

impl fmt::Display for CompileTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in Stage::ALL {
            let StageTime { runs, time } = self.stage(stage);
            writeln!(f, "{:12} {runs:6} runs {:10.3} ms", stage.name(), time.as_secs_f64() * 1e3)?;
        }
        write!(f, "{:12} {:11} {:10.3} ms", "all", "", self.total().as_secs_f64() * 1e3)
    }
}

/// Compile time so far, process-wide, by stage.
///
/// ```
/// use firebrand_compile::{Stage, compile, compile_times};
/// use firebrand_core::Tensor;
///
/// let before = compile_times();
/// compile(|x: &Tensor| x.sin()).call(&Tensor::new(&[1.0f32]));
/// let spent = compile_times().since(&before);
/// assert!(spent.stage(Stage::Capture).runs >= 1);
/// println!("{spent}");
/// ```
pub fn compile_times() -> CompileTimes {
    let read = |c: &Clock| StageTime { runs: c.runs.load(Relaxed), time: Duration::from_nanos(c.nanos.load(Relaxed)) };
    CompileTimes(std::array::from_fn(|i| read(&CLOCKS[i])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrand_core::state::ThreadState;

    /// The time of an inner stage is not counted twice, on whichever thread it ran.
    #[test]
    fn stages_add_up() {
        let before = compile_times();
        let work = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(5) {
                std::hint::spin_loop();
            }
        };
        let start = Instant::now();
        timed(Stage::Backend, || {
            timed(Stage::Joint, work);
            let here = ThreadState::capture();
            std::thread::scope(|s| drop(s.spawn(|| here.run(|| timed(Stage::Partition, work))).join()));
        });
        let spent = compile_times().since(&before);
        assert!(spent.total() <= start.elapsed());
        for stage in [Stage::Joint, Stage::Partition] {
            assert!(spent.stage(stage).time >= Duration::from_millis(5));
            assert!(spent.stage(Stage::Backend).time < spent.stage(stage).time);
        }
    }
}
