//! Writes `schema.rs`: one record per op, as data that needs no code to be read.
//!
//! Guarantees that every op has an answer in every column. What an entry does not say follows from its implementation,
//! tags and functional form; where nothing follows, or where an entry says what follows anyway, that is an error. Knows
//! the names of core's types, and of rules only what entries call them.

use super::boxed::Signatures;
use super::derive::Differentiation;
use super::text::{Plan, file, join};
use crate::error::{Kind, Result};
use crate::native::{
    Autocast, Cost, Decomposition, Devices, Form, Implementation, Row, RowKind, Training, Vmap, is_flag,
};
use crate::schema::{Argument, BaseTy, SchemaKind, Type};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// `schema.rs`.
pub(super) fn schema(plans: &[Plan<'_>], signatures: &Signatures) -> Result<String> {
    let uses = "\
use super::{below, boxed, functions};
use crate::dispatch::{Given, MemoryFormat, Run};
use crate::func::rules::{self, Rule};
use crate::ops::composite;
use crate::ops::forms::{FormRow, Way};
use crate::record::{Autocast, Cost, Decomposition, Derivative, Devices, Kind, OpInfo, PLAIN, Tags};
use crate::schema::{Constant, Schema, SchemaArg, Type, arg};
use crate::DType;
";
    let id = "/// The id of an op: an index into the table of ops.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct Op(pub(crate) u32);"
        .to_owned();
    let constants: String = plans
        .iter()
        .enumerate()
        .map(|(k, p)| format!("/// `aten::{}`\npub const {}: Op = Op({k});", p.op.name(), p.op.constant()))
        .collect();
    let forms = Forms::find(plans)?;
    let mut lists = Lists::default();
    let entries =
        (0..plans.len()).map(|k| entry(plans, k, signatures, &forms, &mut lists)).collect::<Result<String>>()?;
    let rows = forms.rows.iter().map(|row| row_text(plans, row)).collect::<String>();
    let rows = format!("pub(crate) static FORMS: [FormRow; {}] = [\n{rows}];", forms.rows.len());
    let table = format!("pub(crate) static TABLE: [OpInfo; {}] = [\n{entries}];", plans.len());
    let about = "One record per op: name, schema, forms, tags, derivative, rules, calls.";
    // The table is wide: a formatter that gives every field a line would make it four times as long.
    let text = file(about, uses, &[id, format!("impl Op {{ {constants} }}")]);
    Ok(format!(
        "{text}\n{}\n{table}\n\n/// Forms and second names that are only data; their ids follow those of the table.\n{rows}\n",
        lists.items.concat()
    ))
}

/// How the id of an op is written: its constant, or its number if it has none.
fn id(plans: &[Plan<'_>], k: usize) -> String {
    plans.get(k).map_or_else(|| format!("Op({k})"), |plan| format!("Op::{}", plan.op.constant()))
}

fn row_text(plans: &[Plan<'_>], &(of, row): &(usize, &Row)) -> String {
    let way = match row.kind {
        RowKind::Out => "Out",
        RowKind::Inplace => "InPlace",
        RowKind::Alias => "Alias",
        RowKind::Numbers => "Numbers",
        RowKind::Foreach => "Foreach",
    };
    format!("    FormRow(Way::{way}, {}, {:?}),\n", id(plans, of), format!("aten::{}", row.func))
}

/// Which ops are forms of which.
struct Forms<'a> {
    functional: Vec<Option<usize>>,
    in_place: Vec<Option<usize>>,
    out: Vec<Option<usize>>,
    /// Those that are only data, with the op each is made from. Their ids follow those of the plans.
    rows: Vec<(usize, &'a Row)>,
}

fn writes(plan: &Plan<'_>) -> bool {
    plan.op.native.func.arguments.flat_all().any(Argument::is_write)
}

impl<'a> Forms<'a> {
    fn find(plans: &'a [Plan<'_>]) -> Result<Forms<'a>> {
        let none = || vec![None; plans.len()];
        let mut forms = Forms { functional: none(), in_place: none(), out: none(), rows: Vec::new() };
        let mut pure: HashMap<&str, Vec<usize>> = HashMap::new();
        for (k, plan) in plans.iter().enumerate().filter(|(_, p)| !writes(p)) {
            pure.entry(plan.op.native.func.base()).or_default().push(k);
        }
        for (k, plan) in plans.iter().enumerate().filter(|(_, p)| writes(p)) {
            let kind = plan.op.native.kind();
            if !matches!(kind, SchemaKind::Inplace | SchemaKind::Out) {
                continue;
            }
            let Some(found) = functional(plans, &pure, k)? else { continue };
            forms.functional[k] = Some(found);
            let back = if kind == SchemaKind::Out { &mut forms.out } else { &mut forms.in_place };
            if let Some(other) = back[found].replace(k) {
                let message = format!("`{}` has this form already: {}", plans[found].op.name(), plans[other].op.name());
                return Err(plan.op.error(Kind::DuplicateVariant, message));
            }
        }
        let mut names: HashSet<String> = plans.iter().map(|plan| plan.op.name()).collect();
        for (k, plan) in plans.iter().enumerate() {
            let first = plans.len() + forms.rows.len();
            for (j, row) in plan.op.rust.rows.iter().enumerate() {
                if !names.insert(row.func.name.to_string()) {
                    let message = format!("`{}` is declared already", row.func.name);
                    return Err(plan.op.error(Kind::DuplicateOperator, message));
                }
                let back = match (row.kind, row.of) {
                    (RowKind::Out, None) => forms.out[k].replace(first + j),
                    (RowKind::Inplace, None) => forms.in_place[k].replace(first + j),
                    _ => None,
                };
                if back.is_some() {
                    let message = format!("it has another form of the kind of `{}`", row.func.name);
                    return Err(plan.op.error(Kind::DuplicateVariant, message));
                }
                forms.rows.push((row.of.map_or(k, |of| first + of), row));
            }
        }
        Ok(forms)
    }
}

/// The op that computes what a writing op writes: the entry that declares both, or the one op of this name without
/// writes that takes the same arguments.
fn functional(plans: &[Plan<'_>], pure: &HashMap<&str, Vec<usize>>, k: usize) -> Result<Option<usize>> {
    let op = plans[k].op;
    if op.rust.form != Form::Declared {
        let base = |j: &usize| plans[*j].op.native.line == op.native.line && plans[*j].op.rust.form == Form::Declared;
        return Ok((0..k).rev().find(base));
    }
    let given = |k: usize| plans[k].op.native.func.arguments.flat_non_out().map(|a| kind(&a.ty).0).collect::<Vec<_>>();
    let overload = |k: usize| &plans[k].op.native.func.name.overload_name;
    let fitting = pure.get(op.native.func.base()).into_iter().flatten().copied();
    let fitting: Vec<usize> = fitting.filter(|&j| given(j) == given(k)).collect();
    match fitting.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => match several.iter().find(|&&j| overload(j) == overload(k)) {
            Some(one) => Ok(Some(*one)),
            None => {
                let names = join(several.iter().map(|&j| plans[j].op.name()));
                let message = format!("several ops could be its functional form: {names}; rename one of them");
                Err(op.error(Kind::DuplicateVariant, message))
            }
        },
    }
}

/// Lists of arguments, each written once.
#[derive(Default)]
struct Lists {
    by_text: HashMap<String, String>,
    items: Vec<String>,
}

impl Lists {
    fn of(&mut self, plan: &Plan<'_>) -> Result<String> {
        let arguments = &plan.op.native.func.arguments;
        let positional = arguments.flat_positional().count();
        let one = |(k, a): (usize, &Argument)| argument(plan, a, k >= positional);
        let list = arguments.flat_all().enumerate().map(one).collect::<Result<Vec<_>>>()?;
        if list.is_empty() {
            return Ok("&[]".to_owned());
        }
        let text = list.join(", ");
        if let Some(name) = self.by_text.get(&text) {
            return Ok(format!("&{name}"));
        }
        let name = format!("A{}", self.items.len());
        let length = list.len();
        let list = wrapped(&list);
        self.items.push(match list.len() {
            1 => format!("static {name}: [SchemaArg; {length}] = [{text}];\n"),
            _ => format!("static {name}: [SchemaArg; {length}] = [\n    {}\n];\n", list.join("\n    ")),
        });
        self.by_text.insert(text, name.clone());
        Ok(format!("&{name}"))
    }
}

/// The variant of core's `Type`, and whether none is allowed.
fn kind(ty: &Type) -> (&'static str, bool) {
    let (inner, optional) = match ty {
        Type::Optional(inner) => (&**inner, true),
        plain => (plain, false),
    };
    let gaps = matches!(inner, Type::List(elem, _) if matches!(**elem, Type::Optional(_)));
    let list = matches!(inner, Type::List(..));
    let word = match (inner.innermost(), list) {
        (Some(BaseTy::Tensor), true) if gaps => "OptTensors",
        (Some(BaseTy::Tensor), true) => "Tensors",
        (Some(BaseTy::Tensor), false) => "Tensor",
        (Some(BaseTy::Scalar), true) => "Scalars",
        (Some(BaseTy::Scalar), false) => "Scalar",
        (Some(BaseTy::Int | BaseTy::SymInt), true) => "Ints",
        (Some(BaseTy::Int | BaseTy::SymInt), false) => "Int",
        (Some(BaseTy::Float), true) => "Floats",
        (Some(BaseTy::Float), false) => "Float",
        (Some(BaseTy::Bool), true) => "Bools",
        (Some(BaseTy::Bool), false) => "Bool",
        (Some(BaseTy::Str), false) => "Str",
        (Some(BaseTy::ScalarType), false) => "DType",
        (Some(BaseTy::Device), false) => "Device",
        (Some(BaseTy::Layout), false) => "Layout",
        (Some(BaseTy::MemoryFormat), false) => "MemoryFormat",
        _ => "Other",
    };
    (word, optional)
}

fn argument(plan: &Plan<'_>, a: &Argument, keyword: bool) -> Result<String> {
    let (word, optional) = kind(&a.ty);
    let mut text = format!("arg({:?}, Type::{word})", a.name);
    let aliased = a.annotation.is_some();
    for (holds, method) in
        [(optional, "optional"), (keyword, "keyword"), (a.is_write(), "written"), (aliased && !a.is_write(), "aliased")]
    {
        if holds {
            let _ = write!(text, ".{method}()");
        }
    }
    if let Some(default) = &a.default {
        let Some(value) = constant(default) else {
            let message = format!("`{}`: the default `{default}` has no form in the record", a.name);
            return Err(plan.op.error(Kind::DefaultUnsupported, message));
        };
        let _ = write!(text, ".or({value})");
    }
    Ok(text)
}

/// A default as a `Constant`.
fn constant(text: &str) -> Option<String> {
    let float = |t: &str| t.parse::<f64>().ok().map(|v| format!("{v:?}"));
    let word = match text {
        "None" => "None",
        "True" => "Bool(true)",
        "False" => "Bool(false)",
        "Mean" => "Int(1)",
        "long" => "DType(DType::I64)",
        "float" => "DType(DType::F32)",
        "contiguous_format" => "MemoryFormat(MemoryFormat::Contiguous)",
        "preserve_format" => "MemoryFormat(MemoryFormat::Preserve)",
        _ => {
            let quoted = |mark: char| text.strip_prefix(mark).and_then(|t| t.strip_suffix(mark));
            if let Some(inside) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                let items: Vec<&str> = inside.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
                let ints =
                    items.iter().map(|t| t.parse::<i64>().ok().map(|i| i.to_string())).collect::<Option<Vec<_>>>();
                if let Some(ints) = ints {
                    return Some(format!("Constant::Ints(&[{}])", ints.join(", ")));
                }
                let floats = items.iter().map(|t| float(t)).collect::<Option<Vec<_>>>()?;
                return Some(format!("Constant::Floats(&[{}])", floats.join(", ")));
            }
            if let Some(inside) = quoted('"').or_else(|| quoted('\'')) {
                return Some(format!("Constant::Str({inside:?})"));
            }
            return match text.parse::<i64>() {
                Ok(i) => Some(format!("Constant::Int({i})")),
                Err(_) => float(text).map(|v| format!("Constant::Float({v})")),
            };
        }
    };
    Some(format!("Constant::{word}"))
}

