//! The clock of measurements: CPU time of the process for one thread, wall time for more; the fastest of many calls.

use cpu_time::ProcessTime;
use firebrand::Result;
use std::time::{Duration, Instant};

/// Calls before measuring.
const WARM_UP: usize = 2;
const AT_LEAST: usize = 5;
const AT_MOST: usize = 2000;

/// The fastest of many calls, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// By the clock that was chosen.
    pub(crate) seconds: f64,
    /// By the wall clock.
    pub(crate) wall: f64,
    /// Of the processor, all threads together.
    pub(crate) cpu: f64,
}

/// A clock that suits a number of threads.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// What neighbors disturb least.
    Cpu,
    /// What several threads are for.
    Wall,
}

impl Clock {
    /// The clock for this many threads.
    pub(crate) fn for_threads(n: usize) -> Clock {
        if n == 1 { Clock::Cpu } else { Clock::Wall }
    }

    /// Starts measuring; the result says how long ago that was.
    pub(crate) fn start(self) -> Stopwatch {
        match self {
            Clock::Cpu => Stopwatch::Cpu(ProcessTime::now()),
            Clock::Wall => Stopwatch::Wall(Instant::now()),
        }
    }

    /// Seconds of the fastest call within a budget of seconds.
    pub(crate) fn best(self, budget: f64, f: impl FnMut() -> Result<()>) -> Result<f64> {
        self.times(budget, f).map(|t| t.seconds)
    }

    /// The fastest call within a budget of seconds, by both clocks.
    pub(crate) fn times(self, budget: f64, mut f: impl FnMut() -> Result<()>) -> Result<Times> {
        for _ in 0..WARM_UP {
            f()?;
        }
        let mut fastest = Times { seconds: f64::INFINITY, wall: f64::INFINITY, cpu: f64::INFINITY };
        let (begin, mut calls) = (self.start(), 0);
        while calls < AT_LEAST || (begin.seconds() < budget && calls < AT_MOST) {
            let (wall, cpu) = (Instant::now(), ProcessTime::now());
            f()?;
            let (cpu, wall) = (cpu.elapsed().as_secs_f64(), wall.elapsed().as_secs_f64());
            let seconds = match self {
                Clock::Cpu => cpu,
                Clock::Wall => wall,
            };
            fastest = Times {
                seconds: fastest.seconds.min(seconds),
                wall: fastest.wall.min(wall),
                cpu: fastest.cpu.min(cpu),
            };
            calls += 1;
        }
        Ok(fastest)
    }
}

/// A running measurement.
pub(crate) enum Stopwatch {
    Cpu(ProcessTime),
    Wall(Instant),
}

impl Stopwatch {
    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        let elapsed: Duration = match self {
            Stopwatch::Cpu(t) => t.elapsed(),
            Stopwatch::Wall(t) => t.elapsed(),
        };
        elapsed.as_secs_f64()
    }
}
