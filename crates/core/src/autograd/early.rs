//! Early gradients: a node that computes the gradients of many leaves, as a compiled graph does, may hand over each as soon as
//! it is computed, instead of all of them at its end. Communication between processes then overlaps the rest of the node.
//!
//! - *Guarantee:* only leaves that ask for it ([`Tensor::set_takes_early_grad`]), and only those that wait for nothing else in the run. Their
//!   hooks run as always, on the same values.
//! - *Not here:* runs that are recorded, observed or in anomaly mode, and nodes with post-hooks, which may replace gradients.

use super::engine;
use super::hooks;
use super::node::{Gradients, Needs, Node};
use crate::slot::{Slot, SlotGuard};
use crate::{Error, Result, Tensor};
use smallvec::smallvec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the engine offers to a node that it runs.
pub(crate) struct EarlyLeaves {
    node: Node,
    /// Per edge: the accumulate node with its index in the run, and whether it has run.
    leaves: Vec<Option<(Node, u32, AtomicBool)>>,
}

static OFFER: Slot<Option<Arc<EarlyLeaves>>> = Slot::new(|| None);

/// What the engine offers to the node it runs, while it lives.
pub(crate) struct EarlyScope {
    offer: Arc<EarlyLeaves>,
    _scope: SlotGuard<Option<Arc<EarlyLeaves>>>,
}

impl EarlyScope {
    /// Offers these accumulate nodes, one per edge.
    pub(crate) fn new(node: &Node, leaves: impl Iterator<Item = Option<(Node, u32)>>) -> EarlyScope {
        let leaves = leaves.map(|l| l.map(|(leaf, index)| (leaf, index, AtomicBool::new(false)))).collect();
        let offer = Arc::new(EarlyLeaves { node: node.clone(), leaves });
        EarlyScope { _scope: OFFER.enter(Some(offer.clone())), offer }
    }

    /// Whether the gradient of this edge has been handed over.
    pub(crate) fn has(&self, k: usize) -> bool {
        self.offer.leaves[k].as_ref().is_some_and(|(.., done)| done.load(Relaxed))
    }
}

/// What is offered to this node. Code that its leaves' hooks run may ask too, for nodes of its own.
fn offer(node: Option<&Node>) -> Option<Arc<EarlyLeaves>> {
    OFFER.get().filter(|o| node.is_some_and(|n| n.is_same(&o.node)))
}

/// For each input of the node, whether its gradient may be handed over early; empty if none may.
pub(crate) fn places(node: Option<&Node>) -> Vec<bool> {
    let open = |l: &Option<(Node, u32, AtomicBool)>| l.as_ref().is_some_and(|(.., done)| !done.load(Relaxed));
    let list: Vec<bool> = offer(node).map_or(Vec::new(), |o| o.leaves.iter().map(open).collect());
    if list.contains(&true) { list } else { Vec::new() }
}

/// Runs the accumulate node of input `k` with its gradient.
pub(crate) fn hand_over(node: Option<&Node>, k: usize, grad: Tensor) -> Result<()> {
    let refused = || Error::argument("hand_over", format!("the gradient of input {k} cannot be handed over early"));
    let offer = offer(node).ok_or_else(refused)?;
    let Some((leaf, index, done)) = offer.leaves.get(k).and_then(Option::as_ref) else { return Err(refused()) };
    if done.swap(true, Relaxed) {
        return Err(refused());
    }
    let mut out = Some(grad);
    engine::fit(&offer.node, k, &offer.node.edges()[k], &mut out)?;
    let _here = engine::Executing::enter(*index);
    let mut grads: Gradients = smallvec![out];
    hooks::run_tensor_pre_hooks(leaf, &mut grads)?;
    hooks::run_pre_hooks(leaf, &mut grads)?;
    let incoming = hooks::has_post_hooks(leaf).then(|| grads.clone());
    let mut outs = leaf.formula().apply(leaf, grads, &Needs::all(leaf.edges()))?;
    match incoming {
        Some(incoming) => hooks::run_post_hooks(leaf, &mut outs, &incoming),
        None => Ok(()),
    }
}

impl Tensor {
    /// Whether the gradient of this leaf may arrive, with its hooks, while the node that computes it (such as a compiled graph) still runs.
    /// Its hooks must not write tensors that the node reads, such as the leaf itself. The node delivers it with [`Context::hand_over`](super::Context::hand_over).
    pub fn set_takes_early_grad(&self, on: bool) {
        self.extras().takes_early_grad.store(on, Relaxed);
    }

    /// The value set with [`Tensor::set_takes_early_grad`].
    pub fn takes_early_grad(&self) -> bool {
        self.extras_if_any().is_some_and(|e| e.takes_early_grad.load(Relaxed))
    }
}
