//! Schemas of ops as data, for the ops that programs name. The reader is core's; ops this build does not have have none.

use crate::ir::OpOverload;

pub use firebrand_core::schema::{Constant, Schema, SchemaArg, Type};

impl OpOverload {
    /// The schema of the op, if this build has it.
    pub fn schema(&self) -> Option<&'static Schema> {
        self.op().map(Schema::of_op)
    }
}
