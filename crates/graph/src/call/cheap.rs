//! Cheap values computed again in the backward pass: activations, norms and products of elements, which take far less time than the
//! matrix products around them.
//!
//! A node that saves such a value for its gradient keeps how it was made instead: the op and its arguments, which the op's own
//! gradient keeps anyway. Adapters gain most: their gradients need the inputs of every layer, which are values of this
//! kind, while frozen layers save nothing. Results have the same bits. Ops that write to memory or draw numbers are never run
//! again.

use super::adapters::{Adapters, Parts, Role};
use super::fused::{Activation, Adapted};
use super::{Evaluator, Runner};
use crate::error::{Error, Result};
use crate::interpret::{Call, NodeRunner, Value, call_op, run_module};
use crate::ir::{GraphModule, Kind, Name, NodeId, OpOverload, Target};
use firebrand_core::autograd::{Function, is_autocast_enabled, is_grad_enabled, no_grad, saved_tensors_hooks};
use firebrand_core::dispatch::Op;
use firebrand_core::{DType, Device, Error as CoreError, Tensor, ops};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What is run again: one pass over its elements, no random numbers, and a gradient that keeps the op's arguments. (That of
/// `relu` keeps its result, that of `add` nothing: to keep their arguments would take more.)
const CHEAP: [&str; 6] = ["gelu", "silu", "mish", "layer_norm", "rms_norm", "mul"];

fn is_cheap(op: &OpOverload, args: &[Value]) -> bool {
    CHEAP.contains(&op.base())
        && !op.schema().is_some_and(|s| s.args.iter().any(|a| a.written))
        && (op.base() != "mul" || args.iter().all(|a| matches!(a, Value::Tensor(_))))
}

/// Runs a program so that cheap values are recomputed in the backward pass; for [`super::ProgramModule::set_evaluator`].
/// Other saved values are kept unchanged, or in this dtype, with its precision. Results have the same bits.
pub fn recompute_cheap(saved: Option<DType>) -> Evaluator {
    Arc::new(move |module, inputs| run(module, inputs, saved, Arc::default()))
}

/// Like [`recompute_cheap`]; the products that only cheap values read (the wide ones inside the blocks of transformers) are
/// recomputed too, in all blocks but the last (over quantized weights, in all). Each frozen layer is one node of the history with
/// its adapter and the activation before it; results equal those of the ops up to rounding.
pub fn recompute_wide(saved: Option<DType>) -> Evaluator {
    // A module has one graph per mode.
    let known: Mutex<HashMap<usize, Arc<Adapters>>> = Mutex::default();
    Arc::new(move |module, inputs| {
        let key = std::ptr::from_ref(module) as usize;
        let adapters = {
            let mut known = known.lock().unwrap_or_else(|e| e.into_inner());
            let read = || Arc::new(Adapters::of(module, &|op| CHEAP.contains(&op.base())));
            known.entry(key).or_insert_with(read).clone()
        };
        run(module, inputs, saved, adapters)
    })
}

fn run(module: &GraphModule, inputs: &[Value], saved: Option<DType>, adapters: Arc<Adapters>) -> Result<Vec<Value>> {
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
    let mut runner = Cheap::new(module, adapters, made.clone());
    let results = run_module(&mut runner, module, inputs).map(list);
    // Nodes keep the hooks, and must not keep all values through them.
    made.entries().clear();
    results
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
    how: How,
    /// The value while some that saved it have yet to read it, and how many these are.
    again: Mutex<(Option<Tensor>, usize)>,
}

enum How {
    Op {
        op: OpOverload,
        args: Vec<Kept>,
        kwargs: Vec<(Name, Value)>,
    },
    /// A layer with its adapter: the layer's input, `A` and `B`.
    Adapted {
        function: Adapted,
        inputs: [Packed; 3],
    },
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

    /// The value; that of a layer is computed once for all that saved it and read it one after another.
    fn make(&self) -> firebrand_core::Result<Tensor> {
        let mut again = self.again();
        again.1 = again.1.saturating_sub(1);
        let value = match again.0.take() {
            Some(value) => value,
            None => no_grad(|| self.how.make())?,
        };
        // What is cheap is made anew for each: to keep it would take memory where most of it is needed.
        if again.1 > 0 && matches!(self.how, How::Adapted { .. }) {
            again.0 = Some(value.clone());
        }
        Ok(value)
    }
}

