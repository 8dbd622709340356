//! In-place ops that change the view of a tensor's memory (`t_`, `unsqueeze_`), with their history.
//!
//! The data stays in place; the tensor gets another layout. A view becomes another view of its base, whose history is as before.

use crate::autograd::node::{Backward, Edges, Gradients, Needs, Node, boxed};
use crate::autograd::{forward, record};
use crate::layout::Layout;
use crate::ops::shape::view;
use crate::sym::SymInts;
use crate::{Error, ErrorKind, Result, Spec, SymInt, Tensor, ops, state};
use smallvec::smallvec;

type Change = Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

/// The gradient of a changed layout: the change undone.
struct Undo {
    name: &'static str,
    undo: Change,
}

impl Backward for Undo {
    fn name(&self) -> &str {
        self.name
    }
    fn apply(&self, _: &Node, grads: Gradients, _: &Needs<'_>) -> Result<Gradients> {
        let Some(g) = grads.into_iter().next().flatten() else { return Ok(smallvec![None]) };
        Ok(smallvec![Some((self.undo)(&g)?)])
    }
}

fn relayout<'a>(
    op: &'static str,
    self_: &'a Tensor,
    layout: Layout,
    node: &'static str,
    apply: impl Fn(&Tensor) -> Result<Tensor>,
    undo: Change,
) -> Result<&'a Tensor> {
    let word = state::word();
    if word & state::LEVEL != 0 {
        return Err(Error::argument(op, "inside vmap or a nested jvp, use the out-of-place form"));
    }
    let recording = word & state::GRAD != 0 && self_.requires_grad() && self_.dtype().is_differentiable();
    if self_.is_inference_here() && word & state::INFERENCE == 0 {
        return Err(ErrorKind::InferenceInplace { op }.into());
    }
    let of_base = recording && self_.is_view_here();
    let mut edges = Edges::new();
    if recording {
        self_.check_inplace(op)?;
        if !of_base {
            edges = smallvec![record::edge(self_)?];
        }
    }
    let tangent = if word & state::DUAL != 0 { forward::tangent(self_) } else { None };
    let tangent = tangent.map(|t| apply(&t)).transpose()?;
    let spec = Spec { layout, ..self_.spec().clone() };
    let storage = self_.storage().clone();
    self_.replace_data(storage, spec);
    self_.bump_version();
    if of_base {
        self_.current_history()?;
    } else if recording {
        record::finish_inplace(self_, edges, boxed(Undo { name: node, undo }))?;
    }
    if let Some(t) = tangent {
        forward::set_tangent(self_, t)?;
    }
    Ok(self_)
}

/// `unsqueeze_`.
pub(crate) fn unsqueeze_(self_: &Tensor, dim: i64) -> Result<&Tensor> {
    let layout = view::unsqueeze(self_, dim)?;
    let undo = Box::new(move |g: &Tensor| ops::squeeze_dim(g, dim));
    relayout("unsqueeze_", self_, layout, "UnsqueezeBackward0", |t| ops::unsqueeze(t, dim), undo)
}

/// `squeeze_`.
pub(crate) fn squeeze_(self_: &Tensor) -> Result<&Tensor> {
    let (layout, sizes) = (view::squeeze(self_)?, self_.sym_sizes());
    let undo = Box::new(move |g: &Tensor| ops::reshape(g, &sizes));
    relayout("squeeze_", self_, layout, "SqueezeBackward0", ops::squeeze, undo)
}

/// `squeeze_.dim`.
pub(crate) fn squeeze_dim_(self_: &Tensor, dim: i64) -> Result<&Tensor> {
    let (layout, sizes) = (view::squeeze_dim(self_, dim)?, self_.sym_sizes());
    let undo = Box::new(move |g: &Tensor| ops::reshape(g, &sizes));
    relayout("squeeze_", self_, layout, "SqueezeBackward1", |t| ops::squeeze_dim(t, dim), undo)
}

/// `squeeze_.dims`.
pub(crate) fn squeeze_dims_<'a>(self_: &'a Tensor, dims: &[i64]) -> Result<&'a Tensor> {
    let (layout, sizes) = (view::squeeze_dims(self_, dims)?, self_.sym_sizes());
    let undo = Box::new(move |g: &Tensor| ops::reshape(g, &sizes));
    relayout("squeeze_", self_, layout, "SqueezeBackward2", |t| ops::squeeze_dims(t, dims), undo)
}

/// `as_strided_`.
pub(crate) fn as_strided_<'a>(
    self_: &'a Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<&'a Tensor> {
    let layout = view::as_strided(self_, size, stride, storage_offset)?;
    let before = self_.layout().clone();
    let (sizes, strides) = (SymInts::from_slice(size), SymInts::from_slice(stride));
    let undo =
        Box::new(move |g: &Tensor| ops::formulas::as_strided_backward(g, &before, &sizes, &strides, storage_offset));
    let apply = |t: &Tensor| ops::formulas::as_strided_tangent(t, self_, size, stride, storage_offset);
    relayout("as_strided_", self_, layout, "AsStridedBackward0", apply, undo)
}

/// `swapaxes_`, `swapdims_`.
pub(crate) fn swapaxes_(self_: &Tensor, axis0: i64, axis1: i64) -> Result<&Tensor> {
    ops::transpose_(self_, axis0, axis1)
}

/// `transpose_`.
pub(crate) fn transpose_(self_: &Tensor, dim0: i64, dim1: i64) -> Result<&Tensor> {
    let layout = view::transpose(self_, dim0, dim1)?;
    let swap = move |g: &Tensor| ops::transpose(g, dim0, dim1);
    relayout("transpose_", self_, layout, "TransposeBackward0", swap, Box::new(swap))
}

/// `t_`.
pub(crate) fn t_(self_: &Tensor) -> Result<&Tensor> {
    let layout = view::t(self_)?;
    relayout("t_", self_, layout, "TBackward0", ops::t, Box::new(ops::t))
}
