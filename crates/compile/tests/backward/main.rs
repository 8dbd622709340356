//! Compiled backward: every row runs with each back end and is compared with what a plain run gives.

#[path = "../common/mod.rs"]
mod common;
mod counts;
mod hooks;
mod modules;
mod ops;
mod suite;

use common::counted;
use firebrand_compile::backends::Counter;
use firebrand_compile::backward::{CompiledBackward, Options};
use std::sync::Arc;

/// A compiled backward with a counting back end, for each back end.
fn compilers() -> Vec<(&'static str, Arc<Counter>, CompiledBackward)> {
    with(|_| ())
}

/// Likewise, with other options.
fn with(change: impl Fn(&mut Options)) -> Vec<(&'static str, Arc<Counter>, CompiledBackward)> {
    let make = |(name, counter): (&'static str, Arc<Counter>)| {
        let mut options = Options::with_backend(counter.clone());
        change(&mut options);
        (name, counter, CompiledBackward::new(options))
    };
    counted().into_iter().map(make).collect()
}
