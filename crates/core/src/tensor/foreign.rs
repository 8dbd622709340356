//! Support for a front end in another language: a place for an object of its own, and whether the tensor
//! outlives the front's handle. Nothing here knows which language.

use super::Tensor;
use firebrand_kernels::shared;
use std::any::Any;
use std::sync::Arc;

impl Tensor {
    /// What a front in another language keeps with this tensor; it is dropped with the tensor.
    pub fn foreign(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.extras_if_any()?.foreign.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Keeps an object of a front with this tensor, and returns the one that was kept before.
    pub fn set_foreign(&self, object: Option<Arc<dyn Any + Send + Sync>>) -> Option<Arc<dyn Any + Send + Sync>> {
        if object.is_none() && self.extras_if_any().is_none() {
            return None;
        }
        std::mem::replace(&mut *self.extras().foreign.lock().unwrap_or_else(|e| e.into_inner()), object)
    }

    /// Whether there is another handle to this tensor: in the graph, in a list, in another variable.
    pub fn is_shared(&self) -> bool {
        shared::Arc::strong_count(&self.0) > 1
    }

    /// The node that computed this tensor, if this handle is the only owner of both: then nothing but this handle reaches the node.
    /// For fronts with a garbage collector; a view whose history would have to be rebuilt first has none.
    pub fn sole_history(&self) -> Option<crate::autograd::Node> {
        if self.is_shared() {
            return None;
        }
        let edge = self.stored_history()?;
        // Its owners are the tensor and the clone just made.
        (edge.node.owners() <= 2).then_some(edge.node)
    }
}
