//! Gradients and tangents of views.

use super::{as_strided_scatter_zeros, clone_with_layout, region_of, sym, zeros_of};
use crate::layout::{Dims, Layout};
use crate::ops::shape::{view, wrap_dim};
use crate::sym::{SymInt, SymInts};
use crate::{Result, Spec, Tensor, ops};
use smallvec::SmallVec;

fn plain(sizes: &[SymInt]) -> Dims {
    sizes.iter().map(|s| s.to_usize().unwrap_or(0)).collect()
}

/// Undoes a permutation.
pub(crate) fn permute_backward(grad: &Tensor, dims: &[i64]) -> Result<Tensor> {
    let mut inverse: SmallVec<[i64; 6]> = smallvec::smallvec![0; dims.len()];
    for (k, &d) in dims.iter().enumerate() {
        inverse[wrap_dim("permute", d, dims.len())?] = k as i64;
    }
    ops::permute(grad, &inverse)
}

/// The gradient of a slice: `slice_backward` with the bounds made explicit.
pub(crate) fn slice_backward_of(
    grad: &Tensor,
    sizes: &[SymInt],
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
) -> Result<Tensor> {
    let d = wrap_dim("slice", dim, sizes.len())?;
    let end = end.unwrap_or_else(|| sizes.get(d).copied().unwrap_or_default());
    ops::slice_backward(grad, sizes, dim, start.unwrap_or_default(), end, step)
}

/// The gradients of parts, joined; zeros for those that have none.
fn join_parts(grads: &[Option<Tensor>], parts: &[Layout], dim: i64, spec: &Spec) -> Result<Tensor> {
    let mut pieces = Vec::with_capacity(parts.len());
    for (k, part) in parts.iter().enumerate() {
        pieces.push(match grads.get(k).and_then(Option::as_ref) {
            Some(g) => g.clone(),
            None => zeros_of(&Spec { layout: part.to_contiguous(), ..spec.clone() })?,
        });
    }
    if pieces.is_empty() { zeros_of(spec) } else { ops::cat(&pieces, dim) }
}

fn outline(spec: &Spec) -> Result<Tensor> {
    Tensor::try_empty(Spec::new(spec.layout.sizes(), spec.dtype, crate::Device::Meta)?)
}

/// The gradient of `split`.
pub(crate) fn split_backward(grads: &[Option<Tensor>], split_size: SymInt, dim: i64, spec: &Spec) -> Result<Tensor> {
    join_parts(grads, &view::split(&outline(spec)?, split_size, dim)?, dim, spec)
}

/// The gradient of `split_with_sizes`.
pub(crate) fn split_with_sizes_backward(
    grads: &[Option<Tensor>],
    split_sizes: &[SymInt],
    dim: i64,
    spec: &Spec,
) -> Result<Tensor> {
    join_parts(grads, &view::split_with_sizes(&outline(spec)?, split_sizes, dim)?, dim, spec)
}

/// The gradient of `unbind`.
pub(crate) fn unbind_backward(grads: &[Option<Tensor>], dim: i64, spec: &Spec) -> Result<Tensor> {
    let parts = view::unbind(&outline(spec)?, dim)?;
    let mut pieces = Vec::with_capacity(parts.len());
    for (k, part) in parts.iter().enumerate() {
        pieces.push(match grads.get(k).and_then(Option::as_ref) {
            Some(g) => g.clone(),
            None => zeros_of(&Spec { layout: part.to_contiguous(), ..spec.clone() })?,
        });
    }
    if pieces.is_empty() { zeros_of(spec) } else { ops::stack(&pieces, dim) }
}

fn region(base: &Layout, size: &[SymInt], stride: &[SymInt], storage_offset: Option<SymInt>) -> Result<Layout> {
    let offset = storage_offset.and_then(SymInt::to_usize).unwrap_or(base.offset());
    Layout::strided(&plain(size), &plain(stride), offset)
}

/// The gradient of `as_strided`.
pub(crate) fn as_strided_backward(
    grad: &Tensor,
    base: &Layout,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Tensor> {
    as_strided_scatter_zeros(grad, base, &region(base, size, stride, storage_offset)?)
}

/// The tangent of `as_strided`: the same elements of the tangent, which may lie otherwise in memory.
pub(crate) fn as_strided_tangent(
    tangent: &Tensor,
    primal: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Tensor> {
    let base = primal.layout();
    let whole = if tangent.layout().same_geometry(base) { tangent.clone() } else { clone_with_layout(tangent, base)? };
    region_of(&whole, base, &region(base, size, stride, storage_offset)?)
}

/// The tangent seen with other sizes; its strides need not be those of the primal.
pub(crate) fn view_tangent(tangent: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    ops::reshape(tangent, size)
}

fn strides_of(layout: &Layout) -> SymInts {
    sym(layout.strides())
}

/// The gradient of `as_strided_scatter` for the tensor written to: nothing where it was overwritten.
pub(crate) fn as_strided_scatter_self_backward(
    grad: &Tensor,
    base: &Layout,
    src: &Spec,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Tensor> {
    let whole = clone_with_layout(grad, base)?;
    let at = region(base, size, stride, storage_offset)?;
    let offset = at.offset() - base.offset();
    ops::as_strided_scatter(&whole, &zeros_of(src)?, size, &strides_of(&at), Some(offset.into()))
}

/// The gradient of `as_strided_scatter` for its source.
pub(crate) fn as_strided_scatter_src_backward(
    grad: &Tensor,
    base: &Layout,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Tensor> {
    let whole = clone_with_layout(grad, base)?;
    region_of(&whole, base, &region(base, size, stride, storage_offset)?)
}

/// The tangent of `as_strided_scatter`.
pub(crate) fn as_strided_scatter_tangent(
    self_t: &Tensor,
    src_t: &Tensor,
    primal: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Tensor> {
    let base = primal.layout();
    let whole = clone_with_layout(self_t, base)?;
    let offset = region(base, size, stride, storage_offset)?.offset() - base.offset();
    ops::as_strided_scatter(&whole, src_t, size, stride, Some(offset.into()))
}