impl How {
    fn make(&self) -> firebrand_core::Result<Tensor> {
        match self {
            How::Adapted { function, inputs: [x, a, b] } => {
                function.compute(&x.value()?, &a.value()?, &b.value()?).map(|(y, _)| y)
            }
            How::Op { op, args, kwargs } => {
                let argument = |kept: &Kept| match kept {
                    Kept::Tensor(packed) => packed.value().map(Value::Tensor),
                    Kept::Other(value) => Ok(value.clone()),
                };
                let args = args.iter().map(argument).collect::<firebrand_core::Result<Vec<_>>>()?;
                match call_op(op, &args, kwargs, None).map_err(CoreError::user)? {
                    Value::Tensor(t) => Ok(t),
                    other => Err(CoreError::user(format!("{} gave {} again", op.base(), other.kind()))),
                }
            }
        }
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
            Packed::Again { recipe, sizes } => no_grad(|| {
                let made = recipe.make()?;
                let same = made.shape().iter().map(|&n| n as i64).eq(sizes.iter().copied());
                if same { Ok(made) } else { made.try_reshape(sizes.as_slice()) }
            }),
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
    /// Which nodes are run together, and which products again.
    adapters: Arc<Adapters>,
    parts: HashMap<NodeId, Parts>,
}

impl Cheap {
    fn new(module: &GraphModule, adapters: Arc<Adapters>, made: Made) -> Cheap {
        let mut last = last_uses(module);
        for (sum, input) in &adapters.inputs {
            let place = last.get(sum).map_or(0, |(place, _)| *place);
            last.entry(*input).and_modify(|(_, until)| *until = place.max(*until));
        }
        let module = std::ptr::from_ref(module) as usize;
        Cheap { inner: Runner::default(), made, module, last, adapters, parts: HashMap::new() }
    }

    /// How the result of a call is made, if it is to be made again.
    fn recipe(&self, call: &Call<'_>, result: &Tensor) -> Result<Option<Recipe>> {
        let Kind::CallFunction(Target::Op(op)) = call.module.graph[call.node].kind() else { return Ok(None) };
        let product = self.adapters.again.contains(&call.node)
            && call
                .args
                .iter()
                .filter_map(|a| a.tensor().ok())
                .all(|x| x.numel() < result.numel() || !x.requires_grad());
        if !(product || is_cheap(op, &call.args)) || is_autocast_enabled() {
            return Ok(None);
        }
        if !(result.requires_grad() && result.is_contiguous()) {
            return Ok(None);
        }
        let keep = |v: &Value| match v {
            Value::Tensor(x) => self.made.pack(x).map(Kept::Tensor),
            other => Ok(Kept::Other(other.clone())),
        };
        let args = call.args.iter().map(keep).collect::<firebrand_core::Result<_>>()?;
        let how = How::Op { op: op.clone(), args, kwargs: call.kwargs.clone() };
        Ok(Some(Recipe { how, again: Mutex::default() }))
    }

    /// Keeps the arguments of a part of an adapted layer for its sum.
    fn part(&mut self, call: &Call<'_>, role: Role) {
        let argument = |i: usize| call.args.get(i).cloned();
        match role {
            Role::Layer(sum) => {
                let Kind::CallFunction(Target::Op(op)) = call.module.graph[call.node].kind() else { return };
                self.parts.entry(sum).or_default().layer = Some((op.clone(), call.args.clone()));
            }
            Role::Narrow(sum) => self.parts.entry(sum).or_default().a = argument(1),
            Role::Scaled(sum) => self.parts.entry(sum).or_default().scaling = argument(1),
            Role::Activation(sum) => {
                let Kind::CallFunction(Target::Op(op)) = call.module.graph[call.node].kind() else { return };
                let given = (op.clone(), call.args.clone(), call.kwargs.clone());
                self.parts.entry(sum).or_default().activation = Some(given);
            }
            Role::Wide(sum) => self.parts.entry(sum).or_default().b = argument(1),
            Role::Sum => {}
        }
    }

