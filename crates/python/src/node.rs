//! Nodes as Python objects: one per node, of a class named after the node, all of them `autograd.graph.Node`.
//!
//! The object of a recorded op owns its node. That of a custom function is its `ctx`: the node owns it, so it refers to
//! the node weakly, and what asks for the graph after the node is gone is refused.

use crate::autograd::{self, Handle};
use crate::convert;
use crate::errors::Raise;
use crate::function::call_state;
use crate::held::{Held, Hooks};
use crate::identity::Registry;
use firebrand::ErrorKind;
use firebrand::autograd::{Node, SavedValue, WeakNode};
use firebrand_core as core;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

enum Link {
    /// Of a custom function that has not run yet, or was not recorded.
    None,
    Owned(Node),
    Weak(WeakNode),
}

/// A recorded operation.
#[pyclass(name = "Node", module = "firebrand.autograd.graph", frozen, dict, weakref, subclass)]
pub(crate) struct PyNode {
    link: Mutex<Link>,
    object: AtomicPtr<ffi::PyObject>,
}

/// Where a node keeps what Python's collector has to know of its hooks.
const HOOKS: &str = "python hooks";
/// Where a node keeps the dictionary that Python sees.
const METADATA: &str = "python";

/// The Python functions that hang on a node, whoever registered them.
pub(crate) fn hooks(node: &Node) -> Arc<Hooks> {
    if let Some(known) = known_hooks(node) {
        return known;
    }
    let made = Arc::new(Hooks::default());
    drop(node.insert_metadata(HOOKS, made.clone()));
    made
}

fn known_hooks(node: &Node) -> Option<Arc<Hooks>> {
    node.metadata().get(HOOKS).cloned().and_then(|m| m.downcast::<Hooks>().ok())
}

/// Shows the collector what a node owns: hooks, its dictionary, and the context of a custom function.
pub(crate) fn traverse(node: &Node, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    if let Some(hooks) = known_hooks(node) {
        hooks.traverse(visit)?;
    }
    if let Some(held) = node.metadata().get(METADATA).and_then(|m| m.downcast_ref::<Held>()) {
        visit.call(held.object())?;
    }
    traverse_context(node, visit)
}

/// Cuts the hooks of a node off.
pub(crate) fn clear(node: &Node) {
    if let Some(hooks) = known_hooks(node) {
        hooks.clear();
    }
}

/// Shows the collector the context of a custom function, which its node owns.
fn traverse_context(node: &Node, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    match call_state(node) {
        Some(state) => visit.call(state.held()),
        None => Ok(()),
    }
}

static NODES: Registry = Registry::new();

thread_local! {
    static PENDING: RefCell<Option<Node>> = const { RefCell::new(None) };
}

impl Drop for PyNode {
    fn drop(&mut self) {
        let object = self.object.load(Relaxed);
        if let (false, Link::Owned(node)) = (object.is_null(), &*self.link()) {
            NODES.remove(node.id(), object);
        }
        // The collector must not look in here any more.
        self.object.store(std::ptr::null_mut(), Relaxed);
    }
}

/// A tensor that a node saved, as it keeps it: for hooks.
#[pyclass(module = "firebrand.autograd", frozen)]
pub(crate) struct SavedTensor {
    node: WeakNode,
    name: String,
    empty: bool,
}

#[pymethods]
impl SavedTensor {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn make(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<SavedTensor> {
        Err(PyRuntimeError::new_err(
            "Trying to create a SavedTensor object from Python is forbidden, unless you are a node",
        ))
    }

    /// Packs the tensor now, and unpacks it whenever it is read.
    #[pyo3(signature = (*hooks))]
    fn register_hooks(&self, hooks: &Bound<'_, PyTuple>) -> PyResult<()> {
        let text = "register_hooks(): incompatible function arguments; expected two functions, which pack and unpack the tensor";
        let (pack, unpack) = match hooks.len() {
            2 => (&hooks.get_item(0)?, &hooks.get_item(1)?),
            _ => return Err(PyTypeError::new_err(text)),
        };
        if !pack.is_callable() || !unpack.is_callable() {
            return Err(PyTypeError::new_err(text));
        }
        if self.empty {
            return Err(PyRuntimeError::new_err("None is forbidden: there is no saved tensor to set hooks on"));
        }
        let gone = || PyRuntimeError::new_err("the node of this saved tensor is gone");
        let (node, hooks) = (self.node.upgrade().ok_or_else(gone)?, autograd::saved_hooks(pack, unpack));
        pack.py().detach(|| node.register_saved_hooks(&self.name, hooks)).map_err(|e| match e.kind() {
            ErrorKind::GraphFreed { .. } | ErrorKind::SavedHooksAfterFree => {
                PyRuntimeError::new_err("Calling register_hooks on a saved tensor after it has been freed.")
            }
            _ => crate::errors::exception(e),
        })
    }
}

/// The object of a node.
pub(crate) fn wrap(py: Python<'_>, node: Node) -> PyResult<Bound<'_, PyAny>> {
    // The object of a custom function is its context.
    if let Some(state) = call_state(&node) {
        let ctx = state.ctx(py);
        if let Ok(own) = ctx.cast::<PyNode>() {
            own.get().refer_to(&node);
            return Ok(ctx);
        }
    }
    if let Some(object) = NODES.get(py, node.id()) {
        return Ok(object);
    }
    let class = class_named(py, node.name())?;
    let id = node.id();
    PENDING.with_borrow_mut(|slot| *slot = Some(node));
    let made = py.get_type::<PyNode>().call_method1("__new__", (class,));
    drop(PENDING.with_borrow_mut(Option::take));
    let made = made?;
    made.cast::<PyNode>()?.get().object.store(made.as_ptr(), Relaxed);
    NODES.put(id, &made);
    Ok(made)
}

/// The class of nodes of this name.
#[pyfunction]
pub(crate) fn node_class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    class_named(py, name)
}

/// The class of nodes of this name.
fn class_named<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let classes = CLASSES.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let short = name.rsplit("::").next().unwrap_or(name);
    if let Some(class) = classes.get_item(short)? {
        return Ok(class);
    }
    let content = PyDict::new(py);
    content.set_item("__module__", "firebrand.autograd")?;
    let class = py.get_type::<PyType>().call1((short, (py.get_type::<PyNode>(),), content))?;
    classes.set_item(short, &class)?;
    Ok(class)
}

