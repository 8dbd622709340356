//! Writes `functions.rs` and `below.rs`: the typed function of every op, and its part below autograd.
//!
//! A typed function tests the mode word, runs the part below, records a node if gradients are wanted and sets tangents
//! if a dual level is active. Its order is that of a call in PyTorch: inputs are saved before an in-place write,
//! results after it.

use super::derive::{Derivative, Differentiation, Saved};
use super::foreach;
use super::op::{Arg, Returns};
use super::text::{Plan, file, join};
use super::types::Ty;
use crate::native::{Form, Implementation};
use std::fmt::Write;

/// `functions.rs`.
pub(super) fn functions(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::schema::Op;
use super::{below, forward, nodes};
use crate::autograd::forward::{any_tangent, set_tangent, set_tangent_inplace};
use crate::autograd::node::{Edges, boxed};
use crate::autograd::record;
use crate::autograd::saved::SavedTensor;
use crate::dispatch::{self, Lent, MemoryFormat};
use crate::ops::{composite, devices, foreach, formulas, manual};
use crate::{DType, Device, ErrorKind, Result, Scalar, SymInt, Tensor, state};
";
    let items: Vec<String> = plans.iter().filter(|plan| !plan.op.rust.boxed).map(function).collect();
    file("The typed function of every op: layers, recording, tangents.", uses, &items)
}

/// `below.rs`.
pub(super) fn below(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::schema::Op;
use crate::autograd::view::CreationKind;
use crate::dispatch::{self, Lent, MemoryFormat};
use crate::ops::{cpu, devices, inplace, shape};
use crate::{DType, Device, Result, Scalar, SymInt, Tensor, races, state};
";
    let items: Vec<String> = plans.iter().filter_map(below_item).collect();
    file("What every op does below autograd: shapes, memory, kernels.", uses, &items)
}

fn function(plan: &Plan<'_>) -> String {
    let (op, rust) = (plan.op, &plan.op.rust.name);
    let (generics, parameters, ret) = (plan.generics(), plan.parameters(), plan.return_type());
    let layers = format!("if word & state::LAYERS != 0 {{ {} }}", plan.leave("layers("));
    let body = match (&op.rust.implementation, op.rust.form) {
        (Implementation::Composite(f), _) => format!("{} {}", device_check(plan), handed("composite", f, plan)),
        (Implementation::Foreach(_), _) => op.foreach.as_ref().map_or(String::new(), |call| foreach::body(plan, call)),
        (Implementation::Manual(f, _), _) => {
            // What is written by hand records itself; a layer below autograd sees the whole of it. Levels it knows itself.
            let inner = "word & state::INNER != 0 && word & state::LEVEL == 0";
            let (devices, handed) = (device_check(plan), handed("manual", f, plan));
            format!("if {inner} {{ {} }} {devices} {handed}", plan.leave("inner("))
        }
        (_, Form::Declared) => functional(plan),
        (_, Form::Inplace) => inplace(plan),
        (_, Form::Out) => out(plan),
    };
    let (doc, present) = (plan.doc(), plan.present());
    let example = if op.native.variant_method { String::new() } else { plan.example() };
    format!(
        "{doc}{example}\npub fn {rust}{generics}({parameters}) -> Result<{ret}> {{ {present} let word = state::word(); {layers} {body} }}"
    )
}

/// Refuses operands on different devices. A layer below autograd may show tensors of another device than those it
/// computes with, so it decides in the ops this one is made of.
fn device_check(plan: &Plan<'_>) -> String {
    plan.mixed_devices().map_or(String::new(), |mixed| {
        let (op, lent) = (plan.op.constant(), plan.lent_arguments());
        format!("if word & state::INNER == 0 && {mixed} {{ devices::check(Op::{op}, &[{lent}])?; }}")
    })
}

fn handed(module: &str, function: &str, plan: &Plan<'_>) -> String {
    let call = format!("{module}::{function}({})", plan.arguments());
    match plan.handed_back() {
        Some(back) => format!("{call}?; Ok({back})"),
        None => call,
    }
}

