//! Argument: an immutable tree of leaves that a node is called with.
//!
//! Containers are shared and never change: to change an argument, assign a new one to the node. Tuple and list stay
//! distinct, and so do `True` and `1`. An argument knows nodes only by id.

use super::{DeviceName, MemoryFormat, MemoryLayout, Name, NodeId, ScalarType, Target};
use std::sync::Arc;

/// One argument of a node, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// Nothing.
    None,
    /// A bool, which is not a number.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex(f64, f64),
    /// Text.
    Str(Name),
    /// An element type.
    DType(ScalarType),
    /// A device.
    Device(DeviceName),
    /// A layout.
    Layout(MemoryLayout),
    /// A memory format.
    MemoryFormat(MemoryFormat),
    /// An op as a value.
    Op(Arc<Target>),
    /// The value of a node: a tensor, a symbolic number, a tuple, a sub-graph (of a `get_attr` node).
    Node(NodeId),
    /// Start, stop and step of a slice.
    Slice(Arc<[Argument; 3]>),
    /// A tuple.
    Tuple(Arc<[Argument]>),
    /// A list.
    List(Arc<[Argument]>),
    /// A map with string keys, in order.
    Dict(Arc<[(Name, Argument)]>),
}

impl Argument {
    /// A tuple of these.
    pub fn tuple(items: impl IntoIterator<Item = Argument>) -> Argument {
        Argument::Tuple(items.into_iter().collect())
    }

    /// A list of these.
    pub fn list(items: impl IntoIterator<Item = Argument>) -> Argument {
        Argument::List(items.into_iter().collect())
    }

    /// The node, if this is one.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Argument::Node(n) => Some(*n),
            _ => None,
        }
    }

    /// The elements of a tuple or list.
    pub fn items(&self) -> Option<&[Argument]> {
        match self {
            Argument::Tuple(items) | Argument::List(items) => Some(items),
            _ => None,
        }
    }

    /// Visits every node in it, depth first, left to right, including repetitions.
    pub fn for_each_node(&self, see: &mut impl FnMut(NodeId)) {
        match self {
            Argument::Node(n) => see(*n),
            Argument::Slice(parts) => parts.iter().for_each(|a| a.for_each_node(see)),
            Argument::Tuple(items) | Argument::List(items) => items.iter().for_each(|a| a.for_each_node(see)),
            Argument::Dict(entries) => entries.iter().for_each(|(_, a)| a.for_each_node(see)),
            _ => {}
        }
    }

    /// The same tree with every node replaced by the result of `f`.
    pub fn map_nodes(&self, f: &mut impl FnMut(NodeId) -> Argument) -> Argument {
        match self {
            Argument::Node(n) => f(*n),
            Argument::Slice(parts) => {
                let [start, stop, step] = &**parts;
                Argument::Slice(Arc::new([start.map_nodes(f), stop.map_nodes(f), step.map_nodes(f)]))
            }
            Argument::Tuple(items) => Argument::Tuple(items.iter().map(|a| a.map_nodes(f)).collect()),
            Argument::List(items) => Argument::List(items.iter().map(|a| a.map_nodes(f)).collect()),
            Argument::Dict(entries) => {
                Argument::Dict(entries.iter().map(|(k, a)| (k.clone(), a.map_nodes(f))).collect())
            }
            leaf => leaf.clone(),
        }
    }

    /// How deep containers nest; a leaf is 0.
    pub fn depth(&self) -> usize {
        match self {
            Argument::Slice(parts) => 1 + parts.iter().map(Argument::depth).max().unwrap_or(0),
            Argument::Tuple(items) | Argument::List(items) => 1 + items.iter().map(Argument::depth).max().unwrap_or(0),
            Argument::Dict(entries) => 1 + entries.iter().map(|(_, a)| a.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

macro_rules! from {
    ($($t:ty => |$v:ident| $e:expr),* $(,)?) => {$(
        impl From<$t> for Argument {
            fn from($v: $t) -> Argument { $e }
        }
    )*};
}
from! {
    NodeId => |v| Argument::Node(v),
    bool => |v| Argument::Bool(v),
    i64 => |v| Argument::Int(v),
    i32 => |v| Argument::Int(v.into()),
    f64 => |v| Argument::Float(v),
    &str => |v| Argument::Str(v.into()),
    ScalarType => |v| Argument::DType(v),
    DeviceName => |v| Argument::Device(v),
    MemoryLayout => |v| Argument::Layout(v),
    MemoryFormat => |v| Argument::MemoryFormat(v),
}
