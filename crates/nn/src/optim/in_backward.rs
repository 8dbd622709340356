//! Steps during backward: every parameter is updated as soon as its gradient is complete, and the gradient is freed at once,
//! so that never more than a few gradients are alive.
//!
//! Clipping by norm and accumulation over batches need all gradients, so they cannot be combined with this.

use super::Optimizer;
use super::grouped::IntoParams;
use firebrand_core::autograd::RemovableHandle;
use firebrand_core::{Result, Tensor};
use std::sync::{Arc, Mutex, MutexGuard};

/// Optimizers that step during backward, until this is dropped.
pub struct InBackward {
    optimizers: Vec<Arc<Mutex<dyn Optimizer>>>,
    handles: Vec<RemovableHandle>,
}

/// Creates an optimizer for every parameter that steps as soon as its gradient is ready.
pub fn step_in_backward<O: Optimizer + 'static>(
    params: impl IntoParams,
    make: impl Fn(&Tensor) -> Result<O>,
) -> Result<InBackward> {
    let mut all = InBackward { optimizers: Vec::new(), handles: Vec::new() };
    for p in params.into_params() {
        let optimizer = Arc::new(Mutex::new(make(&p)?));
        let stepping = optimizer.clone();
        all.handles.push(p.try_register_post_accumulate_grad_hook(move |t: &Tensor| {
            stepping.lock().unwrap_or_else(|e| e.into_inner()).step()?;
            t.zero_grad();
            Ok(())
        })?);
        all.optimizers.push(optimizer);
    }
    Ok(all)
}

impl InBackward {
    /// The optimizers, one per parameter: for schedules and state.
    pub fn optimizers(&self) -> impl Iterator<Item = MutexGuard<'_, dyn Optimizer + 'static>> {
        self.optimizers.iter().map(|o| o.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl Drop for InBackward {
    fn drop(&mut self) {
        self.handles.iter().for_each(RemovableHandle::remove);
    }
}
