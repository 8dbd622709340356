//! Custom functions written in Python: `autograd.Function` with its `ctx`.
//!
//! Core's functions take and give tensors; Python's take and give anything. The other arguments and results are kept here and put
//! back in their places. A context belongs to one call at one level of transforms, so a new `ctx` object is made for each and kept in
//! core's context; it becomes the object of the node (`node`), which refers to the node weakly because the node owns it.

use crate::autograd::{self, attached};
use crate::convert::{self, tensor_of};
use crate::errors::Raise;
use crate::held::Held;
use crate::identity;
use crate::node::{self, PyNode};
use firebrand::autograd::{BatchedOutputs, Context, Function, Node, VmapInfo, apply_function};
use firebrand::func::Randomness;
use firebrand::{Result, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::sync::{Arc, Mutex, OnceLock};

/// The `ctx` of one call.
pub(crate) struct CallState {
    ctx: Held,
    /// Which results are tensors, if not all of them are.
    layout: OnceLock<Vec<bool>>,
}

impl CallState {
    pub(crate) fn ctx<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.ctx.get(py)
    }

    /// The context, for the collector.
    pub(crate) fn held(&self) -> Option<&Py<PyAny>> {
        self.ctx.object()
    }

    /// Which results are tensors, if not all of them are: hooks on the node see a gradient for each result.
    pub(crate) fn layout(&self) -> Option<&[bool]> {
        self.layout.get().map(Vec::as_slice)
    }
}

/// The call that a node was recorded by.
pub(crate) fn call_state(node: &Node) -> Option<&CallState> {
    node.context().and_then(|c| c.state()).and_then(|s| s.downcast_ref::<CallState>())
}

/// One argument or result: the number of a tensor, or something else.
#[derive(Clone)]
enum Item {
    Tensor(usize),
    Other(Arc<Held>),
    /// Something else that is no longer needed.
    Gone,
}

fn sort(objects: &[Bound<'_, PyAny>]) -> (Vec<Item>, Vec<Tensor>) {
    let mut tensors = Vec::new();
    let item = |o: &Bound<'_, PyAny>| match tensor_of(o) {
        Some(t) => {
            tensors.push(t.clone());
            Item::Tensor(tensors.len() - 1)
        }
        None => Item::Other(Arc::new(Held::new(o))),
    };
    (objects.iter().map(item).collect(), tensors)
}

/// What `forward` returned, but for the tensors.
#[derive(Clone)]
struct Shape {
    items: Vec<Item>,
    is_tuple: bool,
}

impl Shape {
    /// The result with these tensors in it.
    fn filled<'py>(&self, py: Python<'py>, tensors: &[Tensor]) -> PyResult<Bound<'py, PyAny>> {
        let mut objects = fill(py, &self.items, tensors)?;
        Ok(if self.is_tuple { PyTuple::new(py, objects)?.into_any() } else { objects.swap_remove(0) })
    }
}

fn fill<'py>(py: Python<'py>, items: &[Item], tensors: &[Tensor]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let one = |i: &Item| match i {
        Item::Tensor(k) => Ok(identity::wrap(py, tensors[*k].clone())?.into_any()),
        Item::Other(o) => Ok(o.get(py)),
        Item::Gone => Ok(py.None().into_bound(py)),
    };
    items.iter().map(one).collect()
}

/// One value per item: those of tensors from the list, none for the others.
fn spread<'py>(py: Python<'py>, items: &[Item], tensors: &[Option<Tensor>]) -> PyResult<Bound<'py, PyTuple>> {
    let one = |i: &Item| match i {
        Item::Tensor(k) => convert::optional(py, tensors.get(*k).cloned().flatten()),
        Item::Other(_) | Item::Gone => Ok(py.None().into_bound(py)),
    };
    PyTuple::new(py, items.iter().map(one).collect::<PyResult<Vec<_>>>()?)
}

/// What a Python class says of itself.
struct Traits {
    setup_context: bool,
    generate_vmap_rule: bool,
}

struct PyFunction {
    class: Held,
    ctx_class: Held,
    name: String,
    traits: Traits,
    /// What it was called with. Once it has run, only what is a tensor matters: the rest would be kept alive unseen.
    args: Mutex<Arc<Vec<Item>>>,
    /// Which tensors among the arguments can have tangents.
    smooth: Vec<bool>,
    shape: Mutex<Option<Shape>>,
    /// Outputs without gradients whose place in `backward` is none, not zeros.
    bare: Mutex<Vec<usize>>,
}

/// Prepends an object to arguments.
fn with_first<'py>(first: &Bound<'py, PyAny>, rest: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(first.py(), std::iter::once(first.clone()).chain(rest).collect::<Vec<_>>())
}

