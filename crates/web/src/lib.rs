//! firebrand in the browser: loads an exported program from bytes, runs and trains it, draws its graph as a page, and saves it to
//! bytes. Also the digits task of the page in `web/`.
//!
//! [`Model`], [`Trainer`] and [`DigitsTask`] are plain Rust and work everywhere; `bindings` exposes them to JavaScript and exists
//! only for WebAssembly. Nothing here reads files, starts threads or looks at a clock.
#![deny(missing_docs)]

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod bindings;
mod digits;
mod model;

pub use digits::DigitsTask;
pub use model::{Model, Trainer};
