//! Reductions.

use crate::layout::{Dims, Layout};
use crate::ops::shape::{reduced_dims, reduced_sizes};
use crate::{DType, Result, Tensor};
use firebrand_kernels::reduce::{Reduce, reduce};

/// Reduces `dims` into `out`, whatever its rank.
pub(crate) fn over(op: Reduce, t: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    let kept = reduced_sizes(t, dims, true);
    // The kernel wants the reduced dims to be there, with size 1.
    let mut steps = out.strides().iter();
    let strides: Dims = match out.ndim() == kept.len() {
        true => out.strides().iter().copied().collect(),
        false => (0..kept.len()).map(|k| if dims.contains(&k) { 1 } else { *steps.next().unwrap_or(&1) }).collect(),
    };
    let whole = out.alias_with(Layout::strided(&kept, &strides, out.storage_offset()));
    reduce(op, t.access().view(), dims, whole.access().view_mut());
    Ok(())
}

fn all(op: Reduce, t: &Tensor, out: &Tensor) -> Result<()> {
    let dims: Dims = (0..t.ndim()).collect();
    over(op, t, &dims, out)
}

pub(crate) fn sum(t: &Tensor, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    all(Reduce::Sum, t, out)
}

pub(crate) fn sum_dim(
    t: &Tensor,
    dim: Option<&[i64]>,
    _keepdim: bool,
    _dtype: Option<DType>,
    out: &Tensor,
) -> Result<()> {
    over(Reduce::Sum, t, &reduced_dims("sum", t, dim)?, out)
}

pub(crate) fn mean(t: &Tensor, _dtype: Option<DType>, out: &Tensor) -> Result<()> {
    all(Reduce::Mean, t, out)
}

pub(crate) fn mean_dim(
    t: &Tensor,
    dim: Option<&[i64]>,
    _keepdim: bool,
    _dtype: Option<DType>,
    out: &Tensor,
) -> Result<()> {
    over(Reduce::Mean, t, &reduced_dims("mean", t, dim)?, out)
}

pub(crate) fn max(t: &Tensor, out: &Tensor) -> Result<()> {
    all(Reduce::Max, t, out)
}

pub(crate) fn any(t: &Tensor, out: &Tensor) -> Result<()> {
    all(Reduce::Any, t, out)
}
