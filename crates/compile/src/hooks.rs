//! Hooks on values inside a compiled function: what a graph's hook nodes call.
//!
//! A slot belongs to one call of the function, so the handle that this call returned removes the hook of this call only.

use crate::capture;
use firebrand_core::autograd::{HookResult, RemovableHandle};
use firebrand_core::{Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Puts a hook on `t` that is nothing but computation on tensors, also on tensors it captured.
///
/// On a value inside a compiled function its body becomes part of the backward graph and is compiled with it. It must not
/// write outer state, change the gradient in place or look at its memory order: that is an error when the function is
/// compiled. Everywhere else it is an ordinary hook.
#[track_caller]
pub fn register_pure_hook<R: HookResult>(
    t: &Tensor,
    hook: impl Fn(&Tensor) -> R + Send + Sync + 'static,
) -> Result<RemovableHandle> {
    capture::register_pure_hook(t, hook)
}

/// A hook as the engine calls it: with the gradient, or none if it is undefined; it may return a replacement.
pub type HookFn = Arc<dyn Fn(Option<&Tensor>) -> Result<Option<Tensor>> + Send + Sync>;

/// The hook of one hook node in one call.
pub struct HookSlot {
    hook: HookFn,
    removed: AtomicBool,
}

impl HookSlot {
    /// A slot that calls this hook.
    pub fn new(hook: HookFn) -> Arc<HookSlot> {
        Arc::new(HookSlot { hook, removed: AtomicBool::new(false) })
    }

    /// Calls the hook; a removed one leaves the gradient as it is.
    pub fn run(&self, grad: Option<&Tensor>) -> Result<Option<Tensor>> {
        if self.removed.load(Relaxed) { Ok(None) } else { (self.hook)(grad) }
    }

    /// A handle that removes the hook from this call.
    pub fn handle(self: &Arc<Self>) -> RemovableHandle {
        RemovableHandle::new(self)
    }
}

impl firebrand_core::autograd::Removable for HookSlot {
    fn remove(&self, _: u64) {
        self.removed.store(true, Relaxed)
    }

    fn contains(&self, _: u64) -> bool {
        !self.removed.load(Relaxed)
    }
}
