//! Writes the stubs of the Python package: every op as a method of `Tensor` or a function, with the types of its arguments, for
//! editors and type checkers. From the same names and overloads as the table that calls are bound with.

use super::python::{Overload, each_name, is_option};
use super::{GeneratedFile, Source};
use crate::error::Result;
use crate::schema::{Argument, BaseTy, Type};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is not an op: written by hand in the package, listed here for its type.
const HEAD: &str = include_str!("python_stubs_head.pyi");

/// Words that cannot be names of parameters.
const KEYWORDS: [&str; 5] = ["from", "lambda", "in", "is", "self"];

/// The text of `__init__.pyi`.
pub fn python_stubs(ops: Source<'_>, derivatives: Source<'_>, names: Source<'_>) -> Result<GeneratedFile> {
    let (mut methods, mut functions) = (String::new(), String::new());
    each_name(ops, derivatives, names, |name, places, overloads| {
        let in_place = |place: &str| places.iter().any(|p| p == place);
        if in_place("METHOD") && !HEAD.contains(&format!("def {name}(")) {
            write_all(&mut methods, "    ", name, &overloads, true);
        }
        if in_place("FUNCTION") && !HEAD.contains(&format!("\ndef {name}(")) {
            write_all(&mut functions, "", name, &overloads, false);
        }
    })?;
    let text = HEAD.replace("    # METHODS\n", &methods).replace("# FUNCTIONS\n", &functions);
    Ok(GeneratedFile { name: "__init__.pyi", text })
}

/// One definition, or several marked as overloads. Two that look the same to a type checker are one.
fn write_all(out: &mut String, indent: &str, name: &str, overloads: &[Overload<'_>], method: bool) {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut order = Vec::new();
    for overload in overloads {
        let Some(line) = definition(name, overload, method) else { continue };
        if lines.insert(line.clone(), order.len()).is_none() {
            order.push(line);
        }
    }
    for line in &order {
        if order.len() > 1 {
            let _ = writeln!(out, "{indent}@overload");
        }
        let _ = writeln!(out, "{indent}{line}");
    }
}

fn definition(name: &str, o: &Overload<'_>, method: bool) -> Option<String> {
    let arguments = &o.func.arguments;
    let has_self = arguments.flat_positional().any(|a| a.name == "self");
    if method && !has_self {
        return None;
    }
    let mut parts: Vec<String> = if method { vec!["self".to_owned()] } else { Vec::new() };
    let mut optional = false;
    for a in arguments.flat_positional().filter(|a| !(method && a.name == "self")) {
        // Python does not allow one without a default behind one with.
        parts.push(parameter(a, optional));
        optional |= a.default.is_some();
    }
    let mut keywords: Vec<String> = arguments
        .flat_kwarg_only()
        .filter(|a| a.ty.innermost() != Some(BaseTy::Generator))
        .map(|a| parameter(a, is_option(o.func, a)))
        .collect();
    if arguments.tensor_options.is_some() {
        keywords.push("requires_grad: _bool = ...".to_owned());
    }
    if let Some(out) = o.out.filter(|_| !method) {
        let kind = if out.arguments.out.len() == 1 { "Tensor" } else { "Sequence[Tensor]" };
        keywords.push(format!("out: {kind} | None = ..."));
    }
    if !keywords.is_empty() {
        parts.push("*".to_owned());
        parts.extend(keywords);
    }
    let results: Vec<String> = o.func.returns.iter().map(|r| typed(&r.ty, true)).collect();
    let result = match &results[..] {
        [] => "None".to_owned(),
        [one] => one.clone(),
        several => format!("tuple[{}]", several.join(", ")),
    };
    Some(format!("def {name}({}) -> {result}: ...", parts.join(", ")))
}

fn parameter(a: &Argument, optional: bool) -> String {
    let name = match a.name.as_str() {
        "self" => "input".to_owned(),
        word if KEYWORDS.contains(&word) => format!("{word}_"),
        word => word.to_owned(),
    };
    let default = if a.default.is_some() || optional { " = ..." } else { "" };
    format!("{name}: {}{default}", typed(&a.ty, false))
}

/// A type as Python spells it; results are more exact than what is accepted.
fn typed(ty: &Type, result: bool) -> String {
    match ty {
        Type::Optional(inner) => format!("{} | None", typed(inner, result)),
        Type::List(element, size) => {
            let inner = typed(element, result);
            match (result, size) {
                (true, _) => format!("tuple[{inner}, ...]"),
                (false, Some(_)) if inner == "_int" || inner == "_float" || inner == "_bool" => {
                    format!("{inner} | Sequence[{inner}]")
                }
                (false, _) => format!("Sequence[{inner}]"),
            }
        }
        Type::Base(base) => match base {
            BaseTy::Tensor => "Tensor",
            BaseTy::Int | BaseTy::DeviceIndex => "_int",
            BaseTy::Float => "_float",
            BaseTy::Bool => "_bool",
            BaseTy::Str => "str",
            BaseTy::Scalar => "Number",
            BaseTy::ScalarType => "dtype",
            BaseTy::Layout => "layout",
            BaseTy::Device => "device | str",
            BaseTy::MemoryFormat => "memory_format",
            other if other.as_str() == "SymInt" => "_int",
            _ => "Any",
        }
        .to_owned(),
        Type::Custom(_) => "Any".to_owned(),
    }
}