impl PyNode {
    fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The node, if it is alive.
    pub(crate) fn alive(&self) -> Option<Node> {
        match &*self.link() {
            Link::None => None,
            Link::Owned(node) => Some(node.clone()),
            Link::Weak(node) => node.upgrade(),
        }
    }

    /// The node.
    pub(crate) fn node(&self) -> PyResult<Node> {
        self.alive().ok_or_else(|| {
            PyRuntimeError::new_err(
                "Attribute is invalid for this instance of a custom function's context: it was not recorded, or its graph is gone",
            )
        })
    }

    /// Tells a context which object it is.
    pub(crate) fn placed(this: &Bound<'_, PyAny>) -> PyResult<()> {
        this.cast::<PyNode>()?.get().object.store(this.as_ptr(), Relaxed);
        Ok(())
    }

    /// The node, if nothing but this object reaches it.
    fn sole(&self) -> Option<Node> {
        match &*self.link() {
            Link::Owned(node) if node.owners() == 1 => Some(node.clone()),
            _ => None,
        }
    }

    /// Makes a context refer to its node.
    pub(crate) fn refer_to(&self, node: &Node) {
        let mut link = self.link();
        if matches!(*link, Link::None) {
            *link = Link::Weak(node.downgrade());
        }
    }
}

#[pymethods]
impl PyNode {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn make(
        cls: &Bound<'_, PyType>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyNode> {
        let link = match PENDING.with_borrow_mut(Option::take) {
            Some(node) => Link::Owned(node),
            None if cls.is(cls.py().get_type::<PyNode>()) => {
                return Err(PyTypeError::new_err("nodes are made by recorded operations only"));
            }
            None => Link::None,
        };
        Ok(PyNode { link: Mutex::new(link), object: AtomicPtr::new(std::ptr::null_mut()) })
    }

