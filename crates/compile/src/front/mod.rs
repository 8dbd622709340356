//! The front: turns a closure into calls of compiled graphs.
//!
//! `compiled` is the callable with its cache; the `leaves` of a call's arguments are checked by `guard`. If no `entry` fits,
//! `capture` runs the closure once and a backend gets the graph. `binding` and `source` say which tensors of a call stand
//! for those of the capture; `shared`, `hooks` and `effects` are what closures use inside. Modules here depend on each other
//! one way, in the order `leaves`, `source`, `binding`, `guard`, `capture`, `entry`, `compiled`.

mod binding;
mod capture;
mod compiled;
mod disable;
pub mod effects;
mod entry;
mod explain;
mod guard;
pub mod hooks;
mod leaves;
mod marks;
mod module;
mod options;
mod shared;
mod source;
mod stats;

pub use compiled::{Compiled, compile, compile_with, graph_break, is_compiling};
pub use disable::{Disabled, disable};
pub use explain::{Explanation, explain};
pub use marks::{mark_dynamic, mark_static, maybe_mark_dynamic};
pub use module::{CompiledModule, compile_module};
pub use options::{Dynamic, Options, Stance, set_stance, stance};
pub use shared::Shared;
pub(crate) use shared::watching;
pub use stats::{CacheStats, cache_stats};