fn functional(plan: &Plan<'_>) -> String {
    let (rust, arguments) = (&plan.op.rust.name, plan.arguments());
    let Differentiation::Formula(d) = &plan.differentiation else {
        return format!("below::{rust}(word, {arguments})");
    };
    let names = plan.op.result_names();
    let mut text = match &plan.op.returns {
        Returns::Tensors(_) => {
            let bound = names
                .iter()
                .enumerate()
                .map(|(k, n)| if d.outputs.contains(&k) { format!("mut {n}") } else { n.clone() });
            format!("let ({}) = below::{rust}(word, {arguments})?;", join(bound))
        }
        _ => format!("let mut result = below::{rust}(word, {arguments})?;"),
    };
    let single = plan.op.returns == Returns::Tensor;
    let differentiable = if single { " && result.dtype().is_differentiable()" } else { "" };
    let saved = if d.saved.is_empty() { String::new() } else { saved_tuple(d, &save_field) };
    let finish = match (&plan.op.returns, d.outputs.as_slice()) {
        (Returns::List, _) => format!("record::finish_list(&mut result, edges, {})?;", node_box(d)),
        (_, [only]) => format!("record::finish(&mut {}, edges, {})?;", names[*only], node_box(d)),
        (_, several) => {
            let outs = join(several.iter().map(|k| format!("&mut {}", names[*k])));
            format!("record::finish_many(&mut [{outs}], edges, {})?;", node_box(d))
        }
    };
    write!(
        text,
        "if word & state::GRAD != 0 && {}{differentiable} {{ {} {saved} {finish} }}",
        requires_grad(plan, d),
        edges(d)
    )
    .expect("writing to a string");
    let tangents = match (&plan.op.returns, d.outputs.as_slice()) {
        (Returns::List, _) => "for (r, t) in result.iter().zip(t) { set_tangent(r, t)?; }".to_owned(),
        (_, [only]) => format!("set_tangent(&{}, t)?;", names[*only]),
        (_, several) => {
            several.iter().enumerate().map(|(k, o)| format!("set_tangent(&{}, t.{k})?;", names[*o])).collect()
        }
    };
    let results = join(names.iter().map(|n| format!("&{n}")));
    text += &tangent_step(plan, d, &format!("{arguments}, {results}"), &tangents);
    match &plan.op.returns {
        Returns::Tensors(_) => text + &format!("Ok(({}))", names.join(", ")),
        _ => text + "Ok(result)",
    }
}

fn inplace(plan: &Plan<'_>) -> String {
    let (rust, arguments, name) = (&plan.op.rust.name, plan.arguments(), plan.op.base());
    let mut text = format!("self_.check_writable({name:?})?;");
    let Differentiation::Formula(d) = &plan.differentiation else {
        return text + &format!("below::{rust}(word, {arguments})?; Ok(self_)");
    };
    // A kept `self` is a copy from before the write.
    let original = d.saved.iter().find(|s| s.read.is_none() && s.name == "self");
    let copy = match original.map(|s| s.guard) {
        None => String::new(),
        Some(None) => "let original = clone(self_, None)?;".to_owned(),
        Some(Some(k)) => {
            format!("let original = if edges[{k}].is_some() {{ Some(clone(self_, None)?) }} else {{ None }};")
        }
    };
    let before = |d: &Derivative, s: &Saved| match (s.output, s.name == "self" && s.read.is_none(), s.guard) {
        (Some(_), _, _) => empty_field(s),
        (None, true, None) => "SavedTensor::input(&original)?".to_owned(),
        (None, true, Some(_)) => "SavedTensor::optional(original.as_ref())?".to_owned(),
        _ => save_field(d, s),
    };
    // What needs nothing of the result is a node at once.
    let patched = d.saved.iter().any(|s| s.output.is_some());
    let (bound, value, ty) = match patched {
        true => ("(edges, mut saved)", "(edges, saved)".to_owned(), ""),
        false => ("(edges, formula)", format!("(edges, {})", node_box(d)), ": record::Before"),
    };
    let saved = if d.saved.is_empty() { String::new() } else { saved_tuple(d, &before) };
    write!(
        text,
        "let recorded{ty} = if word & state::GRAD != 0 && {} && self_.dtype().is_differentiable() {{
            self_.check_inplace({name:?})?; {} {copy} {saved} Some({value})
        }} else {{ None }};",
        requires_grad(plan, d),
        edges(d)
    )
    .expect("writing to a string");
    let primal = d.forward.iter().any(|f| f.primals.iter().any(|name| name == "self"));
    if primal {
        text += "let primal = if word & state::DUAL != 0 { Some(clone(self_, None)?) } else { None };";
    }
    write!(text, "below::{rust}(word, {arguments})?;").expect("writing to a string");
    let after: String = (d.saved.iter().enumerate())
        .filter(|(_, s)| s.output.is_some())
        .map(|(k, s)| {
            format!("saved.{k} = {};", save_field(d, s).replace("&result", "self_").replace("result", "self_"))
        })
        .collect();
    let formula = if patched { node_box(d) } else { "formula".to_owned() };
    write!(text, "if let Some({bound}) = recorded {{ {after} record::finish_inplace(self_, edges, {formula})?; }}")
        .expect("writing to a string");
    let old = if primal { "primal.as_ref().unwrap_or(self_)" } else { "self_" };
    let all = join(plan.op.args().map(|a| if a.name == "self" { old.to_owned() } else { a.ident.clone() }));
    text += &tangent_step(plan, d, &format!("{all}, self_"), "set_tangent_inplace(self_, t)?;");
    text + "Ok(self_)"
}

