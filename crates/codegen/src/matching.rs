//! Matching: which infos each declared or generated function uses.
//!
//! Variants share the info of the functional operator with their signature; foreach operators get theirs
//! from a reference; in-place functions get their forward formula rewritten. Functions are processed in
//! the order of their C++ names, because infos made for foreach operators join the model in that order.

use crate::api::cpp;
use crate::dialect::Dialect;
use crate::error::{Kind, Refusal, Result, Stage};
use crate::foreach;
use crate::hash::QuickIndexMap;
use crate::model::{
    DEFAULT_KEY, DifferentiabilityInfo, ForwardDerivative, FunctionWithInfo, Infos, InfosByKey, MatchRule,
    OperatorInfos, Origin,
};
use crate::native::NativeFunction;
use crate::schema::{FunctionSchema, SchemaKind};
use indexmap::IndexMap;
use std::rc::Rc;

/// Infos by signature without defaults, in model order.
pub(crate) type BySignature = QuickIndexMap<FunctionSchema, InfosByKey>;

/// Finds the infos of every function; adds infos for foreach operators.
pub fn match_functions(
    functions: &[Rc<NativeFunction>],
    infos: &mut Infos,
    dialect: Dialect,
) -> Result<Vec<FunctionWithInfo>> {
    let (mut functional, mut other) = (BySignature::default(), BySignature::default());
    functional.reserve(infos.len());
    for operator in infos.values() {
        let map = if operator.func.kind() == SchemaKind::Functional { &mut functional } else { &mut other };
        map.insert(operator.func.func.signature_without_defaults(), operator.by_key.clone());
    }
    let mut ordered: Vec<_> = functions.iter().map(|f| (cpp::name(&f.func), f)).collect();
    ordered.sort_by(|a, b| a.0.cmp(&b.0));
    let mut matched = Vec::with_capacity(ordered.len());
    for (_, func) in ordered {
        let one = match_one(func, infos, &functional, &other, dialect);
        matched.push(one.map_err(|e| e.at_stage(Stage::Match).at(func.line, &func.text))?);
    }
    Ok(matched)
}

fn match_one(
    func: &Rc<NativeFunction>,
    infos: &mut Infos,
    functional: &BySignature,
    other: &BySignature,
    dialect: Dialect,
) -> Result<FunctionWithInfo, Refusal> {
    let (rule, info) = find_info(func, infos, functional, other)?;
    let mut matched = FunctionWithInfo { func: Rc::clone(func), info, fw_derivatives: None, rule };
    let Some(infos) = &matched.info else { return Ok(matched) };
    let in_place = func.kind() == SchemaKind::Inplace;
    if in_place && infos.values().any(|info| saves_strides_of_self(info)) {
        return Err(Refusal::new(Kind::InplaceStrides, "the strides of self are gone after an in-place operator"));
    }
    let mut forward = IndexMap::with_capacity(infos.len());
    for (key, info) in infos {
        let list: Rc<[ForwardDerivative]> = match info.forward_derivatives.as_slice() {
            [] => Rc::new([]),
            list if !in_place => list.into(),
            [only] => Rc::new([in_place_forward(info, only, matched.is_exact(), dialect)?]),
            _ => {
                let message = "an in-place operator has one forward formula";
                return Err(Refusal::new(Kind::InplaceManyForward, message));
            }
        };
        forward.insert(key.clone(), list);
    }
    matched.fw_derivatives = Some(forward);
    Ok(matched)
}

