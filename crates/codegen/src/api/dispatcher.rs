//! The dispatcher's form: schema order, tensor options as four arguments, out arguments last, symbolic
//! integers, no defaults.

use super::{Binding, TypeStyle, cpp};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::schema::{Argument, BaseTy, FunctionSchema, Type};

/// The name, which is the C++ name.
pub fn name(func: &FunctionSchema) -> String {
    cpp::name(func)
}

/// One argument.
pub fn argument(a: &Argument, style: TypeStyle) -> Result<Binding, Refusal> {
    Ok(Binding::new(&a.name, cpp::argument_type(&a.ty, a.is_write(), true, style)?))
}

/// One argument as a value that owns its memory.
pub fn owning_argument(a: &Argument, style: TypeStyle) -> Result<Binding, Refusal> {
    match &a.ty {
        Type::List(elem, _) if elem.is_base(BaseTy::Int) => {
            Ok(Binding::new(&a.name, CType::from(CBase::Long).vector()))
        }
        Type::List(elem, _) if elem.is_base(BaseTy::SymInt) => {
            Ok(Binding::new(&a.name, CType::from(CBase::SymInt).vector()))
        }
        Type::Base(BaseTy::Str) => {
            Err(Refusal::new(Kind::TypeUnknown, format!("`{a}`: text cannot be owned by an attribute")))
        }
        _ => argument(a, style),
    }
}

/// All arguments.
pub fn arguments(func: &FunctionSchema, style: TypeStyle) -> Result<Vec<Binding>, Refusal> {
    func.arguments.flat_all().map(|a| argument(a, style)).collect()
}