impl PyFunction {
    fn new_ctx<'py>(&self, py: Python<'py>, ctx: &Context) -> PyResult<Bound<'py, PyAny>> {
        let class = self.ctx_class.get(py);
        let object = py.get_type::<PyNode>().call_method1("__new__", (class,))?;
        PyNode::placed(&object)?;
        let needs = ctx.needs_input_grad();
        let need = |i: &Item| matches!(i, Item::Tensor(k) if needs.get(*k).copied().unwrap_or(false));
        object.setattr("needs_input_grad", PyTuple::new(py, self.args().iter().map(need))?)?;
        Ok(object)
    }

    fn args(&self) -> Arc<Vec<Item>> {
        self.args.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Lets go of what is not a tensor among arguments and results.
    fn forget_others(&self) {
        let kind = |i: &Item| if let Item::Tensor(k) = i { Item::Tensor(*k) } else { Item::Gone };
        let bare = Arc::new(self.args().iter().map(kind).collect());
        let args = std::mem::replace(&mut *self.args.lock().unwrap_or_else(|e| e.into_inner()), bare);
        drop(args);
        let mut shape = self.shape.lock().unwrap_or_else(|e| e.into_inner());
        let bare = shape.as_ref().map(|s| Shape { items: s.items.iter().map(kind).collect(), is_tuple: s.is_tuple });
        let before = std::mem::replace(&mut *shape, bare);
        drop(shape);
        drop(before);
    }

    /// Remembers outputs without gradients, if `ctx` does not want zeros for them.
    fn note_bare(&self, object: &Bound<'_, PyAny>, outputs: &[Tensor]) -> PyResult<()> {
        if object.getattr("_materialize_non_diff_grads")?.is_truthy()? {
            return Ok(());
        }
        let marked: Vec<Tensor> =
            listed(object, "non_differentiable")?.unwrap_or_default().into_iter().flatten().collect();
        let is_marked = |t: &Tensor| marked.iter().any(|m| m.id() == t.id());
        let bare = (0..outputs.len()).filter(|&k| is_marked(&outputs[k])).collect();
        *self.bare.lock().unwrap_or_else(|e| e.into_inner()) = bare;
        Ok(())
    }

    fn shape(&self) -> PyResult<Shape> {
        let shape = self.shape.lock().unwrap_or_else(|e| e.into_inner()).clone();
        shape.ok_or_else(|| PyRuntimeError::new_err("forward has not run"))
    }

    /// Remembers what is not a tensor in a result, and gives the tensors.
    fn keep(&self, result: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
        let (objects, is_tuple) = match result.cast::<PyTuple>() {
            Ok(all) => (all.iter().collect(), true),
            Err(_) => (vec![result.clone()], false),
        };
        let (items, tensors) = sort(&objects);
        let before = self.shape.lock().unwrap_or_else(|e| e.into_inner()).replace(Shape { items, is_tuple });
        drop(before);
        Ok(tensors)
    }

    fn ctx_of<'py>(&self, py: Python<'py>, ctx: &Context) -> PyResult<Bound<'py, PyAny>> {
        let state = ctx.state().and_then(|s| s.downcast_ref::<CallState>());
        let object = state.map(|s| s.ctx(py)).ok_or_else(|| PyRuntimeError::new_err("the call has no context"))?;
        match ctx.node() {
            Some(node) => {
                if let Ok(own) = object.cast::<PyNode>() {
                    own.get().refer_to(&node);
                }
            }
            // Without a node of its own (before it is recorded, under a generated batching rule) the tensors are at hand.
            None => object.setattr("_at_hand", convert::tuple(py, &ctx.saved_tensors().raise()?)?)?,
        }
        Ok(object)
    }

    /// Values that belong to arguments, without those of arguments that are not tensors, which must be none.
    fn of_arguments(&self, what: &str, found: Bound<'_, PyAny>) -> PyResult<Vec<Option<Tensor>>> {
        let mut found: Vec<Bound<'_, PyAny>> = match found.cast::<PyTuple>() {
            Ok(all) => all.iter().collect(),
            Err(_) => vec![found],
        };
        let args = self.args();
        let expected = args.len();
        while found.len() > expected && found.last().is_some_and(|g| g.is_none()) {
            found.pop();
        }
        if found.len() != expected {
            let text = format!(
                "function {what} returned an incorrect number of gradients (expected {expected}, got {})",
                found.len()
            );
            return Err(PyRuntimeError::new_err(text));
        }
        let mut kept = Vec::new();
        for (k, (item, value)) in args.iter().zip(&found).enumerate() {
            match item {
                Item::Tensor(_) => kept.push(value),
                Item::Other(_) | Item::Gone if value.is_none() => {}
                Item::Other(_) | Item::Gone => {
                    let text = format!(
                        "function {what} returned a gradient different from None at position {}, but the corresponding forward \
                         input was not a Variable",
                        k + 1
                    );
                    return Err(PyRuntimeError::new_err(text));
                }
            }
        }
        kept.into_iter().map(tensor_or_none).collect()
    }
}

