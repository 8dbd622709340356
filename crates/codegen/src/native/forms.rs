//! The in-place and `out=` forms of our own operators: schemas made from that of the entry that asks for them.

use super::NativeFunction;
use super::ours::{Form, Implementation, RustFunction};
use super::read::{Check, Fields, bad_value, refuse};
use crate::error::Kind;
use crate::schema::{Annotation, Argument, FunctionSchema, Type};

/// Adds the in-place and the `out=` form if the entry asks for them.
pub(super) fn add(fields: &mut Fields<'_>, made: &mut Vec<NativeFunction>) -> Check {
    let base = &made[0];
    let implementation = base.rust.as_ref().map(|rust| &rust.implementation);
    let structured = matches!(implementation, Some(Implementation::Structured { .. }));
    let is_foreach = matches!(implementation, Some(Implementation::Foreach(_)));
    let mut added = Vec::new();
    // `true`, or the overload of the in-place form where that is another.
    let overload = match fields.take("inplace") {
        None => None,
        Some(node) => match (node.as_str(), node.as_bool()) {
            (Some(overload), _) => Some(overload.to_owned()),
            (None, Some(on)) => on.then(|| base.func.name.overload_name.clone()),
            (None, None) => return Err(bad_value("inplace", "true, false or an overload").on(node.line)),
        },
    };
    if let Some(overload) = overload {
        if !structured && !is_foreach {
            return refuse(Kind::FieldValue, "`inplace` needs an op with `shape` and `kernel`, or `foreach`");
        }
        added.push(inplace_form(base, overload)?);
    }
    let names = fields.texts("out_args")?;
    if let Some(overload) = fields.text("out")? {
        if !structured {
            return refuse(Kind::FieldValue, "`out` needs an op with `shape` and `kernel`");
        }
        added.push(out_form(base, overload, &names)?);
    }
    made.append(&mut added);
    Ok(())
}

/// The same operator with another schema, under another Rust name.
fn form(base: &NativeFunction, func: FunctionSchema, form: Form, suffix: &str) -> Check<NativeFunction> {
    func.check()?;
    let rust = base.rust.clone().map(|rust| RustFunction {
        name: format!("{}{suffix}", rust.name),
        form,
        record: rust.record.of_form(),
        derivative: None,
        ..rust
    });
    Ok(NativeFunction { text: func.to_string(), signature: func.signature(), func, rust, ..base.clone() })
}

fn inplace_form(base: &NativeFunction, overload: String) -> Check<NativeFunction> {
    let mut func = base.func.clone();
    let returned = match func.returns.as_slice() {
        [only] => Some(only.ty.clone()).filter(Type::is_tensor_like),
        _ => None,
    };
    let Some(target) = func.arguments.self_arg.as_mut().filter(|a| Some(&a.ty) == returned.as_ref()) else {
        return refuse(Kind::FieldValue, "an in-place form needs `Tensor self` and one tensor as result");
    };
    let is_list = target.ty != Type::TENSOR;
    target.annotation = Some(Annotation::mutable('a'));
    func.name.name.inplace = true;
    func.name.overload_name = overload;
    if is_list {
        func.returns.clear();
    } else {
        func.returns[0].annotation = Some(Annotation::mutable('a'));
        func.returns[0].name = None;
    }
    // Lists have no methods.
    Ok(NativeFunction { variant_function: is_list, ..form(base, func, Form::Inplace, "_")? })
}

fn out_form(base: &NativeFunction, overload: &str, names: &[String]) -> Check<NativeFunction> {
    let mut func = base.func.clone();
    overload.clone_into(&mut func.name.overload_name);
    let count = func.returns.len();
    if count == 0 || func.returns.iter().any(|r| r.ty != Type::TENSOR) {
        return refuse(Kind::NoOutVariant, "an `out=` form needs tensors as results");
    }
    if !names.is_empty() && names.len() != count {
        return refuse(Kind::OutReturnCount, format!("`out_args` names {} results of {count}", names.len()));
    }
    for (k, (ret, letter)) in func.returns.iter_mut().zip('a'..='z').enumerate() {
        let name = match (names.get(k), &ret.name) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) if count == 1 => "out".to_owned(),
            (None, None) => format!("out{k}"),
        };
        let annotation = Some(Annotation::mutable(letter));
        ret.annotation.clone_from(&annotation);
        func.arguments.out.push(Argument { name, ty: Type::TENSOR, default: None, annotation });
    }
    Ok(NativeFunction { variant_method: false, ..form(base, func, Form::Out, "_out")? })
}
