//! Hazards of one entry: its keys, its outputs, and how its formulas fit together.

use super::formulas;
use super::{Declarations, Declared, Hazard, Report};
use crate::dialect::Dialect;
use crate::forward;
use crate::yaml::Node;

/// One formula under its key.
pub(super) struct Formula<'a> {
    pub(super) names: Vec<&'a str>,
    pub(super) text: &'a str,
    pub(super) line: usize,
    pub(super) is_forward: bool,
}

/// What the checks of formulas look at.
pub(super) struct Context<'a> {
    pub(super) declared: &'a Declared,
    pub(super) entry: &'a str,
    pub(super) dialect: Dialect,
    pub(super) arguments: Vec<&'a str>,
    pub(super) is_foreach_reference: bool,
    pub(super) has_inplace: bool,
}

pub(super) fn check(
    entry: &Node,
    declared: &Declared,
    declarations: &Declarations,
    dialect: Dialect,
    report: &mut Report,
) {
    let schema = &declared.schema;
    let name = entry.get("name").and_then(Node::as_str).unwrap_or_default();
    let context = Context {
        declared,
        entry: name,
        dialect,
        arguments: schema.arguments.flat_all().map(|a| a.name.as_str()).collect(),
        // Our foreach operators call their reference; its formulas are not copied.
        is_foreach_reference: dialect == Dialect::Cpp && declarations.foreach.contains(schema.base()),
        has_inplace: declarations.inplace.contains(schema.base()),
    };
    match entry.get("dispatch") {
        None => one_key(entry.as_map().unwrap_or_default(), &context, report),
        Some(keys) => {
            for (key, value) in entry.as_map().unwrap_or_default() {
                if !matches!(key.as_str(), Some("name" | "dispatch" | "output_differentiability")) {
                    let key_name = key.as_str().unwrap_or("?");
                    let message = format!("`{key_name}` stands beside `dispatch` and is ignored");
                    report.add(Hazard::FormulaIgnored, value.line, name, message);
                }
            }
            for (_, formulas) in keys.as_map().unwrap_or_default() {
                one_key(formulas.as_map().unwrap_or_default(), &context, report);
            }
        }
    }
    if context.is_foreach_reference && entry.get("output_differentiability").is_some() {
        let message = "output_differentiability is not carried over to the foreach operator".to_owned();
        report.add(Hazard::ForeachMarkLost, entry.line, name, message);
    }
}

/// The formulas under one autograd key.
fn one_key(fields: &[(Node, Node)], context: &Context<'_>, report: &mut Report) {
    let mut formulas: Vec<Formula<'_>> = Vec::new();
    for (key, value) in fields {
        let (Some(key), Some(text)) = (key.as_str(), value.as_str()) else { continue };
        let setting = matches!(key, "name" | "output_differentiability");
        if setting || key == "node" && context.dialect == Dialect::Rust {
            continue;
        }
        let names: Vec<_> = key.split(',').map(str::trim).collect();
        let is_forward = !context.arguments.contains(&names[0]);
        formulas.push(Formula { names, text, line: value.line, is_forward });
    }
    report.formulas += formulas.len();
    for formula in &formulas {
        names_of_key(formula, context, report);
        if formula.text.trim().eq_ignore_ascii_case("non_differentiable") {
            if context.is_foreach_reference {
                let message = "non_differentiable is not carried over to the foreach operator".to_owned();
                report.add(Hazard::ForeachMarkLost, formula.line, context.entry, message);
            }
            continue;
        }
        if forward::is_automatic(formula.text) {
            continue;
        }
        formulas::check(formula, &formulas, context, report);
        if !formula.is_forward && context.dialect == Dialect::Cpp {
            named_gradients(formula, context, report);
        }
    }
}

fn names_of_key(formula: &Formula<'_>, context: &Context<'_>, report: &mut Report) {
    let returns = &context.declared.schema.returns;
    let is_output = |name: &str| {
        let numbered = name.strip_prefix("result").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        numbered || returns.iter().any(|r| r.name.as_deref() == Some(name))
    };
    for name in formula.names.iter().skip(1) {
        let known = if formula.is_forward { is_output(name) } else { context.arguments.contains(name) };
        if !known {
            let message = format!("`{name}` is not an argument or output");
            report.add(Hazard::UnknownName, formula.line, context.entry, message);
        }
    }
}

/// The index of a named gradient counts named returns only; in our formulas every return has a name.
fn named_gradients(formula: &Formula<'_>, context: &Context<'_>, report: &mut Report) {
    let returns = &context.declared.schema.returns;
    let Some(unnamed) = returns.iter().position(|r| r.name.is_none() && r.ty.is_tensor_like()) else { return };
    for r in &returns[unnamed..] {
        let Some(gradient) = r.name.as_ref().map(|name| format!("grad_{name}")) else { continue };
        if context.dialect.uses(formula.text, &gradient) {
            let message = format!("`{gradient}` comes after an unnamed return: its index is off");
            report.add(Hazard::NamedGradientIndex, formula.line, context.entry, message);
        }
    }
}
