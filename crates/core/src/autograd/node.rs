//! Nodes and edges: the graph that backward walks.
//!
//! A node is immutable except for its hooks, its saved values and a stamp the engine uses; edges never change after creation,
//! so a running backward borrows the graph. Ownership runs from tensors to nodes to next nodes and nothing points
//! back, so there are no cycles; dropping is iterative (`defer`), so a chain of a million nodes drops on a small stack.

use super::hooks::NodeHooks;
use super::saved::{SavedAt, SavedTensor, SavedValue};
use super::saved_visit::SavedVisitor;
use super::stamp::Stamp;
use crate::layout::Dims;
use crate::state;
use crate::{DType, Device, Error, ErrorKind, Result, Tensor};
use firebrand_kernels::owned::Owned;
use firebrand_kernels::shared::{Arc, Weak};
use smallvec::SmallVec;
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// Where a gradient goes: a node and which of its inputs (= outputs of its forward op).
#[derive(Clone, Debug)]
pub struct Edge {
    /// The node that receives the gradient.
    pub node: Node,
    /// Which of its inputs.
    pub slot: u32,
}

/// One edge per differentiable input of the forward op, `None` where no gradient is needed.
pub type Edges = SmallVec<[Option<Edge>; 2]>;
/// Gradients: per output of the forward op on the way in, per input on the way out.
pub type Gradients = SmallVec<[Option<Tensor>; 2]>;

/// Shape, dtype and device of one output of the forward op.
#[derive(Clone, Debug, PartialEq)]
pub struct InputMetadata {
    /// Sizes.
    pub shape: SmallVec<[usize; 4]>,
    /// Dtype of the output, and of its gradient unless `grad_dtype` says otherwise.
    pub dtype: DType,
    /// Device.
    pub device: Device,
    /// Accept gradients of any dtype.
    pub any_dtype: bool,
}

impl InputMetadata {
    #[inline(always)]
    pub(crate) fn of(t: &Tensor) -> InputMetadata {
        InputMetadata { shape: SmallVec::from_slice(t.shape()), dtype: t.dtype(), device: t.device(), any_dtype: false }
    }
    pub(crate) fn dims(&self) -> Dims {
        Dims::from_slice(&self.shape)
    }
}

/// Which gradients a run needs from a node.
pub struct Needs<'a> {
    edges: &'a Edges,
    /// Bits of the first 64 edges that exist but are not needed by the run.
    unwanted: u64,
    last_run: bool,
}

impl<'a> Needs<'a> {
    /// All that have an edge.
    pub(crate) fn all(edges: &'a Edges) -> Needs<'a> {
        Needs { edges, unwanted: 0, last_run: false }
    }
    pub(crate) fn without(edges: &'a Edges, unwanted: u64) -> Needs<'a> {
        Needs { edges, unwanted, last_run: false }
    }
    /// The same, for the last run that reads the saved values.
    pub(crate) fn last_run(self, last_run: bool) -> Needs<'a> {
        Needs { last_run, ..self }
    }
    /// Whether saved values may be moved out.
    #[inline]
    pub(crate) fn is_last_run(&self) -> bool {
        self.last_run
    }
    /// Whether the gradient of input `k` is needed.
    #[inline]
    pub fn get(&self, k: usize) -> bool {
        self.edges.get(k).is_some_and(Option::is_some) && (k >= 64 || self.unwanted >> k & 1 == 0)
    }
    /// Whether some gradient of the inputs `range` is needed.
    pub fn any(&self, range: std::ops::Range<usize>) -> bool {
        range.into_iter().any(|k| self.get(k))
    }
    /// Number of inputs.
    pub fn len(&self) -> usize {
        self.edges.len()
    }
    /// Whether there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }
}

/// What a node asks of the engine while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// To add to the gradients already collected for its inputs ([`super::Context::input_grad_buffers`]).
    pub input_buffers: bool,
    /// To hand gradients to leaves before it has ended ([`super::Context::hand_over`]).
    pub early_leaves: bool,
}

/// A derivative of any type, owned by its node.
pub type BoxedBackward = Owned<dyn Backward>;

/// A derivative as nodes own it.
#[inline]
pub(crate) fn boxed<B: Backward>(formula: B) -> BoxedBackward {
    Owned::new(formula).erase(|f| f as &mut dyn Backward)
}