/// One record: what is as in `PLAIN` is left out.
fn entry(
    plans: &[Plan<'_>],
    k: usize,
    signatures: &Signatures,
    forms: &Forms<'_>,
    lists: &mut Lists,
) -> Result<String> {
    let plan = &plans[k];
    let (op, native) = (plan.op, &plan.op.native);
    let record = &op.rust.record;
    let returns = join(native.func.returns.iter().map(|r| format!("Type::{}", kind(&r.ty).0)));
    let returns_written = native.func.returns.iter().any(|r| r.is_write());
    let schema = format!(
        "schema: Schema {{ text: {:?}, args: {}, returns: &[{returns}], returns_written: {returns_written} }}",
        format!("aten::{}", native.text),
        lists.of(plan)?,
    );
    let mut fields = vec![schema];
    let mut field = |name: &str, value: Option<String>| fields.extend(value.map(|value| format!("{name}: {value}")));
    field("kind", kind_of(plan).map(|kind| format!("Kind::{kind}")));
    for (name, form) in [("functional", &forms.functional), ("in_place", &forms.in_place), ("out", &forms.out)] {
        field(name, form[k].map(|j| format!("Some({})", id(plans, j))));
    }
    let mut tags = native.tags.clone();
    match op.rust.implementation {
        Implementation::View(_) => drop(tags.insert("view".to_owned())),
        Implementation::Foreach(_) => drop(tags.insert("foreach".to_owned())),
        _ => {}
    }
    if op.rust.exact_out {
        tags.insert("exact_out".to_owned());
    }
    let tags = tags.iter().map(|tag| format!("Tags::{}", tag.to_uppercase()));
    field("tags", tags.reduce(|all, tag| format!("{all}.and({tag})")));
    let (derivative, forward) = match &plan.differentiation {
        Differentiation::Formula(d) if op.outs.is_empty() => {
            (Some(format!("Derivative::Formula({:?})", d.node)), !d.forward.is_empty())
        }
        Differentiation::Manual(node) => (Some(format!("Derivative::Formula({node:?})")), true),
        Differentiation::Composite => (Some("Derivative::Composite".to_owned()), true),
        Differentiation::Formula(_) | Differentiation::None => (None, false),
    };
    field("derivative", derivative);
    field("forward", forward.then(|| "true".to_owned()));
    field("autocast", autocast(plan)?);
    field("vmap", vmap(plans, k, forms)?);
    field("cost", cost(plan)?);
    field("decomposition", decomposition(plan, forms.functional[k].is_some())?);
    field("training", training(plan)?);
    field(
        "devices",
        match &record.devices {
            Devices::Same => None,
            Devices::Any => Some("Devices::Any".to_owned()),
            Devices::Cpu(places) => {
                Some(format!("Devices::Cpu({:#b})", places.iter().fold(0u32, |bits, k| bits | 1 << k)))
            }
        },
    );
    fields.push(format!("run: {}", signatures.run(k, plan)));
    let name = format!("aten::{}", op.name());
    Ok(format!("    OpInfo {{ name: {name:?},\n        {}\n        ..PLAIN }},\n", wrapped(&fields).join("\n        ")))
}

/// Items with commas, several on a line.
fn wrapped(items: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + item.len() < 110 => *line += &format!(" {item},"),
            _ => lines.push(format!("{item},")),
        }
    }
    lines
}

