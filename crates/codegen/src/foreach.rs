//! Foreach operators: their infos are derived from the operator they apply to each element.
//!
//! All replacements here are plain text, not identifiers, as in the reference.

use crate::api::{Binding, TypeStyle, cpp};
use crate::ctype::CBase;
use crate::error::{Kind, Refusal};
use crate::matching::BySignature;
use crate::model::{DEFAULT_KEY, Derivative, DifferentiabilityInfo, ForwardDerivative, SavedAttribute};
use crate::names;
use crate::native::NativeFunction;
use crate::schema::{Argument, FunctionSchema, SchemaKind, Type};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

type Check<T> = std::result::Result<T, Refusal>;

/// The schema and info of the operator that a foreach operator applies to each element.
pub(crate) fn find_reference<'a>(
    func: &NativeFunction,
    functional: &'a BySignature,
    other: &'a BySignature,
) -> Check<Option<(&'a FunctionSchema, &'a Rc<DifferentiabilityInfo>)>> {
    let base = func.func.base().rsplit("_foreach_").next().unwrap_or_default();
    let first =
        |map: &'a BySignature| map.iter().find(|(schema, _)| schema.base() == base && is_reference(func, schema));
    let mut found = first(functional);
    if found.is_none() && func.kind() == SchemaKind::Inplace && has_inplace_reference(func) {
        found = first(other);
    }
    let Some((schema, by_key)) = found else { return Ok(None) };
    match by_key.get(DEFAULT_KEY) {
        Some(info) => Ok(Some((schema, info))),
        None => {
            let message = format!("the reference `{}` has no {DEFAULT_KEY} formulas", schema.name);
            Err(Refusal::new(Kind::ForeachNoDefaultKey, message))
        }
    }
}

/// The one foreach operator whose reference exists only in place.
fn has_inplace_reference(func: &NativeFunction) -> bool {
    func.func.name.to_string() == "_foreach_zero_"
}

/// Whether the arguments fit; the name does.
fn is_reference(func: &NativeFunction, schema: &FunctionSchema) -> bool {
    if schema.name.name.inplace && !has_inplace_reference(func) {
        return false;
    }
    let ours = || func.func.arguments.flat_non_out();
    let theirs = || schema.arguments.flat_non_out();
    let full_name = format!("{}.{}", func.func.base(), func.func.name.overload_name);
    let other_arity = names::contains(names::INPLACE_FOREACH_OTHER_ARITY, &full_name);
    let element = |ty: &Type, of: &Type| match ty {
        Type::List(elem, _) | Type::Optional(elem) => **elem == *of,
        _ => false,
    };
    (other_arity || ours().count() == theirs().count())
        && ours().zip(theirs()).all(|(a, r)| a.ty == r.ty || element(&a.ty, &r.ty))
}

/// Arguments of a foreach operator by the names their references have.
struct Paired<'a> {
    by_reference: HashMap<&'a str, &'a Argument>,
    style: TypeStyle,
}

impl<'a> Paired<'a> {
    fn argument(&self, reference: &str) -> Check<&'a Argument> {
        self.by_reference.get(reference).copied().ok_or_else(|| {
            Refusal::new(Kind::ForeachUnmappedArg, format!("`{reference}` is not an argument of the foreach operator"))
        })
    }

    fn binding(&self, a: &Argument) -> Check<Binding> {
        Ok(Binding::new(&a.name, cpp::argument_type(&a.ty, a.is_write(), false, self.style)?))
    }
}

/// The info of a foreach operator that returns new tensors.
pub(crate) fn derive(
    func: &Rc<NativeFunction>,
    reference: &FunctionSchema,
    info: &DifferentiabilityInfo,
) -> Check<DifferentiabilityInfo> {
    let ours = || func.func.arguments.flat_non_out();
    let paired = Paired {
        by_reference: ours().zip(reference.arguments.flat_non_out()).map(|(a, r)| (r.name.as_str(), a)).collect(),
        style: TypeStyle::of(func),
    };
    let derivatives = info.derivatives.iter().map(|d| derivative(d, &paired)).collect::<Check<Vec<_>>>()?;
    let differentiated = |name: &String| derivatives.iter().any(|d| d.var_names.contains(name));
    let args_with_derivatives =
        ours().filter(|a| differentiated(&a.name)).map(|a| paired.binding(a)).collect::<Check<Vec<_>>>()?;
    let forward_derivatives =
        info.forward_derivatives.iter().map(|f| forward(f, func, &info.func.func)).collect::<Check<Vec<_>>>()?;
    let union = |of: fn(&Derivative) -> &[SavedAttribute]| {
        let mut all: Vec<SavedAttribute> = derivatives.iter().flat_map(of).cloned().collect();
        all.sort_by_cached_key(|saved| (saved.name.clone(), saved.ty.cpp_type(), saved.expr.clone()));
        all.dedup();
        all
    };
    let reference_op = info.op.as_deref().unwrap_or("None");
    Ok(DifferentiabilityInfo {
        name: func.func.base().to_owned(),
        dialect: info.dialect,
        func: Rc::clone(func),
        op: Some(format!("Foreach{reference_op}{}", func.func.name.overload_name)),
        all_saved_inputs: union(|d| &d.saved_inputs),
        all_saved_outputs: union(|d| &d.saved_outputs),
        derivatives,
        forward_derivatives,
        available_named_gradients: Vec::new(),
        used_named_gradients: BTreeSet::new(),
        args_with_derivatives,
        non_differentiable_arg_names: Vec::new(),
        output_differentiability: None,
        output_differentiability_conditions: None,
    })
}