/// The derivative of one forward op: what the generator writes, and what custom functions provide.
pub trait Backward: Send + Sync + 'static {
    /// `MulBackward0`, as PyTorch prints it.
    fn name(&self) -> &str;

    /// Gradients of the inputs from those of the outputs. `None` means undefined (zero).
    fn apply(&self, node: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients>;

    /// Drops saved values after the last run.
    fn release(&self) {}

    /// Whether `apply` itself moves saved values out on the last run, so that `release` has nothing left to do.
    fn takes_saved(&self) -> bool {
        false
    }

    /// Saved values by name, unpacked.
    fn saved(&self, _node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
        Ok(Vec::new())
    }

    /// Visits everything it saves, in a fixed order; `Ok(false)` if its formula is not a function of gradients and these values.
    fn visit_saved(&self, _node: &Node, _visitor: &mut dyn SavedVisitor) -> Result<bool> {
        Ok(false)
    }

    /// The same formula with other saved tensors; `None` if it saves none.
    fn outlined(
        &self,
        _node: &Node,
        _outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
    ) -> Result<Option<BoxedBackward>> {
        Ok(None)
    }

    /// Which formula it is, together with its name.
    fn kind(&self) -> TypeId {
        TypeId::of::<Self>()
    }

    /// Where the formula is declared, if that tells it from all others.
    fn declared_at(&self) -> Option<u64> {
        None
    }

    /// Sets hooks on a saved tensor. `Ok(false)` if there is none with that name.
    fn hook_saved(&self, _at: SavedAt<'_>, _hooks: std::sync::Arc<super::saved::SavedHooks>) -> Result<bool> {
        Ok(false)
    }

    /// The leaf this node accumulates into.
    fn variable(&self) -> Option<&Tensor> {
        None
    }

    /// What it asks of the engine while it runs.
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }

    /// For custom functions: what they know about their call.
    fn context(&self) -> Option<&super::Context> {
        None
    }

    /// For custom functions: the function itself.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// String-keyed values attached to a node.
pub type Metadata = indexmap::IndexMap<String, std::sync::Arc<dyn Any + Send + Sync>>;

/// What only few nodes have.
#[derive(Default)]
pub(crate) struct NodeExtras {
    pub(crate) hooks: NodeHooks,
    pub(crate) metadata: Mutex<Metadata>,
}

/// A recorded operation: a cheap handle, like a tensor.
///
/// Nodes come from recorded operations only; they cannot be constructed by hand (B-7).
#[derive(Clone)]
pub struct Node(Arc<NodeInner>);

/// A handle that does not keep the node alive.
#[derive(Clone)]
pub struct WeakNode(Weak<NodeInner>);

impl WeakNode {
    /// The node, if it is still alive.
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(Node)
    }
}

struct NodeInner {
    sequence_nr: AtomicU64,
    /// The wrapping level (`func::level`) to whose graph it belongs.
    level: u32,
    edges: Edges,
    inputs: SmallVec<[InputMetadata; 1]>,
    stamp: Stamp,
    extras: OnceLock<Box<NodeExtras>>,
    formula: BoxedBackward,
}

impl Node {
    /// A node with the next sequence number of this thread.
    #[inline(always)]
    pub(crate) fn new(edges: Edges, inputs: SmallVec<[InputMetadata; 1]>, formula: BoxedBackward) -> Result<Node> {
        Node::with_sequence(state::next_sequence(), edges, inputs, formula)
    }

    #[inline(always)]
    pub(crate) fn with_sequence(
        sequence_nr: u64,
        edges: Edges,
        inputs: SmallVec<[InputMetadata; 1]>,
        formula: BoxedBackward,
    ) -> Result<Node> {
        let node = Node::unannounced(sequence_nr, edges, inputs, formula);
        node.announce()?;
        Ok(node)
    }

    /// A node that creation hooks have not seen: [`Node::announce`] shows it to them.
    #[inline(always)]
    pub(crate) fn unannounced(
        sequence_nr: u64,
        edges: Edges,
        inputs: SmallVec<[InputMetadata; 1]>,
        formula: BoxedBackward,
    ) -> Node {
        Node::built(sequence_nr, edges, || inputs, formula)
    }

    /// The node of an op with one output, and with the next sequence number of this thread.
    #[inline(always)]
    pub(crate) fn of_output(out: &Tensor, edges: Edges, formula: BoxedBackward) -> Result<Node> {
        let inputs = || SmallVec::from_buf([InputMetadata::of(out)]);
        let node = Node::built(state::next_sequence(), edges, inputs, formula);
        node.announce()?;
        Ok(node)
    }

