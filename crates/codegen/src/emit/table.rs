//! Writes `boxed.rs`: how each op is called with boxed arguments.

use super::op::Returns;
use super::text::{Plan, file, join};
use super::types::Ty;
use crate::native::Implementation;

/// `boxed.rs`.
pub(super) fn boxed(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::{below as inner, functions};
use crate::dispatch::{Args, MemoryFormat, Outputs, Value};
use crate::ops::composite;
use crate::{DType, Result, Scalar, SymInt};
use smallvec::smallvec;
";
    let items: Vec<String> = plans.iter().map(item).collect();
    file("Calls with boxed arguments: of the typed function, or of the part below autograd.", uses, &items)
}

fn item(plan: &Plan<'_>) -> String {
    let op = plan.op;
    let mut text = String::new();
    for (k, a) in op.all_args.iter().chain(&op.outs).enumerate() {
        if a.ty == Ty::Dropped {
            continue;
        }
        let (ident, name, getter) = (&a.ident, &a.name, a.ty.getter());
        let read = format!("a.{getter}({k}, {name:?})?");
        text += &match &a.default {
            // Getters of optional values read an absent one as none.
            Some(default) if default != "None" => {
                let default = owned_default(a.ty, default);
                format!("let {ident} = if a.is_none({k}) {{ {default} }} else {{ {read} }};")
            }
            _ => format!("let {ident} = {read};"),
        };
    }
    let passed = join(op.args().chain(&op.outs).map(|a| a.ty.unboxed(&a.ident)));
    let result = match &op.returns {
        Returns::Tensors(names) if op.outs.is_empty() => names.clone(),
        _ => vec!["result".to_owned()],
    };
    let pattern = if result.len() == 1 { result[0].clone() } else { format!("({})", result.join(", ")) };
    let typed = format!("functions::{}({passed})?", op.rust.name);
    // The body of a composite op is what lies "below" it: layers that open it call that.
    let (has_below, inner) = match &op.rust.implementation {
        Implementation::Composite(f) => (true, format!("composite::{f}({passed})?")),
        other => (other.has_below(), format!("inner::{}(0, {passed})?", op.rust.name)),
    };
    let (bind, outputs) = match plan.handed_back() {
        Some(_) => {
            let call = match has_below {
                true => format!("if below {{ {inner}; }} else {{ {typed}; }}"),
                false => format!("{typed};"),
            };
            let back = if op.outs.is_empty() {
                vec!["self_".to_owned()]
            } else {
                op.outs.iter().map(|a| a.ident.clone()).collect()
            };
            (call, join(back.iter().map(|n| format!("{n}.into()"))))
        }
        None => {
            let value = match has_below {
                true => format!("if below {{ {inner} }} else {{ {typed} }}"),
                false => typed,
            };
            match op.returns {
                Returns::Nothing => (format!("{value};"), String::new()),
                _ => (format!("let {pattern} = {value};"), join(result.iter().map(|n| format!("{n}.into()")))),
            }
        }
    };
    let below = if has_below { "below" } else { "_below" };
    let a = if op.all_args.is_empty() { "_a" } else { "a" };
    format!(
        "pub(super) fn {}({a}: &Args<'_>, {below}: bool) -> Result<Outputs> {{ {text} {bind} Ok(smallvec![{outputs}]) }}",
        op.rust.name
    )
}

/// A default as the owned value that a getter returns.
fn owned_default(ty: Ty, default: &str) -> String {
    match ty {
        Ty::Ints | Ty::Floats | Ty::Scalars | Ty::Tensors | Ty::OptTensors => default.replacen('&', "vec!", 1),
        Ty::SymInts => default.replacen('&', "smallvec!", 1),
        Ty::OptInts | Ty::OptFloats => default.replacen('&', "vec!", 1),
        Ty::OptSymInts => default.replacen('&', "smallvec!", 1),
        _ => default.to_owned(),
    }
}