/// A backward formula for element `i`.
fn derivative(reference: &Derivative, paired: &Paired<'_>) -> Check<Derivative> {
    let mut formula = reference.formula.replace("grad", "grads[i]").replace("result", "result[i]");
    let mut saved_inputs = Vec::with_capacity(reference.saved_inputs.len());
    for saved in &reference.saved_inputs {
        let base = saved.expr.split('.').next().unwrap_or_default();
        let argument = paired.argument(base)?;
        let expr = saved.expr.replace(base, &element(argument));
        formula = formula.replace(&saved.name, &expr);
        let Binding { name, ty, .. } = paired.binding(argument)?;
        saved_inputs.push(SavedAttribute::whole(&name, ty.remove_const_ref()));
    }
    let saved_output = |saved: &SavedAttribute| {
        if saved.name != "result" {
            let message = format!("a foreach formula can save `result` whole, not `{}`", saved.name);
            return Err(Refusal::new(Kind::ForeachSavedOutput, message));
        }
        Ok(SavedAttribute::whole("result", CBase::TensorList.into()))
    };
    Ok(Derivative {
        formula,
        original_formula: reference.formula.clone(),
        saved_outputs: reference.saved_outputs.iter().map(saved_output).collect::<Check<_>>()?,
        saved_inputs,
        var_names: reference
            .var_names
            .iter()
            .map(|name| Ok(paired.argument(name)?.name.clone()))
            .collect::<Check<_>>()?,
        named_gradients: BTreeSet::new(),
        line: reference.line,
    })
}

/// How element `i` sees an argument.
fn element(argument: &Argument) -> String {
    match argument.ty {
        Type::List(..) => format!("{}[i]", argument.name),
        _ => argument.name.clone(),
    }
}

/// Foreach operators that take one plain tensor for all elements and have a forward formula.
const WITH_PLAIN_TENSOR: [&str; 3] = ["_foreach_add.Tensor", "_foreach_mul.Tensor", "_foreach_div.Tensor"];

/// A forward formula for element `i`.
fn forward(
    reference: &ForwardDerivative,
    func: &NativeFunction,
    canonical: &FunctionSchema,
) -> Check<ForwardDerivative> {
    let mut forward = reference.clone();
    forward.formula = forward.formula.replace("result", "result[i]");
    for (ours, theirs) in func.func.arguments.flat_non_out().zip(canonical.arguments.flat_non_out()) {
        let (to, from) = (&ours.name, &theirs.name);
        let is_list = matches!(ours.ty, Type::List(..));
        if ours.ty.is_tensor_like() {
            let plain_is_fine = ours.ty == Type::TENSOR && WITH_PLAIN_TENSOR.contains(&&*func.func.name.to_string());
            if !is_list && !plain_is_fine {
                let message = format!("`{to}` is a plain tensor, which a foreach formula cannot use");
                return Err(Refusal::new(Kind::ForeachTensorArg, message));
            }
            for suffix in ["_p", "_t"] {
                forward.formula = forward.formula.replace(&format!("{from}{suffix}"), &format!("{to}{suffix}"));
            }
        } else if is_list {
            forward.formula = forward.formula.replace(from, &format!("{to}[i]"));
        } else if to != from {
            forward.formula = forward.formula.replace(from, to);
        }
        let lists = [&mut forward.var_names, &mut forward.required_inputs_fw_grad, &mut forward.required_inputs_primal];
        for name in lists.into_iter().flatten().filter(|name| *name == from) {
            name.clone_from(to);
        }
    }
    Ok(forward)
}
