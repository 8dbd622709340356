//! The columns of an op's record, as our declarations give them.
//!
//! Guarantees that every value is one of those listed in `schema/README.md` and that every argument it names exists.
//! What a column holds when its key is absent, and whether it may be, is decided at emission, where all ops are known.

use super::read::{Check, Fields, bad_value, refuse};
use crate::dialect::is_ident;
use crate::error::{Kind, Refusal};
use crate::schema::{BaseTy, FunctionSchema, Type};
use crate::yaml::Node;

/// What autocast does with the arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autocast {
    /// Nothing.
    #[default]
    AsIs,
    /// Casts to the region's dtype.
    Lower,
    /// Casts to f32.
    Full,
    /// Casts to the widest dtype among them.
    Widest,
    /// Nothing, and a composite op is not opened.
    Whole,
}

/// How an op runs on a batch of samples. Numbers are positions of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vmap {
    /// Broadcasts.
    Pointwise,
    /// Arguments name dimensions; one may hold the sizes of a sample.
    Along(Vec<usize>, Option<usize>),
    /// The batch is folded into the first dimension of inputs with this many dimensions; one argument may hold sizes.
    Merge(usize, Option<usize>),
    /// A function of `func::rules`.
    Rule(String),
    /// Random numbers.
    Random,
    /// Refused.
    Refuse,
    /// Sample by sample.
    Loop,
}

/// What computing it a second time costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Little more than reading its inputs.
    Cheap,
    /// Enough to keep the result instead.
    Heavy,
}

/// What `run_decompositions` does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decomposition {
    /// It stays.
    Kept,
    /// A rule of the pass.
    Rule,
    /// It is refused: its parts depend on values.
    Refused,
}

/// The flag that says whether an op trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// The argument at this position.
    Flag(usize),
    /// It has such an argument, which a change of mode leaves alone.
    Fixed,
}

/// Which operands may be on other devices than the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// None.
    #[default]
    Same,
    /// These, on the CPU while the others are on meta.
    Cpu(Vec<usize>),
    /// All.
    Any,
}

/// The features that ops can belong to.
const FEATURES: [&str; 3] = ["decompositions", "fft", "special"];

/// What an entry says; absent keys are `None` or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `autocast:`
    pub autocast: Autocast,
    /// `vmap:`
    pub vmap: Option<Vmap>,
    /// `cost:`
    pub cost: Option<Cost>,
    /// `decomposition:`
    pub decomposition: Option<Decomposition>,
    /// `training:`
    pub training: Option<Training>,
    /// `devices:`
    pub devices: Devices,
    /// `feature:` of the crates, without which the op refuses and has no code.
    pub feature: Option<&'static str>,
    /// `doc:`, a sentence or two.
    pub doc: Option<String>,
    /// `example:`, lines of Rust that the documentation shows and tests.
    pub example: Option<String>,
}

impl Record {
    /// What the in-place and `out=` forms of an op say: autocast leaves them alone, as PyTorch's does, and the example
    /// calls the op itself.
    pub(super) fn of_form(&self) -> Record {
        Record { autocast: Autocast::AsIs, example: None, ..self.clone() }
    }
}

/// The value of a key by its word.
fn word<T: Copy>(fields: &mut Fields<'_>, key: &str, known: &[(&str, T)]) -> Check<Option<T>> {
    let Some(node) = fields.take(key) else { return Ok(None) };
    let found = known.iter().find(|(word, _)| node.as_str() == Some(word));
    let words = || known.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| Some(*value)).ok_or_else(|| bad_value(key, &format!("one of {}", words())).on(node.line))
}

/// Reads the keys of the record.
pub(super) fn record(fields: &mut Fields<'_>, func: &FunctionSchema) -> Check<Record> {
    let autocast = [
        ("lower", Autocast::Lower),
        ("full", Autocast::Full),
        ("widest", Autocast::Widest),
        ("whole", Autocast::Whole),
    ];
    let cost = [("cheap", Cost::Cheap), ("heavy", Cost::Heavy)];
    let decomposition =
        [("kept", Decomposition::Kept), ("rule", Decomposition::Rule), ("refused", Decomposition::Refused)];
    Ok(Record {
        autocast: word(fields, "autocast", &autocast)?.unwrap_or_default(),
        vmap: fields.take("vmap").map(|node| vmap(node, func).map_err(|e| e.on(node.line))).transpose()?,
        cost: word(fields, "cost", &cost)?,
        decomposition: word(fields, "decomposition", &decomposition)?,
        training: fields.take("training").map(|node| training(node, func).map_err(|e| e.on(node.line))).transpose()?,
        devices: match fields.take("devices") {
            Some(node) => devices(node, func).map_err(|e| e.on(node.line))?,
            None => Devices::Same,
        },
        feature: word(fields, "feature", &FEATURES.map(|name| (name, name)))?,
        doc: fields.take("doc").map(|node| doc(node).map_err(|e| e.on(node.line))).transpose()?,
        example: fields.take("example").map(|node| example(node).map_err(|e| e.on(node.line))).transpose()?,
    })
}