    /// Its parts are put together where they stay.
    #[inline(always)]
    fn built(
        sequence_nr: u64,
        edges: Edges,
        inputs: impl FnOnce() -> SmallVec<[InputMetadata; 1]>,
        formula: BoxedBackward,
    ) -> Node {
        let level = state::word() & state::LEVEL;
        Node(Arc::make(|| NodeInner {
            sequence_nr: AtomicU64::new(sequence_nr),
            level,
            edges,
            inputs: inputs(),
            stamp: Stamp::default(),
            extras: OnceLock::new(),
            formula,
        }))
    }

    /// Shows a new node to anomaly mode and to creation hooks. No lock is held.
    #[inline]
    pub(crate) fn announce(&self) -> Result<()> {
        if state::is(state::ANOMALY | state::CREATION) { super::hooks::announce(self) } else { Ok(()) }
    }

    /// `MulBackward0`, `torch::autograd::AccumulateGrad`, …
    pub fn name(&self) -> &str {
        self.0.formula.name()
    }

    /// Creation order on the thread that recorded it; `u64::MAX` for accumulate nodes.
    pub fn sequence_nr(&self) -> u64 {
        self.0.sequence_nr.load(Relaxed)
    }

    /// Changes the creation order. A run executes nodes with higher numbers first among those that are ready; it must not change
    /// while one runs.
    pub fn set_sequence_nr(&self, number: u64) {
        self.0.sequence_nr.store(number, Relaxed)
    }

    #[inline]
    pub(crate) fn level(&self) -> u32 {
        self.0.level
    }

    /// Where the gradients of its inputs go, one entry per differentiable input of the forward op.
    pub fn next_functions(&self) -> &[Option<Edge>] {
        &self.0.edges
    }

    #[inline]
    pub(crate) fn edges(&self) -> &Edges {
        &self.0.edges
    }

    /// The required shape, dtype and device of each incoming gradient.
    #[inline]
    pub fn input_metadata(&self) -> &[InputMetadata] {
        &self.0.inputs
    }

    /// A copy of the node's metadata map.
    pub fn metadata(&self) -> Metadata {
        match self.extras_if_any() {
            Some(e) => e.metadata.lock().unwrap_or_else(|e| e.into_inner()).clone(),
            None => Metadata::default(),
        }
    }

    /// Inserts a value into the node's metadata map; returns the one it replaces.
    pub fn insert_metadata(
        &self,
        key: impl Into<String>,
        value: std::sync::Arc<dyn Any + Send + Sync>,
    ) -> Option<std::sync::Arc<dyn Any + Send + Sync>> {
        let key = key.into();
        self.extras().metadata.lock().unwrap_or_else(|e| e.into_inner()).insert(key, value)
    }

    /// Removes a value from the node's metadata map.
    pub fn remove_metadata(&self, key: &str) -> Option<std::sync::Arc<dyn Any + Send + Sync>> {
        self.extras_if_any()?.metadata.lock().unwrap_or_else(|e| e.into_inner()).shift_remove(key)
    }

    /// The leaf that this node accumulates into, if it is an accumulate node.
    pub fn variable(&self) -> Option<&Tensor> {
        self.0.formula.variable()
    }

    #[inline]
    pub(crate) fn extras(&self) -> &NodeExtras {
        self.0.extras.get_or_init(Box::default)
    }

    #[inline]
    pub(crate) fn extras_if_any(&self) -> Option<&NodeExtras> {
        self.0.extras.get().map(|b| &**b)
    }

    /// Calls the derivative directly, without the node's hooks.
    pub fn call(&self, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let out = self.0.formula.apply(self, grads.iter().cloned().collect(), &Needs::all(&self.0.edges))?;
        Ok(out.into_vec())
    }

    /// A saved value by name (`self`, `other`, `result`, `dim`, …), unpacked and version-checked; `None` if there is none.
    pub fn saved(&self, name: &str) -> Result<Option<SavedValue>> {
        Ok(self.0.formula.saved(self)?.into_iter().find(|(n, _)| *n == name).map(|(_, v)| v))
    }

