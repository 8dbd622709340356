//! Differentiable inputs and outputs: which arguments and returns can carry a gradient.

use crate::api::{TypeStyle, cpp};
use crate::ctype::CType;
use crate::error::{Kind, Refusal};
use crate::model::{DifferentiabilityInfo, FunctionWithInfo};
use crate::schema::{SchemaKind, Type};

/// A return that can carry a gradient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DifferentiableOutput {
    /// Its name.
    pub name: String,
    /// Its schema type.
    pub ty: Type,
    /// Its C++ type.
    pub cpp_type: CType,
}

/// Whether an argument or return of this name and type can carry a gradient.
pub fn is_differentiable(name: &str, ty: &Type, info: Option<&DifferentiabilityInfo>) -> bool {
    let excluded = info.is_some_and(|info| info.non_differentiable_arg_names.iter().any(|n| n == name));
    ty.is_tensor_like() && !excluded
}

/// Whether some backward formula uses the gradient of the first output alone.
pub fn uses_single_grad(info: Option<&DifferentiabilityInfo>) -> bool {
    info.is_some_and(|info| info.derivatives.iter().any(|d| info.dialect.uses(&d.formula, "grad")))
}

/// Whether some backward formula asks whether saved values must survive it.
pub fn uses_retain_variables(info: Option<&DifferentiabilityInfo>) -> bool {
    info.is_some_and(|info| info.derivatives.iter().any(|d| info.dialect.uses(&d.formula, "retain_variables")))
}

/// The returns of a function that can carry a gradient, under one key.
pub fn differentiable_outputs(
    f: &FunctionWithInfo,
    info: Option<&DifferentiabilityInfo>,
) -> Result<Vec<DifferentiableOutput>, Refusal> {
    let func = &f.func;
    let style = TypeStyle::of(func);
    let mut outputs = Vec::with_capacity(func.func.returns.len());
    for (name, r) in cpp::return_names(func).into_iter().zip(&func.func.returns) {
        let cpp_type = cpp::return_type(&r.ty, r.is_write(), style)?;
        outputs.push(DifferentiableOutput { name, ty: r.ty.clone(), cpp_type });
    }
    if let Some(flags) = info.and_then(|info| info.output_differentiability.as_ref()) {
        if flags.len() != outputs.len() {
            let message = format!("output_differentiability has {} items for {} returns", flags.len(), outputs.len());
            return Err(Refusal::new(Kind::OutdiffLength, message));
        }
        if flags.contains(&false) && func.kind() == SchemaKind::Inplace {
            return Err(Refusal::new(
                Kind::OutdiffInplace,
                "the output of an in-place operator is always differentiable",
            ));
        }
        let mut flags = flags.iter();
        outputs.retain(|_| flags.next().is_some_and(|on| *on));
        return Ok(outputs);
    }
    outputs.retain(|output| is_differentiable(&output.name, &output.ty, info));
    if uses_single_grad(info) {
        outputs.truncate(1);
    }
    Ok(outputs)
}
