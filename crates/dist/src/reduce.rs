//! A sum over ranks that is bitwise identical everywhere.
//!
//! No library guarantees the order of its all-reduce, so the sum is computed here: every rank gets one part of the terms of all
//! ranks, adds them along the tree, and hands the result to all. On the wire that is what a reduce-scatter and an all-gather
//! move.

use crate::link::Link;
use crate::{Result, tree};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Spec, Tensor};

/// `flat` becomes the sum over all ranks. Its length is a multiple of the number of ranks.
pub(crate) fn all_reduce(link: &mut dyn Link, size: usize, flat: &Tensor) -> Result<()> {
    let part = flat.shape()[0] / size;
    debug_assert_eq!(part * size, flat.shape()[0], "padded by the caller");
    // Every byte of it is received.
    let spec = Spec { layout: flat.layout().to_contiguous(), dtype: flat.dtype(), device: flat.device() };
    let terms = Tensor::try_empty(spec)?;
    link.all_to_all(flat, &terms)?;
    let terms: Vec<Tensor> = (0..size).map(|k| part_of(&terms, k, part)).collect::<Result<_>>()?;
    tree::sum_into_first(&terms)?;
    link.all_gather(&terms[0], flat)
}

/// Like [`all_reduce`], with terms rounded to a narrower dtype. Each addition rounds too, so that a rank may add up some terms
/// beforehand without changing the bits of the sum.
pub(crate) fn all_reduce_rounded(link: &mut dyn Link, size: usize, flat: &Tensor, wire: DType) -> Result<()> {
    let narrow = no_grad(|| flat.try_to_dtype(wire))?;
    all_reduce(link, size, &narrow)?;
    Ok(no_grad(|| flat.try_copy_(&narrow, false).map(drop))?)
}

/// Part `k` of a flat tensor that is cut into parts of `len` elements.
pub(crate) fn part_of(flat: &Tensor, k: usize, len: usize) -> Result<Tensor> {
    Ok(no_grad(|| flat.try_narrow(0, k * len, len))?)
}

/// How many elements a buffer needs for `len` elements and parts of equal length.
pub(crate) fn padded(len: usize, size: usize) -> usize {
    len.div_ceil(size) * size
}
