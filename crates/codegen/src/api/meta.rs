//! The name of a structured group.

use crate::schema::FunctionSchema;

/// One name for the whole group: that of the functional operator.
pub fn name(functional: &FunctionSchema) -> String {
    functional.name.to_string().replace('.', "_")
}
