//! ExportedProgram: a graph module with its signature, state and constraints.
//!
//! A program is a value: cloning is cheap (graphs are shared, tensors are handles), and passes turn one into another.
//! Clones share tensors, so training one trains the other; `deep_copy` of the state is the caller's decision.

use crate::error::{Error, Result};
use crate::ir::{CallSpec, GraphModule, Name};
use crate::pt2::Extras;
use crate::signature::{GraphSignature, SpecArg};
use firebrand_core::Tensor;
use indexmap::IndexMap;
use std::sync::Arc;

/// The dialect of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Right after export: any op, including in-place ones.
    #[default]
    Training,
    /// After decompositions: functional ops only.
    Aten,
}

impl Dialect {
    /// PyTorch's name of its verifier dialect.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Training => "TRAINING",
            Dialect::Aten => "ATEN",
        }
    }
}

/// A parameter or persistent buffer.
#[derive(Clone, Debug)]
pub struct State {
    /// Its value.
    pub tensor: Tensor,
    /// Whether it is a parameter.
    pub is_parameter: bool,
}

/// A constant tensor, a buffer that is not saved, or an object.
#[derive(Clone, Debug)]
pub enum Constant {
    /// A tensor.
    Tensor(Tensor),
    /// An object of a class that only PyTorch can construct.
    CustomObj {
        /// The class.
        class_fqn: Name,
    },
}

/// The range of a symbol, inclusive; `None` is unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ValueRange {
    /// The smallest value.
    pub min: Option<i64>,
    /// The largest value.
    pub max: Option<i64>,
}

/// A call of a module of the original model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleCallEntry {
    /// Path of the module; empty for the model itself; `path@1` for a second call.
    pub fqn: String,
    /// Arguments and results, where they are known.
    pub signature: Option<ModuleCallSignature>,
}

/// Arguments and results of a module call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleCallSignature {
    /// Inputs, flattened.
    pub inputs: Vec<SpecArg>,
    /// Outputs, flattened.
    pub outputs: Vec<SpecArg>,
    /// How they are structured.
    pub call_spec: CallSpec,
}

/// A program: graph, signature, state and constraints.
#[derive(Clone, Debug, Default)]
pub struct ExportedProgram {
    /// The graph and its sub-graphs.
    pub module: Arc<GraphModule>,
    /// The roles of inputs and outputs; a bare graph in text format has none.
    pub signature: Option<Arc<GraphSignature>>,
    /// Parameters and persistent buffers by name.
    pub state_dict: IndexMap<String, State>,
    /// Constants and other buffers by name.
    pub constants: IndexMap<String, Constant>,
    /// The ranges of symbols.
    pub range_constraints: IndexMap<String, ValueRange>,
    /// How modules were called; the entry with the empty name is the program itself.
    pub module_call_graph: Vec<ModuleCallEntry>,
    /// The dialect of the graph.
    pub dialect: Dialect,
    /// Conditions on inputs, as PyTorch prints them; kept, never evaluated.
    pub guards_code: Vec<String>,
    /// Other contents of the archive it was read from; written back with it.
    pub extras: Option<Arc<Extras>>,
}

impl ExportedProgram {
    /// A program that consists of this module.
    pub fn new(module: GraphModule, signature: Option<GraphSignature>) -> ExportedProgram {
        ExportedProgram { module: Arc::new(module), signature: signature.map(Arc::new), ..ExportedProgram::default() }
    }

    /// The signature, or an error that says it is missing.
    pub fn signature(&self) -> Result<&GraphSignature> {
        self.signature.as_deref().ok_or(Error::NoSignature)
    }

    /// The structure of inputs and outputs, if known.
    pub fn call_spec(&self) -> Option<&CallSpec> {
        let entry = self.module_call_graph.iter().find(|e| e.fqn.is_empty())?;
        entry.signature.as_ref().map(|s| &s.call_spec)
    }

    /// The value of a parameter, buffer or constant, by the name the signature uses.
    pub fn state(&self, target: &str) -> Option<&Tensor> {
        if let Some(state) = self.state_dict.get(target) {
            return Some(&state.tensor);
        }
        match self.constants.get(target)? {
            Constant::Tensor(t) => Some(t),
            Constant::CustomObj { .. } => None,
        }
    }
}
