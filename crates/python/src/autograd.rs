//! Running backward, hooks of every kind, and the parts of autograd that take Python functions.
//!
//! The engine runs detached from the interpreter; a hook attaches for as long as it runs. A hook's exception stops the run and
//! comes out of it as the same object.

use crate::convert::{self, tensor_of};
use crate::errors::{Raise, exception_of, passed};
use crate::function::call_state;
use crate::held::{Held, Hook, HookSlot, Hooks};
use crate::identity;
use crate::node::{self, PyNode};
use firebrand::autograd as core;
use firebrand::autograd::{
    BackwardOptions, CheckpointContexts, CheckpointOptions, ContextFn, DeterminismCheck, GradOptions, GradcheckOptions,
    GradientEdge, Node, RemovableHandle, SavedHooks, Target,
};
use firebrand::{Result, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::ffi::CString;
use std::sync::{Arc, Weak};

/// PyTorch's text for a warning that programs are known to look for.
fn worded(text: String) -> String {
    if text.starts_with("the .grad of a non-leaf tensor was accessed") {
        return "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be \
                populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, \
                use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access \
                the leaf Tensor instead."
            .into();
    }
    text
}

/// Shows warnings of core as Python's.
pub(crate) fn warn(py: Python<'_>, warnings: Vec<String>) -> PyResult<()> {
    // The package itself warns of `create_graph`, at every call.
    let shown = |text: &String| !text.starts_with("backward with create_graph makes");
    for text in warnings.into_iter().filter(shown).map(worded) {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    }
    Ok(())
}

/// Runs `f` detached; its warnings become Python's.
pub(crate) fn detached<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let (result, warnings) = py.detach(|| firebrand::collect_warnings(f));
    let warned = warn(py, warnings);
    match (result.raise(), warned) {
        (Ok(value), warned) => warned.map(|()| value),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(warning)) => {
            // What a failed run warned of explains the failure, which is what is raised.
            warning.display(py);
            Err(error)
        }
    }
}

/// Calls Python from core.
pub(crate) fn attached<T>(f: impl for<'py> FnOnce(Python<'py>) -> PyResult<T>) -> Result<T> {
    Python::attach(f).map_err(passed)
}

// ---- handles

/// Removes a hook.
#[pyclass(name = "RemovableHandle", module = "firebrand.utils.hooks", frozen, weakref)]
pub(crate) struct Handle {
    handles: Vec<RemovableHandle>,
    /// The function, if it was registered inside a compiled function: the call has the hook, capture gave the handle.
    captured: Weak<HookSlot>,
}

#[pymethods]
impl Handle {
    fn remove(&self, py: Python<'_>) {
        // Dropping what the hook captured may run anything.
        py.detach(|| self.handles.iter().for_each(RemovableHandle::remove));
        if let Some(hook) = self.captured.upgrade() {
            hook.clear();
        }
    }

    #[getter]
    fn id(&self) -> u64 {
        self.handles.first().map_or(0, RemovableHandle::key)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.remove(py);
    }
}

fn handle(h: RemovableHandle, hook: Weak<HookSlot>) -> Handle {
    let captured = if firebrand::compile::is_compiling() { hook } else { Weak::new() };
    Handle { handles: vec![h], captured }
}

// ---- hooks

fn named(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map(|n| n.to_string()).unwrap_or_default()
}

/// What a hook on one gradient returned.
fn replacement(result: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    if result.is_none() {
        return Ok(None);
    }
    let wrong = || PyTypeError::new_err(format!("expected Variable, but hook returned '{}'", named(result)));
    tensor_of(result).cloned().map(Some).ok_or_else(wrong)
}

/// A list of gradients that Python gave.
pub(crate) fn gradients(list: &[Bound<'_, PyAny>]) -> PyResult<Vec<Option<Tensor>>> {
    let one = |g: &Bound<'_, PyAny>| {
        if g.is_none() {
            return Ok(None);
        }
        let wrong = || PyTypeError::new_err(format!("gradients can be either Tensors or None, but got {}", named(g)));
        tensor_of(g).cloned().map(Some).ok_or_else(wrong)
    };
    list.iter().map(one).collect()
}