fn find_info(
    func: &Rc<NativeFunction>,
    infos: &mut Infos,
    functional: &BySignature,
    other: &BySignature,
) -> Result<(MatchRule, Option<InfosByKey>), Refusal> {
    if func.is_generated() && func.kind() == SchemaKind::Out {
        return Ok((MatchRule::None, None));
    }
    if let Some(operator) = infos.get(&func.text) {
        return Ok((MatchRule::Exact, Some(operator.by_key.clone())));
    }
    let signature = func.func.signature_without_defaults();
    if !func.is_foreach()
        && let Some(by_key) = functional.get(&signature)
    {
        return Ok((MatchRule::FunctionalSignature, Some(by_key.clone())));
    }
    if func.is_generated()
        && let Some(by_key) = other.get(&signature)
    {
        let mut saved = by_key.values().flat_map(|info| &info.all_saved_inputs);
        if let Some(saved) = saved.find(|saved| saved.name.contains("self")) {
            let message = format!("the formula saves `{}`, which the generated operator does not have", saved.name);
            return Err(Refusal::new(Kind::MutableFormulaSelf, message));
        }
        return Ok((MatchRule::MutableForGenerated, Some(by_key.clone())));
    }
    // Our own are differentiated through what they are made of.
    if !func.is_foreach() || func.rust.is_some() {
        return Ok((MatchRule::None, None));
    }
    let Some((reference, info)) = foreach::find_reference(func, functional, other)? else {
        return Ok((MatchRule::None, None));
    };
    if func.kind() == SchemaKind::Inplace {
        let by_key = InfosByKey::from([(DEFAULT_KEY.to_owned(), Rc::clone(info))]);
        return Ok((MatchRule::ForeachReuse, Some(by_key)));
    }
    let info = Rc::new(foreach::derive(func, reference, info)?);
    let by_key = InfosByKey::from([(DEFAULT_KEY.to_owned(), info)]);
    let operator = OperatorInfos { func: Rc::clone(func), origin: Origin::Foreach, by_key: by_key.clone() };
    infos.insert(func.text.clone(), operator);
    Ok((MatchRule::ForeachGenerated, Some(by_key)))
}

fn saves_strides_of_self(info: &DifferentiabilityInfo) -> bool {
    let of_self = info.derivatives.iter().filter(|d| d.var_names.iter().any(|name| name == "self"));
    of_self.flat_map(|d| &d.saved_inputs).any(|saved| saved.name == "self_sym_strides")
}

/// The forward formula of an in-place function: `self` is overwritten while it runs.
fn in_place_forward(
    info: &DifferentiabilityInfo,
    forward: &ForwardDerivative,
    exact: bool,
    dialect: Dialect,
) -> Result<ForwardDerivative, Refusal> {
    let mut formula = forward.formula.clone();
    if dialect.uses(&formula, "self_p") {
        if exact {
            let message = "an in-place formula cannot use the value of self from before: it is overwritten";
            return Err(Refusal::new(Kind::InplaceSelfPrimal, message));
        }
        formula = dialect.replace(&formula, "self_p", "original_self_p");
        formula = dialect.replace(&formula, "self_t", "original_self_t");
    }
    formula = dialect.replace(&formula, "result", "self_p");
    let mut primals = forward.required_inputs_primal.clone();
    if dialect.uses(&formula, "self_p") {
        primals.push("self".to_owned());
    }
    if !exact {
        let in_place = match method_on_tangent(&formula, dialect) {
            Some((method, arguments)) if method == info.name => format!("{method}_{arguments}"),
            _ => format!("copy_({formula})"),
        };
        formula = dialect.into_tangent(&in_place, &formula);
    }
    let uses = |name| dialect.uses(&formula, name);
    Ok(ForwardDerivative {
        required_original_self_value: uses("original_self_p") || uses("original_self_t"),
        formula,
        var_names: vec!["self".to_owned()],
        var_types: forward.var_types.clone(),
        required_inputs_fw_grad: forward.required_inputs_fw_grad.clone(),
        required_inputs_primal: primals,
        is_reusing_outplace_formula: !exact,
        line: forward.line,
    })
}

/// Splits a formula that is one method call on the tangent of self: `self_t.OP(…)`. In the compat reading
/// any character may stand for the dot.
fn method_on_tangent(formula: &str, dialect: Dialect) -> Option<(&str, &str)> {
    let rest = formula.strip_prefix("self_t")?;
    let dot = rest.chars().next().filter(|c| *c == '.' || dialect == Dialect::Cpp)?;
    let call = &rest[dot.len_utf8()..];
    let (method, arguments) = call.split_at(call.find('(')?);
    let inside = arguments.strip_prefix('(')?.strip_suffix(')')?;
    let is_word = method.chars().all(|c| c == '_' || c.is_alphanumeric());
    if !is_word || formula.contains('\n') {
        return None;
    }
    let mut level = 1;
    for c in inside.chars() {
        level += i32::from(c == '(') - i32::from(c == ')');
        if level == 0 {
            return None;
        }
    }
    Some((method, arguments))
}
