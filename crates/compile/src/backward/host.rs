//! The parts of a compiled backward pass outside its graph: hooks, formulas that are not traced, unpacking, accumulation.
//!
//! A frame knows what each slot stands for; a run brings the nodes. Everything is done by the engine's own functions, so it
//! happens as in an eager run. The first error is kept as it is: backends may wrap what passes through them.

use super::key::Key;
use crate::backend::{ACCUMULATE, HostCalls};
use crate::error::{Error, Result};
use firebrand_core::autograd::runner::{self, GraphTask, HookCounts, hook_counts};
use firebrand_core::autograd::{Gradients, Look, Node, SavedTensor, SavedVisitor};
use firebrand_core::{ErrorKind, Scalar, Spec, Tensor};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// What a slot stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostOp {
    pub(crate) step: usize,
    pub(crate) kind: HostKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Hooks on gradients, and tensors that keep theirs.
    TensorHooks,
    /// Hooks before a node.
    PreHooks,
    /// Hooks after it: outgoing gradients, then as many incoming ones as there are.
    PostHooks { outgoing: usize },
    /// A formula, and the hooks after it; the bits say which gradients are not needed.
    Formula { unwanted: u64 },
    /// Reads a packed tensor: the one at this place among those the node keeps.
    Unpack { place: usize },
    /// Adds to the gradient of a leaf. Whether it had no hooks when the pass began: those that it has got since are called.
    Accumulate { bare: bool },
    /// Likewise, and then runs hooks.
    AccumulateHooked { bare: bool },
}

impl HostKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            HostKind::TensorHooks => "tensor_hooks",
            HostKind::PreHooks => "pre_hooks",
            HostKind::PostHooks { .. } => "post_hooks",
            HostKind::Formula { .. } => "call_backward",
            HostKind::Unpack { .. } => "unpack",
            HostKind::Accumulate { .. } => ACCUMULATE,
            HostKind::AccumulateHooked { .. } => "accumulate_grad_with_hooks",
        }
    }
}

impl HostKind {
    fn is_user_code(self) -> bool {
        !matches!(self, HostKind::Accumulate { .. })
    }
}

/// The hooks that a step had when the run began.
pub(crate) struct Hooked {
    node: Node,
    pub(crate) counts: HookCounts,
    pure: u64,
}

impl Hooked {
    pub(crate) fn of(node: &Node) -> Hooked {
        let mut pure = 0u64;
        let counts = hook_counts(node, |id| pure = pure.rotate_left(5) ^ id);
        Hooked { node: node.clone(), counts, pure }
    }

    /// Whether it has others now. Those of a leaf that had none are called.
    fn has_changed(&self) -> bool {
        let HookCounts { tensor, pre, post, .. } = self.counts;
        let bare_leaf = self.node.variable().is_some() && tensor + pre + post == 0;
        !bare_leaf && !Hooked::of(&self.node).is_like(self)
    }

    /// Whether it has hooks after it that have no place in the graph.
    fn gained_post_hooks(&self) -> bool {
        self.counts.post == 0 && runner::has_post_hooks(&self.node)
    }

    /// Whether these are the same hooks.
    pub(crate) fn is_like(&self, other: &Hooked) -> bool {
        self.counts == other.counts && self.pure == other.pure
    }
}

/// A tensor that a step reads, and the version it had when the run began.
struct Watched {
    tensor: Tensor,
    version: u32,
    step: usize,
}

/// What one run brings along.
pub(crate) struct RunHost {
    /// For each slot, the node it is about.
    nodes: Vec<Node>,
    ops: Arc<[HostOp]>,
    watched: Vec<Watched>,
    /// The hooks of all steps, if user code runs in the middle of the run.
    hooked: Vec<Hooked>,
    /// What [`runner::hook_changes`] said last.
    changes: AtomicU64,
    failed: Mutex<Option<firebrand_core::Error>>,
}

impl RunHost {
    /// For a run; what it reads is watched if user code runs in its middle.
    pub(crate) fn new(task: &GraphTask<'_>, ops: &Arc<[HostOp]>, key: &Key) -> Arc<RunHost> {
        let one = |(tensor, step): (&Tensor, &usize)| {
            Some(Watched { version: tensor.try_version().ok()?, tensor: tensor.clone(), step: *step })
        };
        let (mut watched, mut hooked) = (Vec::new(), Vec::new());
        if ops.iter().any(|op| op.kind.is_user_code()) {
            watched = key.tensors.iter().zip(&key.read_by).filter_map(one).collect();
            hooked = (0..task.len()).map(|step| Hooked::of(task.node(step))).collect();
        }
        let nodes = ops.iter().map(|op| task.node(op.step).clone()).collect();
        let changes = AtomicU64::new(runner::hook_changes());
        Arc::new(RunHost { nodes, ops: ops.clone(), watched, hooked, changes, failed: Mutex::default() })
    }