/// What a hook on several gradients returned: none, one tensor or a sequence.
fn replacements(result: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Option<Tensor>>>> {
    if result.is_none() {
        return Ok(None);
    }
    match convert::items(result)? {
        Some(list) => gradients(&list).map(Some),
        None => gradients(std::slice::from_ref(result)).map(Some),
    }
}

pub(crate) fn register_tensor_hook(t: &Tensor, hook: &Bound<'_, PyAny>, hooks: &Hooks) -> PyResult<Handle> {
    let held = Hook::new(hook);
    let slot = held.weak();
    hooks.add(&held);
    let run = move |g: Option<&Tensor>| {
        attached(|py| match held.get(py) {
            Some(hook) => replacement(&hook.call1((convert::optional(py, g.cloned())?,))?),
            None => Ok(None),
        })
    };
    t.try_register_hook_any(run).raise().map(|h| handle(h, slot))
}

pub(crate) fn register_post_accumulate_hook(t: &Tensor, hook: &Bound<'_, PyAny>, hooks: &Hooks) -> PyResult<Handle> {
    let held = Hook::new(hook);
    let slot = held.weak();
    hooks.add(&held);
    let run = move |leaf: &Tensor| -> Result<()> {
        attached(|py| {
            let Some(hook) = held.get(py) else { return Ok(()) };
            let result = hook.call1((identity::wrap(py, leaf.clone())?,))?;
            if result.is_none() {
                Ok(())
            } else {
                Err(PyRuntimeError::new_err("Tensor post accumulate grad hooks should return None."))
            }
        })
    };
    t.try_register_post_accumulate_grad_hook(run).raise().map(|h| handle(h, slot))
}

/// Gradients of the results of a node as Python sees them: one per result, none for those that are not tensors.
fn of_results<'py>(
    py: Python<'py>,
    layout: Option<&[bool]>,
    grads: &[Option<Tensor>],
) -> PyResult<Bound<'py, PyTuple>> {
    let Some(layout) = layout else { return convert::tuple(py, grads) };
    let mut rest = grads.iter().cloned();
    let one = |&own: &bool| if own { rest.next().flatten() } else { None };
    let all: Vec<Option<Tensor>> = layout.iter().map(one).collect();
    convert::tuple(py, &all)
}

/// The gradients of tensors among those that Python gave for all results.
fn of_tensors(layout: Option<&[bool]>, grads: Vec<Option<Tensor>>) -> Vec<Option<Tensor>> {
    match layout {
        Some(layout) if layout.len() == grads.len() => {
            grads.into_iter().zip(layout).filter(|(_, own)| **own).map(|(g, _)| g).collect()
        }
        _ => grads,
    }
}

pub(crate) fn register_node_hook(node: &Node, hook: &Bound<'_, PyAny>, hooks: &Hooks) -> Handle {
    let held = Hook::new(hook);
    let slot = held.weak();
    hooks.add(&held);
    let layout = call_state(node).and_then(|s| s.layout().map(<[bool]>::to_vec));
    let registered = node.register_hook(move |outgoing: &[Option<Tensor>], incoming: &[Option<Tensor>]| {
        attached(|py| match held.get(py) {
            Some(hook) => {
                let incoming = of_results(py, layout.as_deref(), incoming)?;
                replacements(&hook.call1((convert::tuple(py, outgoing)?, incoming))?)
            }
            None => Ok(None),
        })
    });
    handle(registered, slot)
}

pub(crate) fn register_node_prehook(node: &Node, hook: &Bound<'_, PyAny>, hooks: &Hooks) -> Handle {
    let held = Hook::new(hook);
    let slot = held.weak();
    hooks.add(&held);
    let layout = call_state(node).and_then(|s| s.layout().map(<[bool]>::to_vec));
    let registered = node.register_prehook(move |incoming: &[Option<Tensor>]| {
        attached(|py| match held.get(py) {
            Some(hook) => {
                let found = replacements(&hook.call1((of_results(py, layout.as_deref(), incoming)?,))?)?;
                Ok(found.map(|grads| of_tensors(layout.as_deref(), grads)))
            }
            None => Ok(None),
        })
    });
    handle(registered, slot)
}

/// Hooks of saved tensors made of two Python functions.
pub(crate) fn saved_hooks(pack: &Bound<'_, PyAny>, unpack: &Bound<'_, PyAny>) -> SavedHooks {
    let (pack, unpack) = (Held::new(pack), Held::new(unpack));
    SavedHooks::new(
        move |t: &Tensor| attached(|py| Ok(Held::new(&pack.get(py).call1((identity::wrap(py, t.clone())?,))?))),
        move |packed: &Held| {
            attached(|py| {
                let result = unpack.get(py).call1((packed.get(py),))?;
                let wrong = || {
                    let text = "Output of saved tensor unpack_hook expected to be a Tensor but got result of type";
                    PyTypeError::new_err(format!("{text} {}", named(&result)))
                };
                tensor_of(&result).cloned().ok_or_else(wrong)
            })
        },
    )
}

