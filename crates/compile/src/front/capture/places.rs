//! The origin of a captured function's tensors at a call: from outside, from the graph, or created again.
//!
//! Taking the places out of a session takes its handles away too: from then on a tensor lives only if something else holds
//! it. The weak handles here keep ids from being used again.

use super::State;
use super::finish::Slot;
use crate::error::{Error, Result};
use crate::front::guard::TensorGuard;
use crate::front::leaves::Leaves;
use crate::front::source::Source;
use firebrand_core::autograd::no_grad;
use firebrand_core::{Tensor, WeakTensor};
use firebrand_graph::ir::{Argument, NodeId};
use std::collections::HashMap;

/// A tensor with data that the function uses and that is not an argument.
struct Free {
    /// The tensor; for one that the function made, a copy.
    tensor: Tensor,
    /// Whether the function made it.
    made: bool,
    /// The place among those that every call makes, once one is needed.
    local: Option<usize>,
}

/// The tensors of a session, by id and by node.
pub(super) struct Places {
    /// Stand-ins of sources.
    sources: HashMap<usize, Source>,
    /// Tensors that have a node.
    nodes: HashMap<usize, NodeId>,
    free: Vec<Free>,
    free_by_id: HashMap<usize, usize>,
    free_by_node: HashMap<NodeId, usize>,
    /// Everything that closures may hold, in the order of the function.
    known: Vec<WeakTensor>,
    outputs: Vec<NodeId>,
    output_of: HashMap<NodeId, usize>,
    locals: Vec<Tensor>,
    guarded: Vec<(Source, TensorGuard)>,
}

/// What stood for a tensor of a call that is over stands for nothing.
pub(super) fn refuse_kept(t: &Tensor) -> Result<()> {
    if !(t.is_meta() && t.is_stand_in()) {
        return Ok(());
    }
    let text = "a tensor of an earlier call was kept where a compiled function cannot see it (in a Mutex or a struct, say), and is used here: keep it in a Shared cell, or return it and pass it in";
    Err(firebrand_core::Error::argument("a compiled function", text).into())
}

impl Places {
    /// Takes all tensors out of a session.
    pub(super) fn new(state: &mut State) -> Result<Places> {
        let mut places = Places {
            sources: HashMap::new(),
            nodes: HashMap::new(),
            free: Vec::new(),
            free_by_id: HashMap::new(),
            free_by_node: HashMap::new(),
            known: Vec::new(),
            outputs: Vec::new(),
            output_of: HashMap::new(),
            locals: Vec::new(),
            guarded: Vec::new(),
        };
        state.reals.clear();
        state.tensor_cells.clear();
        state.casts.clear();
        state.cells.clear();
        let captured: Vec<(Tensor, NodeId)> = state.trace.captured().to_vec();
        state.trace.forget_captured();
        let made: HashMap<usize, Tensor> = state.made.drain(..).map(|t| (t.id(), t)).collect();
        let mut from_cells = Vec::new();
        for (stand_in, source) in state.sources.drain(..) {
            places.known.push(stand_in.downgrade());
            if let Source::Cell(_) | Source::Read(_) = source {
                from_cells.push(source.clone());
            }
            places.sources.insert(stand_in.id(), source);
        }
        for (t, node) in captured {
            refuse_kept(&t)?;
            places.add_free(&t, Some(node), made.contains_key(&t.id()))?;
        }
        for t in made.values() {
            if !places.free_by_id.contains_key(&t.id()) {
                places.add_free(t, None, true)?;
            }
        }
        let guarded = places.free.iter().filter(|f| !f.made).map(|f| &f.tensor);
        let guarded = guarded.map(|t| (Source::Captured(t.clone()), TensorGuard::fixed(t)));
        let cells = from_cells.into_iter().filter_map(|s| {
            let guard = TensorGuard::fixed(&s.tensor(&Leaves::default())?);
            Some((s, guard))
        });
        places.guarded = guarded.chain(cells).collect();
        for (t, node) in state.trace.release() {
            if let Some(t) = t.upgrade() {
                places.nodes.insert(t.id(), node);
            }
            places.known.push(t);
        }
        Ok(places)
    }

