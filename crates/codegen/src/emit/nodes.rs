//! Writes `nodes.rs` and `forward.rs`: the node of every derivative, and its forward-mode formula.

use super::derive::{Derivative, Differentiation, Saved, Step};
use super::op::{Returns, ident};
use super::text::{Plan, expr, file, join};
use super::types::Ty;
use std::fmt::Write;

/// Every derivative once, with the op whose entry it is.
fn owned<'a>(plans: &'a [Plan<'a>]) -> impl Iterator<Item = (&'a Plan<'a>, &'a Derivative)> {
    plans.iter().filter_map(|plan| match &plan.differentiation {
        Differentiation::Formula(d) if d.owner == plan.op.rust.name => Some((plan, &**d)),
        _ => None,
    })
}

/// `nodes.rs`.
pub(super) fn nodes(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::functions as ops;
use crate::autograd::formula::Formula;
use crate::autograd::node::{Backward, Gradients, Needs, Node};
use crate::autograd::saved::SavedTensor;
use crate::autograd::saved_visit::SavedVisitor;
use crate::dispatch::MemoryFormat;
use crate::ops::formulas::{self, put, put_all};
use crate::ops::arith;
use crate::sym::SymInts;
use crate::{DType, Device, Layout, Result, Scalar, Spec, SymInt, Tensor};
use smallvec::smallvec;
";
    let items: Vec<String> = owned(plans).map(|(_, d)| node(d)).collect();
    file("The node of every derivative: what it keeps and how it computes gradients.", uses, &items)
}

fn node(d: &Derivative) -> String {
    let name = &d.node;
    if d.saved.is_empty() {
        return format!(
            "pub(crate) struct {name};
             impl Backward for {name} {{
                fn name(&self) -> &str {{ {name:?} }}
                fn apply(&self, _: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {{
                    let mut gradients: Gradients = smallvec![None; needs.len()];
                    {}
                    Ok(gradients)
                }}
                fn visit_saved(&self, _: &Node, _: &mut dyn SavedVisitor) -> Result<bool> {{ Ok(true) }}
             }}",
            apply(d, "return Ok(gradients)")
        );
    }
    let names = join(d.saved.iter().map(|s| format!("{:?}", s.name)));
    let fields: String = d.saved.iter().map(|s| s.field() + ",").collect();
    format!(
        "pub(crate) static {name}: Formula<{}> = Formula {{
            name: {name:?},
            names: &[{names}],
            apply: |node, ({fields}), grads, needs, gradients| {{ {} Ok(()) }},
         }};",
        saved_type(d),
        apply(d, "return Ok(())")
    )
}

/// The tuple that a node keeps.
fn saved_type(d: &Derivative) -> String {
    format!("({})", d.saved.iter().map(|s| s.ty.owned() + ",").collect::<String>())
}

/// Whether it keeps tensors: plain values are never released, so a node without tensors can run again.
pub(super) fn keeps_tensors(d: &Derivative) -> bool {
    d.saved.iter().any(is_tensor)
}

/// Whether a kept value is a tensor, or several.
fn is_tensor(s: &Saved) -> bool {
    s.read.is_none() && matches!(s.ty, Ty::Tensor | Ty::OptTensor | Ty::Tensors | Ty::OptTensors)
}

/// Statements that store the gradients; `done` leaves early.
fn apply(d: &Derivative, done: &str) -> String {
    let mut text = String::new();
    if d.uses_grad {
        write!(text, "let Some(grad) = grads.first().and_then(Option::as_ref) else {{ {done} }};").expect("a string");
    } else {
        if d.saved.is_empty() {
            write!(text, "let grads = &grads[..]; if grads.iter().all(Option::is_none) {{ {done}; }}")
                .expect("a string");
        }
        for (name, slot) in &d.named_gradients {
            write!(text, "let {name} = grads.get({slot}).and_then(Option::as_ref);").expect("a string");
        }
    }
    for s in d.saved.iter().filter(|s| s.guard.is_none()) {
        text += &unpack(s);
    }
    for step in &d.steps {
        text += &self::step(d, step);
    }
    text
}

/// Binds a kept value under its name in formulas.
fn unpack(s: &Saved) -> String {
    let (name, x) = (s.field(), s.field());
    match s.ty {
        Ty::Tensor => format!("let {name} = &{x}.unpack_some(node)?;"),
        Ty::OptTensor => format!("let {name} = {x}.unpack(node)?; let {name} = {name}.as_ref();"),
        Ty::Tensors => format!(
            "let {name} = {x}.into_iter().map(|t| t.unpack_some(node)).collect::<Result<Vec<_>>>()?;
             let {name} = &{name}[..];"
        ),
        Ty::OptTensors => format!(
            "let {name} = {x}.into_iter().map(|t| t.unpack(node)).collect::<Result<Vec<_>>>()?;
             let {name} = &{name}[..];"
        ),
        ty => format!("let {name} = {};", ty.lend(&x)),
    }
}

