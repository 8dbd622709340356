//! Writes `methods.rs`: what users call. Each op has a form that panics with the caller's place and a
//! `try_` form that returns the error.
//!
//! Keyword arguments with defaults are left out, as are dtypes and memory formats with defaults: the functions of
//! `ops` take them. All are inlined: a crate compiles the methods it calls, and core none.

use super::op::{Arg, Op};
use super::text::{Plan, file, join};
use super::types::Ty;

/// `methods.rs`.
pub(super) fn methods(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::functions as ops;
use crate::dispatch::MemoryFormat;
use crate::error::expect_ok;
use crate::{DType, Device, IntoSizes, Result, Scalar, SymInt, Tensor};
";
    let list: Vec<String> = plans.iter().filter(|p| p.op.native.variant_method).map(|p| pair(p)).collect();
    let item = format!("impl Tensor {{ {} }}", list.join("\n"));
    file("Every op with `self` as a method of [`Tensor`].", uses, &[item])
}

/// Whether an argument is left out, its default taking its place.
fn left_out(a: &Arg) -> bool {
    a.default.is_some() && (a.keyword || matches!(a.ty, Ty::OptDType | Ty::OptMemoryFormat | Ty::MemoryFormat))
}

fn parameter(a: &Arg) -> String {
    let ty = match a.ty {
        Ty::Scalar => "impl Into<Scalar>".to_owned(),
        Ty::SymInt => "impl Into<SymInt>".to_owned(),
        Ty::SymInts => "impl IntoSizes".to_owned(),
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
        (Ty::Scalar | Ty::SymInt, _) => format!("{}.into()", a.ident),
        (Ty::SymInts, _) => format!("&{}.into_sizes()", a.ident),
        _ => a.ident.clone(),
    }
}

fn pair(plan: &Plan<'_>) -> String {
    let op: &Op = plan.op;
    let name = op.method_name();
    let shown: Vec<&Arg> = op.args().filter(|a| !(left_out(a) || a.name == "self")).collect();
    let mut parameters = vec!["&self".to_owned()];
    parameters.extend(shown.iter().map(|a| parameter(a)));
    let parameters = parameters.join(", ");
    let passed = join(shown.iter().map(|a| a.ident.clone()));
    let arguments = join(op.args().map(argument));
    // Every reference among the parameters would otherwise hide that the result is `self`.
    let ret = plan.return_type().replace("&'a ", "&");
    let (doc, example, rust) = (plan.doc(), plan.example(), &op.rust.name);
    let tried = try_name(&name);
    format!(
        "{doc}{example}
         ///
         /// # Panics
         /// If [`Tensor::{tried}`] returns an error.
         #[inline]
         #[track_caller]
         pub fn {name}({parameters}) -> {ret} {{ expect_ok(self.{tried}({passed})) }}
         {doc}
         #[inline]
         pub fn {tried}({parameters}) -> Result<{ret}> {{ ops::{rust}({arguments}) }}"
    )
}

/// `try_mul`; `try_softmax` for `_softmax`.
fn try_name(name: &str) -> String {
    match name.strip_prefix('_') {
        Some(rest) => format!("_try_{rest}"),
        None => format!("try_{name}"),
    }
}
