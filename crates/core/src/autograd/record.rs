//! Recording: what the generated functions call to put an operation into the graph.

use super::node::{BoxedBackward, Edge, Edges, InputMetadata, Node};
use crate::tensor::INFERENCE;
use crate::{Result, Tensor};
use smallvec::SmallVec;

/// Whether a tensor requires grad here: one of another wrapping level (`func::level`) is a constant.
#[inline]
pub(crate) fn wants_grad(t: &Tensor) -> bool {
    t.requires_grad() && t.is_of_this_level()
}

/// Whether any tensor requires grad.
#[inline]
pub(crate) fn any_requires_grad(tensors: &[&Tensor]) -> bool {
    tensors.iter().any(|t| wants_grad(t))
}

/// Whether any tensor of a list requires grad.
#[inline]
pub(crate) fn list_requires_grad(tensors: &[Tensor]) -> bool {
    tensors.iter().any(wants_grad)
}

/// Whether an optional tensor requires grad.
#[inline]
pub(crate) fn opt_requires_grad(t: Option<&Tensor>) -> bool {
    t.is_some_and(wants_grad)
}

/// The edge of an argument: `None` unless it is a differentiable tensor that requires grad.
#[inline]
pub(crate) fn edge(t: &Tensor) -> Result<Option<Edge>> {
    if t.is_of_this_level() { t.gradient_edge() } else { Ok(None) }
}

/// The edge of an optional argument.
#[inline]
pub(crate) fn edge_opt(t: Option<&Tensor>) -> Result<Option<Edge>> {
    t.map_or(Ok(None), edge)
}

/// The edges of the arguments.
pub(crate) fn edges<const N: usize>(tensors: [&Tensor; N]) -> Result<Edges> {
    // Two fit in place, and most ops have two.
    if let [a, b] = tensors[..] {
        return Ok(Edges::from_buf([edge(a)?, edge(b)?]));
    }
    let mut edges = Edges::new();
    for t in tensors {
        edges.push(edge(t)?);
    }
    Ok(edges)
}

/// Like [`edges`], of arguments that may be absent.
pub(crate) fn edges_opt(tensors: &[Option<&Tensor>]) -> Result<Edges> {
    tensors.iter().map(|t| edge_opt(*t)).collect()
}

/// Adds the edges of a list argument, one per tensor.
pub(crate) fn push_edges(edges: &mut Edges, tensors: &[Tensor]) -> Result<()> {
    for t in tensors {
        edges.push(edge(t)?);
    }
    Ok(())
}

/// Records an op with one output: `out` was just computed and has not been shared yet.
#[inline(never)]
pub(crate) fn finish(out: &mut Tensor, edges: Edges, formula: BoxedBackward) -> Result<()> {
    if out.flags() & INFERENCE != 0 {
        return Ok(()); // a view of an inference tensor is one too, and has no history
    }
    let node = Node::of_output(out, edges, formula)?;
    out.set_birth_history(Edge { node, slot: 0 });
    Ok(())
}

/// Records an op with several outputs. Those that are not differentiable keep their place in the numbering only if
/// they come before a differentiable one: slots count the outputs in `outs`, the caller passes the differentiable ones.
pub(crate) fn finish_many(outs: &mut [&mut Tensor], edges: Edges, formula: BoxedBackward) -> Result<()> {
    let meta: SmallVec<[InputMetadata; 1]> = outs.iter().map(|t| InputMetadata::of(t)).collect();
    let node = Node::new(edges, meta, formula)?;
    for (slot, out) in outs.iter_mut().enumerate() {
        if out.dtype().is_differentiable() {
            out.set_birth_history(Edge { node: node.clone(), slot: slot as u32 });
        }
    }
    Ok(())
}

/// Records an op that returns a list of tensors.
pub(crate) fn finish_list(outs: &mut [Tensor], edges: Edges, formula: BoxedBackward) -> Result<()> {
    let mut refs: Vec<&mut Tensor> = outs.iter_mut().collect();
    finish_many(&mut refs, edges, formula)
}

/// What an in-place op saved before its write.
pub(crate) type Before = Option<(Edges, BoxedBackward)>;

/// Records an in-place op: `target` was just written and its version counted.
pub(crate) fn finish_inplace(target: &Tensor, edges: Edges, formula: BoxedBackward) -> Result<()> {
    let node = Node::of_output(target, edges, formula)?;
    target.rebase_history(node, 0)
}
