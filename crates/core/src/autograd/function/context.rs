//! The context of a custom function: information about its call, and what it saves for backward.

use crate::autograd::early;
use crate::autograd::node::{InputMetadata, Node, WeakNode};
use crate::autograd::saved::{SavedSlot, SavedTensor};
use crate::capture::Bound;
use crate::generator::{self, Generator};
use crate::slot::{Slot, SlotGuard};
use crate::{DType, ErrorKind, Result, Tensor};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The context of a custom function: information about its call, and what it saves for backward.
///
/// Only tensors can be saved (G-17); plain values live in the function's own fields.
pub struct Context {
    pub(super) name: String,
    pub(super) needs_input_grad: Vec<bool>,
    pub(super) materialize_grads: bool,
    pub(super) to_save: Vec<Option<Tensor>>,
    pub(super) for_forward: Vec<Option<Tensor>>,
    pub(super) dirty: Vec<Tensor>,
    pub(super) non_differentiable: Vec<Tensor>,
    pub(super) output_grad_dtypes: Option<Vec<Option<DType>>>,
    pub(super) outputs: Vec<InputMetadata>,
    pub(super) saved: Option<SavedSlot<Vec<SavedTensor>>>,
    /// Results that a backward which is itself recorded passes through again.
    pub(super) to_keep: Vec<Tensor>,
    pub(super) results: Option<SavedSlot<Vec<SavedTensor>>>,
    pub(super) clear_on_access: bool,
    pub(super) was_read: AtomicBool,
    /// Whether the current run is the last one and may take the saved values.
    pub(super) last_run: AtomicBool,
    pub(super) node: OnceLock<WeakNode>,
    /// The random state when `forward` began.
    random: Option<Generator>,
    /// The tensors that the function's stand-ins refer to.
    pub(super) bound: Bound,
    /// What the function keeps of this call, beside tensors.
    pub(super) state: Option<Arc<dyn Any + Send + Sync>>,
}

impl Context {
    pub(super) fn new(name: String, needs_input_grad: Vec<bool>, clear_on_access: bool) -> Context {
        Context {
            name,
            needs_input_grad,
            materialize_grads: true,
            to_save: Vec::new(),
            for_forward: Vec::new(),
            dirty: Vec::new(),
            non_differentiable: Vec::new(),
            output_grad_dtypes: None,
            outputs: Vec::new(),
            saved: None,
            to_keep: Vec::new(),
            results: None,
            clear_on_access,
            was_read: AtomicBool::new(false),
            last_run: AtomicBool::new(false),
            node: OnceLock::new(),
            random: None,
            bound: Bound::here(),
            state: None,
        }
    }

    /// Saves tensors for `backward`; they are version-checked when read.
    pub fn save_for_backward(&mut self, tensors: &[Option<&Tensor>]) {
        self.to_save = tensors.iter().map(|t| t.cloned()).collect();
    }

    /// Keeps results as they are, whatever saved-tensor hooks are active: a derivative of the gradient may pass through them again.
    pub fn keep_results(&mut self, results: &[&Tensor]) {
        self.to_keep = results.iter().map(|t| (*t).clone()).collect();
    }

    /// The results that were kept, with their history.
    pub fn results(&self) -> Result<Vec<Tensor>> {
        let (Some(results), Some(node)) = (&self.results, self.node.get().and_then(|w| w.upgrade())) else {
            return Ok(self.to_keep.clone());
        };
        results.copy(&node)?.into_iter().map(|s| s.unpack_some(&node)).collect()
    }

    /// Keeps a value of this call. A function runs several times under function transforms, once per level; what it
    /// keeps in its own fields is shared by all of them, what it keeps here belongs to one call.
    pub fn set_state(&mut self, state: Arc<dyn Any + Send + Sync>) {
        self.state = Some(state);
    }

    /// The value stored with [`Context::set_state`].
    pub fn state(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.state.as_ref()
    }

    /// Saves the random state, to draw the same numbers again later.
    pub(crate) fn keep_random_state(&mut self) {
        self.random = Some(generator::current());
    }

    /// The saved random state.
    pub(crate) fn random_state(&self) -> &Option<Generator> {
        &self.random
    }

    /// Saves tensors for `jvp`.
    pub fn save_for_forward(&mut self, tensors: &[Option<&Tensor>]) {
        self.for_forward = tensors.iter().map(|t| t.cloned()).collect();
    }

    /// Declares that `forward` wrote these inputs in place.
    pub fn mark_dirty(&mut self, tensors: &[&Tensor]) {
        self.dirty = tensors.iter().map(|t| (*t).clone()).collect();
    }

    /// Declares that no gradient flows through these outputs.
    pub fn mark_non_differentiable(&mut self, tensors: &[&Tensor]) {
        self.non_differentiable = tensors.iter().map(|t| (*t).clone()).collect();
    }

    /// Whether undefined gradients arrive as zeros (the default) or as `None`.
    pub fn set_materialize_grads(&mut self, on: bool) {
        self.materialize_grads = on;
    }

