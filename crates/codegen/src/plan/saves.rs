//! The statements of a wrapper that fill its node: expressions and guards.

use super::wrapper::Context;
use super::{Guard, Save};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::model::{DifferentiabilityInfo, SavedAttribute};
use crate::schema::Type;

/// Saved values in the order of fields and saves.
pub(super) fn sorted(saved: &[SavedAttribute]) -> Vec<&SavedAttribute> {
    let mut sorted: Vec<_> = saved.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    sorted
}

/// All saves of a wrapper: inputs with their guards, then outputs.
pub(super) fn saves(context: &Context<'_>, info: &DifferentiabilityInfo) -> Result<Vec<Save>, Refusal> {
    let mut saves = Vec::new();
    for saved in sorted(&info.all_saved_inputs) {
        let (field, expr) = expression(context, saved, false);
        saves.push(Save { field, expr, guard: guard(context, info, saved)? });
    }
    for saved in sorted(&info.all_saved_outputs) {
        let (field, expr) = expression(context, saved, true);
        saves.push(Save { field, expr, guard: None });
    }
    Ok(saves)
}

/// Whether a value is saved as a tensor, by hooks and with a version.
pub(super) fn is_saved_variable(ty: &CType, is_output: bool) -> bool {
    let tensor = CType::from(CBase::Tensor);
    *ty == tensor || *ty == tensor.optional() || is_output && *ty == CType::Base(CBase::Scalar)
}

/// The field and the value assigned to it.
fn expression(context: &Context<'_>, saved: &SavedAttribute, is_output: bool) -> (String, String) {
    let name = &saved.name;
    let field = format!("{name}_");
    // In-place foreach runs the reference's formulas on element `i`: names become elements.
    let reference = name.split("_scalar_type").next().unwrap_or(name);
    let element = context.foreach_argument(reference).map(|a| match a.ty {
        Type::List(..) => format!("{}[i]", a.name),
        _ => a.name.clone(),
    });
    let on_element = |expr: String| match &element {
        Some(element) => expr.replace(reference, element),
        None => expr,
    };
    if is_saved_variable(&saved.ty, is_output) {
        let in_place_foreach = context.in_place_foreach();
        let expr = match (context.in_place, is_output) {
            (true, false) if name == "self" && in_place_foreach => {
                "SavedVariable(original_selfs[i].value(), false)".to_owned()
            }
            (true, false) if name == "self" => "SavedVariable(original_self.value(), false)".to_owned(),
            (true, true) if in_place_foreach => "SavedVariable(self[i], true, self[i].is_view())".to_owned(),
            (true, true) => "SavedVariable(self, true, self.is_view())".to_owned(),
            (_, is_output) => on_element(format!("SavedVariable({name}, {is_output})")),
        };
        return (field, expr);
    }
    let expr = on_element(saved.expr.clone());
    match &saved.ty {
        CType::Base(CBase::TensorList | CBase::ITensorListRef) => {
            (field, make_list(name, context.is_foreach && is_output))
        }
        CType::List(elem) if **elem == CType::from(CBase::Tensor).optional() => {
            (field, make_list(name, context.is_foreach && is_output))
        }
        CType::Vector(elem) if **elem == CType::Base(CBase::Tensor) => {
            (field, make_list(name, context.is_foreach && is_output))
        }
        CType::Base(CBase::IntArrayRef | CBase::SymIntArrayRef) => (name.clone(), format!("{expr}.vec()")),
        CType::ArrayRef(elem) if **elem == CType::Base(CBase::Scalar) => (name.clone(), format!("{expr}.vec()")),
        CType::Base(CBase::StringView) => (name.clone(), format!("std::string({expr})")),
        CType::Optional(elem) if **elem == CType::Base(CBase::StringView) => {
            let value = format!("::std::optional<std::string>(std::string({expr}.value()))");
            (name.clone(), format!("{expr}.has_value() ? {value} : ::std::nullopt"))
        }
        _ => (name.clone(), expr),
    }
}

fn make_list(name: &str, is_output: bool) -> String {
    format!("make_saved_variable_list({name}, {is_output})")
}

/// The condition under which a saved input will be used, when it is worth testing.
fn guard(
    context: &Context<'_>,
    info: &DifferentiabilityInfo,
    saved: &SavedAttribute,
) -> Result<Option<Guard>, Refusal> {
    let takes_list = context.with_derivatives.iter().any(|a| a.is_tensor_list());
    if takes_list && !context.in_place_foreach()
        || info.name.contains("backward")
        || context.with_derivatives.len() <= 1
        || saved.ty != CType::Base(CBase::Tensor)
    {
        return Ok(None);
    }
    let mut users = info.derivatives.iter().filter(|d| d.saved_inputs.contains(saved));
    let (Some(user), None) = (users.next(), users.next()) else { return Ok(None) };
    match user.var_names.as_slice() {
        [var] => {
            let position = context.with_derivatives.iter().position(|a| a.name == *var);
            Ok(position.map(Guard::Needs))
        }
        _ => Ok(wrap_opt_if_condition(&user.formula, &saved.name)?.map(Guard::Condition)),
    }
}

/// The condition a formula gives in `wrap_opt_if(NAME, condition)`.
fn wrap_opt_if_condition(formula: &str, name: &str) -> Result<Option<String>, Refusal> {
    let Some(at) = formula.find(&format!("wrap_opt_if({name}")) else { return Ok(None) };
    let rest = &formula[at + "wrap_opt_if(".len() + name.len()..];
    let inside = rest.strip_prefix(',').and_then(|rest| rest.split_once(')')).map(|(inside, _)| inside);
    let Some(inside) = inside.filter(|inside| !inside.contains('\n')) else {
        let message = format!("`wrap_opt_if({name}` must be followed by a comma and a condition");
        return Err(Refusal::new(Kind::EmitWrapOptIf, message));
    };
    // One character is dropped unseen; it is meant to be the space after the comma.
    let mut condition = inside.chars();
    condition.next();
    Ok(Some(masks_to_needs(condition.as_str().trim())))
}

/// `grad_input_mask[n]` → `grad_fn->should_compute_output(n)`.
fn masks_to_needs(condition: &str) -> String {
    const MASK: &str = "grad_input_mask[";
    let mut out = String::with_capacity(condition.len() * 2);
    let mut rest = condition;
    while let Some(at) = rest.find(MASK) {
        let (before, mask) = rest.split_at(at);
        let inside = &mask[MASK.len()..];
        out.push_str(before);
        match inside.split_once(']').filter(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
            Some((n, tail)) => {
                out.push_str(&format!("grad_fn->should_compute_output({n})"));
                rest = tail;
            }
            None => {
                out.push_str(MASK);
                rest = inside;
            }
        }
    }
    out.push_str(rest);
    out
}