/// Calls `hook` once per run: with all gradients that the run computes, or with the first that arrives.
#[pyfunction]
fn register_multi_grad_hook(tensors: &Bound<'_, PyAny>, hook: &Bound<'_, PyAny>, any: bool) -> PyResult<Multi> {
    let tensors = need_tensors(tensors)?;
    let refs: Vec<&Tensor> = tensors.iter().collect();
    let held = Held::new(hook);
    let registered = if any {
        core::register_multi_grad_hook_any(&refs, move |g| {
            attached(|py| held.get(py).call1((identity::wrap(py, g.clone())?,)).map(drop))
        })
    } else {
        core::register_multi_grad_hook(&refs, move |grads| {
            attached(|py| {
                let list = grads.iter().map(|g| convert::optional(py, g.clone())).collect::<PyResult<Vec<_>>>()?;
                held.get(py).call1((PyList::new(py, list)?,)).map(drop)
            })
        })
    };
    registered.raise().map(Multi)
}

/// Removes all hooks of one multi-grad hook.
#[pyclass(module = "firebrand.autograd.graph", frozen)]
struct Multi(core::MultiHandle);

#[pymethods]
impl Multi {
    fn remove(&self, py: Python<'_>) {
        py.detach(|| self.0.remove());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.remove(py);
    }
}

// ---- runs

pub(crate) fn need_tensors(object: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    convert::tensors_of(object)?.ok_or_else(|| PyTypeError::new_err("expected a list or tuple of Tensors"))
}

/// Tensors and gradient edges.
fn targets(object: &Bound<'_, PyAny>) -> PyResult<Vec<Target>> {
    let list = convert::items(object)?.ok_or_else(|| PyTypeError::new_err("expected a list or tuple"))?;
    list.iter().map(target).collect()
}

fn target(item: &Bound<'_, PyAny>) -> PyResult<Target> {
    if let Some(t) = tensor_of(item) {
        return Ok(Target::Tensor(t.clone()));
    }
    let edge = || -> PyResult<GradientEdge> {
        let node = item.getattr("node")?.cast::<PyNode>()?.get().node()?;
        Ok(GradientEdge { node, output_nr: item.getattr("output_nr")?.extract()?, ownership_token: None })
    };
    edge()
        .map(Target::Edge)
        .map_err(|_| PyTypeError::new_err(format!("expected a Tensor or a GradientEdge, found {}", named(item))))
}

/// Accumulates gradients into leaves, or into `inputs`.
#[pyfunction]
fn run_backward(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    grads: &Bound<'_, PyAny>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let tensors = targets(tensors)?;
    let grad_tensors = gradients(&convert::items(grads)?.unwrap_or_default())?;
    let inputs = inputs.map(targets).transpose()?;
    let options = BackwardOptions { grad_tensors, retain_graph, create_graph, inputs };
    detached(py, || core::backward(tensors, &options))
}

/// The gradients of `outputs` with respect to `inputs`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn run_grad<'py>(
    py: Python<'py>,
    outputs: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    grads: &Bound<'py, PyAny>,
    retain_graph: Option<bool>,
    create_graph: bool,
    allow_unused: Option<bool>,
    is_grads_batched: bool,
    materialize_grads: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let (outputs, inputs) = (targets(outputs)?, targets(inputs)?);
    let grad_outputs = gradients(&convert::items(grads)?.unwrap_or_default())?;
    let options =
        GradOptions { grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads, is_grads_batched };
    convert::tuple(py, &detached(py, || core::grad(outputs, inputs, &options))?)
}

/// The node that receives the gradient of a tensor, and at which of its inputs.
#[pyfunction]
fn gradient_edge<'py>(py: Python<'py>, tensor: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, usize)> {
    let t = tensor_of(tensor).ok_or_else(|| PyTypeError::new_err("get_gradient_edge needs a Tensor"))?;
    let edge = core::get_gradient_edge(t).raise()?;
    Ok((node::wrap(py, edge.node)?, edge.output_nr))
}

/// Calls `f` at the end of the run that is under way.
#[pyfunction]
fn queue_callback(f: &Bound<'_, PyAny>) -> PyResult<()> {
    let held = Held::new(f);
    core::queue_callback(move || attached(|py| held.get(py).call0().map(drop))).raise()
}

/// The values as outputs of a node that fails with this text; `sources` are its inputs.
#[pyfunction]
fn delayed_error<'py>(
    py: Python<'py>,
    message: &str,
    values: Vec<Bound<'py, PyAny>>,
    sources: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    convert::tuple(py, &core::delayed_error(message, &gradients(&values)?, &gradients(&sources)?).raise()?)
}

