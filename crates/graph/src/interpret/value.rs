//! Values at run time: what nodes compute.

use crate::error::{Error, Result};
use crate::ir::*;
use firebrand_core::{Complex, Scalar, Tensor};
use std::sync::Arc;

/// What a node computes.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A number, which keeps its kind.
    Scalar(Scalar),
    /// Several values: a tuple or a list.
    List(Vec<Value>),
    /// A map with string keys.
    Dict(Vec<(Name, Value)>),
    /// A sub-graph.
    Graph(Arc<GraphModule>),
    /// A constant of any other kind: none, text, dtype, device, op.
    Constant(Argument),
}

impl Value {
    /// Nothing.
    pub const NONE: Value = Value::Constant(Argument::None);

    /// Whether it is `None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::Constant(Argument::None))
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Tensor(_) => "a tensor",
            Value::Scalar(Scalar::Bool(_)) => "a bool",
            Value::Scalar(Scalar::Int(_)) => "an integer",
            Value::Scalar(Scalar::Float(_)) => "a float",
            Value::Scalar(Scalar::Complex(_)) => "a complex number",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dict",
            Value::Graph(_) => "a sub-graph",
            Value::Constant(Argument::None) => "none",
            Value::Constant(Argument::Str(_)) => "a string",
            Value::Constant(_) => "a constant",
        }
    }

    pub(super) fn wrong(&self, expected: &str) -> Error {
        Error::Value(format!("expected {expected}, found {}", self.kind()))
    }

    /// The tensor.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Value::Tensor(t) => Ok(t),
            other => Err(other.wrong("a tensor")),
        }
    }

    /// The number; a tensor of one element counts.
    pub fn scalar(&self) -> Result<Scalar> {
        match self {
            Value::Scalar(s) => Ok(*s),
            Value::Tensor(t) => Ok(t.try_scalar_value()?),
            other => Err(other.wrong("a number")),
        }
    }

    /// The elements.
    pub fn items(&self) -> Result<&[Value]> {
        match self {
            Value::List(items) => Ok(items),
            other => Err(other.wrong("a tuple or list")),
        }
    }

    /// The sub-graph.
    pub fn graph(&self) -> Result<&Arc<GraphModule>> {
        match self {
            Value::Graph(g) => Ok(g),
            other => Err(other.wrong("a sub-graph")),
        }
    }

    /// Every tensor in it, depth first.
    pub fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Value::Tensor(t) => vec![t],
            Value::List(items) => items.iter().flat_map(Value::tensors).collect(),
            Value::Dict(entries) => entries.iter().flat_map(|(_, v)| v.tensors()).collect(),
            _ => Vec::new(),
        }
    }
}

impl From<Tensor> for Value {
    fn from(t: Tensor) -> Value {
        Value::Tensor(t)
    }
}
impl From<&Tensor> for Value {
    fn from(t: &Tensor) -> Value {
        Value::Tensor(t.clone())
    }
}
impl From<Scalar> for Value {
    fn from(s: Scalar) -> Value {
        Value::Scalar(s)
    }
}
impl From<i64> for Value {
    fn from(v: i64) -> Value {
        Value::Scalar(v.into())
    }
}
impl From<f64> for Value {
    fn from(v: f64) -> Value {
        Value::Scalar(v.into())
    }
}
impl From<bool> for Value {
    fn from(v: bool) -> Value {
        Value::Scalar(v.into())
    }
}

/// An argument with every node replaced by its value.
pub fn materialize(argument: &Argument, value: &mut impl FnMut(NodeId) -> Result<Value>) -> Result<Value> {
    Ok(match argument {
        Argument::Node(n) => value(*n)?,
        Argument::Bool(b) => Value::Scalar(Scalar::Bool(*b)),
        Argument::Int(i) => Value::Scalar(Scalar::Int(*i)),
        Argument::Float(v) => Value::Scalar(Scalar::Float(*v)),
        Argument::Complex(re, im) => Value::Scalar(Scalar::Complex(Complex::new(*re, *im))),
        Argument::Tuple(items) | Argument::List(items) => {
            Value::List(items.iter().map(|a| materialize(a, value)).collect::<Result<_>>()?)
        }
        Argument::Dict(entries) => {
            let entries = entries.iter().map(|(k, a)| Ok((k.clone(), materialize(a, value)?)));
            Value::Dict(entries.collect::<Result<_>>()?)
        }
        constant => Value::Constant(constant.clone()),
    })
}
