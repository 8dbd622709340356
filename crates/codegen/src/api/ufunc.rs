//! ufuncs: operators whose kernel is one scalar loop body.

use super::{Binding, cpp, structured};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::schema::{Argument, BaseTy, FunctionSchema, Type};

type Check<T> = std::result::Result<T, Refusal>;

/// The name of the kernel for a key.
pub fn schema_kernel_name(out: &FunctionSchema, key: &str) -> String {
    format!("ufunc_{}_{key}", out.name.name)
}

/// The type of an argument when tensors and scalars are computed in one type.
fn computed_type(ty: &Type, compute: &CType) -> Check<CType> {
    match cpp::value_type(ty, false)? {
        Some(value) => Ok(value),
        None if matches!(ty, Type::Base(BaseTy::Scalar | BaseTy::Tensor)) => Ok(compute.clone()),
        None => Err(Refusal::new(Kind::UfuncUnsupported, format!("`{ty}` cannot be an argument of a ufunc"))),
    }
}

/// Arguments of the inner loop.
pub fn ufunc_arguments(functional: &FunctionSchema, compute: &CType) -> Check<Vec<Binding>> {
    let one = |a: &Argument| Ok(Binding::new(&a.name, computed_type(&a.ty, compute)?));
    functional.arguments.flat_non_out().map(one).collect()
}

/// Arguments of the stub that selects a kernel: everything that is not a tensor.
pub fn stub_arguments(out: &FunctionSchema) -> Check<Vec<Binding>> {
    out.arguments.flat_non_out().filter(|a| !a.ty.is_tensor_like()).map(structured::argument).collect()
}

/// The two halves of a functor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ufunctor {
    /// What its constructor takes.
    pub ctor: Vec<Binding>,
    /// What each call takes.
    pub apply: Vec<Binding>,
}

/// A functor that takes tensor number `scalar_tensor` (if any) and all non-tensors once, the rest per call.
pub fn ufunctor_arguments(functional: &FunctionSchema, scalar_tensor: Option<usize>) -> Check<Ufunctor> {
    let mut functor = Ufunctor { ctor: Vec::new(), apply: Vec::new() };
    let mut tensors = 0;
    for a in functional.arguments.flat_non_out() {
        let is_tensor = a.ty.is_tensor_like();
        if is_tensor && scalar_tensor != Some(tensors) {
            functor.apply.push(Binding::new(&a.name, computed_type(&a.ty, &CBase::ScalarT.into())?));
        } else {
            functor.ctor.push(Binding::new(&a.name, computed_type(&a.ty, &CBase::OpmathT.into())?));
        }
        tensors += usize::from(is_tensor);
    }
    if scalar_tensor.is_some_and(|n| n >= tensors) {
        return Err(Refusal::new(Kind::UfuncUnsupported, format!("there are only {tensors} tensors")));
    }
    Ok(functor)
}
