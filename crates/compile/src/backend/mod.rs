//! Backends turn a captured graph into an executable; this module defines their interface.
//!
//! A captured graph is a [`GraphModule`] in the training dialect: placeholders first (tensor arguments, captured tensors
//! and parameters, then numbers), calls, one output node that returns a tuple. It may mutate its inputs, contain
//! grad-mode regions as higher-order ops, hook nodes ([`Function::RegisterHook`](firebrand_graph::ir::Function)) and custom
//! functions. Running the executable has every visible effect that interpreting the graph has: inputs are written where the
//! graph writes them, results share memory as they would, random numbers come from the generator in the same order, and
//! gradients flow to every input that requires them.
//!
//! Backends that do not compile anything themselves are here too: `eager`, `counter`, `record`. This folder knows nothing of guards and
//! caches (a backend is called once per captured graph), nor of the backends that compile.

mod counter;
mod eager;
mod hook_slot;
mod record;

pub(crate) use counter::count_ops;
pub use counter::{Counter, counter};
pub use eager::{EagerRunner, Interpret, eager};
pub(crate) use eager::{Interpreted, hook_result, register_hook};
pub use hook_slot::{HookFn, HookSlot};
pub use record::{Recorded, Recorder, record};

use crate::error::{Error, Result};
use firebrand_core::autograd::{Function, apply_function};
use firebrand_core::capture::{StandInScope, StandIns};
use firebrand_core::{Device, ErrorKind, Layout, Spec, Tensor};
use firebrand_graph::ir::{self, Argument, GraphModule, TensorMeta};
use std::sync::Arc;

pub use firebrand_graph::interpret::Value;

/// A graph that can be run.
pub trait Executable: Send + Sync {
    /// Runs it: takes one value per placeholder and returns one per element of the output tuple.
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>>;

    /// Runs it on inputs passed by value: it may free each after its last use, and overwrite those that nothing else
    /// holds.
    fn run_owned(&self, inputs: Vec<Value>, call: &Call) -> Result<Vec<Value>> {
        self.run(&inputs, call)
    }

    /// Whether inputs may have a history, which it ignores: results have none, and calls see none.
    fn ignores_history(&self) -> bool {
        false
    }

    /// Like [`Executable::run_owned`]: results that `early` wants may be handed to it as soon as they are final, while the rest is
    /// still to be computed. In the list that is returned they are [`Value::NONE`].
    fn run_handing_over(&self, inputs: Vec<Value>, call: &Call, early: &mut Early<'_>) -> Result<Vec<Value>> {
        let _ = early;
        self.run_owned(inputs, call)
    }
}

/// Who takes results before the end of a run.
pub struct Early<'a> {
    /// Per result, whether it is wanted early.
    pub wanted: Vec<bool>,
    /// Takes a result, by its place.
    pub take: &'a mut dyn FnMut(usize, Value) -> Result<()>,
}

impl std::fmt::Debug for Early<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Early").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// Turns graphs into executables. Closures `Fn(&GraphModule, &[ExampleInput]) -> Result<Arc<dyn Executable>>` are backends.
pub trait Backend: Send + Sync {
    /// Its name in errors and logs.
    fn name(&self) -> &str;

    /// Compiles one graph. The examples describe its placeholders, in order.
    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>>;

    /// Compiles a graph that is called inside function transforms or a dual level. Its inputs may be batched there or have tangents, so
    /// unless the back end can do better, its ops run one by one, each by its rule.
    fn compile_transformed(&self, graph: &GraphModule, _: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Interpreted { graph: Arc::new(graph.clone()) }))
    }
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

/// Metadata of one input when a graph is compiled. It does not contain values of tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleInput {
    /// Its abstract value.
    pub value: ExampleValue,
    /// Whether it lives as long as the function (a parameter or captured tensor), so that saving it costs nothing.
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

    /// Whether it may need a gradient.
    pub fn requires_grad(&self) -> bool {
        self.tensor().is_some_and(|t| t.requires_grad)
    }
}

/// What the `call_host` nodes of a compiled backward pass call: hooks, accumulation and everything else that is not in the
/// graph. It comes with each run.
pub trait HostCalls: Send + Sync {
    /// Performs the action of a slot.
    fn call(&self, slot: usize, values: Vec<Option<Tensor>>, results: &[Option<Spec>]) -> Result<Vec<Option<Tensor>>>;
}

/// What belongs to one call and not to the graph: its hooks and custom functions.
#[derive(Clone, Default)]
pub struct Call {
    /// None if there is nothing, as at most calls: then it costs nothing to make and to copy.
    own: Option<Arc<Own>>,
}

/// What a call brings along.
#[derive(Clone, Default)]
struct Own {
    hooks: Arc<[Arc<HookSlot>]>,
    functions: Arc<[Arc<dyn Function>]>,
    host: Option<Arc<dyn HostCalls>>,
    stand_ins: Option<Arc<dyn StandIns>>,
    /// Results that custom functions may hold: the place of each, and what stands for it.
    held: Arc<[(usize, Tensor)]>,
}

impl Call {
    /// A call with these hooks and functions.
    pub fn new(hooks: impl Into<Arc<[Arc<HookSlot>]>>, functions: Arc<[Arc<dyn Function>]>) -> Call {
        Call::of(Own { hooks: hooks.into(), functions, ..Own::default() })
    }

