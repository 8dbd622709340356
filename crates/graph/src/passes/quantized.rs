//! replace_quantized_ops_with_standard_ops: programs with quantized ops come from an older PyTorch format and are errors here.

use super::nested::rewrite_all;
use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::Target;
use crate::program::ExportedProgram;

/// Returns the program unchanged, or an error if it contains a quantized op.
pub fn replace_quantized_ops_with_standard_ops(
    program: &ExportedProgram,
    _: &Context,
) -> Result<(ExportedProgram, Report)> {
    rewrite_all(program, |module| {
        for n in module.graph.nodes() {
            let node = &module.graph[n];
            let quantized = node.target().and_then(Target::overload).is_some_and(|op| {
                matches!(op.namespace(), "quantized" | "prepacked")
                    || matches!(op.qualified(), "aten::quantize_per_tensor" | "aten::dequantize.self")
            });
            if quantized {
                return Err(Error::PassNode {
                    pass: "replace_quantized_ops_with_standard_ops",
                    node: node.name().to_string(),
                    message: "quantized op not supported".to_string(),
                });
            }
        }
        Ok(0)
    })
}
