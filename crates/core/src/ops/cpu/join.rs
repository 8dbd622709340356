//! Joining tensors: copies into parts of the result.

use crate::layout::{Dims, Layout};
use crate::ops::shape::wrap_dim;
use crate::{Result, Tensor};

pub(crate) fn cat(tensors: &[Tensor], dim: i64, out: &Tensor) -> Result<()> {
    let d = wrap_dim("cat", dim, out.ndim())?;
    let mut at = 0;
    for t in tensors.iter().filter(|t| t.shape() != [0] && t.ndim() == out.ndim()) {
        let offset = out.storage_offset() + at * out.strides()[d];
        let part = out.alias_with(Layout::strided(t.shape(), out.strides(), offset));
        firebrand_kernels::copy(t.access().view(), part.access().view_mut());
        at += t.shape()[d];
    }
    Ok(())
}

pub(crate) fn stack(tensors: &[Tensor], dim: i64, out: &Tensor) -> Result<()> {
    let d = wrap_dim("stack", dim, out.ndim())?;
    let mut strides = Dims::from_slice(out.strides());
    let step = strides.remove(d);
    for (k, t) in tensors.iter().enumerate() {
        let part = out.alias_with(Layout::strided(t.shape(), &strides, out.storage_offset() + k * step));
        firebrand_kernels::copy(t.access().view(), part.access().view_mut());
    }
    Ok(())
}
