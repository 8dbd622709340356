//! Compiling functions of tensors.
//!
//! [`compile`] takes a closure and gives back one that is called the same way. Its first call runs the closure on tensors
//! without memory, writes down what it does as a graph (`capture`) and hands that to a [`Backend`]; later calls whose
//! arguments fit the guards run the compiled graph and repeat the closure's recorded [`effects`]. What cannot be in a graph
//! ends it, and the closure goes on (`breaks`), or is an error if one graph was asked for.
//!
//! This crate knows tensors, graphs and kernels; it knows no layers, no files and no terminal.
#![forbid(unsafe_code)]

pub mod backend;
pub mod backends;
pub mod backward;
mod binding;
mod breaks;
mod capture;
mod compiled;
mod disable;
pub mod effects;
mod entry;
mod error;
mod explain;
pub mod fused;
mod guard;
pub mod hooks;
pub mod joint;
mod marks;
mod module;
mod number;
mod options;
pub mod partition;
mod shared;
mod source;
mod stats;
mod times;
pub mod tools;
mod tree;

pub use backend::{Backend, Call, ExampleInput, ExampleValue, Executable, HostCalls, Value, calls_host};
pub use backends::{backend, counter, list_backends};
pub use breaks::{BreakKind, GraphBreak};
pub use compiled::{Compiled, compile, compile_with, graph_break, is_compiling};
pub use disable::{Disabled, disable};
pub use error::{Error, Result};
pub use explain::{Explanation, explain};
pub use marks::{mark_dynamic, mark_static, maybe_mark_dynamic};
pub use module::{CompiledModule, compile_module};
pub use number::Number;
pub use options::{Dynamic, Options, Stance, set_stance, stance};
pub use shared::Shared;
pub use stats::{CacheStats, cache_stats};
pub use times::{CompileTimes, Stage, StageTime, compile_times};
pub use tree::{Host, Leaf, Outcome, Rebuild, Tree};
