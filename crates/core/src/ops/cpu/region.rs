//! Writing a region of a copy, and gradients into a region of zeros.

use super::{copy_into, zero_into};
use crate::layout::Layout;
use crate::limits::as_size;
use crate::ops::lists;
use crate::ops::manual::copy_data;
use crate::ops::shape::view;
use crate::sym::SymInt;
use crate::{Result, Tensor};
use firebrand_kernels::index;

/// Copies `self_`, then `src` over the part of it that has this layout in `out`.
fn scatter(self_: &Tensor, src: &Tensor, out: &Tensor, region: Layout) -> Result<()> {
    copy_into(self_, out)?;
    copy_data(src, &out.alias_with(region))
}

/// Zeros, then `grad` in the part that has this layout in `out`.
fn place(grad: &Tensor, out: &Tensor, region: Layout) -> Result<()> {
    zero_into(out)?;
    copy_data(grad, &out.alias_with(region))
}

/// `slice_scatter`.
pub(crate) fn slice_scatter(
    self_: &Tensor,
    src: &Tensor,
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
    out: &Tensor,
) -> Result<()> {
    scatter(self_, src, out, view::slice(out, dim, start, end, step)?)
}

/// `select_scatter`.
pub(crate) fn select_scatter(self_: &Tensor, src: &Tensor, dim: i64, index: SymInt, out: &Tensor) -> Result<()> {
    scatter(self_, src, out, view::select(out, dim, index)?)
}

/// `diagonal_scatter`.
pub(crate) fn diagonal_scatter(
    self_: &Tensor,
    src: &Tensor,
    offset: i64,
    dim1: i64,
    dim2: i64,
    out: &Tensor,
) -> Result<()> {
    scatter(self_, src, out, view::diagonal(out, offset, dim1, dim2)?)
}

/// `as_strided_scatter`. The region is given in the memory of `self_`, of which `out` begins at the first element.
pub(crate) fn as_strided_scatter(
    self_: &Tensor,
    src: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
    out: &Tensor,
) -> Result<()> {
    let region = view::as_strided(self_, size, stride, storage_offset)?;
    let at = out.layout().offset() + region.offset().saturating_sub(self_.layout().offset());
    scatter(self_, src, out, region.with_offset(at)?)
}

/// `slice_backward`.
pub(crate) fn slice_backward(
    grad: &Tensor,
    _input_sizes: &[SymInt],
    dim: i64,
    start: SymInt,
    end: SymInt,
    step: SymInt,
    out: &Tensor,
) -> Result<()> {
    place(grad, out, view::slice(out, dim, Some(start), Some(end), step)?)
}

/// `select_backward`.
pub(crate) fn select_backward(
    grad: &Tensor,
    _input_sizes: &[SymInt],
    dim: i64,
    index: SymInt,
    out: &Tensor,
) -> Result<()> {
    place(grad, out, view::select(out, dim, index)?)
}

/// `diagonal_backward`.
pub(crate) fn diagonal_backward(
    grad: &Tensor,
    _input_sizes: &[SymInt],
    offset: i64,
    dim1: i64,
    dim2: i64,
    out: &Tensor,
) -> Result<()> {
    place(grad, out, view::diagonal(out, offset, dim1, dim2)?)
}

/// `unfold_backward`: windows may overlap, so each is added by position.
pub(crate) fn unfold_backward(
    grad: &Tensor,
    _input_sizes: &[SymInt],
    dim: i64,
    size: i64,
    step: i64,
    out: &Tensor,
) -> Result<()> {
    zero_into(out)?;
    if size == 0 || grad.numel() == 0 {
        return Ok(());
    }
    if out.ndim() == 0 {
        return copy_data(&grad.alias_with(Layout::strided(&[], &[], grad.layout().offset())?), out);
    }
    let d = crate::ops::shape::wrap_dim("unfold_backward", dim, out.ndim())?;
    // Window w holds the positions w * step .. w * step + size: bring the window next to its dimension.
    let windows = grad.shape()[d];
    let positions = (0..windows as i64).flat_map(|w| (0..size).map(move |k| w * step + k));
    let positions = lists::collected(windows * as_size(size), positions)?;
    let positions = Tensor::try_from_vec(positions, [windows * as_size(size)])?;
    let mut order: Vec<i64> = (0..grad.ndim() as i64 - 1).collect();
    order.insert(d + 1, grad.ndim() as i64 - 1);
    let moved = grad.alias_with(view::permute(grad, &order)?);
    let mut sizes = out.dims();
    sizes[d] = windows * as_size(size);
    let dense = Tensor::try_empty(crate::Spec::new(moved.shape(), grad.dtype(), grad.device())?)?;
    copy_data(&moved, &dense)?;
    let source = dense.alias_with(Layout::contiguous(&sizes)?);
    let (to, index, source) = (out.write()?, positions.read()?, source.read()?);
    index::index_add(&to.view_mut(), d, &index.view(), &source.view(), 1.0)
        .map_err(|e| super::out_of_range("unfold_backward", d, e))
}