fn tensor_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if value.is_none() {
        return Ok(None);
    }
    let wrong = || {
        let found = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        PyRuntimeError::new_err(format!("expected Variable or None (got {found})"))
    };
    tensor_of(value).cloned().map(Some).ok_or_else(wrong)
}

/// The tensors under a name of `ctx`.
fn listed(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Vec<Option<Tensor>>>> {
    let value = object.getattr(name)?;
    if value.is_none() {
        return Ok(None);
    }
    let list = convert::items(&value)?.unwrap_or_default();
    let one = |(k, v): (usize, &Bound<'_, PyAny>)| {
        tensor_or_none(v).map_err(|_| {
            let text =
                format!("save_for_backward can only save variables, but argument {k} is of type {}", v.get_type());
            PyTypeError::new_err(text)
        })
    };
    list.iter().enumerate().map(one).collect::<PyResult<Vec<_>>>().map(Some)
}

/// Tells core what Python's context was told.
fn transfer(object: &Bound<'_, PyAny>, ctx: &mut Context) -> PyResult<()> {
    let refs = |list: &[Option<Tensor>]| -> Vec<Tensor> { list.iter().flatten().cloned().collect() };
    if let Some(list) = listed(object, "to_save")? {
        ctx.save_for_backward(&list.iter().map(Option::as_ref).collect::<Vec<_>>());
    }
    if let Some(list) = listed(object, "saved_for_forward")? {
        ctx.save_for_forward(&list.iter().map(Option::as_ref).collect::<Vec<_>>());
    }
    if let Some(list) = listed(object, "dirty_tensors")? {
        ctx.mark_dirty(&refs(&list).iter().collect::<Vec<_>>());
    }
    if let Some(list) = listed(object, "non_differentiable")? {
        ctx.mark_non_differentiable(&refs(&list).iter().collect::<Vec<_>>());
    }
    ctx.set_materialize_grads(object.getattr("materialize_grads")?.is_truthy()?);
    // Core keeps them now; kept here, an output would own its node through its context.
    for name in ["to_save", "dirty_tensors", "non_differentiable"] {
        object.setattr(name, object.py().None())?;
    }
    ctx.set_state(Arc::new(CallState { ctx: Held::new(object), layout: OnceLock::new() }));
    Ok(())
}

impl Function for PyFunction {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        attached(|py| {
            let args = fill(py, &self.args(), inputs)?;
            let class = self.class.get(py);
            if self.traits.setup_context {
                return self.keep(&class.call_method1("forward", PyTuple::new(py, args)?)?);
            }
            let object = self.new_ctx(py, ctx)?;
            let tensors = self.keep(&class.call_method1("forward", with_first(&object, args)?)?)?;
            self.note_bare(&object, &tensors)?;
            transfer(&object, ctx)?;
            Ok(tensors)
        })
    }

    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        attached(|py| {
            let object = self.new_ctx(py, ctx)?;
            let args = PyTuple::new(py, fill(py, &self.args(), inputs)?)?;
            let result = self.shape()?.filled(py, outputs)?;
            self.class.get(py).call_method1("setup_context", (&object, args, result))?;
            self.note_bare(&object, outputs)?;
            transfer(&object, ctx)
        })
    }

    fn has_setup_context(&self) -> bool {
        self.traits.setup_context
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        attached(|py| {
            let object = self.ctx_of(py, ctx)?;
            let mut grads = grads.to_vec();
            for &k in self.bare.lock().unwrap_or_else(|e| e.into_inner()).iter() {
                if let Some(grad) = grads.get_mut(k) {
                    *grad = None;
                }
            }
            let grads = spread(py, &self.shape()?.items, &grads)?;
            let found = self.class.get(py).call_method1("backward", with_first(&object, grads.iter().collect())?);
            object.setattr("_at_hand", py.None())?;
            let found = found?;
            self.of_arguments(&format!("{}Backward", self.name), found)
        })
    }

    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        attached(|py| {
            let object = self.ctx_of(py, ctx)?;
            object.setattr("_in_jvp", true)?;
            let smooth =
                |(k, t): (usize, &Option<Tensor>)| t.clone().filter(|_| self.smooth.get(k).copied().unwrap_or(true));
            let tangents: Vec<Option<Tensor>> = tangents.iter().enumerate().map(smooth).collect();
            let tangents = spread(py, &self.args(), &tangents)?;
            let found = self.class.get(py).call_method1("jvp", with_first(&object, tangents.iter().collect())?);
            object.setattr("_in_jvp", false)?;
            object.setattr("_at_hand", py.None())?;
            let found = found?;
            let all: Vec<Bound<'_, PyAny>> = match found.cast::<PyTuple>() {
                Ok(all) => all.iter().collect(),
                Err(_) => vec![found],
            };
            let shape = self.shape()?;
            let of_tensor = |k: usize| matches!(shape.items.get(k), Some(Item::Tensor(_)) | None);
            all.iter().enumerate().filter(|(k, _)| of_tensor(*k)).map(|(_, v)| tensor_or_none(v)).collect()
        })
    }

    fn vmap(&self, info: VmapInfo, in_dims: &[Option<usize>], inputs: &[Tensor]) -> Result<Option<BatchedOutputs>> {
        attached(|py| {
            let class = self.class.get(py);
            let randomness = match info.randomness {
                Randomness::Error => "error",
                Randomness::Same => "same",
                Randomness::Different => "different",
            };
            let info =
                py.import("firebrand.autograd.function")?.getattr("VmapInfo")?.call1((info.batch_size, randomness))?;
            let dim = |i: &Item| match i {
                Item::Tensor(k) => in_dims.get(*k).copied().flatten(),
                Item::Other(_) | Item::Gone => None,
            };
            let dims = PyTuple::new(py, self.args().iter().map(dim).collect::<Vec<_>>())?;
            let mut args = vec![info, dims.into_any()];
            args.extend(fill(py, &self.args(), inputs)?);
            let found = class.call_method1("vmap", PyTuple::new(py, args)?)?;
            let Ok((outputs, out_dims)) = found.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
                let text = format!(
                    "Expected the vmap staticmethod of {} to have two returns, an output and out_dims with pytree structure compatible \
                     with the output.",
                    self.name
                );
                return Err(PyRuntimeError::new_err(text));
            };
            let alike = match (convert::items(&outputs)?, convert::items(&out_dims)?) {
                (None, Some(_)) => false,
                (Some(_), Some(_)) => outputs.is_instance_of::<PyTuple>() == out_dims.is_instance_of::<PyTuple>(),
                _ => true,
            };
            if !alike {
                let text = format!(
                    "The vmap staticmethod of {} returned an incompatible (output, out_dims) pair: out_dims should have the structure \
                     of the output.",
                    self.name
                );
                return Err(PyRuntimeError::new_err(text));
            }
            let tensors = self.keep(&outputs)?;
            let dims = match convert::items(&out_dims)? {
                Some(list) => list.iter().map(|d| d.extract::<Option<usize>>()).collect::<PyResult<Vec<_>>>()?,
                None => vec![out_dims.extract::<Option<usize>>()?; tensors.len()],
            };
            if dims.len() != tensors.len() {
                let text = format!(
                    "The vmap staticmethod of {} returned an incompatible (out_dims, output) pair: {} dims for {} outputs.",
                    self.name,
                    dims.len(),
                    tensors.len()
                );
                return Err(PyRuntimeError::new_err(text));
            }
            Ok(Some((tensors, dims)))
        })
    }

    fn generate_vmap_rule(&self) -> bool {
        self.traits.generate_vmap_rule
    }
}

