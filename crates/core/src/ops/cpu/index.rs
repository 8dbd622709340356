//! Indexing by tensors of indices.

use crate::layout::Layout;
use crate::ops::shape::wrap_dim;
use crate::{Error, ErrorKind, Result, Scalar, Tensor};
use firebrand_kernels::index as kernel;

/// A 0-dim tensor as one of one element; others as they are.
fn at_least_1d(t: &Tensor) -> Tensor {
    match t.ndim() {
        0 => t.alias_with(Layout::strided(&[1], &[1], t.storage_offset())),
        _ => t.clone(),
    }
}

fn out_of_range(op: &'static str, dim: usize, e: kernel::IndexOutOfRange) -> Error {
    ErrorKind::IndexOutOfRange { op, index: e.index, dim, size: e.size }.into()
}

pub(crate) fn index_select(t: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Result<()> {
    let d = wrap_dim("index_select", dim, t.ndim())?;
    let (t, index, out) = (at_least_1d(t), at_least_1d(index), at_least_1d(out));
    kernel::index_select(&t.access().view(), d, &index.access().view(), &out.access().view_mut())
        .map_err(|e| out_of_range("index_select", d, e))
}

pub(crate) fn index_add(
    t: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    alpha: Scalar,
    out: &Tensor,
) -> Result<()> {
    let d = wrap_dim("index_add", dim, t.ndim())?;
    firebrand_kernels::copy(t.access().view(), out.access().view_mut());
    let (index, source, out) = (at_least_1d(index), at_least_1d(source), at_least_1d(out));
    kernel::index_add(&out.access().view_mut(), d, &index.access().view(), &source.access().view(), alpha.to_f64())
        .map_err(|e| out_of_range("index_add", d, e))
}