/// Sets tangents under a dual level, or refuses if some input has one and there is no formula.
fn tangent_step(plan: &Plan<'_>, d: &Derivative, arguments: &str, set: &str) -> String {
    if d.forward.is_empty() {
        let name = plan.op.base();
        return format!(
            "if word & state::DUAL != 0 && any_tangent({}) {{
                return Err(ErrorKind::ForwardNotImplemented {{ op: {name:?}.into() }}.into());
            }}",
            plan.tensor_inputs()
        );
    }
    format!("if word & state::DUAL != 0 && let Some(t) = forward::{}({arguments})? {{ {set} }}", d.owner)
}

fn out(plan: &Plan<'_>) -> String {
    let back = plan.handed_back().unwrap_or_default();
    format!("below::{}(word, {})?; Ok({back})", plan.op.rust.name, plan.arguments())
}

/// Whether some argument with a derivative wants a gradient.
fn requires_grad(plan: &Plan<'_>, d: &Derivative) -> String {
    let mut parts = Vec::new();
    let plain = join(d.inputs.iter().filter(|a| a.ty == Ty::Tensor).map(|a| a.ident.clone()));
    if !plain.is_empty() {
        parts.push(format!("record::any_requires_grad(&[{plain}])"));
    }
    for a in &d.inputs {
        match a.ty {
            Ty::OptTensor => parts.push(format!("record::opt_requires_grad({})", a.ident)),
            Ty::Tensors => parts.push(format!("record::list_requires_grad({})", a.ident)),
            Ty::OptTensors => parts.push(format!("record::opts_requires_grad({})", a.ident)),
            _ => {}
        }
    }
    debug_assert!(!parts.is_empty(), "{} has inputs", plan.op.rust.name);
    if parts.len() == 1 { parts.remove(0) } else { format!("({})", parts.join(" || ")) }
}

fn edges(d: &Derivative) -> String {
    let edge = |ty: Ty, x: &str| match ty {
        Ty::Tensor => format!("record::edge({x})?"),
        _ => format!("record::edge_opt({x})?"),
    };
    if d.inputs.iter().all(|a| a.ty == Ty::Tensor) {
        return format!("let edges = record::edges([{}])?;", join(d.inputs.iter().map(|a| a.ident.clone())));
    }
    if d.list_input().is_none() {
        let some = |a: &Arg| if a.ty == Ty::Tensor { format!("Some({})", a.ident) } else { a.ident.clone() };
        return format!("let edges = record::edges_opt(&[{}])?;", join(d.inputs.iter().map(some)));
    }
    let mut text = String::from("let mut edges = Edges::new();");
    for a in &d.inputs {
        text += &match a.ty {
            Ty::Tensors => format!("record::push_edges(&mut edges, {})?;", a.ident),
            Ty::OptTensors => format!("record::push_edges_opt(&mut edges, {})?;", a.ident),
            ty => format!("edges.push({});", edge(ty, &a.ident)),
        };
    }
    text
}

fn saved_tuple(d: &Derivative, field: &dyn Fn(&Derivative, &Saved) -> String) -> String {
    let fields: String = d.saved.iter().map(|s| field(d, s) + ",").collect();
    format!("let saved = ({fields});")
}

