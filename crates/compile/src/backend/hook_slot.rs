//! The hook of one hook node in one call.
//!
//! A slot belongs to one call of the function, so the handle that this call returned removes the hook of this call only.

use firebrand_core::autograd::RemovableHandle;
use firebrand_core::{Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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

    /// Calls the hook; a removed one leaves the gradient unchanged.
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
