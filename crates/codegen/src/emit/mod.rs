//! Our own generator: from `ops.yaml` and `derivatives.yaml` to the Rust files of `core/src/ops/generated/`.
//!
//! Reads nothing itself: the stages that read PyTorch's files read these too, in the Rust dialect, and emission goes
//! from their model and plans to text. `op` gives declarations Rust types, `derive` turns infos and plans into
//! derivatives, with `formula` and `rewrite` for the expressions; the other modules write one or two files each. Equal
//! input gives equal text. An op that could lose a gradient is an error here, not at run time. Whether shape functions,
//! kernels and helpers exist is left to the Rust compiler.

mod boxed;
mod derive;
mod foreach;
mod formula;
mod functions;
mod methods;
mod nodes;
mod op;
mod python;
mod record;
mod rewrite;
mod text;
mod types;

use crate::dialect::Dialect;
use crate::error::Result;
use crate::pipeline::{NATIVE_FILE, Sources};
pub use python::python_table;
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
    let named = |e: crate::CodegenError| e.with_files(ops.name, derivatives.name);
    let sources = Sources { native: ops.text, derivatives: derivatives.text, tags: None, dialect: Dialect::Rust };
    let model = sources.model().map_err(named)?;
    // The model's order is that of names; emission's is that of the file, where forms follow what they are made from.
    let mut functions: Vec<_> = model.functions.iter().map(|f| &f.func).collect();
    functions.sort_by_key(|f| f.line);
    let declared = op::read(functions).map_err(|e| named(e.in_file(NATIVE_FILE)))?;
    let differentiations = derive::derive(&model, &declared).map_err(named)?;
    let plans: Vec<Plan<'_>> =
        declared.iter().zip(differentiations).map(|(op, differentiation)| Plan { op, differentiation }).collect();
    let signatures = boxed::Signatures::new(&plans);
    let file = |name, text| GeneratedFile { name, text };
    Ok(vec![
        file("below.rs", functions::below(&plans)),
        file("boxed.rs", signatures.text()),
        file("forward.rs", nodes::forward(&plans)),
        file("functions.rs", functions::functions(&plans)),
        file("methods.rs", methods::methods(&plans)),
        file("mod.rs", text::module()),
        file("nodes.rs", nodes::nodes(&plans)),
        file("schema.rs", record::schema(&plans, &signatures).map_err(|e| named(e.in_file(NATIVE_FILE)))?),
    ])
}
