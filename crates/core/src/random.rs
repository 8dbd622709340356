//! Seeds and states of the default random generator, bit for bit PyTorch's CPU generator.
//!
//! One generator serves the whole process, as in PyTorch. [`with_generator`] and [`fork_rng`] give a thread its
//! own temporarily, which is also how tests stay independent of each other. A graph draws from the generator and knows nothing else of
//! it, so each of these ends the capture of a compiled function.

use crate::error::expect_ok;
use crate::{capture, generator};

pub use firebrand_kernels::random::{Generator, InvalidState};

/// The generator is about to be looked at or exchanged: graphs draw from it, and know nothing else of it.
#[track_caller]
fn leave(what: &'static str) {
    expect_ok(capture::leave(what));
}

/// Seeds the generator.
#[track_caller]
pub fn manual_seed(seed: u64) {
    leave("manual_seed");
    generator::draw(|g| g.manual_seed(seed))
}

/// The seed of the generator.
#[track_caller]
pub fn initial_seed() -> u64 {
    leave("initial_seed");
    generator::draw(|g| g.initial_seed())
}

/// The state of the generator.
#[track_caller]
pub fn get_rng_state() -> Generator {
    leave("get_rng_state");
    generator::current()
}

/// Restores a saved state.
#[track_caller]
pub fn set_rng_state(state: Generator) {
    leave("set_rng_state");
    generator::restore(state)
}

/// Runs `f` with a separate generator for this thread, which is dropped afterwards.
#[track_caller]
pub fn with_generator<R>(generator: Generator, f: impl FnOnce() -> R) -> R {
    leave("with_generator");
    generator::within(generator, f)
}

/// Runs `f` on a copy of the current generator, so that the outer stream does not advance.
#[track_caller]
pub fn fork_rng<R>(f: impl FnOnce() -> R) -> R {
    leave("fork_rng");
    generator::within(generator::current(), f)
}