    /// What went wrong in a call, if something did.
    pub(crate) fn failure(&self) -> Option<firebrand_core::Error> {
        self.failed.lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    fn perform(
        node: &Node,
        kind: HostKind,
        mut values: Vec<Option<Tensor>>,
    ) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        Ok(match kind {
            HostKind::TensorHooks => {
                let mut grads: Gradients = values.into();
                runner::run_tensor_hooks(node, &mut grads)?;
                grads.into_vec()
            }
            HostKind::PreHooks => {
                let mut grads: Gradients = values.into();
                runner::run_pre_hooks(node, &mut grads)?;
                grads.into_vec()
            }
            HostKind::PostHooks { outgoing } => {
                let incoming: Gradients = values.split_off(outgoing).into();
                let mut outs: Gradients = values.into();
                runner::run_post_hooks(node, &mut outs, &incoming)?;
                outs.into_vec()
            }
            HostKind::Formula { unwanted } => {
                let grads: Gradients = values.into();
                let incoming = runner::has_post_hooks(node).then(|| grads.clone());
                let mut outs = runner::apply(node, node.formula(), grads, unwanted)?;
                // Those that an unpack hook has registered meanwhile are called too.
                runner::run_post_hooks(node, &mut outs, &incoming.unwrap_or_default())?;
                // Hooks see what leads nowhere, the graph does not.
                for (k, out) in outs.iter_mut().enumerate().take(64) {
                    out.take_if(|_| unwanted & 1 << k != 0);
                }
                outs.into_vec()
            }
            HostKind::Accumulate { bare } | HostKind::AccumulateHooked { bare } => {
                let mut grads: Gradients = values.into();
                if !bare {
                    runner::apply(node, node.formula(), grads, 0)?;
                    return Ok(Vec::new());
                }
                runner::run_tensor_hooks(node, &mut grads)?;
                runner::run_pre_hooks(node, &mut grads)?;
                let incoming = runner::has_post_hooks(node).then(|| grads.clone());
                runner::apply(node, node.formula(), grads, 0)?;
                if let Some(incoming) = incoming {
                    runner::run_post_hooks(node, &mut Gradients::new(), &incoming)?;
                }
                Vec::new()
            }
            HostKind::Unpack { place } => {
                let mut find = Find { node, place, found: None };
                node.formula().visit_saved(node, &mut find)?;
                let saved = find.found.ok_or_else(|| firebrand_core::Error::user("a packed tensor is gone"))?;
                vec![saved.unpack(node)?.as_ref().map(runner::without_history)]
            }
        })
    }

    /// What user code has written since the run began must not be read any more, as in an eager run.
    fn check_versions(&self, after: usize) -> firebrand_core::Result<()> {
        for w in self.watched.iter().filter(|w| w.step > after) {
            let found = w.tensor.try_version().unwrap_or(w.version);
            if found != w.version {
                let (dtype, shape, expected) = (w.tensor.dtype(), w.tensor.shape().to_vec(), w.version);
                return Err(ErrorKind::SavedVersionMismatch { dtype, shape, producer: None, expected, found }.into());
            }
        }
        Ok(())
    }
}

impl RunHost {
    /// What user code has done to the hooks of later steps is not in the graph, nor what an unpack hook has done to those of its node:
    /// of these, the hooks after the node would still be called in an eager run.
    fn check_hooks(&self, HostOp { step, kind }: HostOp) -> firebrand_core::Result<()> {
        let now = runner::hook_changes();
        if self.changes.swap(now, Relaxed) == now {
            return Ok(());
        }
        let inside = matches!(kind, HostKind::Unpack { .. });
        let own = self.hooked.get(step).filter(|h| inside && h.gained_post_hooks());
        match own.or_else(|| self.hooked.iter().skip(step + 1).find(|h| h.has_changed())) {
            None => Ok(()),
            Some(hooked) => Err(firebrand_core::Error::user(format!(
                "a hook registered or removed hooks of {}, which {} in the same backward pass; run this backward outside the \
                 scope of compiled backward",
                hooked.node.name(),
                if own.is_some() { "is running" } else { "comes later" }
            ))),
        }
    }
}

impl HostCalls for RunHost {
    fn call(&self, slot: usize, values: Vec<Option<Tensor>>, results: &[Option<Spec>]) -> Result<Vec<Option<Tensor>>> {
        let op = *self.ops.get(slot).ok_or_else(|| Error::internal(format!("a backward graph names slot {slot}")))?;
        let node = &self.nodes[slot];
        let _here = op.kind.is_user_code().then(|| runner::executing(node));
        let done = RunHost::perform(node, op.kind, values).and_then(|found| {
            if op.kind.is_user_code() {
                self.check_versions(op.step)?;
                self.check_hooks(op)?;
            }
            fitted(found, results, node)
        });
        done.map_err(|e| {
            let told = Error::internal(format!("{} failed: {e}", op.kind.name()));
            self.failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e);
            told
        })
    }
}

/// The gradients as the graph expects them. One that is absent now would be zeros there, which hooks and leaves could tell from none;
/// one that is new has no place.
fn fitted(
    found: Vec<Option<Tensor>>,
    expected: &[Option<Spec>],
    node: &Node,
) -> firebrand_core::Result<Vec<Option<Tensor>>> {
    let mut found = found.into_iter();
    let refused = |what: &str| {
        firebrand_core::Error::user(format!(
            "{} or one of its hooks {what} when the backward pass was captured; run this backward outside the scope of \
             compiled backward",
            node.name()
        ))
    };
    let one = |spec: &Option<Spec>| match (found.next().flatten(), spec) {
        (Some(t), Some(_)) => Ok(Some(t)),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(refused("left a gradient undefined that was defined")),
        (Some(_), None) => Err(refused("returned a gradient that was undefined")),
    };
    expected.iter().map(one).collect()
}

/// Finds one of the tensors that a node keeps.
struct Find<'a> {
    node: &'a Node,
    place: usize,
    found: Option<SavedTensor>,
}

impl SavedVisitor for Find<'_> {
    fn tensor(&mut self, saved: &SavedTensor) -> firebrand_core::Result<()> {
        if matches!(saved.look(self.node)?, Look::Packed(_)) {
            if self.place == 0 {
                self.found = Some(saved.clone());
            }
            self.place = self.place.wrapping_sub(1);
        }
        Ok(())
    }
    fn size(&mut self, _: i64) {}
    fn number(&mut self, _: Scalar) {}
    fn fixed(&mut self, _: u64) {}
}
