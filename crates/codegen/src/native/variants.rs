//! Generated variants: out and functional forms that declarations ask for with `autogen`.
//!
//! Guarantees the order of the reference: groups in order of first declaration, out before functional.

use super::NativeFunction;
use super::check::check_whole;
use super::dispatch::{COMPOSITE_EXPLICIT, COMPOSITE_IMPLICIT};
use crate::error::{CodegenError, Kind, Refusal, Result, Stage};
use crate::hash::{QuickIndexMap, QuickMap, QuickSet};
use crate::names;
use crate::schema::{
    Annotation, Argument, BaseOperatorName, FunctionSchema, OperatorName, Return, SchemaKind, SignatureOptions, Type,
};

/// The variants of one operator by kind; positions in the function list.
type Group = QuickMap<SchemaKind, usize>;

/// Appends generated variants to a list of declared functions.
pub(super) fn add_generated(functions: &mut Vec<NativeFunction>) -> Result<()> {
    let mut explicit: QuickSet<OperatorName> =
        functions.iter().filter(|f| f.has_kernel(COMPOSITE_EXPLICIT)).map(|f| f.func.name.clone()).collect();
    for group in group_by_signature(functions)? {
        for (base, kind) in wanted(functions, &group)? {
            let base = &functions[base];
            let generated = generate(base, kind).map_err(|e| e.at_stage(Stage::Native).at(base.line, &base.text))?;
            if !explicit.insert(generated.func.name.clone()) {
                let message = format!("generated operator `{}` is declared already", generated.func.name);
                return Err(CodegenError::new(Stage::Native, Kind::DuplicateOperator, message));
            }
            functions.push(generated);
        }
    }
    Ok(())
}

fn group_by_signature(functions: &[NativeFunction]) -> Result<Vec<Group>> {
    let mut groups: QuickIndexMap<&FunctionSchema, Group> = QuickIndexMap::default();
    groups.reserve(functions.len());
    for (i, f) in functions.iter().enumerate() {
        if groups.entry(&f.signature).or_default().insert(f.kind(), i).is_some() {
            let message = format!("two {} operators with one signature", f.kind().as_str());
            return Err(CodegenError::new(Stage::Native, Kind::DuplicateVariant, message).at(f.line, &f.text));
        }
    }
    Ok(groups.into_values().collect())
}

/// Which variants a group gets, and from which member they are made.
fn wanted(functions: &[NativeFunction], group: &Group) -> Result<Vec<(usize, SchemaKind)>> {
    let member = |kind: SchemaKind| group.get(&kind).copied();
    let members = || group.values().map(|i| &functions[*i]);
    let order = [SchemaKind::Mutable, SchemaKind::Inplace, SchemaKind::Out, SchemaKind::Functional];
    let Some(base_at) = order.into_iter().find_map(member) else { return Ok(Vec::new()) };
    let is_view = |f: &NativeFunction| f.is_view_op() && f.func.name.name.to_string() != "set_";
    let implicit = members().all(|f| f.has_kernel(COMPOSITE_IMPLICIT)) && !members().any(|f| f.has_tag("core"));
    if members().all(|f| f.manual_cpp_binding) || members().any(is_view) || implicit {
        return Ok(Vec::new());
    }
    let base = &functions[base_at];
    let fail = |kind, message: String| Err(CodegenError::new(Stage::Native, kind, message).at(base.line, &base.text));
    let name = base.func.name.to_string();
    let has_out = group.contains_key(&SchemaKind::Out);
    if has_out && group.len() == 1 {
        if names::contains(names::LONE_OUT, &name) {
            return Ok(Vec::new());
        }
        return fail(Kind::OutWithoutBase, format!("out operator `{name}` has no other variant"));
    }
    // Its in-place form takes its arguments in another order.
    if member(SchemaKind::Inplace).is_some_and(|i| functions[i].func.name.to_string() == "polygamma_") {
        return Ok(Vec::new());
    }
    let can_have_out = base.kind() == SchemaKind::Inplace || base.func.returns.iter().any(|r| r.ty.is_tensor_like());
    if !has_out && !can_have_out {
        let exempt = [names::MUTABLE_WITHOUT_OUT, names::FUNCTIONAL_WITHOUT_OUT];
        if !exempt.iter().any(|list| names::contains(list, &name)) {
            return fail(Kind::NoOutVariant, format!("`{name}` returns no tensor, so it can have no out variant"));
        }
    }
    let gets_out =
        !has_out && can_have_out && base.autogen.iter().any(|generated| generated.to_string().contains("out"));
    let mut wanted = Vec::new();
    if gets_out {
        wanted.push((base_at, SchemaKind::Out));
    }
    if !group.contains_key(&SchemaKind::Functional) && (has_out || gets_out) {
        wanted.push((base_at, SchemaKind::Functional));
    }
    Ok(wanted)
}

