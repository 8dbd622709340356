//! Writes `methods.rs`: what users call. Each op has a form that panics with the caller's place and a
//! `try_` form that returns the error.
//!
//! Keyword arguments with defaults are left out, as are dtypes and memory formats with defaults: the functions of
//! `ops` take them. Dimensions, numbers and the other operand are taken in whatever form is at hand (`arguments` of
//! core). All are inlined: a crate compiles the methods it calls, and core none.

use super::op::{Arg, Op};
use super::text::{Plan, file, join};
use super::types::Ty;

/// `methods.rs`.
pub(super) fn methods(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::functions as ops;
use crate::arguments::{IntoDims, IntoOptionalDims, IntoOptionalScalar, Operand};
use crate::dispatch::MemoryFormat;
use crate::error::expect_ok;
use crate::{DType, Device, IntoSizes, Result, Scalar, SymInt, Tensor};
";
    let list: Vec<String> =
        plans.iter().filter(|p| p.op.native.variant_method).map(|p| pair(p, number_form(p.op, plans))).collect();
    let item = format!("impl Tensor {{ {} }}", list.join("\n"));
    file("Every op with `self` as a method of [`Tensor`].", uses, &[item])
}

/// Whether an argument is left out, its default taking its place.
fn left_out(a: &Arg) -> bool {
    a.default.is_some() && (a.keyword || matches!(a.ty, Ty::OptDType | Ty::OptMemoryFormat | Ty::MemoryFormat))
}

/// What an op does with a number in the place of its other operand.
enum Number<'a> {
    /// It becomes a tensor that is weak in type promotion.
    Wrapped,
    /// There is an op for it.
    Op(&'a Op),
}

/// How an op takes a number instead of its second tensor, if PyTorch's method does: only where the overloads differ in
/// nothing else that is passed.
fn number_form<'a>(op: &Op, plans: &'a [Plan<'_>]) -> Option<Number<'a>> {
    let passed = |op: &Op| -> Vec<Ty> { op.args().filter(|a| !left_out(a)).map(|a| a.ty).collect() };
    if passed(op) != [Ty::Tensor, Ty::Tensor] {
        return None;
    }
    let scalar = |p: &&Plan<'_>| {
        let all: Vec<&Arg> = p.op.args().collect();
        let rest_has_defaults = all.iter().skip(2).all(|a| a.default.is_some());
        p.op.base() == op.base()
            && matches!(all[..], [a, b, ..] if a.ty == Ty::Tensor && b.ty == Ty::Scalar)
            && rest_has_defaults
    };
    let scalar = plans.iter().find(scalar)?.op;
    // PyTorch's methods of these have no form for numbers: `x * 2` is recorded as `x * tensor`.
    let wrapped = matches!(op.base().trim_end_matches('_'), "add" | "sub" | "mul" | "div");
    Some(if wrapped { Number::Wrapped } else { Number::Op(scalar) })
}

/// Whether an empty list is what the op takes if nothing is named, as `amax` does for all dimensions.
fn may_be_none(a: &Arg) -> bool {
    a.default.as_deref() == Some("&[]")
}

fn parameter(a: &Arg) -> String {
    let ty = match a.ty {
        Ty::Scalar => "impl Into<Scalar>".to_owned(),
        Ty::OptScalar => "impl IntoOptionalScalar".to_owned(),
        Ty::SymInt => "impl Into<SymInt>".to_owned(),
        Ty::SymInts => "impl IntoSizes".to_owned(),
        Ty::OptInts => "impl IntoOptionalDims".to_owned(),
        Ty::Ints if may_be_none(a) => "impl IntoOptionalDims".to_owned(),
        Ty::Ints => "impl IntoDims".to_owned(),
        Ty::OptInt | Ty::OptFloat => format!("impl Into<{}>", a.ty.typed()),
        ty => ty.typed(),
    };
    format!("{}: {ty}", a.ident)
}

fn argument(a: &Arg) -> String {
    if a.name == "self" {
        return "self".to_owned();
    }
    match (a.ty, &a.default) {
        (_, Some(default)) if left_out(a) => default.clone(),
        (Ty::Scalar | Ty::SymInt | Ty::OptInt | Ty::OptFloat, _) => format!("{}.into()", a.ident),
        (Ty::OptScalar, _) => format!("{}.into_optional_scalar()", a.ident),
        (Ty::SymInts, _) => format!("&{}.into_sizes()", a.ident),
        (Ty::Ints, _) if may_be_none(a) => format!("&{}.into_optional_dims().unwrap_or_default()", a.ident),
        (Ty::Ints, _) => format!("&{}.into_dims()", a.ident),
        (Ty::OptInts, _) => format!("{}.into_optional_dims().as_deref()", a.ident),
        _ => a.ident.clone(),
    }
}

fn pair(plan: &Plan<'_>, number: Option<Number<'_>>) -> String {
    let op: &Op = plan.op;
    let name = op.method_name();
    let shown: Vec<&Arg> = op.args().filter(|a| !(left_out(a) || a.name == "self")).collect();
    let mut parameters = vec!["&self".to_owned()];
    match number {
        Some(_) => parameters.push(format!("{}: impl Into<Operand<'o>>", shown[0].ident)),
        None => parameters.extend(shown.iter().map(|a| parameter(a))),
    }
    let parameters = parameters.join(", ");
    let generics = if number.is_some() { "<'o>" } else { "" };
    let passed = join(shown.iter().map(|a| a.ident.clone()));
    let (doc, example, rust) = (plan.doc(), plan.example(), &op.rust.name);
    let call = format!("ops::{rust}({})", join(op.args().map(argument)));
    let body = match number {
        None => call,
        Some(number) => {
            let other = &shown[0].ident;
            let scalar = match number {
                Number::Wrapped => call.replacen(other, &format!("&Tensor::try_wrapped_number({other})?"), 1),
                Number::Op(op) => {
                    let rest = op.args().skip(2).filter_map(|a| a.default.clone());
                    format!("ops::{}({})", op.rust.name, join(["self".into(), other.clone()].into_iter().chain(rest)))
                }
            };
            format!(
                "match {other}.into() {{ Operand::Tensor({other}) => {call}, Operand::Scalar({other}) => {scalar} }}"
            )
        }
    };
    // Every reference among the parameters would otherwise hide that the result is `self`.
    let ret = plan.return_type().replace("&'a ", "&");
    let must_use = if plan.op.outs.is_empty() && !plan.returns_self() && ret != "()" { "#[must_use]\n" } else { "" };
    let tried = try_name(&name);
    format!(
        "{doc}{example}
         ///
         /// # Panics
         /// If [`Tensor::{tried}`] returns an error.
         {must_use}#[inline]
         #[track_caller]
         pub fn {name}{generics}({parameters}) -> {ret} {{ expect_ok(self.{tried}({passed})) }}
         {doc}
         #[inline]
         pub fn {tried}{generics}({parameters}) -> Result<{ret}> {{ {body} }}"
    )
}

/// `try_mul`; `try_softmax` for `_softmax`.
fn try_name(name: &str) -> String {
    match name.strip_prefix('_') {
        Some(rest) => format!("_try_{rest}"),
        None => format!("try_{name}"),
    }
}
