//! Scopes around saved tensors: hooks for all of them, offloading, forbidding hooks; and version counters by hand.

use super::saved::SavedHooks;
use crate::capture;
use crate::error::expect_ok;
use crate::state::{self, ModeGuard};
use crate::{Device, ErrorKind, Result, Tensor, ops};
use std::any::Any;
use std::sync::Arc;

/// Ends a scope of saved-tensor hooks when dropped.
#[derive(Debug)]
#[must_use = "the hooks last while the guard lives"]
pub struct SavedHooksGuard {
    _mode: ModeGuard,
}

impl Drop for SavedHooksGuard {
    fn drop(&mut self) {
        state::stacks(|s| s.saved_hooks.pop());
    }
}

/// While the guard lives, every tensor saved for backward passes through `pack` at once and through `unpack` at each
/// read. Of nested scopes only the innermost applies. `pack` must not write its argument, and what it returns must not
/// own it (return a copy, a detached alias or a key).
pub fn saved_tensors_hooks<P: Any + Send + Sync>(
    pack: impl Fn(&Tensor) -> Result<P> + Send + Sync + 'static,
    unpack: impl Fn(&P) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<SavedHooksGuard> {
    push_saved_hooks(SavedHooks::new(pack, unpack))
}

/// Like [`saved_tensors_hooks`], for hooks that return exactly the values they got: a captured function is compiled without them.
pub(crate) fn faithful_hooks<P: Any + Send + Sync>(
    pack: impl Fn(&Tensor) -> Result<P> + Send + Sync + 'static,
    unpack: impl Fn(&P) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<SavedHooksGuard> {
    let mut hooks = SavedHooks::new(pack, unpack);
    hooks.faithful = true;
    push_saved_hooks(hooks)
}

/// As [`saved_tensors_hooks`], for a pair of hooks that was made before.
pub fn push_saved_hooks(hooks: SavedHooks) -> Result<SavedHooksGuard> {
    if let Some(message) = state::stacks(|s| s.saved_hooks_disabled.clone()) {
        return Err(ErrorKind::SavedHooksDisabled { message }.into());
    }
    if capture::in_transform() {
        capture::leave("saved-tensor hooks")?;
    }
    state::stacks(|s| s.saved_hooks.push(Arc::new(hooks)));
    Ok(SavedHooksGuard { _mode: ModeGuard::new(state::SAVED_HOOKS, 0) })
}

/// Keeps saved tensors in host memory. On a CPU they are already there; with `pin_memory` a copy is made nevertheless, so
/// that later writes to the tensor do not matter.
pub fn save_on_cpu(pin_memory: bool) -> Result<SavedHooksGuard> {
    saved_tensors_hooks(
        move |t| {
            let kept = if pin_memory { ops::clone(t, None)? } else { ops::detach(t)? };
            Ok((t.device(), kept.detach()))
        },
        |(device, t): &(Device, Tensor)| {
            if t.device() == *device { Ok(t.clone()) } else { ops::to_copy(t, None, Some(*device), false, None) }
        },
    )
}

/// Restores the previous state when dropped.
#[derive(Debug)]
#[must_use = "hooks are disabled while the guard lives"]
pub struct DisabledGuard {
    before: Option<String>,
}

impl Drop for DisabledGuard {
    fn drop(&mut self) {
        let before = self.before.take();
        state::stacks(|s| s.saved_hooks_disabled = before);
    }
}

/// While the guard lives, opening a scope of saved-tensor hooks fails with `message`; returns an error if called inside such a scope.
#[track_caller]
pub fn disable_saved_tensors_hooks(message: impl Into<String>) -> Result<DisabledGuard> {
    capture::leave("disable_saved_tensors_hooks")?;
    let message = message.into();
    if state::stacks(|s| !s.saved_hooks.is_empty()) {
        return Err(ErrorKind::SavedHooksDisabled { message }.into());
    }
    Ok(DisabledGuard { before: state::stacks(|s| s.saved_hooks_disabled.replace(message)) })
}

/// The message with which saved-tensor hooks are disabled, if they are.
#[track_caller]
pub fn saved_tensors_hooks_disabled() -> Option<String> {
    expect_ok(capture::leave("saved_tensors_hooks_disabled"));
    state::stacks(|s| s.saved_hooks_disabled.clone())
}

/// Bumps the version of each tensor, for code that writes memory by other means. Inference tensors are skipped.
#[track_caller]
pub fn increment_version(tensors: &[&Tensor]) {
    expect_ok(capture::leave("increment_version"));
    tensors.iter().for_each(|t| capture::real(t).bump_version())
}

/// Sets the version of each tensor. Gradients may silently use data that was written since it was saved.
#[track_caller]
pub fn unsafe_set_version_counter(tensors: &[&Tensor], versions: &[u32]) -> Result<()> {
    capture::leave("unsafe_set_version_counter")?;
    if tensors.len() != versions.len() {
        let message = format!("expected a version for each of {} tensors, found {}", tensors.len(), versions.len());
        return Err(crate::Error::argument("unsafe_set_version_counter", message));
    }
    tensors.iter().zip(versions).for_each(|(t, v)| capture::real(t).set_version_counter(*v));
    Ok(())
}

/// Restores version counters when dropped: writes made meanwhile are not seen by any check.
#[derive(Debug)]
#[must_use = "versions are preserved while the guard lives"]
pub struct PreserveVersions(Vec<(Tensor, u32)>);

impl Drop for PreserveVersions {
    fn drop(&mut self) {
        for (t, v) in &self.0 {
            t.set_version_counter(*v)
        }
    }
}

/// Hides writes to these tensors from version checks while the guard lives. Gradients may silently use new data.
#[track_caller]
pub fn unsafe_preserve_version_counter(tensors: &[&Tensor]) -> PreserveVersions {
    expect_ok(capture::leave("unsafe_preserve_version_counter"));
    let tensors = tensors.iter().map(|t| capture::real(t));
    PreserveVersions(tensors.map(|t| (t.clone(), t.version_counter())).collect())
}