fn generate(base: &NativeFunction, kind: SchemaKind) -> Result<NativeFunction, Refusal> {
    let func = match (kind, base.kind()) {
        (SchemaKind::Functional, _) => functional_form(&base.func),
        (_, SchemaKind::Inplace) => out_from_inplace(&base.func),
        _ => out_from_returns(&base.func)?,
    };
    func.check()?;
    let inherited = ["nondeterministic_seeded", "view_copy", "pt2_compliant_tag"];
    let mut tags: std::collections::BTreeSet<String> =
        inherited.into_iter().filter(|tag| base.has_tag(tag)).map(str::to_owned).collect();
    tags.insert("generated".to_owned());
    if func.is_out_fn() {
        tags.insert("out".to_owned());
    }
    let symint = if base.func.has_symint() { "_symint" } else { "" };
    let kernel = if func.is_out_fn() { func.name.unambiguous_name() } else { crate::api::cpp::name(&func) };
    let text = func.to_string();
    let generated = NativeFunction {
        dispatch: vec![(COMPOSITE_EXPLICIT, kernel + symint)],
        tags,
        use_const_ref_for_mutable_tensors: base.use_const_ref_for_mutable_tensors,
        is_abstract: base.is_abstract,
        ..NativeFunction::bare(func, text, &base.namespace, base.line)
    };
    check_whole(&generated, false, false)?;
    Ok(generated)
}

fn functional_form(func: &FunctionSchema) -> FunctionSchema {
    let signature = func.signature_with(SignatureOptions { keep_return_names: true, ..Default::default() });
    let name = BaseOperatorName {
        inplace: false,
        functional_overload: func.kind() == SchemaKind::Mutable,
        ..func.name.name.clone()
    };
    FunctionSchema { name: OperatorName { name, overload_name: func.name.overload_name.clone() }, ..signature }
}

fn out_name(func: &FunctionSchema) -> OperatorName {
    let overload = &func.name.overload_name;
    OperatorName {
        name: BaseOperatorName { inplace: false, ..func.name.name.clone() },
        overload_name: if overload.is_empty() { "out".to_owned() } else { format!("{overload}_out") },
    }
}

/// `self` is no longer written, a new argument `out` takes its annotation.
fn out_from_inplace(func: &FunctionSchema) -> FunctionSchema {
    let mut arguments = func.arguments.clone();
    if let Some(self_arg) = &mut arguments.self_arg {
        let annotation = self_arg.annotation.take();
        arguments.out = vec![Argument { name: "out".to_owned(), ty: self_arg.ty.clone(), default: None, annotation }];
    }
    FunctionSchema { name: out_name(func), arguments, returns: func.returns.clone() }
}

/// One out argument per tensor-like return, of a functional or mutable operator.
fn out_from_returns(func: &FunctionSchema) -> Result<FunctionSchema, Refusal> {
    if func.returns.iter().any(Return::is_write) {
        return Err(Refusal::new(Kind::MutableArgReturned, "no out variant of an operator that returns an argument"));
    }
    let letters = free_letters(func);
    let all_tensors = func.returns.iter().all(|r| r.ty == Type::TENSOR);
    let mut arguments =
        if func.kind() == SchemaKind::Functional { func.arguments.signature(false) } else { func.arguments.clone() };
    let mut returns = Vec::new();
    for (i, r) in func.returns.iter().enumerate() {
        if !r.ty.is_tensor_like() {
            returns.push(r.clone());
            continue;
        }
        let Some(letter) = letters.get(i) else {
            return Err(Refusal::new(Kind::AliasSyntax, "no letter is left for an out argument"));
        };
        let annotation = Some(Annotation::mutable(*letter));
        if all_tensors {
            returns.push(Return { name: None, ty: r.ty.clone(), annotation: annotation.clone() });
        }
        let name = if func.returns.len() == 1 { "out".to_owned() } else { format!("out{i}") };
        arguments.out.push(Argument { name, ty: r.ty.clone(), default: None, annotation });
    }
    Ok(FunctionSchema { name: out_name(func), arguments, returns })
}

/// Letters for new annotations. The cursor over the used letters never goes back, so letters that do not
/// come in rising order count as free; the invariants of the new schema then refuse it.
fn free_letters(func: &FunctionSchema) -> Vec<char> {
    let annotations = func.arguments.flat_all().filter_map(|a| a.annotation.as_ref());
    let mut used = annotations.flat_map(|a| a.alias_set.iter().copied());
    ('a'..='z').filter(|letter| !used.any(|u| u == *letter)).collect()
}
