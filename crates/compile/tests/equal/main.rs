//! Compiled equals plain: programs run plainly and compiled, on every back end, with and without compiled backward.
//!
//! A case is a function of [`How`]: it compiles what it wants compiled through it, and writes everything a user can see to
//! its log: values, gradients, which hooks ran with what, errors. The log of the plain run is what every other run must give.
//! Ids are those of docs/behaviour/compile-and-hooks.md, section (l).
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod asked;
mod combined;
mod edges;
mod functions;
mod hooks;
mod node;
mod plain_rows;
mod scopes;
mod sizes;
mod transforms;

#[path = "../common/cases.rs"]
mod cases;

use cases::{Callable, Case, How, Log, check, leaf, leaf_of, ramp, run, shown, ways};
