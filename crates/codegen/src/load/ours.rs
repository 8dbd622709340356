//! Additional checks of our own entries: no gradient may be lost silently.
//!
//! Guarantees that every tensor argument of an operator with an entry has a formula or is declared
//! non-differentiable, and that forward formulas exist for all differentiable results or for none. Whether every
//! operator that needs an entry has one is found at emission.

use super::fail;
use crate::api::{cpp, rust};
use crate::dialect::is_ident;
use crate::error::{CodegenError, Kind, Refusal, Result, Stage};
use crate::model::{DifferentiabilityInfo, Infos};
use crate::native::NativeFunction;
#[cfg(feature = "emit")]
use crate::pipeline::DERIVATIVES_FILE;
use crate::pipeline::NATIVE_FILE;
use crate::yaml::{Node, Value};
use std::collections::HashMap;

/// The derivatives that a declaration holds itself, as an entry of the derivatives file would be.
pub(super) fn inline_entry(func: &NativeFunction) -> Option<Result<Node>> {
    let formulas = func.rust.as_ref()?.derivative.as_ref()?;
    let Some(pairs) = formulas.as_map() else {
        let message = "`derivative` holds what an entry of derivatives.yaml does, but for `name`";
        let error = CodegenError::new(Stage::Derivatives, Kind::YamlShape, message);
        return Some(Err(error.at(formulas.line, &func.text).in_file(NATIVE_FILE)));
    };
    let text = |value: &str| Node { line: func.line, value: Value::Str(value.to_owned()) };
    let name = (text("name"), text(&func.text));
    let value = Value::Map(std::iter::once(name).chain(pairs.iter().cloned()).collect());
    Some(Ok(Node { line: formulas.line, value }))
}

/// Which file the derivatives of an op stand in, for errors.
#[cfg(feature = "emit")]
pub(crate) fn derivatives_file(func: &NativeFunction) -> &'static str {
    let inline = func.rust.as_ref().is_some_and(|rust| rust.derivative.is_some());
    if inline { NATIVE_FILE } else { DERIVATIVES_FILE }
}

/// Checks what an entry is for, and reads the node's name that it may pin.
pub(super) fn check_entry<'a>(func: &NativeFunction, entry: &'a Node) -> Result<Option<&'a str>, Refusal> {
    if func.rust.as_ref().is_some_and(|rust| !rust.implementation.has_below()) {
        let message = "a composite, foreach or manual op is differentiated through its parts; remove this entry";
        return fail(Kind::CompositeDerivative, message);
    }
    if let Some(node) = entry.get("dispatch") {
        let message = "our ops have one set of formulas: write them beside `name`";
        return Err(Refusal::new(Kind::EntryDispatchKey, message).on(node.line));
    }
    let Some(node) = entry.get("node") else { return Ok(None) };
    let name = node.as_str().filter(|text| is_ident(text));
    name.map(Some).ok_or_else(|| Refusal::new(Kind::FieldValue, "`node` is a Rust name").on(node.line))
}

/// Checks the formulas of an entry together.
pub(super) fn check_info(info: &DifferentiabilityInfo) -> Result<(), Refusal> {
    if info.output_differentiability_conditions.is_some() {
        let message = "`output_differentiability` is a list of True and False, one per result";
        return fail(Kind::FieldValue, message);
    }
    let func = &info.func.func;
    let arguments = || func.arguments.flat_non_out().filter(|a| !rust::is_dropped(a));
    for d in &info.derivatives {
        let no_tensor = |name: &&String| !arguments().any(|a| a.name == **name && a.ty.is_tensor_like());
        if let Some(name) = d.var_names.iter().find(no_tensor) {
            let message = format!("`{name}` is not a tensor argument, so it has no derivative");
            return Err(Refusal::new(Kind::EmitUnknownVar, message).on(d.line));
        }
    }
    let flags = info.output_differentiability.as_deref();
    if flags.is_some_and(|flags| flags.len() != func.returns.len()) {
        let message = format!("`output_differentiability` does not have one value per result ({})", func.returns.len());
        return fail(Kind::OutdiffLength, message);
    }
    let names = cpp::return_names(&info.func);
    let results = names.iter().map(|name| if name == "self" { "result" } else { name }).zip(&func.returns).enumerate();
    let outputs: Vec<&str> = results
        .filter(|(i, (_, r))| r.ty.is_tensor_like() && flags.is_none_or(|flags| flags[*i]))
        .map(|(_, (name, _))| name)
        .collect();
    for f in &info.forward_derivatives {
        if f.var_names.len() > 1 {
            let message = "give every result its own forward formula";
            return Err(Refusal::new(Kind::EmitForwardCount, message).on(f.line));
        }
        if let Some(name) = f.var_names.iter().find(|name| !outputs.contains(&name.as_str())) {
            let message = format!("`{name}` is not differentiable, so it has no tangent");
            return Err(Refusal::new(Kind::FwNoOutput, message).on(f.line));
        }
    }
    let has_tangent = |name: &&&str| info.forward_derivatives.iter().any(|f| f.var_names.iter().any(|n| n == **name));
    if let Some(name) = outputs.iter().find(|name| !has_tangent(name))
        && !info.forward_derivatives.is_empty()
    {
        let message = format!("the output `{name}` has no forward formula although others have");
        return fail(Kind::EmitForwardCount, message);
    }
    let has_formula = |name: &str| info.args_with_derivatives.iter().any(|a| a.name == name);
    if outputs.is_empty() {
        return match info.args_with_derivatives.first() {
            None => Ok(()),
            Some(a) => {
                let message = format!("the formula of `{}` could never be used: no output is differentiable", a.name);
                fail(Kind::EmitDerivativeIgnored, message)
            }
        };
    }
    let excluded = |name: &String| info.non_differentiable_arg_names.contains(name);
    if let Some(a) = arguments().find(|a| a.ty.is_tensor_like() && !has_formula(&a.name) && !excluded(&a.name)) {
        let message = format!(
            "could lose a gradient silently: `{0}` has no formula; add one or say `{0}: non_differentiable`",
            a.name
        );
        return fail(Kind::LostGradient, message);
    }
    if info.args_with_derivatives.iter().filter(|a| a.ty.is_tensor_list_like()).count() > 1 {
        return fail(Kind::EmitMissingArgs, "two lists of tensors with derivatives in one op");
    }
    Ok(())
}

/// No two derivatives make nodes of one name.
pub(super) fn check_nodes(infos: &Infos) -> Result<()> {
    let mut nodes: HashMap<&str, &str> = HashMap::with_capacity(infos.len());
    for info in infos.values().flat_map(|operator| operator.by_key.values()) {
        let Some(op) = &info.op else { continue };
        if let Some(other) = nodes.insert(op, &info.func.text) {
            let message = format!("the node `{op}` belongs to `{other}` already; choose another with `node:`");
            let error = CodegenError::new(Stage::Derivatives, Kind::DuplicateNode, message);
            return Err(error.at(info.derivatives.first().map_or(info.func.line, |d| d.line), &info.func.text));
        }
    }
    Ok(())
}
