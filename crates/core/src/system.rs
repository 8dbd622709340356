//! The clock and the process, if there are any: in a browser, the standard library has neither and panics.
//!
//! Nothing is computed from these values; they only go into reports and names. Where there is no clock, no time ever passes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HAVE_PROCESSES: bool = !cfg!(target_family = "wasm");
const HAVE_CLOCK: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// A moment, to measure from.
#[derive(Clone, Copy, Debug)]
pub struct Instant(Option<std::time::Instant>);

impl Instant {
    /// This moment.
    pub fn now() -> Instant {
        Instant(HAVE_CLOCK.then(std::time::Instant::now))
    }

    /// The time since then.
    pub fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

/// Seconds since 1970; 0 if there is no clock.
pub fn unix_seconds() -> f64 {
    let now = HAVE_CLOCK.then(SystemTime::now);
    now.and_then(|now| now.duration_since(UNIX_EPOCH).ok()).map_or(0.0, |d| d.as_secs_f64())
}

/// The id of this process; 0 if there are no processes.
pub fn process_id() -> u32 {
    if HAVE_PROCESSES { std::process::id() } else { 0 }
}
