//! Runs of the engine executed elsewhere: by a compiler of backward passes.
//!
//! While a [`RunnerScope`] lives, every run of this thread that records nothing is laid out as a [`GraphTask`] (its nodes in
//! the order in which the engine would run them) and offered to a [`BackwardRunner`], which executes it or declines. It
//! calls hooks, formulas and accumulation through the functions here, which are the engine's own: what hooks may
//! ask of a run (its id, callbacks at its end, which nodes take part) is in place. A thread without a scope tests one bit.

use super::engine::{self, Laid};
use super::function::BufferScope;
use super::node::{Backward, Gradients, Needs, Node};
use super::{hook_table, hooks};
use crate::state::{self, ModeGuard};
use crate::{Result, Tensor};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Executes runs in the engine's place.
pub trait BackwardRunner: Send + Sync {
    /// Executes the run, or declines so that the engine does.
    fn run(&self, task: &GraphTask<'_>) -> Result<Outcome>;
}

/// For one node of a run, which of the gradients it computed are defined.
pub type Defined = SmallVec<[bool; 4]>;

/// Called, node by node in order, with which gradients a run produced.
pub type Observer = Box<dyn FnOnce(&[Defined]) -> Result<()>>;

/// The outcome of a run.
pub enum Outcome {
    /// It was executed; these are the captured gradients.
    Done(Vec<Option<Tensor>>),
    /// The engine should execute it.
    Plain,
    /// The engine should execute it and report what it saw.
    Observe(Observer),
}

/// A run that is about to be executed.
pub struct GraphTask<'a> {
    pub(super) laid: Laid<'a>,
}

/// Where a gradient goes: the index of a step, and which of its inputs.
pub type Place = (usize, usize);

impl<'a> GraphTask<'a> {
    /// Number of nodes in the run.
    #[inline]
    pub fn len(&self) -> usize {
        self.laid.order.len()
    }

    /// Whether the run has no nodes.
    pub fn is_empty(&self) -> bool {
        self.laid.order.is_empty()
    }

    /// A node, by its place in the order of execution.
    #[inline]
    pub fn node(&self, step: usize) -> &'a Node {
        self.laid.node(step)
    }

    /// Whether the node's formula runs; otherwise gradients are only captured there.
    #[inline]
    pub fn executes(&self, step: usize) -> bool {
        self.laid.executes(step)
    }

    /// Where the gradient of input `k` of a node goes; `None` if it is not needed.
    #[inline]
    pub fn target(&self, step: usize, k: usize) -> Option<Place> {
        self.laid.target(step, k)
    }

    /// The seeds in the order of delivery.
    pub fn seeds(&self) -> impl Iterator<Item = (Place, &'a Tensor)> + '_ {
        self.laid.seeds()
    }

    /// The gradients that are captured at a node: (input, place in the answer).
    #[inline]
    pub fn captures(&self, step: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.laid.captures(step)
    }

    /// Number of captured gradients.
    pub fn answers(&self) -> usize {
        self.laid.answers
    }

    /// Whether saved values are kept for another run.
    pub fn keeps_graph(&self) -> bool {
        self.laid.keep_graph
    }
}

/// While it lives, runs of this thread are offered to a runner. The innermost scope applies.
#[must_use = "the scope lasts while the guard lives"]
pub struct RunnerScope {
    before: Option<Arc<dyn BackwardRunner>>,
    _mode: ModeGuard,
}

impl RunnerScope {
    /// Offers runs to `runner`, or to none.
    pub fn new(runner: Option<Arc<dyn BackwardRunner>>) -> RunnerScope {
        let (on, off) = if runner.is_some() { (state::RUNNER, 0) } else { (0, state::RUNNER) };
        RunnerScope {
            before: state::stacks(|s| std::mem::replace(&mut s.runner, runner)),
            _mode: ModeGuard::new(on, off),
        }
    }
}

impl Drop for RunnerScope {
    fn drop(&mut self) {
        let ended = state::stacks(|s| std::mem::replace(&mut s.runner, self.before.take()));
        drop(ended);
    }
}

/// The runner that runs on this thread are offered to. Under modes that change what ops do, the engine runs itself.
pub(super) fn active(create_graph: bool) -> Option<Arc<dyn BackwardRunner>> {
    const OWN: u32 = state::LAYERS
        | state::INNER
        | state::DUAL
        | state::INFERENCE
        | state::ANOMALY
        | state::CHECK_NAN
        | state::CREATION
        | state::MUTATION_WATCH
        | state::DEPTH
        | state::LEVEL;
    if create_graph || state::is(OWN) {
        return None;
    }
    state::stacks(|s| s.runner.clone())
}

