//! Passes: pure functions from program to program.
//!
//! A pass takes a program and a [`Context`] and returns a new program with a [`Report`]; its input is never changed. By
//! default a pass keeps the meaning of the program, gradients included; `compat` reproduces what the reference does,
//! quirk by quirk (docs/behaviour/graph-and-passes.md §12). Debug builds verify the result of every pass.

mod autocast;
mod helpers;
mod inline;
mod regions;
mod set_grad;
mod split;

pub use autocast::replace_autocast_with_hop_pass;
pub use helpers::{node_replace_, nodes_count, nodes_filter, nodes_first, nodes_map};
pub use inline::node_inline_;
pub use set_grad::replace_set_grad_with_hop_pass;
pub use split::{Split, sequential_split};

use crate::error::{Error, Result};
use crate::program::ExportedProgram;

/// What a pass may need to know besides the program.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Whether recording is on where the program is called.
    pub ambient_grad: bool,
    /// Whether to reproduce the reference's quirks.
    pub compat: bool,
}

impl Default for Context {
    fn default() -> Context {
        Context { ambient_grad: true, compat: false }
    }
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the program is another one.
    pub changed: bool,
    /// How many nodes or places it rewrote.
    pub rewrites: usize,
}

impl Report {
    /// That this many places were rewritten.
    pub fn of(rewrites: usize) -> Report {
        Report { changed: rewrites > 0, rewrites }
    }
}

/// A pass as a function.
pub type PassFn = fn(&ExportedProgram, &Context) -> Result<(ExportedProgram, Report)>;

/// A pass by name.
pub struct Pass {
    /// The reference's name of it.
    pub name: &'static str,
    /// A shorter name.
    pub alias: Option<&'static str>,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Runs it.
    pub run: PassFn,
}

/// Every pass.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "replace_set_grad_with_hop_pass",
        alias: Some("set_grad"),
        summary: "turns grad-mode markers into regions",
        run: replace_set_grad_with_hop_pass,
    },
    Pass {
        name: "replace_autocast_with_hop_pass",
        alias: Some("autocast"),
        summary: "turns autocast markers into regions",
        run: replace_autocast_with_hop_pass,
    },
];

/// The pass with this name or alias.
pub fn find(name: &str) -> Result<&'static Pass> {
    PASSES.iter().find(|p| p.name == name || p.alias == Some(name)).ok_or_else(|| Error::UnknownPass {
        name: name.to_string(),
        known: PASSES.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
    })
}

/// Runs passes one after another; debug builds verify each result.
pub fn run(program: &ExportedProgram, passes: &[&Pass], context: &Context) -> Result<(ExportedProgram, Vec<Report>)> {
    let mut program = program.clone();
    let mut reports = Vec::new();
    for pass in passes {
        let (next, report) = (pass.run)(&program, context)?;
        if cfg!(debug_assertions) {
            crate::verify::verify_module(&next.module)?;
        }
        program = next;
        reports.push(report);
    }
    Ok((program, reports))
}
