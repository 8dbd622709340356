//! Gradients of poolings that pick elements: reading and writing by flat position in a plane.

use crate::sym::SymInts;
use crate::{Result, Scalar, SymInt, Tensor, ops};

/// The elements of `t` that `indices` name within each plane of `n` dimensions.
pub(crate) fn pick_from_planes(t: &Tensor, indices: &Tensor, n: usize) -> Result<Tensor> {
    let (lead, space) = t.shape().split_at(t.ndim() - n);
    let (planes, pixels): (usize, usize) = (lead.iter().product(), space.iter().product());
    let starts: Vec<i64> = (0..planes).map(|p| (p * pixels) as i64).collect();
    let starts = Tensor::try_from_vec(starts, &[planes, 1])?;
    let whole = SymInt::from(-1i64);
    let picked = indices.numel() / planes.max(1);
    let rows = ops::reshape(indices, &[SymInt::from(planes), SymInt::from(picked)])?;
    let flat = ops::reshape(&ops::add(&rows, &starts, Scalar::Int(1))?, &[whole])?;
    let values = ops::index_select(&ops::reshape(t, &[whole])?, 0, &flat)?;
    ops::reshape(&values, &indices.sym_sizes())
}

/// The last `n` of some sizes.
pub(crate) fn last_sizes(sizes: &[SymInt], n: usize) -> Result<SymInts> {
    Ok(sizes[sizes.len().saturating_sub(n)..].iter().copied().collect())
}
