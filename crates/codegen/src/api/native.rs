//! The form of native kernels: like the dispatcher's, with defaults and with symbolic integers only where
//! a kernel takes them.

use super::{Binding, TypeStyle, cpp};
use crate::ctype::{CBase, CType};
use crate::error::Refusal;
use crate::schema::{Argument, FunctionSchema, Type};

/// The name: C++ name and overload.
pub fn name(func: &FunctionSchema) -> String {
    let name = cpp::name(func);
    if func.name.overload_name.is_empty() { name } else { format!("{name}_{}", func.name.overload_name) }
}

fn argument_type(a: &Argument, symint: bool, style: TypeStyle) -> Result<CType, Refusal> {
    if a.ty == Type::Optional(Box::new(Type::TENSOR)) && a.is_write() && !style.const_ref_for_mutable {
        return Ok(CType::from(CBase::Tensor).optional().mut_ref());
    }
    cpp::argument_type(&a.ty, a.is_write(), symint, style)
}

/// All arguments. Out operators have no defaults; tensor options default to nothing.
pub fn arguments(func: &FunctionSchema, symint: bool, style: TypeStyle) -> Result<Vec<Binding>, Refusal> {
    let defaults = !func.is_out_fn();
    let is_option = |a: &Argument| func.arguments.tensor_options.iter().flat_map(|o| o.all()).any(|o| o.name == a.name);
    let one = |a: &Argument| {
        let mut binding = Binding::new(&a.name, argument_type(a, symint, style)?);
        if is_option(a) {
            binding.ty = argument_type(a, symint, style)?;
            if !matches!(binding.ty, CType::Optional(_)) {
                binding.ty = binding.ty.optional();
            }
            binding.default = defaults.then(|| "{}".to_owned());
        } else if let Some(default) = a.default.as_ref().filter(|_| defaults) {
            binding.default = Some(cpp::default_expr(default, &a.ty, symint)?);
        }
        Ok(binding)
    };
    func.arguments.flat_all().map(one).collect()
}
