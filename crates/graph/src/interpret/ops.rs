//! Calls of ops: arguments by position and name become one boxed value per schema argument; omitted ones keep their
//! defaults.

use super::Value;
use crate::error::{Error, Result};
use crate::ir::{Argument, MemoryFormat, Name, OpOverload};
use crate::schema::{Schema, SchemaArg, Type};
use firebrand_core::dispatch::{self, Op, Outputs, Value as Boxed};
use firebrand_core::{Device, Scalar, SymInt, Tensor};

/// Calls an op. `device`, if given, stands for every device the program names.
pub(crate) fn call_op(
    op: &OpOverload,
    args: &[Value],
    kwargs: &[(Name, Value)],
    device: Option<Device>,
) -> Result<Value> {
    let (id, boxed) = boxed_arguments(op, args, kwargs, device)?;
    results(id, dispatch::call(id, &boxed)?)
}

/// The op's entry of the table, and one boxed value per argument of its schema.
pub fn boxed_arguments(
    op: &OpOverload,
    args: &[Value],
    kwargs: &[(Name, Value)],
    device: Option<Device>,
) -> Result<(Op, Vec<Boxed>)> {
    let (Some(id), Some(schema)) = (op.op(), op.schema()) else {
        return Err(Error::Value(format!(
            "{op} is not an op of this build (`firebrand ops` lists them); a custom op must be registered before the program is loaded"
        )));
    };
    let mut boxed = vec![Boxed::None; schema.args.len()];
    if args.len() > schema.args.iter().filter(|a| !a.kwarg_only).count() {
        return Err(Error::Value(format!("{op} takes fewer than {} positional arguments", args.len())));
    }
    for (i, value) in args.iter().enumerate() {
        boxed[i] = unbox(op, &schema.args[i], value, device)?;
    }
    for (name, value) in kwargs {
        let Some(i) = schema.position(name) else {
            return Err(Error::Value(format!("{op} has no argument '{name}'")));
        };
        if i < args.len() {
            return Err(Error::Value(format!("{op}: argument '{name}' is given twice")));
        }
        boxed[i] = unbox(op, &schema.args[i], value, device)?;
    }
    let tensors = schema.args.iter().any(|a| matches!(a.ty, Type::Tensor | Type::Tensors));
    if let (Some(device), Some(i), false) = (device, schema.args.iter().position(|a| a.ty == Type::Device), tensors) {
        boxed[i] = Boxed::Device(device);
    }
    for (arg, value) in schema.args.iter().zip(&boxed) {
        if matches!(value, Boxed::None) && !arg.optional && arg.default.is_none() {
            return Err(Error::Value(format!("{op}: argument '{}' is missing", arg.name)));
        }
    }
    Ok((id, boxed))
}

/// What an op returned, as the value of its node.
pub fn results(op: Op, outputs: Outputs) -> Result<Value> {
    let mut results: Vec<Value> = outputs.into_iter().map(rebox).collect::<Result<_>>()?;
    Ok(match Schema::of_op(op).returns.len() {
        0 => Value::NONE,
        1 => results.pop().unwrap_or(Value::NONE),
        _ => Value::List(results),
    })
}

fn list<T>(value: &Value, element: impl Fn(&Value) -> Result<T>) -> Result<Vec<T>> {
    match value {
        Value::List(items) => items.iter().map(element).collect(),
        one => Ok(vec![element(one)?]),
    }
}

fn size(value: &Value) -> Result<SymInt> {
    match value.scalar()? {
        v @ (Scalar::Float(_) | Scalar::Complex(_)) => Err(Error::Value(format!("expected an integer, found {v}"))),
        s => Ok(s.to_i64().into()),
    }
}

fn tensor(value: &Value) -> Result<Tensor> {
    match value {
        Value::Tensor(t) => Ok(t.clone()),
        // A number where a tensor is due does not take part in type promotion as a tensor would.
        Value::Scalar(s) => Ok(Tensor::try_wrapped_number(*s)?),
        other => Err(other.wrong("a tensor")),
    }
}

fn unbox(op: &OpOverload, arg: &SchemaArg, value: &Value, device: Option<Device>) -> Result<Boxed> {
    if value.is_none() {
        return Ok(Boxed::None);
    }
    let boxed = match (arg.ty, value) {
        (Type::Tensor, v) => tensor(v).map(Boxed::Tensor),
        (Type::Tensors, v) => list(v, tensor).map(Boxed::Tensors),
        (Type::OptTensors, v) => {
            let optional = |v: &Value| if v.is_none() { Ok(None) } else { tensor(v).map(Some) };
            list(v, optional).map(Boxed::OptTensors)
        }
        (Type::Scalar, v) => v.scalar().map(Boxed::Scalar),
        (Type::Scalars, v) => list(v, Value::scalar).map(Boxed::Scalars),
        (Type::Int, v) => size(v).map(Boxed::Int),
        (Type::Ints, v) => list(v, size).map(|v| Boxed::Ints(v.into_iter().collect())),
        (Type::Float, v) => v.scalar().map(|s| Boxed::Float(s.to_f64())),
        (Type::Floats, v) => list(v, |v| Ok(v.scalar()?.to_f64())).map(Boxed::Floats),
        (Type::Bool, v) => v.scalar().map(|s| Boxed::Bool(s.to_bool())),
        (Type::Bools, v) => list(v, |v| Ok(v.scalar()?.to_bool())).map(Boxed::Bools),
        (Type::Str, Value::Constant(Argument::Str(s))) => Ok(Boxed::Str(s.to_string())),
        (Type::DType, Value::Constant(Argument::DType(d))) => d
            .dtype()
            .map(Boxed::DType)
            .ok_or_else(|| Error::Value(format!("tensors of dtype {d} cannot be computed with"))),
        (Type::Device, Value::Constant(Argument::Device(d))) => Ok(Boxed::Device(match device {
            Some(device) => device,
            None if &*d.kind == "meta" => Device::Meta,
            None => Device::Cpu,
        })),
        (Type::MemoryFormat, Value::Constant(Argument::MemoryFormat(m))) => match m {
            MemoryFormat::Contiguous => Ok(Boxed::MemoryFormat(dispatch::MemoryFormat::Contiguous)),
            MemoryFormat::ChannelsLast => Ok(Boxed::MemoryFormat(dispatch::MemoryFormat::ChannelsLast)),
            MemoryFormat::Preserve => Ok(Boxed::MemoryFormat(dispatch::MemoryFormat::Preserve)),
            MemoryFormat::ChannelsLast3d => Err(Error::Value("channels_last_3d is not supported".to_string())),
        },
        // All tensors are strided, and random numbers come from the generator of the process.
        (Type::Layout | Type::Other, _) => Ok(Boxed::None),
        (_, other) => Err(other.wrong(&format!("a {:?}", arg.ty).to_lowercase())),
    };
    boxed.map_err(|e| Error::Value(format!("{op}, argument '{}': {e}", arg.name)))
}

fn rebox(value: Boxed) -> Result<Value> {
    Ok(match value {
        Boxed::None => Value::NONE,
        Boxed::Tensor(t) => Value::Tensor(t),
        Boxed::Tensors(list) => Value::List(list.into_iter().map(Value::Tensor).collect()),
        Boxed::Scalar(s) => Value::Scalar(s),
        Boxed::Int(i) => Value::Scalar(Scalar::Int(i.int())),
        Boxed::Float(v) => Value::Scalar(Scalar::Float(v)),
        Boxed::Bool(b) => Value::Scalar(Scalar::Bool(b)),
        other => return Err(Error::Value(format!("an op returned {}", other.kind()))),
    })
}
