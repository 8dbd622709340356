//! Hooks on values inside a compiled function: those whose body becomes part of the graph, and the slots that hook nodes call.

use crate::front::capture;
use firebrand_core::autograd::{HookResult, RemovableHandle};
use firebrand_core::{Result, Tensor};

pub use crate::backend::{HookFn, HookSlot};

/// Registers a hook on `t` that only computes with tensors, including tensors it captured.
///
/// On a value inside a compiled function its body becomes part of the backward graph and is compiled with it. It must not
/// modify outer state, change the gradient in place or inspect its memory order: that is an error when the function is
/// compiled. Everywhere else it is an ordinary hook.
#[track_caller]
pub fn register_pure_hook<R: HookResult>(
    t: &Tensor,
    hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
) -> Result<RemovableHandle> {
    capture::register_pure_hook(t, hook)
}
