//! firebrand in the browser: an exported program from its bytes, its results, training steps, and its bytes again; its graph
//! as a page; and the digits, which the page in `web/` learns.
//!
//! [`Model`], [`Trainer`] and [`DigitsTask`] are plain Rust and work everywhere; `bindings` gives them to JavaScript and
//! exists only for WebAssembly. Nothing here reads files, starts threads or looks at a clock.
#![deny(missing_docs)]

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod bindings;
mod digits;
mod model;

pub use digits::DigitsTask;
pub use model::{Model, Trainer};
