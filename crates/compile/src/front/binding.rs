//! Binding: which tensors, cells and handles of one call stand for those the function was captured with.
//!
//! A hook or effect that a captured function made holds what it captured then: meta tensors, cells of that
//! call. When it runs later it runs inside the binding of its call, and every op gets the real tensors instead.

use firebrand_core::autograd::RemovableHandle;
use firebrand_core::dispatch::{self, Interpreter, Next, Op, Outputs, Value};
use firebrand_core::state::Slot;
use firebrand_core::tree::SharedRef;
use firebrand_core::{Result, Tensor, WeakTensor};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What stands for what in one call.
#[derive(Default)]
pub(crate) struct Binding {
    /// By the id of the tensor that was captured; the weak handle keeps that id from being used again.
    tensors: Mutex<HashMap<usize, (WeakTensor, Tensor)>>,
    /// As `tensors`, without keeping them alive: tensors whose own hooks look here.
    retained: Mutex<HashMap<usize, WeakTensor>>,
    /// By the address of the cell it was captured with.
    cells: Vec<(usize, Arc<dyn Any + Send + Sync>)>,
    /// By the number of the handle it was captured with.
    handles: Mutex<HashMap<u64, RemovableHandle>>,
}

/// The binding of the call whose hook or effect runs here.
static ACTIVE: Slot<Option<Arc<Binding>>> = Slot::new(|| None);

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// The cell that one stands for in the call that runs now.
pub(crate) fn shared(address: usize) -> Option<Arc<dyn Any + Send + Sync>> {
    let binding = ACTIVE.get()?;
    binding.cells.iter().find(|(a, _)| *a == address).map(|(_, cell)| cell.clone())
}

/// The tensor that keeps its gradient, in the call that runs now.
pub(crate) fn retained(outline: usize) -> Option<Tensor> {
    let binding = ACTIVE.get()?;
    lock(&binding.retained).get(&outline).and_then(WeakTensor::upgrade)
}

impl Binding {
    /// With the cells of a call in place of those captured.
    pub(crate) fn new(captured: &[SharedRef], given: &[SharedRef]) -> Binding {
        let cells = captured.iter().zip(given).map(|(c, g)| (c.address, g.cell.clone())).collect();
        Binding { cells, ..Binding::default() }
    }

    pub(crate) fn bind(&self, captured: &Tensor, real: Tensor) {
        lock(&self.tensors).insert(captured.id(), (captured.downgrade(), real));
    }

    pub(crate) fn bind_retained(&self, outline: usize, real: &Tensor) {
        lock(&self.retained).insert(outline, real.downgrade());
    }

    pub(crate) fn handle_by_key(&self, captured: u64) -> Option<RemovableHandle> {
        lock(&self.handles).get(&captured).cloned()
    }

    pub(crate) fn bind_handle(&self, captured: u64, handle: RemovableHandle) {
        lock(&self.handles).insert(captured, handle);
    }

    /// Takes over the handles of another binding of the call.
    pub(crate) fn take_handles(&self, other: &Binding) {
        lock(&self.handles).extend(lock(&other.handles).drain());
    }

    pub(crate) fn handle(&self, captured: &RemovableHandle) -> RemovableHandle {
        lock(&self.handles).get(&captured.key()).cloned().unwrap_or_else(|| captured.clone())
    }

    /// The tensor that one stands for.
    pub(crate) fn tensor(&self, t: &Tensor) -> Tensor {
        lock(&self.tensors).get(&t.id()).map_or_else(|| t.clone(), |(_, real)| real.clone())
    }

    /// Runs `f` in this binding.
    pub(crate) fn enter<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let _scope = ACTIVE.enter(Some(self.clone()));
        if lock(&self.tensors).is_empty() {
            return f();
        }
        let _layer = dispatch::push_layer(Arc::new(Substitute(self.clone())));
        f()
    }
}

/// Gives ops the real tensors.
struct Substitute(Arc<Binding>);

impl Interpreter for Substitute {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        let real = |t: &Tensor| self.0.tensor(t);
        let values: Vec<Value> = args
            .iter()
            .map(|v| match v {
                Value::Tensor(t) => Value::Tensor(real(t)),
                Value::Tensors(list) => Value::Tensors(list.iter().map(real).collect()),
                Value::OptTensors(list) => Value::OptTensors(list.iter().map(|t| t.as_ref().map(real)).collect()),
                other => other.clone(),
            })
            .collect();
        next.call(op, &values)
    }
}
