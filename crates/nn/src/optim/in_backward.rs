//! Steps during backward: every parameter moves as soon as its gradient is complete, and the gradient is dropped at once,
//! so that never more than a few gradients are alive.
//!
//! Clipping by norm and accumulation over batches need all gradients, so they do not go together with this.

use super::Optimizer;
use super::grouped::IntoParams;
use firebrand_core::autograd::RemovableHandle;
use firebrand_core::{Result, Tensor};
use std::sync::{Arc, Mutex, MutexGuard};

/// Optimisers that step during backward; dropping it ends that.
pub struct InBackward {
    optimizers: Vec<Arc<Mutex<dyn Optimizer>>>,
    handles: Vec<RemovableHandle>,
}

/// Makes an optimiser for every parameter and lets it step as soon as the gradient is there.
pub fn step_in_backward<O: Optimizer + 'static>(
    params: impl IntoParams,
    make: impl Fn(&Tensor) -> Result<O>,
) -> Result<InBackward> {
    let mut all = InBackward { optimizers: Vec::new(), handles: Vec::new() };
    for p in params.into_params() {
        let optimizer = Arc::new(Mutex::new(make(&p)?));
        let stepping = optimizer.clone();
        all.handles.push(p.register_post_accumulate_grad_hook(move |t: &Tensor| {
            stepping.lock().unwrap_or_else(|e| e.into_inner()).step()?;
            t.zero_grad();
            Ok(())
        })?);
        all.optimizers.push(optimizer);
    }
    Ok(all)
}

impl InBackward {
    /// The optimisers, one for every parameter: for schedules and state.
    pub fn optimizers(&self) -> impl Iterator<Item = MutexGuard<'_, dyn Optimizer + 'static>> {
        self.optimizers.iter().map(|o| o.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl Drop for InBackward {
    fn drop(&mut self) {
        self.handles.iter().for_each(RemovableHandle::remove);
    }
}