    /// The dtype in which `backward` gets the gradient of each output; `None`: as it arrives. Once per call.
    pub fn set_output_grad_dtype(&mut self, dtypes: &[Option<DType>]) -> Result<()> {
        if self.output_grad_dtypes.is_some() {
            let message = "called a second time; one call names all outputs".to_string();
            return Err(ErrorKind::OutputGradDtype { function: self.name.clone(), message }.into());
        }
        self.output_grad_dtypes = Some(dtypes.to_vec());
        Ok(())
    }

    /// For each input, whether it requires grad; fixed when the function was applied.
    pub fn needs_input_grad(&self) -> &[bool] {
        &self.needs_input_grad
    }

    /// The node of the call, once it runs backward.
    pub fn node(&self) -> Option<Node> {
        self.node.get().and_then(|w| w.upgrade())
    }

    /// The tensors saved for `backward`, unpacked and version-checked.
    pub fn saved_tensors(&self) -> Result<Vec<Option<Tensor>>> {
        if self.clear_on_access && self.was_read.swap(true, Relaxed) {
            return Err(ErrorKind::SavedTensorsOnce { function: self.name.clone() }.into());
        }
        let (Some(saved), Some(node)) = (&self.saved, self.node.get().and_then(|w| w.upgrade())) else {
            return Ok(self.to_save.clone());
        };
        let list = saved.copy(&node)?;
        if self.clear_on_access {
            saved.release();
        }
        list.into_iter().map(|s| s.unpack_for_function(&node)).collect()
    }

    /// Like [`saved_tensors`](Context::saved_tensors), but in the last run of the node they are moved out: tensors that only this
    /// call held then belong to the caller alone. Only inside `backward` of a function that
    /// [`takes_saved_tensors`](super::Function::takes_saved_tensors).
    pub fn take_saved_tensors(&self) -> Result<Vec<Option<Tensor>>> {
        match (&self.saved, self.node.get().and_then(|w| w.upgrade())) {
            (Some(saved), Some(node)) if self.last_run.load(Relaxed) => {
                saved.take(&node)?.into_iter().map(|s| s.unpack_for_function(&node)).collect()
            }
            _ => self.saved_tensors(),
        }
    }

    /// Like [`take_saved_tensors`](Context::take_saved_tensors), for those at these positions only: the others are
    /// neither unpacked nor version-checked.
    pub fn take_saved_tensors_at(&self, places: &[usize]) -> Result<Vec<Option<Tensor>>> {
        let (Some(saved), Some(node)) = (&self.saved, self.node.get().and_then(|w| w.upgrade())) else {
            return Ok(places.iter().map(|&k| self.to_save[k].clone()).collect());
        };
        let list = if self.last_run.load(Relaxed) { saved.take(&node)? } else { saved.copy(&node)? };
        let mut list: Vec<Option<SavedTensor>> = list.into_iter().map(Some).collect();
        let one = |&k: &usize| match list[k].take() {
            Some(t) => t.unpack_for_function(&node),
            None => Ok(None),
        };
        places.iter().map(one).collect()
    }

    /// The tensors saved for `jvp`.
    pub fn saved_for_forward(&self) -> &[Option<Tensor>] {
        &self.for_forward
    }

    /// For each input, the sum of the gradients that have reached it so far in this run, if it may be written in place:
    /// adding to it and returning `None` for that input saves a tensor. Only inside `backward`, in a run that
    /// is not recorded.
    pub fn input_grad_buffers(&self) -> Result<Vec<Option<Tensor>>> {
        let offer = BUFFERS.get();
        let found = match offer.as_deref() {
            Some(Ok(list)) => Ok(list.clone()),
            Some(Err(why)) => Err(*why),
            None => Err("only inside backward, and only if uses_input_grad_buffers says so"),
        };
        found.map_err(|message| ErrorKind::InputGradBuffers { function: self.name.clone(), message }.into())
    }

    /// For each input, whether its gradient may be handed over ([`Context::hand_over`]); empty if none may. Only inside `backward` of a
    /// function that [`hands_over_gradients`](super::Function::hands_over_gradients).
    pub fn early_leaves(&self) -> Vec<bool> {
        early::places(self.node().as_ref())
    }

    /// Hands over the gradient of an input that is a leaf before `backward` has returned, hooks and `.grad` included. For
    /// this input `backward` must then return `None`. See [`Context::early_leaves`].
    pub fn hand_over(&self, input: usize, grad: Tensor) -> Result<()> {
        early::hand_over(self.node().as_ref(), input, grad)
    }

    /// Whether no gradient flows through this result.
    pub(super) fn is_frozen(&self, result: &Tensor) -> bool {
        !result.dtype().is_differentiable() || self.non_differentiable.iter().any(|n| n.is_same(result))
    }

    pub(super) fn is_dirty(&self, t: &Tensor) -> bool {
        self.dirty.iter().any(|d| d.is_same(t))
    }
}

type Offer = std::result::Result<Vec<Option<Tensor>>, &'static str>;

/// What the engine offers to the node it is running.
static BUFFERS: Slot<Option<Arc<Offer>>> = Slot::new(|| None);

/// What the engine offers to the node it runs, while it lives.
pub(crate) struct BufferScope(#[allow(dead_code)] SlotGuard<Option<Arc<Offer>>>);

impl BufferScope {
    /// Offers buffers, or says why there are none.
    pub(crate) fn new(offer: Offer) -> BufferScope {
        BufferScope(BUFFERS.enter(Some(Arc::new(offer))))
    }
}