/// The place of an input's gradient: an index, or a range for a list.
fn place(d: &Derivative, input: usize) -> (String, bool) {
    let list = d.list_input();
    let rest = d.inputs.len() - 1;
    match list {
        Some(l) if input == l => {
            let end = match rest - l {
                0 => "needs.len()".to_owned(),
                after => format!("needs.len() - {after}"),
            };
            (format!("{l}..{end}"), true)
        }
        Some(l) if input > l => (format!("needs.len() - {}", d.inputs.len() - input), false),
        _ => (input.to_string(), false),
    }
}

fn need(d: &Derivative, input: usize) -> String {
    match place(d, input) {
        (range, true) => format!("needs.any({range})"),
        (index, false) => format!("needs.get({index})"),
    }
}

fn step(d: &Derivative, step: &Step) -> String {
    let guarded: String = d.saved.iter().filter(|s| s.guard.is_some_and(|k| step.inputs == [k])).map(unpack).collect();
    let value = expr(&step.expr);
    let store = |input: usize, value: &str| match place(d, input) {
        (range, true) => format!("put_all(&mut gradients[{range}], {value});"),
        (index, false) => format!("put(&mut gradients[{index}], {value});"),
    };
    if let [only] = step.inputs.as_slice() {
        let mask = if step.uses_mask { format!("let grad_input_mask = [{}];", need(d, *only)) } else { String::new() };
        return format!("if {} {{ {guarded} {mask} {} }}", need(d, *only), store(*only, &value));
    }
    let needs: Vec<String> = step.inputs.iter().map(|k| need(d, *k)).collect();
    let mask = match step.uses_mask {
        true => format!("let grad_input_mask = [{}];", needs.join(", ")),
        false => String::new(),
    };
    let names = join((0..step.inputs.len()).map(|k| format!("g{k}")));
    let stores: String = step
        .inputs
        .iter()
        .enumerate()
        .map(|(k, input)| format!("if {} {{ {} }}", needs[k], store(*input, &format!("g{k}"))))
        .collect();
    format!("if {} {{ {mask} let ({names}) = {value}; {stores} }}", needs.join(" || "))
}

/// `forward.rs`.
pub(super) fn forward(plans: &[Plan<'_>]) -> String {
    let uses = "\
use super::functions as ops;
use crate::autograd::forward::{any_tangent, opt_tangent_or_zeros, tangent_or_zeros, tangents_or_zeros};
use crate::dispatch::MemoryFormat;
use crate::ops::formulas;
use crate::ops::arith;
use crate::state::{self, ModeGuard};
use crate::{DType, Device, Result, Scalar, SymInt, Tensor};
";
    let with_formula = owned(plans).filter(|(_, d)| !d.forward.is_empty());
    let items: Vec<String> = with_formula.map(|(plan, d)| forward_item(plan, d)).collect();
    file("Forward mode: the tangents of every op's results, if some input carries one.", uses, &items)
}

fn forward_item(plan: &Plan<'_>, d: &Derivative) -> String {
    let result_type = if plan.op.returns == Returns::List { "&[Tensor]" } else { "&Tensor" };
    let results = join(plan.op.result_names().iter().map(|n| format!("{n}: {result_type}")));
    let parameters = plan.parameters().replace("&'a ", "&");
    let value_type = match (&plan.op.returns, d.forward.len()) {
        (Returns::List, _) => "Vec<Tensor>".to_owned(),
        (_, 1) => "Tensor".to_owned(),
        (_, n) => format!("({})", vec!["Tensor"; n].join(", ")),
    };
    let mut text = format!(
        "pub(crate) fn {}({parameters}, {results}) -> Result<Option<{value_type}>> {{
            if !any_tangent({}) {{ return Ok(None); }}
            let _off = ModeGuard::new(0, state::DUAL);",
        plan.op.rust.name,
        plan.tensor_inputs_of(&d.inputs)
    );
    for a in &d.inputs {
        if d.forward.iter().any(|f| f.tangents.contains(&a.name)) {
            let (t, x) = (ident(&format!("{}_t", a.name)), &a.ident);
            text += &match a.ty {
                Ty::Tensor => format!("let {t} = &tangent_or_zeros({x})?;"),
                Ty::OptTensor => format!("let {t} = opt_tangent_or_zeros({x})?; let {t} = {t}.as_ref();"),
                _ => format!("let {t} = &tangents_or_zeros({x})?[..];"),
            };
        }
        if d.forward.iter().any(|f| f.primals.contains(&a.name)) {
            write!(text, "let {} = {};", ident(&format!("{}_p", a.name)), a.ident).expect("a string");
        }
    }
    let values = join(d.forward.iter().map(|f| match &f.expr {
        syn::Expr::Path(_) => format!("{}.clone()", expr(&f.expr)),
        e => expr(e),
    }));
    let values = if d.forward.len() > 1 { format!("({values})") } else { values };
    text + &format!("Ok(Some({values})) }}")
}
