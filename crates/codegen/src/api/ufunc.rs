//! ufuncs.
use crate::schema::FunctionSchema;
/// kernel name
pub fn schema_kernel_name(func: &FunctionSchema, key: &str) -> String {
    format!("ufunc_{}_{key}", func.base())
}
