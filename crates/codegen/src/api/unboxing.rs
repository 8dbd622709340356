//! Unboxing: what the values are called that come out of boxed arguments.

use crate::schema::{FunctionSchema, Type};

/// The name of the unboxing function.
pub fn name(func: &FunctionSchema) -> String {
    func.name.unambiguous_name()
}

/// The name of one unboxed argument, which tells the shape of its type.
pub fn unboxed_name(name: &str, ty: &Type) -> String {
    let suffix = match ty {
        Type::Optional(_) => "opt_out",
        Type::List(..) => "list_out",
        Type::Base(_) | Type::Custom(_) => "base",
    };
    format!("{name}_{suffix}")
}

/// The names of all unboxed arguments, in schema order.
pub fn unboxed_names(func: &FunctionSchema) -> Vec<String> {
    func.arguments.flat_all().map(|a| unboxed_name(&a.name, &a.ty)).collect()
}
