//! A compiler for functions of tensors.
//!
//! [`compile`] takes a closure and returns a function that is called the same way. Its first call runs the closure on meta
//! tensors, records what it does as a graph (`front`) and passes that to a [`Backend`]; later calls whose arguments match the
//! guards run the compiled graph and replay the closure's recorded [`effects`]. Code that cannot be part of a graph breaks it, and
//! the closure continues (`breaks`); with `fullgraph` that is an error.
//!
//! This crate deals with tensors, graphs and kernels; it knows nothing of layers, files and terminals.
#![forbid(unsafe_code)]

pub mod backend;
pub mod backends;
pub mod backward;
mod breaks;
mod debug;
mod error;
mod front;
pub mod fused;
pub mod joint;
mod times;
pub mod tools;

pub use backend::{Backend, Call, Early, ExampleInput, ExampleValue, Executable, HostCalls, Value, calls_host};
pub use backends::{backend, counter, list_backends};
pub use breaks::{BreakKind, GraphBreak};
pub use error::{Error, Result};
pub use firebrand_core::Number;
pub use firebrand_core::tree::{Host, Leaf, Outcome, Rebuild, SharedRef, TensorTree as Tree};
pub use front::{
    CacheStats, Compiled, CompiledModule, Disabled, Dynamic, Explanation, Options, Shared, Stance, cache_stats,
    compile, compile_module, compile_with, disable, effects, explain, graph_break, hooks, is_compiling, mark_dynamic,
    mark_static, maybe_mark_dynamic, set_stance, stance,
};
pub use joint::partition;
pub use times::{CompileTimes, Stage, StageTime, compile_times};