    /// A layer and its adapter, as one node of the history where that is possible, with the activation before them.
    fn sum(&mut self, n: NodeId) -> Result<(Value, Option<Recipe>)> {
        let missing = || Error::Value("a layer with an adapter is incomplete".into());
        let parts = self.parts.remove(&n).ok_or_else(missing)?;
        let (Some((op, mut args)), Some(Value::Tensor(a)), Some(Value::Tensor(b))) = (parts.layer, parts.a, parts.b)
        else {
            return Err(missing());
        };
        let scaling = match parts.scaling {
            Some(Value::Scalar(s)) => s.to_f64(),
            _ => 1.0,
        };
        let place = usize::from(op.is(Op::ADDMM));
        let mut activation = None;
        if let Some((op, given, kwargs)) = parts.activation {
            activation = Activation::of(&op, &given, &kwargs).filter(|_| !is_autocast_enabled());
            let input = match &activation {
                // The layer's function begins with what the activation reads.
                Some(_) => given.into_iter().next(),
                None => Some(call_op(&op, &given, &kwargs, None)?),
            };
            *args.get_mut(place).ok_or_else(missing)? = input.ok_or_else(missing)?;
        }
        let known = op.op().filter(|_| !is_autocast_enabled()).and_then(|op| Adapted::of(op, &args, scaling));
        let Some((x, function)) = known.filter(|(x, f)| f.fits(x, &a, &b)) else {
            let mut x = args.get(place).ok_or_else(missing)?.tensor()?.clone();
            if let Some(activation) = activation {
                x = activation.apply_to(&x)?;
                args[place] = Value::Tensor(x.clone());
            }
            let layer = call_op(&op, &args, &[], None)?;
            let narrow = ops::linear(&x, &a, None)?;
            let narrow = if scaling == 1.0 { narrow } else { ops::mul_scalar(&narrow, scaling.into())? };
            let sum = ops::add(layer.tensor()?, &ops::linear(&narrow, &b, None)?, 1.into())?;
            return Ok((Value::Tensor(sum), None));
        };
        let function = function.after(activation);
        let again = function.clone();
        let y = function.apply(&[&x, &a, &b])?.swap_remove(0);
        let recipe = if self.adapters.again.contains(&n) && y.requires_grad() && x.numel() < y.numel() {
            let inputs = [self.made.pack(&x)?, self.made.pack(&a)?, self.made.pack(&b)?];
            Some(Recipe { how: How::Adapted { function: again, inputs }, again: Mutex::default() })
        } else {
            None
        };
        Ok((Value::Tensor(y), recipe))
    }
}

impl NodeRunner for Cheap {
    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        // Nodes of sub-graphs have numbers of their own, and their values live as long as the sub-graph runs.
        if std::ptr::from_ref(call.module) as usize != self.module {
            return self.inner.run_node(call);
        }
        let role = self.adapters.roles.get(&call.node).copied();
        let mut made = None;
        let value = match role {
            Some(Role::Sum) => {
                let (value, recipe) = self.sum(call.node)?;
                made = recipe;
                value
            }
            Some(role) => {
                self.part(call, role);
                return Ok(Value::NONE);
            }
            None => self.inner.run_node(call)?,
        };
        let Some(&(place, until)) = self.last.get(&call.node) else { return Ok(value) };
        if let Value::Tensor(t) = &value {
            // A view lives in the memory of what it shows.
            let mut shown = false;
            for e in self.made.entries().iter_mut().filter(|e| e.value.data_ptr() == t.data_ptr()) {
                e.until = e.until.max(until);
                shown = true;
            }
            if !shown {
                let recipe = if made.is_some() { made } else { self.recipe(call, t)? };
                self.made.entries().push(Entry { value: t.clone(), recipe: recipe.map(Arc::new), small: None, until });
            }
        }
        self.made.entries().retain(|e| e.until > place);
        Ok(value)
    }

    fn device(&self) -> Option<Device> {
        self.inner.device()
    }
}
