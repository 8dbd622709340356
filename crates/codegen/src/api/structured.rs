//! The form of structured kernels: never symbolic, light references for optionals and lists, no defaults.

use super::{Binding, cpp};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::native::NativeFunction;
use crate::schema::{Argument, Arguments, BaseTy, FunctionSchema, Type};

type Check<T> = std::result::Result<T, Refusal>;

fn argument_type(ty: &Type) -> Check<CType> {
    if let Some(value) = cpp::value_type(ty, false)? {
        return Ok(value);
    }
    Ok(match ty {
        Type::Base(BaseTy::Tensor) => CType::from(CBase::Tensor).const_ref(),
        Type::Base(_) => CType::from(CBase::Scalar).const_ref(),
        Type::Optional(elem) => match &**elem {
            Type::Base(BaseTy::Tensor) => CBase::OptionalTensorRef.into(),
            Type::Base(BaseTy::Scalar) => CBase::OptionalScalarRef.into(),
            Type::List(elem, _) if elem.is_base(BaseTy::Int) => CBase::OptionalIntArrayRef.into(),
            elem => argument_type(elem)?.optional(),
        },
        Type::List(elem, _) => match &**elem {
            Type::Base(BaseTy::Tensor) => CType::from(CBase::ITensorListRef).const_ref(),
            Type::Optional(inner) if **inner == Type::TENSOR => CBase::IOptTensorListRef.into(),
            Type::Base(BaseTy::Int) => CBase::IntArrayRef.into(),
            elem => CType::ArrayRef(Box::new(argument_type(elem)?)),
        },
        Type::Custom(name) => {
            return Err(Refusal::new(Kind::TypeUnknown, format!("custom class `{name}` has no C++ type")));
        }
    })
}

/// One argument.
pub fn argument(a: &Argument) -> Check<Binding> {
    Ok(Binding::new(&a.name, argument_type(&a.ty)?))
}

fn non_out(arguments: &Arguments) -> Check<impl Iterator<Item = &Argument>> {
    if arguments.tensor_options.is_some() {
        return Err(Refusal::new(Kind::StructuredOptions, "a structured kernel takes no tensor options"));
    }
    Ok(arguments.flat_non_out())
}

/// The arguments of the kernel: precomputed ones replace or follow those of the schema, then the outputs.
pub fn impl_arguments(out: &NativeFunction) -> Check<Vec<Binding>> {
    let mut bindings = Vec::new();
    for a in non_out(&out.func.arguments)? {
        let replaced = out.precomputed.iter().flat_map(|p| &p.replace).find(|(name, _)| *name == a.name);
        match replaced {
            Some((_, with)) => bindings.extend(with.iter().map(argument).collect::<Check<Vec<_>>>()?),
            None => bindings.push(argument(a)?),
        }
    }
    let added = out.precomputed.iter().flat_map(|p| &p.add);
    bindings.extend(added.chain(&out.func.arguments.out).map(argument).collect::<Check<Vec<_>>>()?);
    Ok(bindings)
}

/// The arguments of the shape function.
pub fn meta_arguments(functional: &FunctionSchema) -> Check<Vec<Binding>> {
    non_out(&functional.arguments)?.map(argument).collect()
}
