//! Writes `methods.rs` and `api.rs`: what users call. Each op has a form that panics with the caller's place and a
//! `try_` form that returns the error.
//!
//! Keyword arguments with defaults are left out, as are dtypes and memory formats with defaults: the functions of
//! `ops` take them.

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
    let list: Vec<String> = plans.iter().filter(|p| p.op.native.variant_method).map(|p| pair(p, true)).collect();
    let item = format!("impl Tensor {{ {} }}", list.join("\n"));
    file("Every op with `self` as a method of [`Tensor`].", uses, &[item])
}

/// `api.rs`.
pub(super) fn api(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::functions as ops;
use crate::dispatch::MemoryFormat;
use crate::error::expect_ok;
use crate::{DType, Device, IntoSizes, Result, Scalar, SymInt, Tensor};
";
    let wanted =
        |p: &&Plan<'_>| p.op.native.variant_function && p.op.outs.is_empty() && !p.op.rust.name.starts_with('_');
    let items: Vec<String> = plans.iter().filter(wanted).map(|p| pair(p, false)).collect();
    file("Ops that are called as functions.", uses, &items)
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

fn argument(a: &Arg, method: bool) -> String {
    if method && a.name == "self" {
        return "self".to_owned();
    }
    match (a.ty, &a.default) {
        (_, Some(default)) if left_out(a) => default.clone(),
        (Ty::Scalar | Ty::SymInt, _) => format!("{}.into()", a.ident),
        (Ty::SymInts, _) => format!("&{}.into_sizes()", a.ident),
        _ => a.ident.clone(),
    }
}

fn pair(plan: &Plan<'_>, method: bool) -> String {
    let op: &Op = plan.op;
    let name = if method { op.method_name() } else { op.rust.name.clone() };
    let shown: Vec<&Arg> = op.args().filter(|a| !(left_out(a) || method && a.name == "self")).collect();
    let mut parameters: Vec<String> = if method { vec!["&self".to_owned()] } else { Vec::new() };
    parameters.extend(shown.iter().map(|a| parameter(a)));
    let parameters = parameters.join(", ");
    let passed = join(shown.iter().map(|a| a.ident.clone()));
    let arguments = join(op.args().map(|a| argument(a, method)));
    // Every reference among the parameters would otherwise hide that the result is `self`.
    let ret = plan.return_type().replace("&'a ", "&");
    let (doc, rust) = (plan.doc(), &op.rust.name);
    let receiver = if method { "self." } else { "" };
    let tried = try_name(&name);
    format!(
        "{doc}
         ///
         /// # Panics
         /// With the error of [`{link}{tried}`].
         #[track_caller]
         pub fn {name}({parameters}) -> {ret} {{ expect_ok({receiver}{tried}({passed})) }}
         {doc}
         pub fn {tried}({parameters}) -> Result<{ret}> {{ ops::{rust}({arguments}) }}",
        link = if method { "Tensor::" } else { "" },
    )
}

/// `try_mul`; `try_softmax` for `_softmax`.
fn try_name(name: &str) -> String {
    match name.strip_prefix('_') {
        Some(rest) => format!("_try_{rest}"),
        None => format!("try_{name}"),
    }
}
