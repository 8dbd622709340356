//! State that few tensors need, stored outside the tensor itself.

use super::Tensor;
use super::replaced::{Replaced, StoodFor};
use super::versions::VersionCounter;
use crate::DType;
use crate::autograd::grad_slot::GradSlot;
use crate::autograd::hook_table::HookTable;
use crate::autograd::hooks::{PostAccumulateHook, TensorHook};
use crate::autograd::node::{Edge, WeakNode};
use crate::autograd::view::ViewInfo;
use crate::tensor::sparse::Coo;
use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

/// State that few tensors need.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) grad: GradSlot<Tensor>,
    /// `None`: the tensor's own; `Some(None)`: any.
    pub(crate) grad_dtype: Mutex<Option<Option<DType>>>,
    pub(crate) accumulator: Mutex<Option<WeakNode>>,
    /// Hooks of the leaf; those of a computed tensor live on its node.
    pub(crate) hooks: OnceLock<HookTable<TensorHook>>,
    /// Whether its gradient may arrive while the node that computes it still runs.
    pub(crate) takes_early_grad: AtomicBool,
    pub(crate) post_accumulate_hooks: OnceLock<HookTable<PostAccumulateHook>>,
    pub(crate) history: Mutex<Option<Edge>>,
    pub(crate) view: OnceLock<ViewInfo>,
    pub(crate) own_version: OnceLock<VersionCounter>,
    pub(crate) replaced: OnceLock<Box<Replaced>>,
    /// What it has stood for, if methods were asked for a description then.
    pub(crate) stood_for: OnceLock<Box<StoodFor>>,
    pub(crate) tangent: Mutex<Option<Tensor>>,
    /// What a node saved of this output before the output got its tangent.
    pub(crate) saved_alias: Mutex<Option<Tensor>>,
    pub(crate) wrapped: OnceLock<Wrapped>,
    /// Indices and values of a sparse tensor.
    pub(crate) sparse: OnceLock<Coo>,
    /// What a front in another language keeps with the tensor.
    pub(crate) foreign: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

/// What a wrapper wraps: a tensor one level down, and which of its dimensions is the batch (`None`: unbatched).
#[derive(Clone)]
pub(crate) struct Wrapped {
    pub(crate) value: Tensor,
    pub(crate) bdim: Option<usize>,
    /// The level it belongs to: two that follow each other have the same number, and are not the same.
    pub(crate) level: u64,
}
