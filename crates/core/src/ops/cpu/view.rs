//! Aliases that are not tracked as views, because their input is a temporary.

use crate::ops::shape::view;
use crate::sym::SymInt;
use crate::{Result, Tensor};

/// `_unsafe_view`.
pub(crate) fn unsafe_view(self_: &Tensor, size: &[SymInt]) -> Result<Tensor> {
    Ok(self_.alias_with(view::view(self_, size)?))
}

/// `unsafe_split`.
pub(crate) fn unsafe_split_with_sizes(self_: &Tensor, split_sizes: &[SymInt], dim: i64) -> Result<Vec<Tensor>> {
    Ok(view::split_with_sizes(self_, split_sizes, dim)?.into_iter().map(|l| self_.alias_with(l)).collect())
}

pub(crate) fn unsafe_split(self_: &Tensor, split_size: SymInt, dim: i64) -> Result<Vec<Tensor>> {
    Ok(view::split(self_, split_size, dim)?.into_iter().map(|l| self_.alias_with(l)).collect())
}
