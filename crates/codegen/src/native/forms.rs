//! The in-place and `out=` forms of our own operators: schemas made from that of the entry that asks for them.
//!
//! A form has functions of its own (`inplace`, `out`), or is a row of data (`forms`) that is called by way of its op.

use super::NativeFunction;
use super::ours::{Form, Implementation, RustFunction};
use super::read::{Check, Fields, bad_value, refuse};
use crate::error::Kind;
use crate::schema::{Annotation, Argument, BaseTy, FunctionSchema, OperatorName, Type};

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
        rows: Vec::new(),
        boxed: false,
        ..rust
    });
    Ok(NativeFunction { text: func.to_string(), signature: func.signature(), func, rust, ..base.clone() })
}

fn inplace_form(base: &NativeFunction, overload: String) -> Check<NativeFunction> {
    let func = inplace_schema(&base.func, overload)?;
    // Lists have no methods.
    let is_list = func.returns.is_empty();
    Ok(NativeFunction { variant_function: is_list, ..form(base, func, Form::Inplace, "_")? })
}

fn inplace_schema(base: &FunctionSchema, overload: String) -> Check<FunctionSchema> {
    let mut func = base.clone();
    let returned = match func.returns.as_slice() {
        [only] => Some(only.ty.clone()).filter(Type::is_tensor_like),
        _ => None,
    };
    // What is written is called `self`, whatever the op that returns its result calls it.
    if func.arguments.self_arg.is_none() && !func.arguments.post_self_positional.is_empty() {
        let first = func.arguments.post_self_positional.remove(0);
        func.arguments.self_arg = Some(Argument { name: "self".to_owned(), ..first });
    }
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
    Ok(func)
}

fn out_form(base: &NativeFunction, overload: &str, names: &[String]) -> Check<NativeFunction> {
    let func = out_schema(&base.func, overload, names)?;
    Ok(NativeFunction { variant_method: false, ..form(base, func, Form::Out, "_out")? })
}

fn out_schema(base: &FunctionSchema, overload: &str, names: &[String]) -> Check<FunctionSchema> {
    let mut func = base.clone();
    overload.clone_into(&mut func.name.overload_name);
    let count = func.returns.len();
    if count == 0 || !func.returns.iter().all(|r| r.ty == Type::TENSOR || (count == 1 && r.ty.is_tensor_like())) {
        return refuse(Kind::NoOutVariant, "an `out=` form needs tensors as results");
    }
    if !names.is_empty() && names.len() != count {
        return refuse(Kind::OutReturnCount, format!("`out_args` names {} results of {count}", names.len()));
    }
    // What a new tensor looks like is said by the one given.
    func.arguments.tensor_options = None;
    for (k, (ret, letter)) in func.returns.iter_mut().zip('a'..='z').enumerate() {
        let name = match (names.get(k), &ret.name) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) if count == 1 => "out".to_owned(),
            (None, None) => format!("out{k}"),
        };
        let annotation = Some(Annotation::mutable(letter));
        ret.annotation.clone_from(&annotation);
        if count == 1 {
            ret.name = None;
        }
        func.arguments.out.push(Argument { name, ty: ret.ty.clone(), default: None, annotation });
    }
    // Lists are not handed back.
    func.returns.retain(|r| r.ty == Type::TENSOR);
    Ok(func)
}

/// What a form that is only data does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Writes the results of its op into tensors given.
    Out,
    /// Writes the result of its op into the first argument.
    Inplace,
    /// Is its op, under another name.
    Alias,
    /// Is its op, with numbers in the place of tensors.
    Numbers,
    /// Runs its op for every position of lists.
    Foreach,
}

/// A form or second name without a function of its own: it is called with boxed arguments, by way of its op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it does.
    pub kind: RowKind,
    /// The op it is made from: a second name among the rows before it, or else the entry itself.
    pub of: Option<usize>,
    /// Its schema.
    pub func: FunctionSchema,
}

