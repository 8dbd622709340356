//! Gradients of views: putting a part back into the whole.

use super::base::{as_strided_scatter_zeros, cast, region_of, zeros_of};
use crate::layout::Layout;
use crate::ops::shape::{self, wrap_dim};
use crate::sym::{SymInt, SymInts};
use crate::{Result, Spec, Tensor, ops};

/// Zeros of the given sizes, dtype and device of `grad`.
fn zeros(grad: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let sizes: Vec<usize> = sizes.iter().map(|n| n.to_usize().unwrap_or(0)).collect();
    zeros_of(&Spec::new(&sizes, grad.dtype(), grad.device()))
}

pub(crate) fn select_backward(grad: &Tensor, sizes: &[SymInt], dim: i64, index: SymInt) -> Result<Tensor> {
    let whole = zeros(grad, sizes)?;
    ops::copy_(&ops::select(&whole, dim, index)?, grad, false)?;
    Ok(whole)
}

pub(crate) fn slice_backward(
    grad: &Tensor,
    sizes: &[SymInt],
    dim: i64,
    start: Option<SymInt>,
    end: Option<SymInt>,
    step: SymInt,
) -> Result<Tensor> {
    let whole = zeros(grad, sizes)?;
    ops::copy_(&ops::slice(&whole, dim, start, end, step)?, grad, false)?;
    Ok(whole)
}

pub(crate) fn permute_backward(grad: &Tensor, dims: &[i64]) -> Result<Tensor> {
    let mut back = vec![0; dims.len()];
    for (k, &d) in dims.iter().enumerate() {
        back[wrap_dim("permute", d, dims.len())?] = k as i64;
    }
    ops::permute(grad, &back)
}

/// Puts dims of size 1 back that `squeeze` took out.
pub(crate) fn unsqueeze_to(grad: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let mut out = grad.clone();
    for (d, _) in sizes.iter().enumerate().filter(|(_, n)| n.int() == 1) {
        out = ops::unsqueeze(&out, d as i64)?;
    }
    Ok(out)
}

/// As [`unsqueeze_to`], for one dim.
pub(crate) fn unsqueeze_to_dim(grad: &Tensor, dim: i64, sizes: &[SymInt]) -> Result<Tensor> {
    let d = wrap_dim("squeeze", dim, sizes.len())?;
    if sizes.get(d).is_some_and(|n| n.int() == 1) { ops::unsqueeze(grad, d as i64) } else { Ok(grad.clone()) }
}

/// The parts along a new dim, zeros where there is no gradient.
pub(crate) fn unbind_backward(grads: &[Option<Tensor>], dim: i64, spec: &Spec) -> Result<Tensor> {
    let d = wrap_dim("unbind", dim, spec.layout.ndim())?;
    let mut sizes = spec.layout.sizes().to_vec();
    sizes.remove(d);
    let part = Spec::new(&sizes, spec.dtype, spec.device);
    let parts: Vec<Tensor> =
        grads.iter().map(|g| g.clone().map_or_else(|| zeros_of(&part), Ok)).collect::<Result<_>>()?;
    ops::stack(&parts, d as i64)
}

/// The parts along a dim, zeros where there is no gradient.
pub(crate) fn split_backward(
    grads: &[Option<Tensor>],
    split_size: SymInt,
    dim: i64,
    sizes: &[SymInt],
    spec: &Spec,
) -> Result<Tensor> {
    let d = wrap_dim("split", dim, sizes.len())?;
    let size = split_size.int().max(1);
    let parts: SymInts = (0..grads.len()).map(|k| (sizes[d].int() - k as i64 * size).clamp(0, size).into()).collect();
    split_with_sizes_backward(grads, &parts, dim, sizes, spec)
}

pub(crate) fn split_with_sizes_backward(
    grads: &[Option<Tensor>],
    split_sizes: &[SymInt],
    dim: i64,
    sizes: &[SymInt],
    spec: &Spec,
) -> Result<Tensor> {
    let d = wrap_dim("split", dim, sizes.len())?;
    let parts: Vec<Tensor> = grads
        .iter()
        .zip(split_sizes)
        .map(|(g, n)| match g {
            Some(g) => Ok(g.clone()),
            None => {
                let mut part = spec.layout.sizes().to_vec();
                part[d] = n.to_usize().unwrap_or(0);
                zeros_of(&Spec::new(&part, spec.dtype, spec.device))
            }
        })
        .collect::<Result<_>>()?;
    ops::cat(&parts, d as i64)
}

pub(crate) fn as_strided_backward(
    grad: &Tensor,
    base: &Layout,
    size: &[SymInt],
    stride: &[SymInt],
    offset: Option<SymInt>,
) -> Result<Tensor> {
    as_strided_scatter_zeros(grad, base, &region(base, size, stride, offset))
}

pub(crate) fn as_strided_tangent(
    tangent: &Tensor,
    primal: &Tensor,
    size: &[SymInt],
    stride: &[SymInt],
    offset: Option<SymInt>,
) -> Result<Tensor> {
    let base = primal.layout();
    let same = tangent.layout().same_geometry(base);
    let t = if same { tangent.clone() } else { super::base::clone_with_layout(tangent, base)? };
    region_of(&t, base, &region(base, size, stride, offset))
}

fn region(base: &Layout, size: &[SymInt], stride: &[SymInt], offset: Option<SymInt>) -> Layout {
    let plain = |list: &[SymInt]| list.iter().map(|n| n.to_usize().unwrap_or(0)).collect::<Vec<_>>();
    let at = offset.and_then(SymInt::to_usize).unwrap_or(base.offset());
    Layout::strided(&plain(size), &plain(stride), at)
}

/// Back to the dtype and device that were copied from.
pub(crate) fn to_copy_backward(grad: &Tensor, spec: &Spec) -> Result<Tensor> {
    if grad.device() == spec.device {
        return cast(grad, spec.dtype);
    }
    ops::to_copy(grad, Some(spec.dtype), Some(spec.device), false, None)
}

/// One part per tensor that was joined.
pub(crate) fn cat_backward(grad: &Tensor, sizes: &[SymInts], dtypes: &[crate::DType], dim: i64) -> Result<Vec<Tensor>> {
    let d = wrap_dim("cat", dim, grad.ndim())?;
    let mut at = 0;
    let mut out = Vec::with_capacity(sizes.len());
    for (sizes, &dtype) in sizes.iter().zip(dtypes) {
        // An empty 1-dim tensor takes no part whatever the rank.
        if shape::is_skipped_by_cat(sizes) && grad.ndim() != 1 {
            out.push(zeros_of(&Spec::new(&[0], dtype, grad.device()))?);
            continue;
        }
        let n = sizes[d].int();
        let part = ops::slice(grad, d as i64, Some(at.into()), Some((at + n).into()), 1i64.into())?;
        out.push(cast(&part, dtype)?);
        at += n;
    }
    Ok(out)
}

pub(crate) fn stack_backward(grad: &Tensor, dtypes: &[crate::DType], dim: i64) -> Result<Vec<Tensor>> {
    ops::unbind(grad, dim)?.iter().zip(dtypes).map(|(g, &dtype)| cast(g, dtype)).collect()
}