fn kind_of(plan: &Plan<'_>) -> Option<&'static str> {
    match plan.op.native.kind() {
        SchemaKind::Inplace => Some("InPlace"),
        SchemaKind::Out | SchemaKind::Scratch => Some("Out"),
        _ if writes(plan) => Some("Mutable"),
        _ => None,
    }
}

fn is_made_of_others(plan: &Plan<'_>) -> bool {
    matches!(plan.op.rust.implementation, Implementation::Composite(_) | Implementation::Foreach(_))
}

fn redundant<T>(plan: &Plan<'_>, key: &str, why: &str) -> Result<T> {
    Err(plan.op.error(Kind::FieldValue, format!("remove `{key}`: {why}")))
}

/// What autocast does with its arguments.
fn autocast(plan: &Plan<'_>) -> Result<Option<String>> {
    match plan.op.rust.record.autocast {
        Autocast::AsIs => Ok(None),
        Autocast::Whole if !is_made_of_others(plan) => {
            redundant(plan, "autocast", "only a composite op would be opened")
        }
        other => Ok(Some(format!("Autocast::{other:?}"))),
    }
}

/// How it is batched.
fn vmap(plans: &[Plan<'_>], k: usize, forms: &Forms<'_>) -> Result<Option<String>> {
    let plan = &plans[k];
    let native = &plan.op.native;
    let given = plan.op.rust.record.vmap.as_ref().filter(|_| plan.op.rust.form == Form::Declared);
    if is_made_of_others(plan) {
        return match given {
            Some(_) => redundant(plan, "vmap", "an op that consists of others is batched through them"),
            None => Ok(Some("Rule::Parts".to_owned())),
        };
    }
    let list = |places: &[usize]| format!("&[{}]", join(places.iter().map(usize::to_string)));
    let place = |at: &Option<usize>| at.map_or("None".to_owned(), |k| format!("Some({k})"));
    let rule = match given {
        Some(Vmap::Pointwise) if native.has_tag("pointwise") => {
            return redundant(plan, "vmap", "it follows from the tag `pointwise`");
        }
        Some(Vmap::Pointwise) => "Pointwise".to_owned(),
        Some(Vmap::Along(dims, None)) => format!("Along({})", list(dims)),
        Some(Vmap::Along(dims, Some(sizes))) => format!("Sized({sizes}, {})", list(dims)),
        Some(Vmap::Merge(ndim, sizes)) => format!("Merge({ndim}, {})", place(sizes)),
        Some(Vmap::Rule(path)) => format!("own(rules::{path})"),
        Some(Vmap::Random) => "Random".to_owned(),
        Some(Vmap::Refuse) => "Refuse".to_owned(),
        Some(Vmap::Loop) => "Loop".to_owned(),
        None => {
            let refused = ["inplace_view", "dynamic_output_shape", "data_dependent_output"];
            match forms.functional[k] {
                _ if native.kind() == SchemaKind::Out => "Refuse".to_owned(),
                _ if refused.iter().any(|tag| native.has_tag(tag)) => "Refuse".to_owned(),
                Some(functional) => return vmap(plans, functional, forms),
                None if native.has_tag("pointwise") => "Pointwise".to_owned(),
                None if !native.func.arguments.has_tensor() => "Parts".to_owned(),
                None => {
                    let message = "says nothing of batches: add `vmap:` with the arguments that name dimensions, a \
                                   rule, or `loop`; the tag `pointwise` is an answer too";
                    return Err(plan.op.error(Kind::RecordIncomplete, message));
                }
            }
        }
    };
    Ok(Some(format!("Rule::{rule}")))
}

/// What computing it again costs.
fn cost(plan: &Plan<'_>) -> Result<Option<String>> {
    let native = &plan.op.native;
    let views = native.func.arguments.flat_all().any(|a| a.annotation.as_ref().is_some_and(|a| !a.is_write));
    let cost = match (plan.op.rust.record.cost, native.has_tag("pointwise")) {
        (Some(_), _) if views => return redundant(plan, "cost", "a view computes nothing"),
        (Some(Cost::Cheap), true) => return redundant(plan, "cost", "pointwise ops are cheap"),
        (Some(Cost::Heavy), false) => return redundant(plan, "cost", "ops that are not pointwise are heavy"),
        (None, _) if views => "Free",
        (Some(Cost::Cheap), false) | (None, true) => "Cheap",
        (Some(Cost::Heavy), true) | (None, false) => return Ok(None),
    };
    Ok(Some(format!("Cost::{cost}")))
}

/// What decomposing a program does with it.
fn decomposition(plan: &Plan<'_>, has_functional: bool) -> Result<Option<String>> {
    let core = plan.op.native.has_tag("core");
    let given = plan.op.rust.record.decomposition.filter(|_| plan.op.rust.form == Form::Declared);
    let answer = match given {
        Some(Decomposition::Kept) if core && !is_made_of_others(plan) => {
            return redundant(plan, "decomposition", "core ops are kept");
        }
        Some(Decomposition::Rule) if is_made_of_others(plan) => {
            return redundant(plan, "decomposition", "a composite op is decomposed into its parts");
        }
        Some(Decomposition::Rule) if !core => {
            return redundant(plan, "decomposition", "an op that is not core has a rule unless it says otherwise");
        }
        Some(given) => format!("{given:?}"),
        None if has_functional => "Functional".to_owned(),
        None if is_made_of_others(plan) => "Parts".to_owned(),
        None if core => "Kept".to_owned(),
        None => "Rule".to_owned(),
    };
    Ok(Some(format!("Decomposition::{answer}")).filter(|text| text != "Decomposition::Rule"))
}

/// Which argument says whether it trains.
fn training(plan: &Plan<'_>) -> Result<Option<String>> {
    let named = |a: &&Argument| is_flag(&a.ty) && matches!(&*a.name, "train" | "training");
    match plan.op.rust.record.training {
        Some(Training::Flag(k)) => Ok(Some(format!("Some({k})"))),
        Some(Training::Fixed) => Ok(None),
        None => match plan.op.native.func.arguments.flat_all().find(named) {
            None => Ok(None),
            Some(a) => {
                let message =
                    format!("says nothing of its flag `{0}`: add `training: {0}`, or `training: fixed`", a.name);
                Err(plan.op.error(Kind::RecordIncomplete, message))
            }
        },
    }
}