    fn add_free(&mut self, t: &Tensor, node: Option<NodeId>, made: bool) -> Result<()> {
        let at = self.free.len();
        self.free_by_id.insert(t.id(), at);
        self.free_by_node.extend(node.map(|n| (n, at)));
        // Of what the function made the capture keeps the values and not the tensor, which closures may hold or not.
        let tensor = match made {
            true => no_grad(|| t.try_clone_tensor())?.try_requires_grad_(t.requires_grad())?,
            false => t.clone(),
        };
        if made {
            self.known.push(t.downgrade());
        }
        self.free.push(Free { tensor, made, local: None });
        Ok(())
    }

    /// A tensor of the caller's or one that every call makes.
    fn free_source(&mut self, at: usize) -> Source {
        let free = &mut self.free[at];
        if !free.made {
            return Source::Captured(free.tensor.clone());
        }
        Source::Local(*free.local.get_or_insert_with(|| {
            self.locals.push(free.tensor.clone());
            self.locals.len() - 1
        }))
    }

    fn find(&mut self, t: &Tensor) -> Option<Slot> {
        if let Some(source) = self.sources.get(&t.id()) {
            return Some(Slot::Source(source.clone()));
        }
        let node = self.nodes.get(&t.id()).copied();
        let free = self.free_by_id.get(&t.id()).or_else(|| self.free_by_node.get(&node?));
        if let Some(&at) = free {
            return Some(Slot::Source(self.free_source(at)));
        }
        if !t.is_meta() {
            return Some(Slot::Source(Source::Captured(t.clone())));
        }
        let node = node?;
        let outputs = &mut self.outputs;
        let at = *self.output_of.entry(node).or_insert_with(|| {
            outputs.push(node);
            outputs.len() - 1
        });
        Some(Slot::Output(at))
    }

    /// Where a tensor comes from.
    pub(super) fn slot(&mut self, t: &Tensor) -> Result<Slot> {
        if let Some(slot) = self.find(t) {
            return Ok(slot);
        }
        refuse_kept(t)?;
        Err(Error::internal("untracked tensor in a captured function"))
    }

    /// What is still alive will stand for tensors of later calls, in closures, or for nothing.
    pub(super) fn mark_kept(&self) {
        self.known.iter().filter_map(WeakTensor::upgrade).filter(Tensor::is_meta).for_each(|t| t.mark_stand_in());
    }

    /// What is still alive: closures hold it.
    pub(super) fn held(&mut self) -> Vec<(Tensor, Slot)> {
        let known = std::mem::take(&mut self.known);
        let mut held: Vec<(Tensor, Slot)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for t in known.iter().filter_map(WeakTensor::upgrade).filter(|t| !t.is_wrapped_number()) {
            let made = self.free_by_id.get(&t.id()).is_some_and(|&at| self.free[at].made);
            if (t.is_meta() || made)
                && seen.insert(t.id())
                && let Some(slot) = self.find(&t)
            {
                held.push((t, slot));
            }
        }
        self.known = known;
        held
    }

    /// A placeholder that stands for a tensor the function uses: where it comes from, and what it is like. A constant that
    /// nothing can write or get hold of needs no copy.
    pub(super) fn free_input(&mut self, node: NodeId, writes: bool) -> Result<(Source, Tensor)> {
        let lost = || Error::internal("an input of the graph has no source");
        let at = *self.free_by_node.get(&node).ok_or_else(lost)?;
        let Free { tensor, made, local } = &self.free[at];
        let tensor = tensor.clone();
        let source = match *made && local.is_none() && !writes {
            true => Source::Captured(tensor.clone()),
            false => self.free_source(at),
        };
        Ok((source, tensor))
    }

    /// What the graph returns.
    pub(super) fn outputs(&self) -> Vec<Argument> {
        self.outputs.iter().map(|&n| n.into()).collect()
    }

    /// What must be as it was: tensors and cells of the caller's.
    pub(super) fn guarded(&mut self) -> Vec<(Source, TensorGuard)> {
        std::mem::take(&mut self.guarded)
    }

    /// What every call makes a copy of.
    pub(super) fn into_locals(self) -> Vec<Tensor> {
        self.locals
    }
}
