//! Effects: what a compiled function does besides computing, at every call.
//!
//! A captured function runs once per compilation, so other host code in it runs once per compilation too. What must
//! happen at every call is recorded here (or through a [`Shared`](crate::Shared) cell, a hook, a buffer) and replayed in
//! program order after the graph ran.

use crate::front::capture;

/// Runs `f` at every call of the function that is currently being captured. Outside a capture it runs now.
pub fn record(f: impl Fn() + Send + Sync + 'static) {
    capture::effect(f)
}

/// Like [`record`], with tensors and other values of the captured function: `f` gets those of the call.
pub fn record_with<T: firebrand_core::TensorTree + Send + Sync>(value: T, f: impl Fn(T) + Send + Sync + 'static) {
    match capture::session() {
        Some(session) => session.effect_with(value, f),
        None => f(value),
    }
}