/// The position of an argument.
fn position(func: &FunctionSchema, key: &str, name: &str) -> Check<usize> {
    let found = func.arguments.flat_all().position(|a| a.name == name);
    let names = || func.arguments.flat_all().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| {
        Refusal::new(Kind::FieldValue, format!("`{key}`: there is no argument `{name}`; there are {}", names()))
    })
}

fn vmap(node: &Node, func: &FunctionSchema) -> Check<Vmap> {
    const WANTED: &str = "pointwise, along(argument, …), merge(dimensions), random, refuse, loop, or a function of \
                          func::rules such as norm::layer_norm";
    let text = node.as_str().ok_or_else(|| bad_value("vmap", WANTED))?;
    let call = text.strip_suffix(')').and_then(|t| t.split_once('('));
    let (head, arguments) = call.map_or((text, None), |(head, inside)| (head, Some(inside)));
    let Some(inside) = arguments else {
        return match head {
            "pointwise" => Ok(Vmap::Pointwise),
            "random" => Ok(Vmap::Random),
            "refuse" => Ok(Vmap::Refuse),
            "loop" => Ok(Vmap::Loop),
            path if path.contains("::") && path.split("::").all(is_ident) => Ok(Vmap::Rule(path.into())),
            other => refuse(Kind::FieldValue, format!("`vmap: {other}` is not known; it is one of {WANTED}")),
        };
    };
    let (mut plain, mut sizes) = (Vec::new(), None);
    for item in inside.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match item.strip_prefix("sizes=") {
            Some(name) => sizes = Some(position(func, "vmap", name)?),
            None => plain.push(item),
        }
    }
    match (head, plain.as_slice()) {
        ("along", names) => {
            let dims = names.iter().map(|name| position(func, "vmap", name)).collect::<Check<_>>()?;
            Ok(Vmap::Along(dims, sizes))
        }
        ("merge", [count]) if count.parse::<usize>().is_ok_and(|n| n > 0) => {
            Ok(Vmap::Merge(count.parse().unwrap_or_default(), sizes))
        }
        ("merge", _) => {
            refuse(Kind::FieldValue, "`vmap: merge` takes the dimensions of an input with a batch: merge(4)")
        }
        _ => refuse(Kind::FieldValue, format!("`vmap: {text}` is not known; it is one of {WANTED}")),
    }
}

/// A bool, or a bool or none.
pub(crate) fn is_flag(ty: &Type) -> bool {
    ty.innermost() == Some(BaseTy::Bool) && ty.as_list().is_none()
}

fn training(node: &Node, func: &FunctionSchema) -> Check<Training> {
    let text = node.as_str().ok_or_else(|| bad_value("training", "the name of a bool argument, or `fixed`"))?;
    if text == "fixed" {
        return Ok(Training::Fixed);
    }
    let at = position(func, "training", text)?;
    let is_bool = func.arguments.flat_all().nth(at).is_some_and(|a| is_flag(&a.ty));
    if is_bool { Ok(Training::Flag(at)) } else { Err(bad_value("training", "the name of a bool argument, or `fixed`")) }
}

fn devices(node: &Node, func: &FunctionSchema) -> Check<Devices> {
    if node.as_str() == Some("any") {
        return Ok(Devices::Any);
    }
    let wanted = || bad_value("devices", "`any`, or a list of the arguments that may be on the CPU");
    let names = node.as_list().filter(|names| !names.is_empty()).ok_or_else(wanted)?;
    let at = |node: &Node| position(func, "devices", node.as_str().ok_or_else(wanted)?);
    names.iter().map(at).collect::<Check<_>>().map(Devices::Cpu)
}

fn doc(node: &Node) -> Check<String> {
    match node.as_str() {
        Some(text) if text.ends_with('.') && !text.contains('\n') => Ok(text.to_owned()),
        _ => Err(bad_value("doc", "a sentence that ends with a full stop")),
    }
}

fn example(node: &Node) -> Check<String> {
    match node.as_str() {
        Some(text) if text.contains("assert") => Ok(text.trim_end().to_owned()),
        _ => Err(bad_value("example", "lines of Rust with an assertion")),
    }
}
