//! Binding: which tensors, cells and handles of one call stand for those the function was captured with.
//!
//! A hook or effect that a captured function made holds what it captured then: meta tensors, cells of that
//! call. When it runs later it runs inside the binding of its call, where ops and methods are about the real ones.

use firebrand_core::autograd::RemovableHandle;
use firebrand_core::capture::{self as core_capture, StandInScope, StandIns};
use firebrand_core::tree::SharedRef;
use firebrand_core::{Tensor, WeakTensor};
use firebrand_graph::dynamic::SizeExpr;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The values of the symbols of a graph.
pub(crate) type Symbols = SmallVec<[i64; 4]>;

/// What stands for what in one call.
#[derive(Default)]
pub(crate) struct Binding {
    /// By the id of the tensor that was captured; the weak handle keeps that id from being used again.
    tensors: Mutex<HashMap<usize, (WeakTensor, Tensor)>>,
    /// By the address of the cell it was captured with.
    cells: Vec<(usize, Arc<dyn Any + Send + Sync>)>,
    /// By the number of the handle it was captured with.
    handles: Mutex<HashMap<u64, RemovableHandle>>,
    /// The sizes of the capture, and those of the call that they depend on.
    sizes: Option<(Arc<KeptSizes>, Symbols)>,
}

/// The sizes of a capture that closures may have kept: the number of their table, and what they are in terms of the inputs.
#[derive(Default)]
pub(crate) struct KeptSizes {
    pub(crate) table: u32,
    pub(crate) sizes: Vec<SizeExpr>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// The cell that one stands for in the call that runs now.
pub(crate) fn shared(address: usize) -> Option<Arc<dyn Any + Send + Sync>> {
    let binding = core_capture::stand_ins()?.into_any().downcast::<Binding>().ok()?;
    binding.cells.iter().find(|(a, _)| *a == address).map(|(_, cell)| cell.clone())
}

impl Binding {
    /// With the cells of a call in place of those captured.
    pub(crate) fn new(captured: &[SharedRef], given: &[SharedRef]) -> Binding {
        let cells = captured.iter().zip(given).map(|(c, g)| (c.address, g.cell.clone())).collect();
        Binding { cells, ..Binding::default() }
    }

    /// With the sizes of a call too.
    pub(crate) fn with_sizes(self, kept: &Arc<KeptSizes>, symbols: &Symbols) -> Binding {
        Binding { sizes: (!kept.sizes.is_empty()).then(|| (kept.clone(), symbols.clone())), ..self }
    }

    /// Lets go of tensors whose stand-ins nothing holds any more. With one of them a hook may go that held another stand-in.
    pub(crate) fn prune(&self) {
        loop {
            let gone: HashMap<usize, (WeakTensor, Tensor)> = {
                let mut tensors = lock(&self.tensors);
                let all = std::mem::take(&mut *tensors).into_iter();
                let (kept, gone) = all.partition(|(_, (t, _))| t.upgrade().is_some());
                *tensors = kept;
                gone
            };
            if gone.is_empty() {
                return;
            }
            drop(gone); // without the lock
        }
    }

    pub(crate) fn handle_by_key(&self, captured: u64) -> Option<RemovableHandle> {
        lock(&self.handles).get(&captured).cloned()
    }

    pub(crate) fn bind_handle(&self, captured: u64, handle: RemovableHandle) {
        lock(&self.handles).insert(captured, handle);
    }

    /// Knows the handles of another binding of the call too.
    pub(crate) fn share_handles(&self, other: &Binding) {
        let known = lock(&other.handles).clone();
        lock(&self.handles).extend(known);
    }

    pub(crate) fn handle(&self, captured: &RemovableHandle) -> RemovableHandle {
        lock(&self.handles).get(&captured.key()).cloned().unwrap_or_else(|| captured.clone())
    }

    /// The tensor that one stands for.
    pub(crate) fn tensor(&self, t: &Tensor) -> Tensor {
        self.real(t).unwrap_or_else(|| t.clone())
    }

    /// Runs `f` in this binding.
    pub(crate) fn enter<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let _scope = StandInScope::new(self.clone());
        f()
    }
}

impl StandIns for Binding {
    fn real(&self, t: &Tensor) -> Option<Tensor> {
        lock(&self.tensors).get(&t.id()).map(|(_, real)| real.clone())
    }

    fn bind(&self, captured: &Tensor, real: Tensor) {
        captured.mark_stand_in();
        lock(&self.tensors).insert(captured.id(), (captured.downgrade(), real));
    }

    fn size(&self, table: u32, place: usize) -> Option<i64> {
        let (kept, symbols) = self.sizes.as_ref().filter(|(kept, _)| kept.table == table)?;
        kept.sizes.get(place)?.value(symbols)
    }

    fn handle(&self, key: u64) -> Option<RemovableHandle> {
        self.handle_by_key(key)
    }

    fn is_empty(&self) -> bool {
        lock(&self.tensors).is_empty()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
