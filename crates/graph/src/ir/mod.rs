//! The IR: graphs of nodes, their arguments and metadata.

mod argument;
mod edit;
mod graph;
mod hooks;
mod meta;
mod module;
mod names;
mod ordered;
mod sym;
mod target;
mod types;

pub use argument::Argument;
pub use graph::{CallSpec, Graph, InsertPoint, Kind, Node, NodeId, Nodes};
pub use hooks::{HookId, Replacement};
pub use meta::{Meta, ModuleStack, SymBool, SymFloat, SymInt, Symbolic, TensorMeta, Val};
pub use module::{Attribute, Attributes, GraphModule};
pub use names::Namespace;
pub(crate) use names::split_suffix;
pub use sym::{Expr, Head};
pub use target::{Function, Hop, OpOverload, Target};
pub use types::{DeviceName, MemoryFormat, MemoryLayout, ScalarType};

/// A name: shared text.
pub type Name = std::sync::Arc<str>;
