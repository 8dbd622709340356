//! Modes that Python's context managers switch: plain switches, and guards that belong to the thread that made them.

use crate::autograd::{attached, saved_hooks};
use crate::convert;
use crate::errors::Raise;
use firebrand::autograd::{
    self as core, AutocastGuard, AutocastOptions, CreationHookGuard, DisabledGuard, InferenceMode, MutationGuard,
    SavedHooksGuard,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

#[pyfunction]
fn is_grad_enabled() -> bool {
    core::is_grad_enabled()
}

/// Turns recording on or off on this thread.
#[pyfunction]
fn set_grad_mode(on: bool) {
    let _ = core::set_grad_enabled(on);
}

#[pyfunction]
fn is_inference_mode_enabled() -> bool {
    core::is_inference_mode_enabled()
}

thread_local! {
    static CHECK_NAN: Cell<bool> = const { Cell::new(true) };
    /// While anomaly mode is on: nodes remember Python's stack instead of Rust's.
    static TRACES: RefCell<Option<CreationHookGuard>> = const { RefCell::new(None) };
}

/// Keeps the lines of Python that made a node with it.
fn remember(node: &core::Node) -> firebrand::Result<()> {
    let stack = attached(|py| {
        let lines: Vec<String> = py.import("traceback")?.call_method0("format_stack")?.extract()?;
        Ok(lines.concat())
    })?;
    drop(node.insert_metadata("traceback_", Arc::new(stack)));
    Ok(())
}

/// Turns anomaly mode on or off on this thread.
#[pyfunction]
fn set_anomaly_mode(on: bool, check_nan: bool) {
    CHECK_NAN.set(check_nan);
    std::mem::forget(core::set_detect_anomaly(on, check_nan));
    let ended = TRACES.with_borrow_mut(|held| match (on, &held) {
        (true, None) => held.replace(core::node_creation_hook(remember)),
        (true, Some(_)) => None,
        (false, _) => held.take(),
    });
    drop(ended);
}

/// Whether anomaly mode is on, and whether it looks for NaN.
#[pyfunction]
fn anomaly_mode() -> (bool, bool) {
    (core::is_anomaly_enabled(), CHECK_NAN.get())
}

/// Inference mode until it is left.
#[pyclass(unsendable)]
pub(crate) struct InferenceGuard(Option<InferenceMode>);

#[pymethods]
impl InferenceGuard {
    #[new]
    fn new(on: bool) -> InferenceGuard {
        InferenceGuard(Some(InferenceMode::new(on)))
    }

    fn leave(&mut self) {
        self.0 = None;
    }
}

/// Hooks on all tensors that are saved until it is left.
#[pyclass(unsendable)]
pub(crate) struct SavedHooksScope(Option<SavedHooksGuard>);

#[pymethods]
impl SavedHooksScope {
    #[new]
    fn new(pack: &Bound<'_, PyAny>, unpack: &Bound<'_, PyAny>) -> PyResult<SavedHooksScope> {
        Ok(SavedHooksScope(Some(core::push_saved_hooks(saved_hooks(pack, unpack)).raise()?)))
    }

    fn leave(&mut self) {
        self.0 = None;
    }
}

/// Forbids hooks on saved tensors until it is left.
#[pyclass(unsendable)]
pub(crate) struct DisabledHooksScope(Option<DisabledGuard>);

#[pymethods]
impl DisabledHooksScope {
    #[new]
    fn new(message: &str) -> PyResult<DisabledHooksScope> {
        Ok(DisabledHooksScope(Some(core::disable_saved_tensors_hooks(message).raise()?)))
    }

    fn leave(&mut self) {
        self.0 = None;
    }
}

/// Saved tensors may be written, until it is left.
#[pyclass(unsendable)]
pub(crate) struct MutationScope(Option<MutationGuard>);

#[pymethods]
impl MutationScope {
    #[new]
    fn new() -> PyResult<MutationScope> {
        Ok(MutationScope(Some(core::allow_mutation_on_saved_tensors().raise()?)))
    }

    /// How many saved tensors were cloned because they were about to be written, and how many were not.
    fn counts(&self) -> (usize, usize) {
        self.0.as_ref().map_or((0, 0), |g| (g.counts().cloned, g.counts().original))
    }

    fn clear(&self) {
        if let Some(guard) = &self.0 {
            guard.clear();
        }
    }

    fn leave(&mut self) {
        self.0 = None;
    }
}

/// Ops choose their dtype, until it is left.
#[pyclass(unsendable)]
pub(crate) struct AutocastScope(Option<AutocastGuard>);

#[pymethods]
impl AutocastScope {
    #[new]
    fn new(enabled: bool, dtype: &Bound<'_, PyAny>) -> PyResult<AutocastScope> {
        let wrong = || PyTypeError::new_err("autocast computes in a dtype, such as bfloat16");
        let dtype = convert::dtype_of(dtype).ok_or_else(wrong)?;
        Ok(AutocastScope(Some(AutocastGuard::new(AutocastOptions { enabled, dtype, ..Default::default() }))))
    }

    fn leave(&mut self) {
        self.0 = None;
    }
}

#[pyfunction]
fn is_autocast_enabled() -> bool {
    core::is_autocast_enabled()
}

#[pyfunction]
fn is_fwd_grad_enabled() -> bool {
    core::is_fwd_grad_enabled()
}

/// Switches for good; gives what was before.
#[pyfunction]
fn set_multithreading(on: bool) -> bool {
    let before = core::is_multithreading_enabled();
    // The switch is not undone with a guard but by the next call.
    std::mem::forget(core::set_multithreading_enabled(on));
    before
}

/// Switches for good; gives what was before.
#[pyfunction]
fn set_fwd_grad(on: bool) -> bool {
    let before = core::is_fwd_grad_enabled();
    std::mem::forget(core::set_fwd_grad_enabled(on));
    before
}

/// Whether views remember the ops that made them. Switches for good; gives what was before.
#[pyfunction]
fn set_view_replay(on: bool) -> bool {
    core::set_view_replay(on)
}

#[pyfunction]
fn is_view_replay_enabled() -> bool {
    core::is_view_replay_enabled()
}

#[pyfunction]
fn is_dual_level_active() -> bool {
    core::is_dual_level_active()
}

#[pyfunction]
fn is_multithreading_enabled() -> bool {
    core::is_multithreading_enabled()
}

/// Why hooks on saved tensors are forbidden, if they are.
#[pyfunction]
fn saved_tensors_hooks_disabled() -> Option<String> {
    core::saved_tensors_hooks_disabled()
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(is_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(set_grad_mode, m)?)?;
    m.add_function(wrap_pyfunction!(is_inference_mode_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(set_anomaly_mode, m)?)?;
    m.add_function(wrap_pyfunction!(anomaly_mode, m)?)?;
    m.add_class::<AutocastScope>()?;
    m.add_class::<MutationScope>()?;
    m.add_function(wrap_pyfunction!(is_autocast_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(is_fwd_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(is_multithreading_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(set_multithreading, m)?)?;
    m.add_function(wrap_pyfunction!(set_fwd_grad, m)?)?;
    m.add_function(wrap_pyfunction!(set_view_replay, m)?)?;
    m.add_function(wrap_pyfunction!(is_view_replay_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(is_dual_level_active, m)?)?;
    m.add_function(wrap_pyfunction!(saved_tensors_hooks_disabled, m)?)
}
