//! Aliases that are not tracked as views, because their input is a temporary.

use crate::layout::Layout;
use crate::ops::shape::view;
use crate::sym::SymInt;
use crate::{Result, Tensor};

/// `_unsafe_view`.
pub(crate) fn unsafe_view(self_: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    Ok(self_.alias_with(view::view(self_, size)?))
}

/// Memory of a tensor as a tensor of its own: writes to one are not counted by the other, which is what makes these ops unsafe.
fn apart(t: &Tensor, layout: Layout) -> Tensor {
    t.alias_with(layout).counting_alone()
}

/// `unsafe_split_with_sizes`.
pub(crate) fn unsafe_split_with_sizes(self_: &Tensor, split_sizes: &[SymInt], dim: i64) -> Result<Vec<Tensor>> {
    Ok(view::split_with_sizes(self_, split_sizes, dim)?.into_iter().map(|l| apart(self_, l)).collect())
}

/// `unsafe_split`.
pub(crate) fn unsafe_split(self_: &Tensor, split_size: SymInt, dim: i64) -> Result<Vec<Tensor>> {
    Ok(view::split(self_, split_size, dim)?.into_iter().map(|l| apart(self_, l)).collect())
}
