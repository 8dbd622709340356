//! Concatenating, repeating, flipping and padding.

use super::complex::part;
use super::{copy_into, zero_into};
use crate::layout::{Dims, Layout};
use crate::ops::inplace::{Overlap, overlap};
use crate::ops::shape::{join as shape, view, wrap_dim, wrap_dims};
use crate::sym::SymInt;
use crate::{Result, Scalar, Spec, Tensor};
use firebrand_kernels::remap::{self, PadMode};
use firebrand_kernels::triangle;

/// `cat`.
pub(crate) fn cat(tensors: &[Tensor], dim: i64, out: &Tensor) -> Result<()> {
    let d = wrap_dim("cat", dim, out.ndim())? as i64;
    let mut at = 0;
    for t in tensors.iter().filter(|t| t.ndim() == out.ndim() && t.numel() > 0) {
        t.need_data("cat")?;
        let end = at + t.shape()[d as usize];
        let part = view::slice(out, d, Some(at.into()), Some(end.into()), 1.into())?;
        copy_into(t, &out.alias_with(part))?;
        at = end;
    }
    Ok(())
}

/// `stack`.
pub(crate) fn stack(tensors: &[Tensor], dim: i64, out: &Tensor) -> Result<()> {
    for (k, t) in tensors.iter().enumerate().filter(|(_, t)| t.numel() > 0) {
        t.need_data("stack")?;
        copy_into(t, &out.alias_with(view::select(out, dim, k.into())?))?;
    }
    Ok(())
}

/// `repeat`: the output seen as blocks, each the tensor itself.
pub(crate) fn repeat(self_: &Tensor, repeats: &[SymInt], out: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let lead = repeats.len() - self_.ndim();
    let (mut sizes, mut strides) = (Dims::new(), Dims::new());
    for (k, &step) in out.strides().iter().enumerate() {
        let n = if k < lead { 1 } else { self_.shape()[k - lead] };
        let count = out.shape()[k] / n;
        sizes.extend([count, n]);
        strides.extend([step * n, step]);
    }
    let blocks = out.alias_with(Layout::strided(&sizes, &strides, out.layout().offset())?);
    let source: Dims =
        (0..sizes.len()).map(|k| if k % 2 == 1 && k / 2 >= lead { self_.strides()[k / 2 - lead] } else { 0 }).collect();
    let (from, to) = (self_.read()?, blocks.write()?);
    firebrand_kernels::copy(from.view_as(&sizes, &source), to.view_mut());
    Ok(())
}

/// `flip`.
pub(crate) fn flip(self_: &Tensor, dims: &[i64], out: &Tensor) -> Result<()> {
    let dims = if dims.is_empty() { Dims::new() } else { wrap_dims("flip", dims, self_.ndim())? };
    remap::flip(&self_.read()?.view(), &dims, &out.write()?.view_mut());
    Ok(())
}

/// `roll`: without dims, of all elements in a row.
pub(crate) fn roll(self_: &Tensor, shifts: &[SymInt], dims: &[i64], out: &Tensor) -> Result<()> {
    let by: Vec<i64> = shifts.iter().map(|s| s.int()).collect();
    if self_.ndim() == 0 || self_.numel() == 0 {
        return copy_into(self_, out);
    }
    if !dims.is_empty() {
        let dims: Vec<usize> = dims.iter().map(|&d| wrap_dim("roll", d, self_.ndim())).collect::<Result<_>>()?;
        remap::roll(&self_.read()?.view(), &by, &dims, &out.write()?.view_mut());
        return Ok(());
    }
    let dense = |t: &Tensor| Tensor::try_empty(Spec::new(&[t.numel()], t.dtype(), t.device())?);
    let (from, to) = (dense(self_)?, dense(self_)?);
    copy_into(self_, &from.alias_with(Layout::contiguous(self_.shape())?))?;
    remap::roll(&from.read()?.view(), &by, &[0], &to.write()?.view_mut());
    copy_into(&to.alias_with(Layout::contiguous(self_.shape())?), out)
}

/// `tril`.
pub(crate) fn tril(self_: &Tensor, diagonal: SymInt, out: &Tensor) -> Result<()> {
    triangle::tril(&self_.read()?.view(), diagonal.int(), &out.write()?.view_mut());
    Ok(())
}

/// `triu`.
pub(crate) fn triu(self_: &Tensor, diagonal: SymInt, out: &Tensor) -> Result<()> {
    triangle::triu(&self_.read()?.view(), diagonal.int(), &out.write()?.view_mut());
    Ok(())
}

fn pad_in(mode: PadMode, self_: &Tensor, padding: &[SymInt], value: Option<&Tensor>, out: &Tensor) -> Result<()> {
    debug_assert!(overlap(self_, out) == Overlap::No);
    let (from, to) = (self_.read()?, out.write()?);
    let value = value.map(Tensor::read).transpose()?;
    let value = value.as_ref().map(|v| v.view());
    remap::pad(&from.view(), &shape::pads(padding), mode, value.as_ref(), &to.view_mut());
    Ok(())
}

/// `constant_pad_nd`.
pub(crate) fn constant_pad_nd(self_: &Tensor, pad: &[SymInt], value: Scalar, out: &Tensor) -> Result<()> {
    let value = Tensor::try_full_spec(&[], value, out.dtype())?;
    pad_in(PadMode::Constant, self_, pad, Some(&value), out)
}

/// `reflection_pad1d` to `3d`.
pub(crate) fn reflection_pad(self_: &Tensor, padding: &[SymInt], out: &Tensor) -> Result<()> {
    pad_in(PadMode::Reflect, self_, padding, None, out)
}

/// `replication_pad1d` to `3d`.
pub(crate) fn replication_pad(self_: &Tensor, padding: &[SymInt], out: &Tensor) -> Result<()> {
    pad_in(PadMode::Replicate, self_, padding, None, out)
}

fn pad_back(mode: PadMode, grad: &Tensor, padding: &[SymInt], out: &Tensor) -> Result<()> {
    if out.is_complex() {
        return (0..2).try_for_each(|k| pad_back(mode, &part(grad, k)?, padding, &part(out, k)?));
    }
    zero_into(out)?;
    remap::pad_backward(&grad.read()?.view(), &shape::pads(padding), mode, &out.write()?.view_mut());
    Ok(())
}

/// The gradients of `reflection_pad1d` to `3d`.
pub(crate) fn reflection_pad_backward(grad: &Tensor, _self: &Tensor, padding: &[SymInt], out: &Tensor) -> Result<()> {
    pad_back(PadMode::Reflect, grad, padding, out)
}

/// The gradients of `replication_pad1d` to `3d`.
pub(crate) fn replication_pad_backward(grad: &Tensor, _self: &Tensor, padding: &[SymInt], out: &Tensor) -> Result<()> {
    pad_back(PadMode::Replicate, grad, padding, out)
}