    /// The names of all saved values.
    pub fn saved_names(&self) -> Result<Vec<&'static str>> {
        Ok(self.0.formula.saved(self)?.into_iter().map(|(n, _)| n).collect())
    }

    /// Sets pack and unpack hooks on one saved tensor, packing it immediately. One of several that are saved under a name is
    /// `tensors[0]`; so are those of a custom function.
    pub fn register_saved_hooks(&self, name: &str, hooks: super::saved::SavedHooks) -> Result<()> {
        let index = |s: &str| s.strip_suffix(']').and_then(|k| k.parse().ok());
        let at = match name.split_once('[').map(|(list, k)| (list, index(k))) {
            Some((list, Some(k))) => (list, Some(k)),
            _ => (name, None),
        };
        match self.0.formula.hook_saved(at, std::sync::Arc::new(hooks))? {
            true => Ok(()),
            false => Err(Error::argument("register_saved_hooks", format!("{} saves no tensor '{name}'", self.name()))),
        }
    }

    /// The derivative itself.
    #[inline]
    pub fn formula(&self) -> &dyn Backward {
        &*self.0.formula
    }

    /// A node at the same place with another formula.
    pub(crate) fn with_formula(&self, formula: BoxedBackward) -> Result<Node> {
        Node::with_sequence(self.sequence_nr(), self.0.edges.clone(), self.0.inputs.clone(), formula)
    }

    #[inline]
    pub(crate) fn stamp(&self) -> &Stamp {
        &self.0.stamp
    }

    /// Whether both handles refer to the same node.
    pub fn is_same(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that identifies the node while it lives.
    pub fn id(&self) -> usize {
        self.addr()
    }

    /// An address that identifies the node while it lives.
    #[inline]
    pub(crate) fn addr(&self) -> usize {
        Arc::addr(&self.0)
    }

    /// How many handles, edges and tensors own this node.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// A handle that does not keep the node alive.
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }

    pub(crate) fn freed(&self) -> Error {
        ErrorKind::GraphFreed { node: self.name().to_string() }.into()
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<{}>", self.name())
    }
}

thread_local! {
    // No destructor to register, so it also works while the thread's other locals are being destroyed.
    static PENDING: ManuallyDrop<RefCell<Vec<Node>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}

/// Drops a node reference; if it is the last, its children wait in a queue instead of on the call stack.
#[inline]
pub(crate) fn defer(node: Node) {
    if Arc::strong_count(&node.0) > 1 {
        return;
    }
    if DRAINING.get() {
        return PENDING.with(|p| p.borrow_mut().push(node));
    }
    DRAINING.set(true);
    let mut draining = Draining { ended: false };
    drop(node);
    while let Some(n) = next_pending() {
        drop(n)
    }
    draining.ended = true;
}

fn next_pending() -> Option<Node> {
    PENDING.with(|p| p.borrow_mut().pop())
}

/// Ends draining, also when a value that a node owns panics in its own drop: what waits is dropped all the same.
struct Draining {
    ended: bool,
}

impl Drop for Draining {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            drain_after_panic();
        }
        DRAINING.set(false);
    }
}

/// Drops what waits while a panic is under way. A second panic is kept from ending the process; its payload is not dropped,
/// because that could be a third.
#[cold]
fn drain_after_panic() {
    while let Some(n) = next_pending() {
        if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(n))) {
            std::mem::forget(payload);
        }
    }
}

impl Drop for NodeInner {
    #[inline]
    fn drop(&mut self) {
        for e in self.edges.iter_mut().filter_map(Option::take) {
            defer(e.node)
        }
    }
}

/// A position in the graph: the gradient with respect to the value that node input `output_nr` had when the edge was obtained.
#[derive(Clone, Debug)]
pub struct GradientEdge {
    /// The node.
    pub node: Node,
    /// Which of its inputs.
    pub output_nr: usize,
    /// Nodes own themselves here, so nothing else needs to be kept alive; present for parity with PyTorch.
    pub ownership_token: Option<Node>,
}

/// The edge of a tensor that requires grad: its node, or the accumulate node of a leaf.
#[track_caller]
pub fn get_gradient_edge(t: &Tensor) -> Result<GradientEdge> {
    let real = crate::capture::itself(t, "get_gradient_edge")?;
    let t = real.as_ref().unwrap_or(t);
    if !t.requires_grad() {
        return Err(ErrorKind::EdgeNoGrad.into());
    }
    let e = t.gradient_edge()?.ok_or_else(|| Error::from(ErrorKind::EdgeNoGrad))?;
    Ok(GradientEdge { node: e.node, output_nr: e.slot as usize, ownership_token: None })
}