    /// The call, with what stand-ins that its custom functions hold are about. Those of `held` are results of the graph, by
    /// their places: a function finds them as soon as they are computed.
    pub fn within(self, stand_ins: Arc<dyn StandIns>, held: impl Into<Arc<[(usize, Tensor)]>>) -> Call {
        let own = self.own.map(Arc::unwrap_or_clone).unwrap_or_default();
        Call::of(Own { stand_ins: Some(stand_ins), held: held.into(), ..own })
    }

    /// Applies the custom function in a slot.
    pub fn apply(&self, slot: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let _scope = self.stand_ins().cloned().map(StandInScope::new);
        Ok(apply_function(self.function(slot)?.clone(), inputs)?)
    }

    /// A run of a compiled backward pass.
    pub fn with_host(host: Arc<dyn HostCalls>) -> Call {
        Call::of(Own { host: Some(host), ..Own::default() })
    }

    fn of(own: Own) -> Call {
        Call { own: Some(Arc::new(own)) }
    }

    fn stand_ins(&self) -> Option<&Arc<dyn StandIns>> {
        self.own.as_ref()?.stand_ins.as_ref()
    }

    fn held(&self) -> &[(usize, Tensor)] {
        self.own.as_ref().map_or(&[][..], |own| &own.held)
    }

    /// What a node `call_host(kind, slot, values, sizes, dtypes)` does.
    pub fn call_host(&self, mut args: Vec<Value>) -> Result<Value> {
        let host = self.own.as_ref().and_then(|own| own.host.as_ref());
        let host = host.ok_or_else(|| Error::internal("the graph calls host code, but the call provides none"))?;
        let results = host_results(&args, Device::Cpu)?;
        let slot = usize::try_from(args[1].scalar()?.to_i64()).map_err(|_| not_a_host_call())?;
        // Moved, not copied: a gradient that nothing else holds may become that of a leaf.
        let Value::List(values) = std::mem::replace(&mut args[2], Value::NONE) else { return Err(not_a_host_call()) };
        let values = values.into_iter().map(optional_tensor).collect::<Result<_>>()?;
        let results = host.call(slot, values, &results)?;
        Ok(Value::List(results.into_iter().map(|t| t.map_or(Value::NONE, Value::Tensor)).collect()))
    }

    /// The hook in a slot.
    pub fn hook(&self, slot: usize) -> Result<&Arc<HookSlot>> {
        let hooks = self.own.as_ref().map_or(&[][..], |own| &own.hooks);
        let missing = || Error::internal(format!("the graph names hook {slot}, the call has {}", hooks.len()));
        hooks.get(slot).ok_or_else(missing)
    }

    /// What a node `call_hook(slot, grad)` does: the gradient, or what the hook puts in its place, which must be like it.
    pub fn call_hook(&self, slot: &Value, grad: &Value) -> Result<Value> {
        let slot = usize::try_from(slot.scalar()?.to_i64()).map_err(|_| Error::internal("a slot is not a number"))?;
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
        let functions = self.own.as_ref().map_or(&[][..], |own| &own.functions);
        let count = functions.len();
        let missing = || Error::internal(format!("the graph names custom function {slot}, the call has {count}"));
        functions.get(slot).ok_or_else(missing)
    }
}

/// The kind of a `call_host` node that adds to the gradient of a leaf and calls no hook.
pub(crate) const ACCUMULATE: &str = "accumulate_grad";

/// Whether a graph is a backward pass with calls of a host in it. Such a graph is pure but for these calls, and nothing
/// differentiates it.
pub fn calls_host(graph: &GraphModule) -> bool {
    let g = &graph.graph;
    g.nodes().any(|n| g[n].target().is_some_and(|t| t.is_function(&ir::Function::CallHost)))
}

fn optional_tensor(v: Value) -> Result<Option<Tensor>> {
    match v {
        Value::Tensor(t) => Ok(Some(t)),
        v if v.is_none() => Ok(None),
        _ => Err(not_a_host_call()),
    }
}

fn not_a_host_call() -> Error {
    Error::internal("call_host takes a kind, a slot, values, sizes and dtypes")
}

/// What the results of a `call_host` node look like.
pub(crate) fn host_results(args: &[Value], device: Device) -> Result<Vec<Option<Spec>>> {
    let [_, _, _, sizes, dtypes] = args else { return Err(not_a_host_call()) };
    let one = |(sizes, dtype): (&Value, &Value)| match dtype {
        Value::Constant(Argument::DType(dtype)) => {
            let sizes = sizes.items()?.iter().map(|n| Ok(n.scalar()?.to_i64() as usize)).collect::<Result<Vec<_>>>()?;
            let dtype = dtype.dtype().ok_or_else(not_a_host_call)?;
            Ok(Some(Spec { layout: Layout::contiguous(&sizes)?, dtype, device }))
        }
        _ => Ok(None),
    };
    sizes.items()?.iter().zip(dtypes.items()?).map(one).collect()
}

/// Whether two short lists are equal: a plain loop, because the way to `memcmp` is longer than they are.
#[inline(always)]
pub(crate) fn same_list(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}