/// Text that makes a kept value.
fn save_field(d: &Derivative, s: &Saved) -> String {
    let of = super::op::ident(&s.of);
    if let Some(read) = &s.read {
        return read.replace('$', &of);
    }
    let text = match (s.ty, s.output.map(|o| d.slot(o))) {
        (_, Some(Some(slot))) => format!("SavedTensor::output(&{of}, {slot})?"),
        // A result without history is kept like an input: it does not own the node.
        (_, Some(None)) => format!("SavedTensor::input(&{of})?"),
        (Ty::Tensor, None) => format!("SavedTensor::input({of})?"),
        (Ty::OptTensor, None) => format!("SavedTensor::optional({of})?"),
        (Ty::Tensors, None) => format!("{of}.iter().map(SavedTensor::input).collect::<Result<_>>()?"),
        (Ty::OptTensors, None) => {
            format!("{of}.iter().map(|t| SavedTensor::optional(t.as_ref())).collect::<Result<_>>()?")
        }
        (ty, None) => ty.keep(&of),
    };
    match s.guard {
        Some(k) => format!("if edges[{k}].is_some() {{ {text} }} else {{ SavedTensor::NONE }}"),
        None => text,
    }
}

/// What stands in the place of a kept result until the in-place write has happened.
fn empty_field(s: &Saved) -> String {
    match s.ty {
        Ty::Tensor => "SavedTensor::NONE".to_owned(),
        _ => save_empty(s),
    }
}

/// Attributes of results are attributes of `self` in an in-place op; they are read again after the write.
fn save_empty(s: &Saved) -> String {
    s.read.as_deref().unwrap_or("Default::default()").replace('$', "self_")
}

fn node_box(d: &Derivative) -> String {
    let node = &d.node;
    match (d.saved.is_empty(), super::nodes::keeps_tensors(d)) {
        (true, _) => format!("boxed(nodes::{node})"),
        (_, true) => format!("nodes::{node}.keep(saved)"),
        (_, false) => format!("nodes::{node}.keep_plain(saved)"),
    }
}

