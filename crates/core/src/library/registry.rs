//! The table of registered ops: ids follow those of the generated table, entries live as long as the process.

use super::schema::{is_word, parse};
use super::{Definition, arguments, function, known, refused};
use crate::dispatch::Value;
use crate::record::{Decomposition, Derivative, Op, OpInfo, PLAIN, Run, Tags};
use crate::schema::{Schema, Type};
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

/// A registered op.
pub(super) struct Entry {
    pub(super) op: Op,
    pub(super) info: OpInfo,
    /// The default of each argument; `None` means it is required.
    pub(super) defaults: Vec<Option<Value>>,
    pub(super) body: Definition,
    /// For each argument and each result, whether `backward` reads it.
    pub(super) saves: (Vec<bool>, Vec<bool>),
}

#[derive(Default)]
struct Registry {
    entries: Vec<&'static Entry>,
    by_name: HashMap<&'static str, &'static Entry>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(Default::default);

fn read<R>(f: impl FnOnce(&Registry) -> R) -> R {
    f(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner))
}

/// The table's entry for an id behind the generated ones.
pub(crate) fn by_id(op: Op) -> &'static OpInfo {
    &entry(op).info
}

/// The op of this name, without `.default`.
pub(crate) fn by_name(name: &str) -> Option<Op> {
    // Another thread may register a known op meanwhile.
    found(name).or_else(|| known::by_name(name)).or_else(|| found(name))
}

/// Like [`by_name`], among what is registered already.
pub(super) fn found(name: &str) -> Option<Op> {
    read(|r| r.by_name.get(name).map(|e| e.op))
}

fn entry(op: Op) -> &'static Entry {
    let k = op.0 as usize - Op::generated();
    read(|r| r.entries.get(k).copied()).expect("ids are given out with an entry")
}

/// The entry behind a boxed call.
pub(super) fn called(name: &'static str) -> Result<&'static Entry> {
    let unknown = || Error::argument(name, "no op of this name was registered");
    read(|r| r.by_name.get(name).copied()).ok_or_else(unknown)
}

pub(super) fn register(body: Definition) -> Result<Op> {
    let text = body.schema.clone();
    let bad = |message: String| refused(&text, message);
    if body.kernel.is_none() {
        return Err(bad("an op needs a kernel".into()));
    }
    // What is registered stays; a refused schema costs its few bytes.
    let text: &'static str = text.clone().leak();
    let (name, schema) = parse(text).map_err(bad)?;
    check(name, &schema, &text[text.rfind(") -> ").map_or(0, |k| k + 5)..]).map_err(bad)?;
    let defaults = schema.args.iter().map(arguments::default).collect::<Result<_, String>>().map_err(bad)?;
    let saves = saves(&schema, body.saved.as_deref()).map_err(bad)?;
    let unknown = |tag: &&&str| Tags::named(tag).is_none();
    if let Some(tag) = body.tags.iter().find(unknown) {
        return Err(refused(text, format!("there is no tag '{tag}'")));
    }

    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if registry.by_name.contains_key(name) || Op::from_table(name).is_some() {
        return Err(refused(text, format!("there already is an op '{name}'; ops are registered once")));
    }
    let op = Op((Op::generated() + registry.entries.len()) as u32);
    let info = OpInfo {
        name,
        schema,
        tags: body.tags.iter().filter_map(|t| Tags::named(t)).fold(Tags::default(), Tags::and),
        derivative: match body.differentiable {
            true => Derivative::Formula(function::node_name(name).leak()),
            false => Derivative::NonDifferentiable,
        },
        forward: body.jvp.is_some(),
        decomposition: Decomposition::Kept,
        run: Run::Library,
        ..PLAIN
    };
    let entry: &'static Entry = Box::leak(Box::new(Entry { op, info, defaults, body, saves }));
    registry.entries.push(entry);
    registry.by_name.insert(name, entry);
    Ok(op)
}

/// What a registered schema may not contain.
fn check(name: &str, schema: &Schema, results: &str) -> Result<(), String> {
    let (namespace, name) = name.split_once("::").ok_or("the name needs a namespace, as in `mylib::name`")?;
    let (base, overload) = name.split_once('.').unwrap_or((name, "default"));
    if let Some(part) = [namespace, base, overload].iter().find(|p| !is_word(p)) {
        return Err(format!("'{part}' is not a valid name; expected `namespace::name.overload`"));
    }
    if ["aten", "prim", "higher_order"].contains(&namespace) {
        return Err(format!("the namespace '{namespace}' is reserved; use your own"));
    }
    if schema.args.iter().any(|a| a.aliased) || results.contains('!') || results.contains("(a)") {
        return Err("a custom op returns new tensors; write the schema without alias annotations".into());
    }
    if let Some(a) = schema.args.iter().find(|a| matches!(a.ty, Type::Other | Type::Layout)) {
        return Err(format!("argument '{}' has a type that custom ops cannot take", a.name));
    }
    let results = results.trim().trim_start_matches('(').trim_end_matches(')');
    let mut types = results.split(',').map(|r| r.split_whitespace().next().unwrap_or_default());
    if schema.returns.is_empty() || !types.all(|t| t == "Tensor") {
        return Err("expected one or more results of type Tensor".into());
    }
    Ok(())
}

/// Which arguments and results are saved.
fn saves(schema: &Schema, names: Option<&[String]>) -> Result<(Vec<bool>, Vec<bool>), String> {
    let is_tensor = |ty| matches!(ty, Type::Tensor | Type::Tensors | Type::OptTensors);
    let mut args: Vec<bool> = schema.args.iter().map(|a| names.is_none() && is_tensor(a.ty)).collect();
    let mut results = vec![false; schema.returns.len()];
    for name in names.unwrap_or_default() {
        let result = name.strip_prefix("result").map(|k| if k.is_empty() { Ok(0) } else { k.parse::<usize>() });
        match (schema.position(name), result) {
            (Some(k), _) if is_tensor(schema.args[k].ty) => args[k] = true,
            (None, Some(Ok(k))) if k < results.len() => results[k] = true,
            _ => return Err(format!("save_for_backward: '{name}' is neither a tensor argument nor a result")),
        }
    }
    Ok((args, results))
}
