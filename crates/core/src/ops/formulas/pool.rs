//! Gradients of poolings that pick elements: reading and writing by flat position in a plane.

use crate::sym::SymInts;
use crate::{Result, SymInt, Tensor, ops};

/// `t` with its last `n` dimensions flattened.
fn flat(t: &Tensor, n: usize) -> Result<Tensor> {
    let (lead, space) = t.shape().split_at(t.ndim() - n);
    let sizes: SymInts = lead.iter().copied().chain([space.iter().product()]).map(SymInt::from).collect();
    ops::reshape(t, &sizes)
}

/// The elements of `t` that `indices` name within each plane of `n` dimensions.
pub(crate) fn pick_from_planes(t: &Tensor, indices: &Tensor, n: usize) -> Result<Tensor> {
    let picked = ops::gather(&flat(t, n)?, -1, &flat(indices, n)?, false)?;
    ops::reshape(&picked, &indices.sym_sizes())
}

/// The last `n` of some sizes.
pub(crate) fn last_sizes(sizes: &[SymInt], n: usize) -> Result<SymInts> {
    Ok(sizes[sizes.len().saturating_sub(n)..].iter().copied().collect())
}
