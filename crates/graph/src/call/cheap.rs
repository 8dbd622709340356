//! Cheap values computed again in the backward pass: activations, norms and products of elements, which take far less time than the
//! matrix products around them.
//!
//! A node that saves such a value for its gradient keeps how it was made instead: the op and its arguments, which the op's own
//! gradient keeps anyway. Adapters gain most: their gradients need the inputs of every layer, which are values of this
//! kind, while frozen layers save nothing. Results have the same bits. Ops that write to memory or draw numbers are never run
//! again.

use super::{Evaluator, Runner};
use crate::error::Result;
use crate::interpret::{Call, NodeRunner, Value, call_op, run_module};
use crate::ir::{GraphModule, Kind, Name, NodeId, OpOverload, Target};
use firebrand_core::autograd::{is_autocast_enabled, is_grad_enabled, no_grad, saved_tensors_hooks};
use firebrand_core::{DType, Device, Error as CoreError, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What is run again: one pass over its elements, no random numbers, and a gradient that keeps the op's arguments. (That of
/// `relu` keeps its result, that of `add` nothing: to keep their arguments would take more.)
const CHEAP: [&str; 6] = ["gelu", "silu", "mish", "layer_norm", "rms_norm", "mul"];

/// Runs a program so that cheap values are computed again in the backward pass; for [`super::ProgramModule::set_evaluator`].
/// Other values that are saved are kept as they are, or in this dtype, with its precision.
pub fn recompute_cheap(saved: Option<DType>) -> Evaluator {
    Arc::new(move |module, inputs| {
        let list = |value| match value {
            Value::List(items) => items,
            one => vec![one],
        };
        // The backward pass runs outside of autocast, where the same ops compute in other dtypes.
        if !is_grad_enabled() || is_autocast_enabled() {
            return run_module(&mut Runner::default(), module, inputs).map(list);
        }
        let made = Made { entries: Arc::default(), saved };
        let packing = made.clone();
        let _scope = saved_tensors_hooks(move |t| packing.pack(t), Packed::value)?;
        let mut runner = Cheap {
            inner: Runner::default(),
            made: made.clone(),
            module: std::ptr::from_ref(module) as usize,
            last: last_uses(module),
        };
        let results = run_module(&mut runner, module, inputs).map(list);
        // Nodes keep the hooks, and must not keep all values through them.
        made.entries().clear();
        results
    })
}

/// The values that are in use, in the order in which they were made.
#[derive(Clone)]
struct Made {
    entries: Arc<Mutex<Vec<Entry>>>,
    /// What is kept of values that are not computed again.
    saved: Option<DType>,
}

struct Entry {
    /// Held while the interpreter holds it: its memory is not another tensor's.
    value: Tensor,
    /// Of cheap values.
    recipe: Option<Arc<Recipe>>,
    /// The value in few bits, once for all that save it.
    small: Option<Tensor>,
    /// The last node that reads it, or a view of it, by place in the graph.
    until: usize,
}

/// How a value is made.
struct Recipe {
    op: OpOverload,
    args: Vec<Kept>,
    kwargs: Vec<(Name, Value)>,
    /// The value while some that saved it have yet to read it, and how many these are.
    again: Mutex<(Option<Tensor>, usize)>,
}

enum Kept {
    Tensor(Packed),
    Other(Value),
}

/// A saved tensor.
enum Packed {
    /// As it is, or in few bits; the version says whether it was written since.
    Here { value: Tensor, version: u32, dtype: DType, sizes: Vec<i64> },
    /// To be computed, and seen in these sizes.
    Again { recipe: Arc<Recipe>, sizes: Vec<i64> },
}

impl Made {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What is kept of a tensor.
    fn pack(&self, t: &Tensor) -> firebrand_core::Result<Packed> {
        let mut entries = self.entries();
        let same = |e: &&mut Entry| {
            e.value.data_ptr() == t.data_ptr()
                && (e.value.numel(), e.value.dtype()) == (t.numel(), t.dtype())
                && (t.is_contiguous() && e.value.is_contiguous() && t.numel() > 0)
        };
        let entry = entries.iter_mut().rev().find(same);
        let sizes = t.shape().iter().map(|&n| n as i64).collect();
        if let Some(recipe) = entry.as_ref().and_then(|e| e.recipe.clone()) {
            recipe.again().1 += 1;
            return Ok(Packed::Again { recipe, sizes });
        }
        // Weights are there anyway, and statistics are small.
        let computed = t.is_floating_point() && t.grad_fn().is_some();
        let value = match self.saved.filter(|d| computed && d.size() < t.dtype().size()) {
            None => t.detach(),
            Some(dtype) => {
                let known = entry.as_ref().and_then(|e| e.small.clone());
                let small = known.map_or_else(|| no_grad(|| t.detach().try_to_dtype(dtype)), Ok)?;
                entry.into_iter().for_each(|e| e.small = Some(small.clone()));
                small
            }
        };
        Ok(Packed::Here { version: value.try_version().unwrap_or(0), value, dtype: t.dtype(), sizes })
    }
}

impl Recipe {
    fn again(&self) -> MutexGuard<'_, (Option<Tensor>, usize)> {
        self.again.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The value, computed once for all that saved it and read it one after another.
    fn make(&self) -> firebrand_core::Result<Tensor> {
        let mut again = self.again();
        again.1 = again.1.saturating_sub(1);
        let value = match again.0.take() {
            Some(value) => value,
            None => {
                let argument = |kept: &Kept| match kept {
                    Kept::Tensor(packed) => packed.value().map(Value::Tensor),
                    Kept::Other(value) => Ok(value.clone()),
                };
                let args = self.args.iter().map(argument).collect::<firebrand_core::Result<Vec<_>>>()?;
                match no_grad(|| call_op(&self.op, &args, &self.kwargs, None)).map_err(CoreError::user)? {
                    Value::Tensor(t) => t,
                    other => return Err(CoreError::user(format!("{} gave {} again", self.op.base(), other.kind()))),
                }
            }
        };
        if again.1 > 0 {
            again.0 = Some(value.clone());
        }
        Ok(value)
    }
}

impl Packed {
    fn value(&self) -> firebrand_core::Result<Tensor> {
        match self {
            Packed::Here { value, version, dtype, sizes } => {
                let now = value.try_version().unwrap_or(0);
                if now != *version {
                    return Err(CoreError::user(format!(
                        "a tensor that the backward pass needs was written in place: it is at version {now}, expected {version}"
                    )));
                }
                if value.dtype() == *dtype {
                    return Ok(value.clone());
                }
                no_grad(|| value.try_to_dtype(*dtype)?.try_reshape(sizes.as_slice()))
            }
            Packed::Again { recipe, sizes } => no_grad(|| recipe.make()?.try_reshape(sizes.as_slice())),
        }
    }
}

/// Where each node is read last, by place in the graph.
fn last_uses(module: &GraphModule) -> HashMap<NodeId, (usize, usize)> {
    let graph = &module.graph;
    let mut last: HashMap<NodeId, (usize, usize)> = HashMap::new();
    for (place, n) in graph.nodes().enumerate() {
        last.insert(n, (place, place));
        graph.input_nodes(n).for_each(|i| _ = last.entry(i).and_modify(|(_, until)| *until = place));
    }
    last
}

/// Runs nodes plainly, and remembers how cheap values were made.
struct Cheap {
    inner: Runner,
    made: Made,
    /// The address of the module whose nodes these are.
    module: usize,
    last: HashMap<NodeId, (usize, usize)>,
}

impl Cheap {
    /// How the result of a call is made, if it is cheap.
    fn recipe(&self, call: &Call<'_>, result: &Tensor) -> Result<Option<Recipe>> {
        let Kind::CallFunction(Target::Op(op)) = call.module.graph[call.node].kind() else { return Ok(None) };
        let cheap = CHEAP.contains(&op.base())
            && (result.requires_grad() && result.is_contiguous())
            && !op.schema().is_some_and(|s| s.args.iter().any(|a| a.written))
            && (op.base() != "mul" || call.args.iter().all(|a| matches!(a, Value::Tensor(_))));
        if !cheap {
            return Ok(None);
        }
        let keep = |v: &Value| match v {
            Value::Tensor(x) => self.made.pack(x).map(Kept::Tensor),
            other => Ok(Kept::Other(other.clone())),
        };
        let args = call.args.iter().map(keep).collect::<firebrand_core::Result<_>>()?;
        Ok(Some(Recipe { op: op.clone(), args, kwargs: call.kwargs.clone(), again: Mutex::default() }))
    }
}

impl NodeRunner for Cheap {
    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        let value = self.inner.run_node(call)?;
        // Nodes of sub-graphs have numbers of their own, and their values live as long as the sub-graph runs.
        if std::ptr::from_ref(call.module) as usize != self.module {
            return Ok(value);
        }
        let Some(&(place, until)) = self.last.get(&call.node) else { return Ok(value) };
        self.made.entries().retain(|e| e.until > place);
        let Value::Tensor(t) = &value else { return Ok(value) };
        // A view lives in the memory of what it shows.
        let mut shown = false;
        for e in self.made.entries().iter_mut().filter(|e| e.value.data_ptr() == t.data_ptr()) {
            e.until = e.until.max(until);
            shown = true;
        }
        if !shown {
            let recipe = self.recipe(call, t)?.map(Arc::new);
            self.made.entries().push(Entry { value: t.clone(), recipe, small: None, until });
        }
        Ok(value)
    }

    fn device(&self) -> Option<Device> {
        self.inner.device()
    }
}
