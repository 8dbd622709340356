//! The `.pt2` archive: programs that `torch.export.save` wrote, read and written back.
//!
//! `load` and `save` go between archives and [`crate::ExportedProgram`]; `schema` is the JSON as types, `read` and
//! `write` translate graphs, `signature` and `payload` the rest. Reading treats the archive as hostile: it never panics,
//! executes nothing and allocates only after checks, and every error names the entry and the node. The format, and
//! what is rejected, is described in `docs/behaviour/pt2.md`.

mod check;
mod codes;
mod load;
mod payload;
mod read;
mod save;
mod schema;
mod signature;
mod write;

pub use load::LoadOptions;
pub use save::SaveOptions;

use crate::ir::{Function, Hop, Target};
use indexmap::IndexMap;

/// Whether this build can run calls of a target.
fn is_supported(target: &Target) -> bool {
    match target {
        Target::Op(op) => op.op().is_some(),
        Target::Hop(hop) => !matches!(
            hop,
            Hop::Other(_)
                | Hop::AutoFunctionalized
                | Hop::AutoFunctionalizedV2
                | Hop::WithEffects
                | Hop::ExportTracepoint
        ),
        Target::Function(f) => !matches!(f, Function::Other(_)),
    }
}

/// Contents of an archive besides the program, preserved to be written back.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The release that exported the program.
    pub torch_version: String,
    /// User files by name.
    pub files: IndexMap<String, Vec<u8>>,
    /// The example inputs of the export, as PyTorch pickled them; kept, never looked into.
    pub sample_inputs: Vec<u8>,
    /// Versions of op sets by name.
    pub opset_version: IndexMap<String, i64>,
    /// Notes of the exporter on the graph.
    pub metadata: IndexMap<String, String>,
    /// Field names of named tuples in the call structure.
    pub namedtuple_fields: IndexMap<String, serde_json::Value>,
    /// Top-level keys that this build does not know.
    pub other: IndexMap<String, serde_json::Value>,
}