fn below_item(plan: &Plan<'_>) -> Option<String> {
    let (op, rust, arguments) = (plan.op, &plan.op.rust.name, plan.arguments());
    let name = op.base();
    let own_arguments = join(op.args().map(|a| a.ident.clone()));
    let shape_arguments = if own_arguments.is_empty() { String::new() } else { format!(", {own_arguments}") };
    let with =
        |extra: &str| if own_arguments.is_empty() { extra.to_owned() } else { format!("{own_arguments}, {extra}") };
    let writer = |function: &str| match op.native.has_tag("pointwise") || op.rust.in_place_kernel {
        true => function.to_owned(),
        false => format!("{function}_through_copy"),
    };
    // Pointwise kernels work on tiles of a fixed size; others may need memory of their own, which may not be there.
    let run = |call: String| match op.native.has_tag("pointwise") {
        true => call,
        false => format!("cpu::run(&mut || {call})"),
    };
    let body = match (&op.rust.implementation, op.rust.form) {
        (Implementation::Composite(_) | Implementation::Foreach(_) | Implementation::Manual(..), _) => return None,
        (Implementation::Direct(f), _) => match op.native.has_tag("pointwise") {
            true => format!("cpu::{f}({arguments})"),
            false => format!("cpu::run_for(|| cpu::{f}({arguments}))"),
        },
        (Implementation::View(f), _) => match op.returns {
            Returns::List => format!(
                "let layouts = shape::view::{f}({arguments})?;
                 Ok(layouts.into_iter().map(|l| self_.make_view(l, CreationKind::MultiOutput)).collect())"
            ),
            _ => format!(
                "let layout = shape::view::{f}({arguments})?; Ok(self_.make_view(layout, CreationKind::Default))"
            ),
        },
        (Implementation::Structured { shape, kernel }, Form::Declared) => match &op.returns {
            Returns::Tensors(names) => {
                let specs = join((0..names.len()).map(|k| format!("spec{k}")));
                let made: String =
                    names.iter().enumerate().map(|(k, n)| format!("let {n} = Tensor::try_empty(spec{k})?;")).collect();
                let outs = join(names.iter().map(|n| format!("&{n}")));
                format!(
                    "let ({specs}) = shape::{shape}({name:?}{shape_arguments})?; {made}
                     if !{}.is_meta() {{ {}?; }} Ok(({}))",
                    names[0],
                    run(format!("cpu::{kernel}({})", with(&outs))),
                    names.join(", ")
                )
            }
            _ => format!(
                "let result = Tensor::try_empty(shape::{shape}({name:?}{shape_arguments})?)?;
                 if !result.is_meta() {{ {}?; }} Ok(result)",
                run(format!("cpu::{kernel}({})", with("&result")))
            ),
        },
        (Implementation::Structured { shape, kernel }, Form::Inplace) => format!(
            "let spec = shape::{shape}({name:?}{shape_arguments})?;
             inplace::{}({name:?}, self_, spec.into(), {}, &|out| {})",
            if op.rust.in_place_term { "write_onto_term".to_owned() } else { writer("write") },
            plan.tensor_inputs(),
            run(format!("cpu::{kernel}({})", with("out")))
        ),
        (Implementation::Structured { shape, kernel }, Form::Out) => {
            let inputs = plan.tensor_inputs();
            let exact = |spec: &str, out: &str| match op.rust.exact_out {
                true => format!("inplace::need_dtype({name:?}, {out}, {spec}.dtype)?;"),
                false => String::new(),
            };
            match op.outs.as_slice() {
                [only] => format!(
                    "let spec = shape::{shape}({name:?}{shape_arguments})?; {}
                     inplace::{}({name:?}, {}, spec.into(), {inputs}, &|out| {})",
                    exact("spec", &only.ident),
                    writer("write_out"),
                    only.ident,
                    run(format!("cpu::{kernel}({})", with("out")))
                ),
                several => {
                    let specs = join((0..several.len()).map(|k| format!("spec{k}")));
                    let outs = join(several.iter().map(|a| a.ident.clone()));
                    let exact: String =
                        several.iter().enumerate().map(|(k, a)| exact(&format!("spec{k}"), &a.ident)).collect();
                    format!(
                        "let ({specs}) = shape::{shape}({name:?}{shape_arguments})?; {exact}
                         inplace::write_outs({name:?}, [{outs}], [{specs}], {inputs}, &|[{outs}]| {})",
                        run(format!("cpu::{kernel}({})", with(&outs)))
                    )
                }
            }
        }
    };
    // A view only shows memory; whatever computes says so if it can do that with complex numbers.
    let is_view = matches!(op.rust.implementation, Implementation::View(_));
    let guard = match !is_view && !op.rust.complex && op.args().any(|a| a.ty.is_tensor()) {
        true => {
            let others = op.args().filter_map(|a| match a.ty {
                Ty::Scalar => Some(format!("shape::need_real_number({name:?}, {})?;", a.ident)),
                Ty::OptScalar => {
                    Some(format!("if let Some(n) = {} {{ shape::need_real_number({name:?}, n)?; }}", a.ident))
                }
                Ty::DType => Some(format!("shape::need_real_dtype({name:?}, Some({}))?;", a.ident)),
                Ty::OptDType => Some(format!("shape::need_real_dtype({name:?}, {})?;", a.ident)),
                _ => None,
            });
            let others: String = others.collect();
            format!("shape::need_real({name:?}, {})?; {others}", plan.tensor_inputs())
        }
        false => String::new(),
    };
    // Kernels hold the ones they use; the error of a conflicting op names them.
    let operands: Vec<&str> =
        op.args().chain(&op.outs).filter(|a| a.ty.is_tensor()).map(|a| a.ident.as_str()).collect();
    let named = match is_view || operands.is_empty() {
        true => String::new(),
        false => format!("races::op!({name:?}, {});", operands.join(", ")),
    };
    let back = plan.handed_back().is_some();
    let ret = if back { "()".to_owned() } else { plan.return_type() };
    // Every call that is not plain leaves here: to the layers, or to where operands on different devices are refused.
    let (apart, door) = match plan.mixed_devices() {
        Some(mixed) => (format!("word & state::APART != 0 || {mixed}"), "apart(word, "),
        None => ("word & state::APART != 0".to_owned(), "inner("),
    };
    let inner = format!("return dispatch::{door}Op::{}, &[{}]);", op.constant(), plan.lent_arguments());
    let (parameters, present) = (plan.parameters().replace("&'a ", "&"), plan.present());
    Some(format!(
        "pub(crate) fn {rust}(word: u32, {parameters}) -> Result<{ret}> {{
            {present} if {apart} {{ {inner} }} {guard} {named} {body}
        }}"
    ))
}
