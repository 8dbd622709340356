//! Arguments of registered ops: defaults, checks against the schema, and tensors taken out of and put back into them.

use crate::dispatch::{Args, Value};
use crate::schema::{Constant, Schema, SchemaArg, Type};
use crate::{Error, Result, Scalar, Tensor};

/// The default of an argument; the inner `None` means it is required.
pub(super) fn default(arg: &SchemaArg) -> Result<Option<Value>, String> {
    let Some(constant) = arg.default else { return Ok(arg.optional.then_some(Value::None)) };
    let number = |c: Constant| match c {
        Constant::Int(i) => Some(Scalar::Int(i)),
        Constant::Float(v) => Some(Scalar::Float(v)),
        Constant::Bool(b) => Some(Scalar::Bool(b)),
        _ => None,
    };
    let floats = |list: &[i64]| list.iter().map(|&i| i as f64).collect::<Vec<_>>();
    let value = match (arg.ty, constant) {
        (_, Constant::None) => arg.optional.then_some(Value::None),
        (Type::Int, Constant::Int(i)) => Some(i.into()),
        (Type::Float, Constant::Float(v)) => Some(v.into()),
        (Type::Float, Constant::Int(i)) => Some((i as f64).into()),
        (Type::Bool, Constant::Bool(b)) => Some(b.into()),
        (Type::Scalar, c) => number(c).map(Value::from),
        (Type::Str, Constant::Str(s)) => Some(s.into()),
        (Type::Ints, Constant::Ints(v)) => Some(v.into()),
        (Type::Floats, Constant::Floats(v)) => Some(v.into()),
        (Type::Floats, Constant::Ints(v)) => Some(floats(v)[..].into()),
        (Type::Bools, Constant::Bools(v)) => Some(v.into()),
        (Type::Scalars, Constant::Ints(v)) => Some(Value::Scalars(v.iter().map(|&i| Scalar::Int(i)).collect())),
        (Type::Scalars, Constant::Floats(v)) => Some(Value::Scalars(v.iter().map(|&v| Scalar::Float(v)).collect())),
        (Type::Scalars, Constant::Bools(v)) => Some(Value::Scalars(v.iter().map(|&b| Scalar::Bool(b)).collect())),
        (Type::Bools, Constant::Ints([])) => Some(Value::Bools(Vec::new())),
        (Type::DType, Constant::DType(d)) => Some(d.into()),
        (Type::MemoryFormat, Constant::MemoryFormat(m)) => Some(m.into()),
        _ => None,
    };
    value.map(Some).ok_or_else(|| format!("argument '{}': {constant:?} is not a default for its type", arg.name))
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

    /// Puts tensors back where they were; a list with a missing tensor becomes `None`.
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
