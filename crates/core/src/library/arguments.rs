//! Arguments of registered ops: defaults, checks against the schema, and tensors taken out of and put back into them.

use crate::dispatch::{Args, MemoryFormat, Value};
use crate::schema::{Schema, SchemaArg, Type};
use crate::{Error, Result, Scalar, Tensor};

/// The value an argument has when it is left out; the inner none: it must be given.
pub(super) fn default(arg: &SchemaArg) -> Result<Option<Value>, String> {
    let Some(text) = arg.default else { return Ok(arg.optional.then_some(Value::None)) };
    let bad = || format!("argument '{}': '{text}' is no default for its type", arg.name);
    if text == "None" {
        return if arg.optional { Ok(Some(Value::None)) } else { Err(bad()) };
    }
    let truth = |t: &str| match t {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    let number = |t: &str| {
        let int = t.parse().map(Scalar::Int).ok();
        int.or_else(|| t.parse().map(Scalar::Float).ok()).or_else(|| truth(t).map(Scalar::Bool))
    };
    let items = || {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'))?;
        Some(inner.split(',').map(str::trim).filter(|t| !t.is_empty()))
    };
    let value = match arg.ty {
        Type::Int => text.parse::<i64>().ok().map(Value::from),
        Type::Float => text.parse::<f64>().ok().map(Value::from),
        Type::Bool => truth(text).map(Value::from),
        Type::Scalar => number(text).map(Value::from),
        Type::Str => text.strip_prefix(['"', '\'']).and_then(|t| t.strip_suffix(['"', '\''])).map(Value::from),
        Type::Ints => {
            items().and_then(|i| i.map(|t| t.parse::<i64>().ok()).collect::<Option<Vec<_>>>()).map(|v| v[..].into())
        }
        Type::Floats => {
            items().and_then(|i| i.map(|t| t.parse::<f64>().ok()).collect::<Option<_>>()).map(Value::Floats)
        }
        Type::Bools => items().and_then(|i| i.map(truth).collect::<Option<_>>()).map(Value::Bools),
        Type::Scalars => items().and_then(|i| i.map(number).collect::<Option<_>>()).map(Value::Scalars),
        Type::MemoryFormat => match text {
            "contiguous_format" => Some(MemoryFormat::Contiguous.into()),
            "preserve_format" => Some(MemoryFormat::Preserve.into()),
            _ => None,
        },
        _ => None,
    };
    value.map(Some).ok_or_else(bad)
}

/// One value of the declared type for every argument.
pub(super) fn complete(
    name: &'static str,
    schema: &Schema,
    defaults: &[Option<Value>],
    given: &[Value],
) -> Result<Vec<Value>> {
    if given.len() > schema.args.len() {
        let message = format!("{} arguments given, the schema has {}", given.len(), schema.args.len());
        return Err(Error::argument(name, message));
    }
    let args = Args::new(name, given);
    let one = |(k, (arg, default)): (usize, (&SchemaArg, &Option<Value>))| match (args.is_none(k), default) {
        (true, Some(default)) => Ok(default.clone()),
        _ => typed(&args, k, arg),
    };
    schema.args.iter().zip(defaults).enumerate().map(one).collect()
}

fn typed(a: &Args<'_>, k: usize, arg: &SchemaArg) -> Result<Value> {
    let name = arg.name;
    Ok(match arg.ty {
        Type::Tensor => a.tensor(k, name)?.into(),
        Type::Tensors => a.tensors(k, name)?.into(),
        Type::OptTensors => Value::OptTensors(a.opt_tensors(k, name)?),
        Type::Scalar => a.scalar(k, name)?.into(),
        Type::Scalars => Value::Scalars(a.scalars(k, name)?),
        Type::Int => a.sym_int(k, name)?.into(),
        Type::Ints => Value::Ints(a.sym_ints(k, name)?),
        Type::Float => a.float(k, name)?.into(),
        Type::Floats => Value::Floats(a.floats(k, name)?),
        Type::Bool => a.bool(k, name)?.into(),
        Type::Bools => match a.values().get(k) {
            Some(Value::Bools(v)) => Value::Bools(v.clone()),
            _ => return a.wrong(k, name, "a list of bools"),
        },
        Type::Str => a.str(k, name)?.into(),
        Type::DType => a.dtype(k, name)?.into(),
        Type::Device => a.device(k, name)?.into(),
        Type::MemoryFormat => a.memory_format(k, name)?.into(),
        Type::Layout | Type::Other => Value::None,
    })
}

/// Arguments without their tensors: what a node keeps of a call besides what it saves.
pub(super) struct Frame(Vec<Slot>);

enum Slot {
    Plain(Value),
    Tensor,
    List(usize),
    OptList(Vec<bool>),
}

impl Frame {
    /// Takes the tensors out.
    pub(super) fn split(values: &[Value]) -> (Frame, Vec<Tensor>) {
        let mut tensors = Vec::new();
        let slots = values.iter().map(|v| match v {
            Value::Tensor(t) => {
                tensors.push(t.clone());
                Slot::Tensor
            }
            Value::Tensors(list) => {
                tensors.extend_from_slice(list);
                Slot::List(list.len())
            }
            Value::OptTensors(list) => {
                tensors.extend(list.iter().flatten().cloned());
                Slot::OptList(list.iter().map(Option::is_some).collect())
            }
            other => Slot::Plain(other.clone()),
        });
        (Frame(slots.collect()), tensors)
    }

    /// Puts tensors back where they were; a list of which one is gone is none.
    pub(super) fn join(&self, tensors: impl IntoIterator<Item = Option<Tensor>>) -> Vec<Value> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().flatten();
        let fill = |slot: &Slot| match slot {
            Slot::Plain(v) => v.clone(),
            Slot::Tensor => next().into(),
            Slot::List(n) => {
                let list: Vec<_> = (0..*n).map(|_| next()).collect();
                list.into_iter().collect::<Option<Vec<Tensor>>>().map_or(Value::None, Value::Tensors)
            }
            Slot::OptList(given) => Value::OptTensors(given.iter().map(|g| if *g { next() } else { None }).collect()),
        };
        self.0.iter().map(fill).collect()
    }

    /// For each tensor, the argument it belongs to.
    pub(super) fn owners(&self) -> impl Iterator<Item = usize> + '_ {
        let count = |slot: &Slot| match slot {
            Slot::Plain(_) => 0,
            Slot::Tensor => 1,
            Slot::List(n) => *n,
            Slot::OptList(given) => given.iter().filter(|g| **g).count(),
        };
        self.0.iter().enumerate().flat_map(move |(k, slot)| std::iter::repeat_n(k, count(slot)))
    }
}
