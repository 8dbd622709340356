//! The Rust form of an operator, as far as formulas see it: which arguments there are.

use super::{Binding, TypeStyle, cpp};
use crate::error::Refusal;
use crate::native::NativeFunction;
use crate::schema::{Argument, BaseTy};

/// Whether an argument is part of the schema only: layouts, pinned memory and generators are not passed in Rust.
pub fn is_dropped(a: &Argument) -> bool {
    match a.ty.innermost() {
        Some(BaseTy::Layout | BaseTy::Generator) => true,
        Some(BaseTy::Bool) => a.name == "pin_memory",
        _ => false,
    }
}

/// The arguments formulas see: those of the schema in its order, tensor options one by one.
pub fn formula_arguments(f: &NativeFunction) -> Result<Vec<Binding>, Refusal> {
    let passed = f.func.arguments.flat_non_out().filter(|a| !is_dropped(a));
    passed.map(|a| Ok(Binding::new(&a.name, cpp::argument_type(&a.ty, false, true, TypeStyle::default())?))).collect()
}
