//! Compiling functions of tensors.
//!
//! This crate knows tensors, graphs and kernels; it knows no layers, no files and no terminal.
#![forbid(unsafe_code)]

pub mod backend;
mod breaks;
mod error;
pub mod fused;
pub mod hooks;
pub mod joint;
pub mod partition;
pub mod tools;

pub use backend::{Backend, Call, ExampleInput, ExampleValue, Executable, Value};
pub use breaks::{BreakKind, GraphBreak};
pub use error::{Error, Result};