    /// Hooks that only this object reaches. The class visits its attributes.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Null before the object is complete and once it is being torn down.
        if self.object.load(Relaxed).is_null() {
            return Ok(());
        }
        match self.sole() {
            Some(node) => traverse(&node, &visit),
            None => Ok(()),
        }
    }

    fn __clear__(slf: &Bound<'_, PyNode>) {
        if let Some(node) = slf.get().sole() {
            clear(&node);
        }
        if let Ok(attributes) = slf.getattr("__dict__")
            && let Ok(attributes) = attributes.cast::<PyDict>()
        {
            attributes.clear();
        }
    }

    fn name(&self) -> PyResult<String> {
        Ok(self.node()?.name().to_string())
    }

    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let one = |e: &Option<core::autograd::Edge>| match e {
            Some(e) => (wrap(py, e.node.clone())?, e.slot).into_pyobject(py),
            None => (py.None().into_bound(py), 0u32).into_pyobject(py),
        };
        let edges = self.node()?.next_functions().iter().map(one).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, edges)
    }

    /// The dictionary that lives with the node.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node()?;
        if let Some(held) = node.metadata().get(METADATA).and_then(|m| m.downcast_ref::<Held>()) {
            return Ok(held.get(py));
        }
        let dict = PyDict::new(py).into_any();
        drop(node.insert_metadata(METADATA, Arc::new(Held::new(&dict))));
        Ok(dict)
    }

    /// Shape, dtype and device of each gradient that arrives.
    #[getter]
    fn _input_metadata<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let kind = py.import("firebrand.autograd.graph")?.getattr("InputMetadata")?;
        let one = |m: &core::autograd::InputMetadata| {
            kind.call1((convert::size(py, &m.shape)?, convert::dtype(py, m.dtype)?, convert::PyDevice(m.device)))
        };
        self.node()?.input_metadata().iter().map(one).collect()
    }

    #[getter]
    fn variable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.node()?.variable() {
            Some(t) => convert::optional(py, Some(t.clone())),
            None => Err(PyAttributeError::new_err("only accumulate nodes have a variable")),
        }
    }

    fn _sequence_nr(&self) -> PyResult<u64> {
        Ok(self.node()?.sequence_nr())
    }

    fn register_hook(&self, hook: &Bound<'_, PyAny>) -> PyResult<Handle> {
        let node = self.node()?;
        Ok(autograd::register_node_hook(&node, hook, &hooks(&node)))
    }

    fn register_prehook(&self, hook: &Bound<'_, PyAny>) -> PyResult<Handle> {
        let node = self.node()?;
        Ok(autograd::register_node_prehook(&node, hook, &hooks(&node)))
    }

    /// Runs the derivative on these gradients, without hooks.
    #[pyo3(signature = (*grads))]
    fn __call__<'py>(&self, py: Python<'py>, grads: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let node = self.node()?;
        let (expected, found) = (node.input_metadata().len(), grads.len());
        if found != expected {
            return Err(PyTypeError::new_err(format!("expected {expected} arguments, got {found} instead")));
        }
        let grads = autograd::gradients(&grads.iter().collect::<Vec<_>>())?;
        let found = py.detach(|| node.call(&grads)).raise()?;
        match &found[..] {
            [one] => convert::optional(py, one.clone()),
            all => Ok(convert::tuple(py, all)?.into_any()),
        }
    }

    /// Sets pack and unpack hooks on a tensor that the node saved.
    fn _register_saved_hooks(&self, name: &str, pack: &Bound<'_, PyAny>, unpack: &Bound<'_, PyAny>) -> PyResult<()> {
        let (node, hooks) = (self.node()?, autograd::saved_hooks(pack, unpack));
        pack.py().detach(|| node.register_saved_hooks(name, hooks)).raise()
    }

    /// The names of what the node saved.
    fn _saved_names(&self) -> PyResult<Vec<&'static str>> {
        self.node()?.saved_names().raise()
    }

    /// What a custom function saved.
    fn _function_saved<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(node) = self.alive() else {
            return match &*self.link() {
                Link::None => Ok(None),
                _ => Err(ErrorKind::GraphFreed { node: "a custom function".into() }.into()).raise(),
            };
        };
        if node.context().is_none() {
            return Ok(None);
        }
        match py.detach(|| node.saved("tensors")).raise()? {
            Some(SavedValue::Tensors(list)) => convert::tuple(py, &list).map(Some),
            _ => Ok(None),
        }
    }

    /// Makes the node run earlier or later than others.
    fn _set_sequence_nr(&self, number: u64) -> PyResult<()> {
        self.node()?.set_sequence_nr(number);
        Ok(())
    }

    /// What the node saved under a name, as it keeps it.
    fn _raw_saved<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let node = self.node()?;
        let raw = |name: String, empty: bool| Bound::new(py, SavedTensor { node: node.downgrade(), name, empty });
        if node.context().is_some() && name == "tensors" {
            let count = self._function_saved(py)?.map_or(0, |t| t.len());
            let all = (0..count).map(|k| raw(format!("tensors[{k}]"), false)).collect::<PyResult<Vec<_>>>()?;
            return Ok(Some(PyTuple::new(py, all)?.into_any()));
        }
        let found = py.detach(|| node.saved(name));
        if found.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::GraphFreed { .. })) {
            // The object can still be had; what is asked of it says that the tensor is gone.
            return Ok(Some(raw(name.to_string(), false)?.into_any()));
        }
        Ok(match found.raise()? {
            Some(SavedValue::Tensors(list)) => {
                let one = |(k, t): (usize, &Option<firebrand::Tensor>)| raw(format!("{name}[{k}]"), t.is_none());
                let all = list.iter().enumerate().map(one).collect::<PyResult<Vec<_>>>()?;
                Some(PyTuple::new(py, all)?.into_any())
            }
            Some(SavedValue::Tensor(_)) => Some(raw(name.to_string(), false)?.into_any()),
            Some(SavedValue::None) => Some(raw(name.to_string(), true)?.into_any()),
            _ => None,
        })
    }

    /// `_saved_self`, `_saved_dim`: what the node saved.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if let Some(saved) = name.strip_prefix("_raw_saved_")
            && let Some(raw) = self._raw_saved(py, saved)?
        {
            return Ok(raw);
        }
        if let Some(saved) = name.strip_prefix("_saved_") {
            let node = self.node()?;
            // PyTorch's names say where a size may be symbolic.
            for name in [saved.to_string(), saved.replace("sym_", ""), saved.replace("sym_sizes", "spec")] {
                if let Some(value) = py.detach(|| node.saved(&name)).raise()? {
                    return convert::saved(py, value);
                }
            }
        }
        let class = self.alive().map_or_else(|| "Node".to_string(), |n| n.name().to_string());
        Err(PyAttributeError::new_err(format!("'{class}' object has no attribute '{name}'")))
    }
}
