//! Passes: pure functions from program to program.
//!
//! A pass takes a program and a [`Context`] and returns a new program with a [`Report`]; its input is never changed. By
//! default a pass preserves the semantics of the program, gradients included; `compat` reproduces what PyTorch does,
//! quirk by quirk (docs/behaviour/graph-and-passes.md §12). Debug builds verify the result of every pass.

mod assertions;
mod autocast;
mod common_subexpressions;
mod constant_fold;
mod dead_code;
mod decompose;
mod fold_batch_norm;
mod functionalize;
mod guards;
mod helpers;
mod inline;
mod lift_constants;
mod lora;
mod nested;
mod node_metadata;
mod placeholder_naming;
mod purity;
mod quantize;
mod quantized;
mod regions;
mod set_grad;
mod side_effects;
mod split;
mod tracepoints;
mod training_mode;
mod view_copy;

pub use assertions::{add_runtime_assertions_for_inline_constraints_pass, remove_runtime_assertions};
pub use autocast::replace_autocast_with_hop_pass;
pub use common_subexpressions::eliminate_common_subexpressions;
pub use constant_fold::{constant_fold, constant_fold_if};
pub use dead_code::eliminate_dead_code;
pub use decompose::run_decompositions;
pub use fold_batch_norm::fold_batch_norm;
pub use functionalize::{Functional, Memory, Mutation, Origin, View, functionalize, functionalize_module};
pub use guards::{insert_conversion_guards_pass, insert_custom_op_guards};
pub use helpers::{node_replace_, nodes_count, nodes_filter, nodes_first, nodes_map};
pub use inline::node_inline_;
pub use lift_constants::{lift_constants, lift_constants_pass};
pub use lora::{AdapterFiles, LoraOptions, load_adapter, lora, merge_lora, save_adapter};
pub use node_metadata::{node_metadata_hook, node_metadata_pass};
pub use placeholder_naming::placeholder_naming_pass;
pub use quantize::{QuantizeOptions, quantize};
pub use quantized::replace_quantized_ops_with_standard_ops;
pub use set_grad::replace_set_grad_with_hop_pass;
pub use side_effects::functionalize_side_effectful_ops_pass;
pub use split::{Split, sequential_split};
pub use tracepoints::collect_tracepoints_pass;
pub use training_mode::{eval_mode, train_mode};
pub use view_copy::replace_view_ops_with_view_copy_ops_pass;

use crate::error::{Error, Result};
use crate::program::ExportedProgram;

/// Context of a pass besides the program.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Grad mode at the call.
    pub ambient_grad: bool,
    /// Whether to reproduce PyTorch's quirks.
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
    /// Whether the program changed.
    pub changed: bool,
    /// Number of rewrites.
    pub rewrites: usize,
}

impl Report {
    /// A report of this many rewrites.
    pub fn of(rewrites: usize) -> Report {
        Report { changed: rewrites > 0, rewrites }
    }
}

/// A pass as a function.
pub type PassFn = fn(&ExportedProgram, &Context) -> Result<(ExportedProgram, Report)>;

/// A pass by name.
#[derive(Debug)]
pub struct Pass {
    /// PyTorch's name.
    pub name: &'static str,
    /// A shorter name.
    pub alias: Option<&'static str>,
    /// One-line summary.
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
    Pass {
        name: "lift_constants_pass",
        alias: Some("lift_constants"),
        summary: "turns constants into inputs",
        run: lift_constants_pass,
    },
    Pass { name: "constant_fold", alias: None, summary: "evaluates expressions of constants", run: constant_fold },
    Pass {
        name: "fold_batch_norm",
        alias: None,
        summary: "makes batch norms in evaluation part of the convolutions before them",
        run: fold_batch_norm,
    },
    Pass {
        name: "functionalize_side_effectful_ops_pass",
        alias: None,
        summary: "orders assertions by tokens",
        run: functionalize_side_effectful_ops_pass,
    },
    Pass {
        name: "add_runtime_assertions_for_inline_constraints_pass",
        alias: None,
        summary: "adds checks for symbols that ops create",
        run: add_runtime_assertions_for_inline_constraints_pass,
    },
    Pass {
        name: "insert_conversion_guards_pass",
        alias: None,
        summary: "inserts checks before conversions",
        run: insert_conversion_guards_pass,
    },
    Pass { name: "node_metadata_pass", alias: None, summary: "adds missing abstract values", run: node_metadata_pass },
    Pass {
        name: "remove_runtime_assertions",
        alias: None,
        summary: "removes run-time assertions",
        run: remove_runtime_assertions,
    },
    Pass {
        name: "replace_view_ops_with_view_copy_ops_pass",
        alias: None,
        summary: "replaces views with copies",
        run: replace_view_ops_with_view_copy_ops_pass,
    },
    Pass {
        name: "replace_quantized_ops_with_standard_ops",
        alias: None,
        summary: "rejects quantized ops",
        run: replace_quantized_ops_with_standard_ops,
    },
    Pass {
        name: "placeholder_naming_pass",
        alias: None,
        summary: "names inputs after their targets",
        run: placeholder_naming_pass,
    },
    Pass {
        name: "collect_tracepoints_pass",
        alias: None,
        summary: "records module calls and erases their markers",
        run: collect_tracepoints_pass,
    },
    Pass { name: "eliminate_dead_code", alias: Some("dce"), summary: "removes unused nodes", run: eliminate_dead_code },
    Pass {
        name: "eliminate_common_subexpressions",
        alias: Some("cse"),
        summary: "merges common subexpressions",
        run: eliminate_common_subexpressions,
    },
    Pass {
        name: "run_decompositions",
        alias: None,
        summary: "decomposes composite ops into core ops",
        run: run_decompositions,
    },
    Pass {
        name: "functionalize",
        alias: None,
        summary: "removes mutations; new values of inputs are returned",
        run: functionalize,
    },
    Pass {
        name: "train_mode",
        alias: None,
        summary: "switches dropout and batch norm to training mode",
        run: train_mode,
    },
    Pass {
        name: "eval_mode",
        alias: None,
        summary: "switches dropout and batch norm to evaluation mode",
        run: eval_mode,
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
