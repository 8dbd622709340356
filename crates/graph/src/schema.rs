//! Schemas of the ops that programs use, as data. The parser is core's; unsupported ops have no schema.

use crate::ir::OpOverload;

pub use firebrand_core::schema::{Constant, Schema, SchemaArg, Type};

impl OpOverload {
    /// The schema of the op, if this build has it.
    pub fn schema(&self) -> Option<&'static Schema> {
        self.op().map(Schema::of_op)
    }
}
