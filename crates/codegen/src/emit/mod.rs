//! Our own generator: from `ops.yaml` and `derivatives.yaml` to the Rust files of `core/src/ops/generated/`.
//!
//! The stages: `declare` reads ops, `derive` reads formulas and matches them, with `formula` and `rewrite` for
//! the expressions; the other modules write one or two files each. Equal input gives equal text. An op that could lose
//! a gradient is an error here, not at run time. Whether shape functions, kernels and helpers exist is left to the
//! Rust compiler.

mod declare;
mod derive;
mod foreach;
mod formula;
mod functions;
mod methods;
mod nodes;
mod rewrite;
mod table;
mod text;
mod types;

use crate::error::Result;
use text::Plan;

/// A generated file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratedFile {
    /// Its name in the folder of generated files.
    pub name: &'static str,
    /// Its content.
    pub text: String,
}

/// A source file with the name that errors give it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Shown in errors.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// Generates every file. The first problem found is the error.
pub fn generate(ops: Source<'_>, derivatives: Source<'_>) -> Result<Vec<GeneratedFile>> {
    let declared = declare::read(ops.text).map_err(|e| e.in_file(ops.name))?;
    // A lost gradient is a fault of the op's entry, everything else of the derivative's.
    let place = |e: crate::CodegenError| match e.stage {
        crate::Stage::Native => e.in_file(ops.name),
        _ => e.in_file(derivatives.name),
    };
    let differentiations = derive::read(derivatives.text, &declared).map_err(place)?;
    let plans: Vec<Plan<'_>> =
        declared.iter().zip(differentiations).map(|(op, differentiation)| Plan { op, differentiation }).collect();
    let file = |name, text| GeneratedFile { name, text };
    Ok(vec![
        file("api.rs", methods::api(&plans)),
        file("below.rs", functions::below(&plans)),
        file("boxed.rs", table::boxed(&plans)),
        file("forward.rs", nodes::forward(&plans)),
        file("functions.rs", functions::functions(&plans)),
        file("methods.rs", methods::methods(&plans)),
        file("mod.rs", text::module()),
        file("nodes.rs", nodes::nodes(&plans)),
        file("schema.rs", table::schema(&plans)),
    ])
}