/// Applies a custom function and records it.
#[pyfunction]
fn apply<'py>(
    class: &Bound<'py, PyType>,
    ctx_class: &Bound<'py, PyType>,
    args: &Bound<'py, PyTuple>,
    setup_context: bool,
    generate_vmap_rule: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let (items, inputs) = sort(&args.iter().collect::<Vec<_>>());
    let function = Arc::new(PyFunction {
        class: Held::new(class),
        ctx_class: Held::new(ctx_class),
        name: class.name()?.to_string(),
        traits: Traits { setup_context, generate_vmap_rule },
        args: Mutex::new(Arc::new(items)),
        smooth: inputs.iter().map(|t| t.dtype().is_differentiable()).collect(),
        shape: Mutex::new(None),
        bare: Mutex::default(),
    });
    let running = function.clone();
    let outputs = autograd::detached(py, move || apply_function(running, inputs))?;
    let shape = function.shape()?;
    let layout: Vec<bool> = shape.items.iter().map(|i| matches!(i, Item::Tensor(_))).collect();
    for out in &outputs {
        // The context learns which node is its own.
        if let Some(edge) = out.try_grad_fn_edge().raise()?
            && let Some(state) = call_state(&edge.node)
        {
            if layout.contains(&false) {
                // Set already by an earlier output of the same call.
                let _ = state.layout.set(layout.clone());
            }
            node::wrap(py, edge.node)?;
        }
    }
    let found = shape.filled(py, &outputs);
    function.forget_others();
    found
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(apply, m)?)
}
