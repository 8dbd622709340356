//! Grad mode and inference mode: thread-local, as guards and as closures, restored on unwind.

use crate::capture;
use crate::error::expect_ok;
use crate::slot::{Slot, SlotGuard};
use crate::state::{self, ModeGuard};

/// Disables recording while it lives.
#[derive(Debug)]
pub struct NoGrad(#[allow(dead_code)] ModeGuard);
impl NoGrad {
    /// Turns recording off.
    #[must_use = "the mode lasts while the guard lives"]
    #[allow(clippy::new_without_default)]
    pub fn new() -> NoGrad {
        NoGrad(ModeGuard::new(0, state::GRAD | state::ENGINE_OFF))
    }
}

/// Enables recording while it lives (but not inside inference mode).
#[derive(Debug)]
pub struct EnableGrad(#[allow(dead_code)] ModeGuard);
impl EnableGrad {
    /// Turns recording on.
    #[must_use = "the mode lasts while the guard lives"]
    #[allow(clippy::new_without_default)]
    pub fn new() -> EnableGrad {
        EnableGrad(grad_mode(true))
    }
}

/// A guard that sets recording.
pub(crate) fn grad_mode(on: bool) -> ModeGuard {
    if on && !state::is(state::INFERENCE) {
        ModeGuard::new(state::GRAD, 0)
    } else {
        ModeGuard::new(0, state::GRAD | state::ENGINE_OFF)
    }
}

/// Runs `f` with recording off.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let _guard = NoGrad::new();
    f()
}

/// Runs `f` with recording on.
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    let _guard = EnableGrad::new();
    f()
}

/// Turns recording on or off until the next change; [`GradModeChange::scoped`] turns the result into a guard.
pub fn set_grad_enabled(on: bool) -> GradModeChange {
    let before = is_grad_enabled();
    std::mem::forget(grad_mode(on));
    GradModeChange { before }
}

/// The change [`set_grad_enabled`] made.
#[derive(Debug)]
pub struct GradModeChange {
    before: bool,
}
impl GradModeChange {
    /// A guard that undoes the change.
    pub fn scoped(self) -> GradModeScope {
        GradModeScope { before: self.before }
    }
}
/// Restores grad mode when dropped.
#[derive(Debug)]
#[must_use = "the mode lasts while the guard lives"]
pub struct GradModeScope {
    before: bool,
}
impl Drop for GradModeScope {
    fn drop(&mut self) {
        std::mem::forget(grad_mode(self.before));
    }
}

/// Whether operations are recorded.
pub fn is_grad_enabled() -> bool {
    state::is(state::GRAD)
}

/// New tensors are inference tensors while it lives.
#[derive(Debug)]
pub struct InferenceMode(#[allow(dead_code)] ModeGuard);
impl InferenceMode {
    /// Turns inference mode on, or off inside an outer one.
    #[must_use = "the mode lasts while the guard lives"]
    #[track_caller]
    pub fn new(on: bool) -> InferenceMode {
        if on != is_inference_mode_enabled() {
            // No node of a graph makes inference tensors while its neighbors make others.
            expect_ok(capture::leave("inference mode"));
        }
        let dual = if super::forward::is_dual_level_active() && computes_tangents() { state::DUAL } else { 0 };
        InferenceMode(if on {
            ModeGuard::new(state::INFERENCE, state::GRAD | state::DUAL)
        } else {
            ModeGuard::new(state::GRAD | dual, state::INFERENCE)
        })
    }
}

/// Runs `f` in inference mode.
#[track_caller]
pub fn inference_mode<R>(f: impl FnOnce() -> R) -> R {
    let _guard = InferenceMode::new(true);
    f()
}

/// Whether inference mode is on.
pub fn is_inference_mode_enabled() -> bool {
    state::is(state::INFERENCE)
}

static FORWARD: Slot<bool> = Slot::new(|| true);

/// Restores forward mode when dropped.
#[derive(Debug)]
#[must_use = "the mode lasts while the guard lives"]
pub struct ForwardGradScope {
    _bit: ModeGuard,
    _choice: SlotGuard<bool>,
}

/// Whether ops compute tangents, while the guard lives. Tensors keep those they have.
#[track_caller]
pub fn set_fwd_grad_enabled(on: bool) -> ForwardGradScope {
    if on != computes_tangents() {
        expect_ok(capture::leave("set_fwd_grad_enabled"));
    }
    let active = on && super::forward::is_dual_level_active();
    let bit = if active { ModeGuard::new(state::DUAL, 0) } else { ModeGuard::new(0, state::DUAL) };
    ForwardGradScope { _bit: bit, _choice: FORWARD.enter(on) }
}

/// Whether ops compute tangents in a dual level.
pub fn is_fwd_grad_enabled() -> bool {
    capture::observed("forward mode", || i64::from(computes_tangents())) != 0
}

/// The same, for the library's own use.
pub(super) fn computes_tangents() -> bool {
    FORWARD.get()
}

/// Whether the engine may use several threads while the guard lives.
#[track_caller]
pub fn set_multithreading_enabled(on: bool) -> ModeGuard {
    if on != uses_threads() {
        expect_ok(capture::leave("set_multithreading_enabled"));
    }
    if on { ModeGuard::new(0, state::SINGLE_THREAD) } else { ModeGuard::new(state::SINGLE_THREAD, 0) }
}

/// Whether the engine may use several threads.
pub fn is_multithreading_enabled() -> bool {
    capture::observed("multithreading", || i64::from(uses_threads())) != 0
}

/// The same, for the library's own use.
pub(super) fn uses_threads() -> bool {
    !state::is(state::SINGLE_THREAD)
}

/// Whether stored gradients get the layout of their leaf, while the guard lives.
#[track_caller]
pub fn enforce_grad_layout_policy(on: bool) -> ModeGuard {
    expect_ok(capture::leave("enforce_grad_layout_policy"));
    if on { ModeGuard::new(0, state::FREE_GRAD_LAYOUT) } else { ModeGuard::new(state::FREE_GRAD_LAYOUT, 0) }
}
