//! Concatenation that costs nothing: results of one call that are adjacent in memory, stacked and permuted to the order in
//! which they are stored, are that memory.
//!
//! The gradients of queries, keys and values are such results where one projection made all three. Only parts that nothing
//! else reads are joined so, and only where the next thing that happens is a copy to row-major order: no reader sees other
//! strides than in an eager run.

use super::ir::{BufferId, Load};
use super::lower::{Known, Placed};
use firebrand_core::dispatch::Op as Aten;
use firebrand_core::layout::Dims;
use firebrand_core::{Layout, fusion};
use firebrand_graph::interpret::Value;
use firebrand_graph::ir::{Argument, Function, Graph, MemoryFormat, Name, NodeId};
use std::collections::HashSet;

/// Where parts may be joined in place.
#[derive(Default)]
pub(super) struct Joins {
    /// Stacks of all results of a call.
    stacks: HashSet<NodeId>,
    /// The copies behind them.
    copies: HashSet<NodeId>,
    /// Memory in which several results of a call lie.
    shared: HashSet<BufferId>,
}

impl Joins {
    /// The stacks of a graph that fit.
    pub(super) fn of(graph: &Graph) -> Joins {
        let mut joins = Joins::default();
        for n in graph.nodes().filter(|&n| graph[n].target().is_some_and(|t| t.is_op(Aten::STACK))) {
            if let Some(copies) = copies_behind(graph, n).filter(|_| is_only_reader(graph, n)) {
                joins.stacks.insert(n);
                joins.copies.extend(copies);
            }
        }
        joins
    }

    /// Notes that several results of a call lie in this buffer.
    pub(super) fn share(&mut self, buffer: BufferId) {
        self.shared.insert(buffer);
    }

    /// What the node gives if it need not run: its operands in the memory where they are. `dim` is its second argument.
    pub(super) fn lower(&self, n: NodeId, dim: Option<&Known>, operands: &[Placed]) -> Option<Placed> {
        let first = operands.first().filter(|p| self.shared.contains(&p.load.buffer) && p.load.layout.offset() == 0)?;
        if self.copies.contains(&n) {
            return first.load.layout.is_contiguous().then(|| first.clone());
        }
        if !self.stacks.contains(&n) {
            return None;
        }
        let dim = match dim {
            None => 0,
            Some(Known::Plain(Value::Scalar(d))) => {
                usize::try_from(d.to_i64()).ok().filter(|&d| d <= first.meta.ndim())?
            }
            Some(_) => return None,
        };
        let step = operands.get(1)?.load.layout.offset();
        let in_place = |(k, p): (usize, &Placed)| {
            let l = &p.load.layout;
            p.load.buffer == first.load.buffer && l.same_geometry(&first.load.layout) && l.offset() == k * step
        };
        if step == 0 || !operands.iter().enumerate().all(in_place) {
            return None;
        }
        let mut sizes: Dims = first.load.layout.sizes().into();
        let mut strides: Dims = first.load.layout.strides().into();
        sizes.insert(dim, operands.len());
        strides.insert(dim, step);
        let layout = Layout::strided(&sizes, &strides, 0).ok()?;
        let meta = fusion::alias(fusion::Part { tensor: &first.meta, layout: &layout }).ok()?;
        Some(Placed { load: Load { buffer: first.load.buffer, layout }, meta })
    }
}

/// The copies to row-major order that are all that becomes of a value, turned or not.
fn copies_behind(graph: &Graph, n: NodeId) -> Option<Vec<NodeId>> {
    let turns = |u: NodeId| graph[u].target().is_some_and(|t| t.is_op(Aten::PERMUTE) || t.is_op(Aten::TRANSPOSE_INT));
    let copies = |u: NodeId| {
        let dense = |(name, value): &(Name, Argument)| {
            &**name == "memory_format" && *value == Argument::MemoryFormat(MemoryFormat::Contiguous)
        };
        graph[u].target().is_some_and(|t| t.is_op(Aten::CLONE)) && graph[u].kwargs().iter().any(dense)
    };
    let mut found = Vec::new();
    for user in graph.users(n) {
        let ends: Vec<NodeId> = if turns(user) { graph.users(user).collect() } else { vec![user] };
        if !ends.iter().all(|&u| copies(u)) {
            return None;
        }
        found.extend(ends);
    }
    Some(found)
}

/// Whether a stack takes all results of a call, and nothing else takes any.
fn is_only_reader(graph: &Graph, stack: NodeId) -> bool {
    let Some(parts) = graph[stack].args().first().and_then(Argument::items) else { return false };
    let parts: Vec<NodeId> = parts.iter().filter_map(Argument::node).collect();
    let is_part = |p: NodeId| graph[p].target().is_some_and(|t| t.is_function(&Function::GetItem));
    let call = |p: NodeId| graph[p].args().first().and_then(Argument::node);
    let Some(of) = parts.first().copied().filter(|&p| is_part(p)).and_then(call) else { return false };
    parts.iter().all(|&p| is_part(p) && call(p) == Some(of) && graph.users(p).all(|u| u == stack))
        && graph.users(of).all(|u| parts.contains(&u))
}