/// The forms that an entry lists by name: `cos.out`, `cos_`, `second_name`; with the names of the `out=` arguments where
/// they are not called like the results, `max.dim_max(max, max_values)`; and with the tensors that are numbers there,
/// under a name of their own if they have one, `zeta.self_scalar[self]`, `isin.Tensor_Scalar[test_elements=test_element]`.
/// `_foreach_clamp_min.ScalarList[min=scalars]` runs the op for lists of tensors, and of numbers if its overload says so.
pub(super) fn rows(listed: &[String], base: &FunctionSchema) -> Check<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for text in listed {
        let (name, outs) = bracketed(text, '(', ')');
        let (name, numbers) = bracketed(name, '[', ']');
        let name: OperatorName = name.parse()?;
        let (word, overload) = (&name.name.base, name.overload_name.as_str());
        let is_out = !outs.is_empty() || overload.split('_').any(|word| word == "out");
        // Whose form it is: of the overload that it is named after, or else of the second name that has its name.
        let pure = |row: &Row| matches!(row.kind, RowKind::Alias | RowKind::Numbers | RowKind::Foreach);
        let same = |row: &Row| pure(row) && row.func.name.name.base == *word;
        let named_after = |row: &Row| same(row) && overload == format!("{}_out", row.func.name.overload_name);
        let of = rows.iter().position(|row| is_out && named_after(row));
        let listed = |row: &Row| row.kind == RowKind::Foreach && row.func.name.overload_name == overload;
        let of = of.or_else(|| rows.iter().position(|row| (row.kind == RowKind::Alias || listed(row)) && same(row)));
        let from = of.map_or(base, |of| &rows[of].func);
        let (kind, func) = match (is_out, name.name.inplace, numbers.is_empty()) {
            (true, ..) => (RowKind::Out, out_schema(from, overload, &outs)?),
            (false, true, _) => (RowKind::Inplace, inplace_schema(from, overload.to_owned())?),
            _ if word.starts_with("_foreach_") => (RowKind::Foreach, over_lists(base, overload, &numbers)?),
            (false, false, true) => (RowKind::Alias, base.clone()),
            (false, false, false) => (RowKind::Numbers, with_numbers(base, &numbers)?),
        };
        if of.is_none() && matches!(kind, RowKind::Alias | RowKind::Foreach) == (base.name.name.base == *word) {
            let message = format!("`{name}` is neither a form of this op nor of a second name listed before it");
            return refuse(Kind::FieldValue, message);
        }
        let func = FunctionSchema { name, ..func };
        func.check()?;
        rows.push(Row { kind, of, func });
    }
    Ok(rows)
}

/// The schema for lists: of tensors, and of numbers if the overload says so.
fn over_lists(base: &FunctionSchema, overload: &str, renamed: &[String]) -> Check<FunctionSchema> {
    let list = |ty: &Type| Type::List(Box::new(ty.clone()), None);
    let number = Type::Base(BaseTy::Scalar);
    let mut func = base.clone();
    let arguments = &mut func.arguments;
    let all = arguments.self_arg.iter_mut().chain(&mut arguments.post_self_positional);
    for a in all.chain(&mut arguments.pre_tensor_options_kwarg_only) {
        if a.ty == Type::TENSOR || (a.ty == number && overload == "ScalarList") {
            a.ty = list(&a.ty);
        }
        let named = renamed.iter().filter_map(|item| item.split_once('=')).find(|(old, _)| *old == a.name);
        if let Some((_, new)) = named {
            new.clone_into(&mut a.name);
        }
    }
    match func.returns.as_mut_slice() {
        [only] if only.ty == Type::TENSOR => only.ty = list(&only.ty),
        _ => return refuse(Kind::FieldValue, "an op runs for lists if its result is one tensor"),
    }
    Ok(func)
}

/// A text and the list in brackets at its end.
fn bracketed(text: &str, open: char, close: char) -> (&str, Vec<String>) {
    match text.strip_suffix(close).and_then(|text| text.split_once(open)) {
        Some((name, list)) => (name, list.split(',').map(|item| item.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    }
}

fn with_numbers(base: &FunctionSchema, numbers: &[String]) -> Check<FunctionSchema> {
    let mut func = base.clone();
    for number in numbers {
        let (old, new) = number.split_once('=').unwrap_or((number, number));
        let arguments = &mut func.arguments;
        let mut all = arguments.self_arg.iter_mut().chain(&mut arguments.post_self_positional);
        let Some(found) = all.find(|a| a.name == old && a.ty == Type::TENSOR) else {
            return refuse(Kind::FieldValue, format!("`{old}` is not a tensor argument that could be a number"));
        };
        found.ty = Type::Base(BaseTy::Scalar);
        new.clone_into(&mut found.name);
    }
    Ok(func)
}
