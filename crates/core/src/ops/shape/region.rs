//! Shapes of ops that write a region of a copy (`slice_scatter`) or put a gradient into a region of zeros
//! (`slice_backward`). The layouts of `view` determine which elements a region has.

use super::{view, wrap_dim};
use crate::layout::Layout;
use crate::sym::SymInt;
use crate::sym::checked_sizes;
use crate::{Error, Result, Spec, Tensor};

/// A tensor that is only a shape, to ask layouts of.
pub(crate) fn outline(op: &'static str, sizes: &[SymInt], like: &Tensor) -> Result<Tensor> {
    let sizes = checked_sizes(op, sizes)?;
    Tensor::try_empty(Spec::new(&sizes, like.dtype(), crate::Device::Meta)?)
}

/// The whole, after checking that `src` is what its region shows.
fn scattered(op: &'static str, self_: &Tensor, src: &Tensor, region: &Layout) -> Result<Spec> {
    if region.sizes() != src.shape() {
        let m = format!("the source has shape {:?}, the region it replaces {:?}", src.shape(), region.sizes());
        return Err(Error::argument(op, m));
    }
    Ok(Spec { layout: self_.layout().dense_like(), dtype: self_.dtype(), device: self_.device() })
}

/// Zeros of the input's sizes, after checking that the gradient is what the region shows.
fn returned(op: &'static str, grad: &Tensor, whole: &Tensor, region: &Layout) -> Result<Spec> {
    if region.sizes() != grad.shape() {
        let m = format!("the gradient has shape {:?}, the region it belongs to {:?}", grad.shape(), region.sizes());
        return Err(Error::argument(op, m));
    }
    Spec::new(whole.shape(), grad.dtype(), grad.device())
}

/// `slice_scatter`.
pub(crate) fn slice_scatter(
    op: &'static str,
    self_: &Tensor,
    src: &Tensor,
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
) -> Result<Spec> {
    scattered(op, self_, src, &view::slice(self_, dim, start, end, step)?)
}

/// `select_scatter`.
pub(crate) fn select_scatter(op: &'static str, self_: &Tensor, src: &Tensor, dim: i64, index: SymInt) -> Result<Spec> {
    scattered(op, self_, src, &view::select(self_, dim, index)?)
}

/// `diagonal_scatter`.
pub(crate) fn diagonal_scatter(
    op: &'static str,
    self_: &Tensor,
    src: &Tensor,
    offset: i64,
    dim1: i64,
    dim2: i64,
) -> Result<Spec> {
    scattered(op, self_, src, &view::diagonal(self_, offset, dim1, dim2)?)
}

/// `as_strided_scatter`: the result keeps the strides of the input, by which the region is given.
pub(crate) fn as_strided_scatter(
    op: &'static str,
    self_: &Tensor,
    src: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    storage_offset: Option<SymInt>,
) -> Result<Spec> {
    let region = view::as_strided(self_, size, stride, storage_offset)?;
    let own = self_.layout();
    if own.has_internal_overlap() {
        return Err(Error::argument(op, "elements of the tensor share memory; clone() it first"));
    }
    if region.numel() > 0 && (region.offset() < own.offset() || region.end() > own.end()) {
        let m = format!(
            "the region reaches from element {} to {} of the storage, the tensor only from {} to {}",
            region.offset(),
            region.end(),
            own.offset(),
            own.end()
        );
        return Err(Error::argument(op, m));
    }
    let spec = scattered(op, self_, src, &region)?;
    Ok(Spec { layout: own.from_start(), ..spec })
}

/// `slice_backward`.
pub(crate) fn slice_backward(
    op: &'static str,
    grad: &Tensor,
    input_sizes: &[SymInt],
    dim: i64,
    start: SymInt,
    end: SymInt,
    step: SymInt,
) -> Result<Spec> {
    let whole = outline(op, input_sizes, grad)?;
    returned(op, grad, &whole, &view::slice(&whole, dim, Some(start), Some(end), step)?)
}

/// `select_backward`.
pub(crate) fn select_backward(
    op: &'static str,
    grad: &Tensor,
    input_sizes: &[SymInt],
    dim: i64,
    index: SymInt,
) -> Result<Spec> {
    let whole = outline(op, input_sizes, grad)?;
    returned(op, grad, &whole, &view::select(&whole, dim, index)?)
}

/// `diagonal_backward`.
pub(crate) fn diagonal_backward(
    op: &'static str,
    grad: &Tensor,
    input_sizes: &[SymInt],
    offset: i64,
    dim1: i64,
    dim2: i64,
) -> Result<Spec> {
    let whole = outline(op, input_sizes, grad)?;
    returned(op, grad, &whole, &view::diagonal(&whole, offset, dim1, dim2)?)
}

/// `unfold_backward`.
pub(crate) fn unfold_backward(
    op: &'static str,
    grad: &Tensor,
    input_sizes: &[SymInt],
    dim: i64,
    size: i64,
    step: i64,
) -> Result<Spec> {
    let whole = outline(op, input_sizes, grad)?;
    wrap_dim(op, dim, whole.ndim())?;
    returned(op, grad, &whole, &view::unfold(&whole, dim, size, step)?)
}
