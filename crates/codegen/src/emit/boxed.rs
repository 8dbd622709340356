//! Writes `boxed.rs`: how ops are called with boxed arguments.
//!
//! One function per signature takes arguments out of their boxes and calls the typed functions it is given; ops of one
//! signature share it. An op is then data: a variant of `Typed` that holds its two functions, and its defaults.

use super::text::{Plan, file, join};
use super::types::Ty;
use crate::native::Implementation;
use std::collections::HashMap;

/// The signatures of all ops, numbered in the order of the file.
pub(super) struct Signatures {
    /// What `Typed` and its functions are made from.
    texts: Vec<Signature>,
    /// The signature of each op.
    of: Vec<usize>,
}

/// What the boxed call of an op depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Signature {
    /// The type of the typed function.
    typed: String,
    /// The type of what lies below it, and how it is called.
    below: Option<(String, &'static str)>,
    /// Statements that take the arguments out.
    unpack: String,
    /// The arguments as both functions take them.
    passed: String,
    /// What is boxed: the result, or the arguments that are handed back.
    back: Option<String>,
}

impl Signatures {
    pub(super) fn new(plans: &[Plan<'_>]) -> Signatures {
        let mut places: HashMap<Signature, usize> = HashMap::new();
        let mut texts = Vec::new();
        let of = plans
            .iter()
            .map(|plan| {
                let signature = signature(plan);
                *places.entry(signature).or_insert_with_key(|s| {
                    texts.push(s.clone());
                    texts.len() - 1
                })
            })
            .collect();
        Signatures { texts, of }
    }

    /// The value of `Run` for an op of the table.
    pub(super) fn run(&self, k: usize, plan: &Plan<'_>) -> String {
        let rust = &plan.op.rust.name;
        let typed = match &plan.op.rust.implementation {
            Implementation::Composite(f) if plan.op.rust.boxed => format!("composite::{f}"),
            _ => format!("functions::{rust}"),
        };
        let below = match &plan.op.rust.implementation {
            // The body of a composite op is what lies "below" it: layers that open it call that.
            Implementation::Composite(f) => format!(", composite::{f}"),
            other if other.has_below() => format!(", below::{rust}"),
            _ => String::new(),
        };
        let given = plan.op.all_args.iter().chain(&plan.op.outs).enumerate();
        let given = join(given.filter_map(|(k, a)| Some(format!("({k}, {})", a.given.as_ref()?))));
        let run = if plan.op.rust.boxed { "Boxed" } else { "Typed" };
        format!("Run::{run}(boxed::Typed::S{}({typed}{below}), &[{given}])", self.of[k])
    }

    /// `boxed.rs`.
    pub(super) fn text(&self) -> String {
        let uses = "\
use crate::dispatch::{Args, Boxed, MemoryFormat, Outputs};
use crate::sym::SymInts;
use crate::{DType, Device, Result, Scalar, SymInt, Tensor};
";
        let variants = join(self.texts.iter().enumerate().map(|(k, s)| match &s.below {
            Some((below, _)) => format!("S{k}({}, {below})", s.typed),
            None => format!("S{k}({})", s.typed),
        }));
        let arms: String = (self.texts.iter().enumerate())
            .map(|(k, s)| match s.below {
                Some(_) => format!("Typed::S{k}(f, g) => s{k}(a, below, *f, *g),"),
                None => format!("Typed::S{k}(f) => s{k}(a, *f),"),
            })
            .collect();
        let mut items = vec![
            format!(
                "/// The typed function of an op and what lies below it, by signature.\npub(crate) enum Typed {{ {variants} }}"
            ),
            format!(
                "impl Typed {{
                    /// Calls the typed function, or what lies below it.
                    pub(crate) fn call(&self, a: &Args<'_>, below: bool) -> Result<Outputs> {{
                        match self {{ {arms} }}
                    }}
                }}"
            ),
        ];
        items.extend(self.texts.iter().enumerate().map(|(k, s)| s.function(k)));
        file("Calls with boxed arguments, one function per signature.", uses, &items)
    }
}

impl Signature {
    fn function(&self, k: usize) -> String {
        let Signature { typed, below, unpack, passed, back } = self;
        let end = if back.is_some() { ";" } else { "" };
        let (parameters, call) = match below {
            Some((ty, word)) => (
                format!("below: bool, f: {typed}, g: {ty}"),
                format!("if below {{ g({word}{passed})?{end} }} else {{ f({passed})?{end} }}"),
            ),
            None => (format!("f: {typed}"), format!("f({passed})?{end}")),
        };
        let body = match back {
            Some(back) => format!("{call} Ok({back}.boxed())"),
            None => format!("let result = {call}; Ok(result.boxed())"),
        };
        format!("fn s{k}(a: &Args<'_>, {parameters}) -> Result<Outputs> {{ {unpack} {body} }}")
    }
}

fn signature(plan: &Plan<'_>) -> Signature {
    let op = plan.op;
    let mut unpack = String::new();
    let mut passed = Vec::new();
    for (k, a) in op.all_args.iter().chain(&op.outs).enumerate() {
        if a.ty == Ty::Dropped {
            continue;
        }
        unpack += &format!("let x{k}: {} = a.get({k})?;", a.ty.unboxed_type());
        passed.push(a.ty.unboxed(&format!("x{k}")));
    }
    let place = |wanted: &str| op.all_args.iter().chain(&op.outs).position(|a| a.name == wanted);
    let place = |wanted: &str| place(wanted).map_or(String::new(), |k| format!("x{k}"));
    let handed = plan.handed_back().is_some();
    let back = handed.then(|| match op.outs.as_slice() {
        [] => place("self"),
        [only] => place(&only.name),
        several => format!("({})", join(several.iter().map(|a| place(&a.name)))),
    });
    let types = plan.parameter_types();
    let lifetime = if types.contains("'a") { "for<'a> " } else { "" };
    let typed = format!("{lifetime}fn({types}) -> Result<{}>", plan.return_type());
    let plain = types.replace("&'a ", "&");
    let comma = if plain.is_empty() { "" } else { ", " };
    let below = match &op.rust.implementation {
        Implementation::Composite(_) => Some((typed.clone(), "")),
        other if other.has_below() => {
            let ret = if handed { "()".to_owned() } else { plan.return_type() };
            Some((format!("fn(u32{comma}{plain}) -> Result<{ret}>"), "0, "))
        }
        _ => None,
    };
    Signature { typed, below, unpack, passed: passed.join(", "), back }
}