/// The Python stack, for anomaly mode.
fn python_stack() -> Option<String> {
    Python::try_attach(|py| -> PyResult<String> {
        let lines: Vec<String> = py.import("traceback")?.call_method0("format_stack")?.extract()?;
        Ok(lines.concat())
    })
    .and_then(PyResult::ok)
}

#[pyfunction]
fn current_graph_task_id() -> i64 {
    core::current_graph_task_id()
}

#[pyfunction]
fn current_node(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    core::current_node().map(|n| node::wrap(py, n)).transpose()
}

#[pyfunction]
fn will_engine_execute_node(node: &Bound<'_, PyAny>) -> PyResult<bool> {
    let wrong =
        |_| PyRuntimeError::new_err(format!("will_engine_execute_node expects an grad_fn, but got {}", named(node)));
    core::will_engine_execute_node(&node.cast::<PyNode>().map_err(wrong)?.get().node()?).raise()
}

/// Whether the run that is under way keeps its graph.
#[pyfunction]
fn current_graph_task_keep_graph() -> bool {
    core::current_graph_task_keep_graph()
}

/// The nodes of the run that is under way, in the order in which they execute.
#[pyfunction]
fn current_graph_task_execution_order(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    if core::is_multithreading_enabled() && core::current_graph_task_id() >= 0 {
        let text = "current_graph_task_execution_order expects the current backward to be executed with multithreading disabled, e.g. \
                    by running: with firebrand.autograd.set_multithreading_enabled(False)";
        return Err(PyRuntimeError::new_err(text));
    }
    let nodes = core::current_graph_task_execution_order().raise()?;
    nodes.into_iter().map(|n| node::wrap(py, n)).collect()
}

/// Sets versions, which autograd trusts from then on.
#[pyfunction(name = "unsafe_set_version_counter")]
fn set_version_counter(tensors: &Bound<'_, PyAny>, versions: &Bound<'_, PyAny>) -> PyResult<()> {
    let (tensors, versions): (Vec<Tensor>, Vec<i64>) = match tensor_of(tensors) {
        Some(one) => (vec![one.clone()], vec![versions.extract()?]),
        None => (need_tensors(tensors)?, versions.extract()?),
    };
    let wrong = |v: i64| PyRuntimeError::new_err(format!("Cannot set a version counter to {v}"));
    let versions =
        versions.into_iter().map(|v| u32::try_from(v).map_err(|_| wrong(v))).collect::<PyResult<Vec<_>>>()?;
    core::unsafe_set_version_counter(&tensors.iter().collect::<Vec<_>>(), &versions).raise()
}

/// Counts a write that was made by other means.
#[pyfunction]
fn increment_version(tensors: &Bound<'_, PyAny>) -> PyResult<()> {
    let tensors = need_tensors(tensors)?;
    core::increment_version(&tensors.iter().collect::<Vec<_>>());
    Ok(())
}

// ---- functions of tensors

/// Calls a Python function of a list of tensors that returns one.
pub(crate) fn call_flat(f: &Held, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    attached(|py| {
        let list = convert::list(py, inputs.iter().cloned())?;
        need_tensors(&f.get(py).call1((list,))?)
    })
}

/// Two of Python's context managers around the runs of a checkpoint.
#[derive(Clone)]
struct PyContexts {
    forward: Arc<Held>,
    recompute: Arc<Held>,
}

fn within(manager: &Held, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    attached(|py| manager.get(py).call_method0("__enter__").map(drop))?;
    let found = run();
    attached(|py| {
        let none = || py.None().into_bound(py);
        let details = match &found {
            Ok(()) => (none(), none(), none()),
            Err(e) => {
                let error = exception_of(e);
                let trace = error.traceback(py).map_or_else(none, Bound::into_any);
                (error.get_type(py).into_any(), error.value(py).as_any().clone(), trace)
            }
        };
        manager.get(py).call_method1("__exit__", details).map(drop)
    })?;
    found
}

impl CheckpointContexts for PyContexts {
    fn forward(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        within(&self.forward, run)
    }

    fn recompute(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        within(&self.recompute, run)
    }
}