/// An id for the kind of a formula, the same as long as the program runs: [`Backward::kind`] and its name, or where its
/// declaration is. It is queried for every node of a run.
#[inline]
pub fn kind_of(formula: &dyn Backward) -> u64 {
    formula.declared_at().unwrap_or_else(|| {
        let mut words = Words(0);
        (formula.kind(), formula.name()).hash(&mut words);
        words.finish()
    })
}

/// A hash that takes eight bytes at a time; not resistant to malicious input.
struct Words(u64);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hooks of a node, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// On gradients of its outputs, or of the leaf.
    pub tensor: usize,
    /// How many of these are pure.
    pub pure: usize,
    /// Outputs that keep their gradient.
    pub retained: usize,
    /// Before the node.
    pub pre: usize,
    /// After it.
    pub post: usize,
    /// After accumulation into the leaf.
    pub post_accumulate: usize,
}

/// Counts the hooks of a node; `pure` gets something that identifies each pure one while it is registered. Hooks of one
/// type that capture nothing are one.
pub fn hook_counts(node: &Node, mut pure: impl FnMut(u64)) -> HookCounts {
    let mut counts = HookCounts::default();
    let leaf = node.variable().and_then(Tensor::extras_if_any);
    let extras = node.extras_if_any().map(|e| &e.hooks);
    for table in [leaf.and_then(|l| l.hooks.get()), extras.and_then(|h| h.tensor.get())].into_iter().flatten() {
        let Ok(()) = table.try_for_each(|hook| -> Result<(), std::convert::Infallible> {
            counts.tensor += 1;
            if hook.pure.is_some() {
                counts.pure += 1;
                pure(hook.identity());
            }
            Ok(())
        });
    }
    if let Some(hooks) = extras {
        counts.retained = hooks.retain.get().map_or(0, |r| r.lock().unwrap_or_else(|e| e.into_inner()).len());
        counts.pre = hooks.pre.get().map_or(0, |t| t.len());
        counts.post = hooks.post.get().map_or(0, |t| t.len());
    }
    counts.post_accumulate = leaf.and_then(|l| l.post_accumulate_hooks.get()).map_or(0, |t| t.len());
    counts
}

/// A number that grows whenever a hook is registered or removed, on whatever node.
pub fn hook_changes() -> u64 {
    hook_table::changes()
}

/// The pure hooks of a node: while they are held, their identities cannot be reused.
pub fn pure_hooks(node: &Node) -> Vec<crate::capture::TensorHookFn> {
    let leaf = node.variable().and_then(Tensor::extras_if_any).and_then(|l| l.hooks.get());
    let own = node.extras_if_any().and_then(|e| e.hooks.tensor.get());
    let tables = [leaf, own].into_iter().flatten();
    tables.flat_map(|t| t.snapshot()).filter(|h| h.pure.is_some()).map(|h| h.run).collect()
}

/// Whether the leaf of an accumulate node has a gradient already.
pub fn has_grad(node: &Node) -> bool {
    node.variable().and_then(Tensor::extras_if_any).is_some_and(|e| e.grad.is_some())
}

/// Runs the hooks on gradients of a node's outputs, or of its leaf; then tensors that keep their gradient get it.
pub fn run_tensor_hooks(node: &Node, grads: &mut Gradients) -> Result<()> {
    hooks::run_tensor_pre_hooks(node, grads)
}

/// Runs the hooks before a node.
pub fn run_pre_hooks(node: &Node, grads: &mut Gradients) -> Result<()> {
    hooks::run_pre_hooks(node, grads)
}

/// While the guard lives, `node` is the one that this thread's run executes: what [`current_node`](super::current_node) gives.
pub fn executing(node: &Node) -> impl Drop + use<> {
    engine::Executing::node(node)
}

/// Whether there are hooks that run after a node.
pub fn has_post_hooks(node: &Node) -> bool {
    hooks::has_post_hooks(node)
}

/// Runs the hooks after a node.
pub fn run_post_hooks(node: &Node, outgoing: &mut Gradients, incoming: &Gradients) -> Result<()> {
    hooks::run_post_hooks(node, outgoing, incoming)
}

/// Runs a formula in the place of a node: its own, or another like it. The results look as the next nodes expect. `unwanted`
/// has a bit for each of the first 64 gradients that are not needed.
pub fn apply(node: &Node, formula: &dyn Backward, grads: Gradients, unwanted: u64) -> Result<Gradients> {
    let _buffers =
        formula.wishes().input_buffers.then(|| BufferScope::new(Err("not in a backward pass that is compiled")));
    let mut outs = formula.apply(node, grads, &Needs::without(node.edges(), unwanted))?;
    engine::validate(node, &mut outs)?;
    Ok(outs)
}

/// The tensor without its history.
#[inline]
pub fn without_history(t: &Tensor) -> Tensor {
    if t.requires_grad() || t.is_view_here() { t.alias_with(t.layout().clone()) } else { t.clone() }
}

/// Drops the saved values of a node.
pub fn release(node: &Node) {
    node.formula().release()
}
