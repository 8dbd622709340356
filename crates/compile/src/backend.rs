//! Back ends: what turns a captured graph into something that runs, and what it is told.
//!
//! A captured graph is a [`GraphModule`] in the training dialect: placeholders first (tensor arguments, captured tensors
//! and parameters, then numbers), calls, one output node that returns a tuple. It may write its inputs in place, hold
//! grad-mode regions as higher-order ops, hook nodes ([`Function::RegisterHook`](firebrand_graph::ir::Function)) and custom
//! functions. Running the executable has every visible effect that interpreting the graph has: inputs are written where the
//! graph writes them, results share memory as they would, random numbers come from the generator in the same order, and
//! gradients flow to every input that requires them.
//!
//! This file knows no guards and no caches: a back end is asked once per captured graph.

use crate::error::{Error, Result};
use crate::hooks::HookSlot;
use firebrand_core::ErrorKind;
use firebrand_core::autograd::Function;
use firebrand_graph::ir::{GraphModule, TensorMeta};
use std::sync::Arc;

pub use firebrand_graph::interpret::Value;

/// A graph that can be run.
pub trait Executable: Send + Sync {
    /// Runs it: one value per placeholder in, one per element of the output tuple out.
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>>;
}

/// Turns graphs into executables. Closures `Fn(&GraphModule, &[ExampleInput]) -> Result<Arc<dyn Executable>>` are back ends.
pub trait Backend: Send + Sync {
    /// What it is called in errors and logs.
    fn name(&self) -> &str;

    /// Compiles one graph. The examples describe its placeholders, in order.
    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>>;
}

impl<F> Backend for F
where
    F: Fn(&GraphModule, &[ExampleInput]) -> Result<Arc<dyn Executable>> + Send + Sync,
{
    fn name(&self) -> &str {
        "closure"
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        self(graph, examples)
    }
}

/// What is known of one input when a graph is compiled. There are no numbers of tensors here.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleInput {
    /// Its value, without memory.
    pub value: ExampleValue,
    /// Whether it lives as long as the function does (a parameter or captured tensor), so that keeping it costs nothing.
    pub is_static: bool,
}

/// The abstract value of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum ExampleValue {
    /// A tensor; dimensions that vary from call to call are expressions with the value of the first call as hint.
    Tensor(TensorMeta),
    /// An integer, with the value of the first call.
    Int(i64),
    /// A float, with the value of the first call.
    Float(f64),
}

impl ExampleInput {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&TensorMeta> {
        match &self.value {
            ExampleValue::Tensor(meta) => Some(meta),
            _ => None,
        }
    }

    /// Whether gradients may be wanted of it.
    pub fn requires_grad(&self) -> bool {
        self.tensor().is_some_and(|t| t.requires_grad)
    }
}

/// What belongs to one call and not to the graph: the hooks that the call brings along, and the custom functions.
#[derive(Clone, Default)]
pub struct Call {
    hooks: Arc<[Arc<HookSlot>]>,
    functions: Arc<[Arc<dyn Function>]>,
}

impl Call {
    /// A call with these hooks and functions.
    pub fn new(hooks: impl Into<Arc<[Arc<HookSlot>]>>, functions: Arc<[Arc<dyn Function>]>) -> Call {
        Call { hooks: hooks.into(), functions }
    }

    /// The hook in a slot.
    pub fn hook(&self, slot: usize) -> Result<&Arc<HookSlot>> {
        let missing = || Error::internal(format!("the graph names hook {slot}, the call has {}", self.hooks.len()));
        self.hooks.get(slot).ok_or_else(missing)
    }

    /// What a node `call_hook(slot, grad)` does: the gradient, or what the hook puts in its place, which must be like it.
    pub fn call_hook(&self, slot: &Value, grad: &Value) -> Result<Value> {
        let slot = usize::try_from(slot.scalar()?.to_i64()).map_err(|_| Error::internal("a slot is no number"))?;
        let grad = if grad.is_none() { None } else { Some(grad.tensor()?) };
        let new = self.hook(slot)?.run(grad)?;
        if let (Some(new), Some(old)) = (&new, grad)
            && new.shape() != old.shape()
        {
            let (expected, found) = (old.shape().to_vec(), new.shape().to_vec());
            return Err(firebrand_core::Error::from(ErrorKind::HookShape { hook: None, expected, found }).into());
        }
        Ok(new.as_ref().or(grad).map_or(Value::NONE, Value::from))
    }

    /// The custom function in a slot.
    pub fn function(&self, slot: usize) -> Result<&Arc<dyn Function>> {
        let count = self.functions.len();
        let missing = || Error::internal(format!("the graph names custom function {slot}, the call has {count}"));
        self.functions.get(slot).ok_or_else(missing)
    }
}