/// Runs a function of tensors without saving what its backward needs.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn run_checkpoint<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    use_reentrant: Option<bool>,
    preserve_rng_state: bool,
    determinism_check: bool,
    early_stop: Option<bool>,
    contexts: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    debug: bool,
) -> PyResult<Bound<'py, PyList>> {
    let (held, inputs) = (Held::new(f), need_tensors(inputs)?);
    let determinism_check = if determinism_check { DeterminismCheck::Default } else { DeterminismCheck::None };
    let context_fn = contexts.map(|(forward, recompute)| {
        let held = |manager: &Bound<'py, PyAny>| Arc::new(Held::new(manager));
        let both = PyContexts { forward: held(&forward), recompute: held(&recompute) };
        ContextFn::new(move || both.clone())
    });
    let options = CheckpointOptions {
        use_reentrant,
        preserve_rng_state,
        determinism_check,
        early_stop: early_stop.unwrap_or(true),
        context_fn,
        debug,
    };
    let run =
        move || core::checkpoint(move |t: &[Tensor]| call_flat(&held, t), &inputs.iter().collect::<Vec<_>>(), &options);
    convert::list(py, detached(py, run)?)
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn run_gradcheck(
    py: Python<'_>,
    f: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    grad_outputs: Option<&Bound<'_, PyAny>>,
    second: bool,
    eps: f64,
    atol: f64,
    rtol: f64,
    raise_exception: bool,
    nondet_tol: f64,
    flags: [bool; 7],
) -> PyResult<bool> {
    let (held, inputs) = (Held::new(f), need_tensors(inputs)?);
    let seeds = grad_outputs.map(need_tensors).transpose()?;
    let [
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_forward_ad,
        check_backward_ad,
        fast_mode,
        check_batched_forward_grad,
    ] = flags;
    let options = GradcheckOptions {
        eps,
        atol,
        rtol,
        raise_exception,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_forward_ad,
        check_backward_ad,
        fast_mode,
        check_batched_forward_grad,
    };
    detached(py, || {
        let f = |t: &[Tensor]| call_flat(&held, t);
        if second {
            core::gradgradcheck(f, &inputs, seeds.as_deref(), &options)
        } else {
            core::gradcheck(f, &inputs, &options)
        }
    })
}

// ---- forward mode

#[pyfunction]
fn enter_dual_level() -> PyResult<u32> {
    core::enter_dual_level().raise()
}

#[pyfunction]
#[pyo3(signature = (level=None))]
fn exit_dual_level(level: Option<u32>) -> PyResult<()> {
    core::exit_dual_level(level).raise()
}

#[pyfunction]
fn make_dual<'py>(
    py: Python<'py>,
    primal: &Bound<'py, PyAny>,
    tangent: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let need =
        |o: &Bound<'py, PyAny>| tensor_of(o).cloned().ok_or_else(|| PyTypeError::new_err("make_dual needs Tensors"));
    let (primal, tangent) = (need(primal)?, need(tangent)?);
    convert::optional(py, Some(py.detach(|| core::make_dual(&primal, &tangent)).raise()?))
}

#[pyfunction]
fn unpack_dual<'py>(py: Python<'py>, tensor: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let t = tensor_of(tensor).ok_or_else(|| PyTypeError::new_err("unpack_dual needs a Tensor"))?.clone();
    let (primal, tangent) = py.detach(|| core::unpack_dual(&t)).raise()?;
    Ok((convert::optional(py, Some(primal))?, convert::optional(py, tangent)?))
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    core::set_trace_provider(python_stack);
    m.add_function(wrap_pyfunction!(delayed_error, m)?)?;
    m.add_class::<Multi>()?;
    m.add_function(wrap_pyfunction!(register_multi_grad_hook, m)?)?;
    m.add_function(wrap_pyfunction!(run_backward, m)?)?;
    m.add_function(wrap_pyfunction!(run_grad, m)?)?;
    m.add_function(wrap_pyfunction!(gradient_edge, m)?)?;
    m.add_function(wrap_pyfunction!(queue_callback, m)?)?;
    m.add_function(wrap_pyfunction!(current_graph_task_id, m)?)?;
    m.add_function(wrap_pyfunction!(current_node, m)?)?;
    m.add_function(wrap_pyfunction!(will_engine_execute_node, m)?)?;
    m.add_function(wrap_pyfunction!(increment_version, m)?)?;
    m.add_function(wrap_pyfunction!(current_graph_task_keep_graph, m)?)?;
    m.add_function(wrap_pyfunction!(current_graph_task_execution_order, m)?)?;
    m.add_function(wrap_pyfunction!(set_version_counter, m)?)?;
    m.add_function(wrap_pyfunction!(run_checkpoint, m)?)?;
    m.add_function(wrap_pyfunction!(run_gradcheck, m)?)?;
    m.add_function(wrap_pyfunction!(enter_dual_level, m)?)?;
    m.add_function(wrap_pyfunction!(exit_dual_level, m)?)?;
    m.add_function(wrap_pyfunction!(make_dual, m)?)?;
    m.add_function(wrap_pyfunction!(unpack_dual, m)?)
}
