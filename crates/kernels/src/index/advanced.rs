//! Indices that name whole blocks: advanced indexing and its special cases.
//!
//! A call is first made into a plan: the dimensions that are indexed collapse into a table of offsets, one per index
//! position, checked and complete before anything is written; the others span a block that moves as a whole.
//! Reading is shared between threads by index position. Writing is shared by parts of the block, each thread taking all
//! index positions in order, so repeated indices neither race nor depend on the number of threads.

use super::arithmetic::{Arithmetic, factor};
use super::{GRAIN, IndexOutOfRange, Indices, Negative, position, with_bytes};
use crate::walk::{Joined, last};
use crate::{Element, View, ViewMut, parallel, scratch, with_element};
use smallvec::SmallVec;
use std::ops::Range;

type Dims = SmallVec<[usize; 8]>;

/// Sizes of `input[indices]`: indexed dimensions give way to the common sizes of the indices.
///
/// They stand where the first indexed dimension was if all are neighbors, in front otherwise.
pub fn index_sizes(sizes: &[usize], indexed: &[bool], common: &[usize]) -> SmallVec<[usize; 8]> {
    let mut rest: Dims = unindexed(sizes.len(), indexed).map(|k| sizes[k]).collect();
    rest.insert_many(place(indexed), common.iter().copied());
    rest
}

fn unindexed(ndim: usize, indexed: &[bool]) -> impl Iterator<Item = usize> {
    (0..ndim).filter(|&k| !indexed.get(k).copied().unwrap_or(false))
}

/// Where the index dimensions stand in the result.
fn place(indexed: &[bool]) -> usize {
    let first = indexed.iter().position(|&i| i).unwrap_or(0);
    let count = indexed.iter().filter(|&&i| i).count();
    if indexed[first..].iter().take(count).all(|&i| i) { first } else { 0 }
}

struct Plan {
    /// Offset of the block in the indexed operand, per index position.
    table: Vec<usize>,
    /// The index positions, as the dense operand (the result, or the values) sees them.
    positions: Joined<1>,
    /// The block: strides of the indexed operand, then of the dense one.
    block: Joined<2>,
    /// Whether the dense operand's fastest dimension runs over index positions.
    positions_inside: bool,
}

impl Plan {
    /// The dense operand is given by its sizes, which must be [`index_sizes`], and its strides.
    fn new(
        sizes: &[usize],
        strides: &[usize],
        indices: &[Option<View>],
        (dense_sizes, dense): (&[usize], &[usize]),
        negative: Negative,
    ) -> Result<Plan, IndexOutOfRange> {
        let indexed: SmallVec<[bool; 8]> = indices.iter().map(Option::is_some).collect();
        let common = indices.iter().flatten().next().map_or(&[][..], |v| v.sizes());
        let place = place(&indexed);
        assert!(indices.len() <= sizes.len(), "at most one index for each of {} dimensions", sizes.len());
        assert_eq!(dense_sizes, &index_sizes(sizes, &indexed, common)[..], "sizes of what indices name");
        let rest: Dims = unindexed(sizes.len(), &indexed).collect();
        let of = |values: &[usize]| rest.iter().map(|&k| values[k]).collect::<Dims>();
        let mut dense_rest = Dims::from_slice(&dense[..place]);
        dense_rest.extend_from_slice(&dense[place + common.len()..]);

        let mut table = scratch::filled(0, common.iter().product());
        for (k, view) in indices.iter().enumerate() {
            let Some(view) = view else { continue };
            assert_eq!(view.sizes(), common, "indices are broadcast by the caller");
            add_offsets(&mut table, view, sizes[k], strides[k], negative)?;
        }
        Ok(Plan {
            table,
            positions: Joined::new(common, [&dense[place..place + common.len()]]),
            block: Joined::new(&of(sizes), [&of(strides), &dense_rest]),
            positions_inside: place + common.len() == dense.len() && !rest.is_empty(),
        })
    }

    /// Calls `f(indexed, dense, len, steps)` for runs of pairs; each element of the dense operand is met once.
    fn read(&self, f: impl Fn(usize, usize, usize, [usize; 2]) + Sync) {
        let block = self.block.numel();
        if self.positions_inside {
            self.columns(f);
        } else {
            let steps = self.block.steps();
            parallel::split(self.table.len(), (GRAIN / block.max(1)).max(1), |range| {
                self.each_position(range, |offset, dense| {
                    self.block.runs(0..block, |[i, d], len| f(offset + i, dense + d, len, steps));
                })
            });
        }
    }

    /// As `read`, but every element of the indexed operand is met by one thread, in the order of the positions.
    fn write(&self, f: impl Fn(usize, usize, usize, [usize; 2]) + Sync) {
        let block = self.block.numel();
        if self.positions_inside {
            return self.columns(f);
        }
        let steps = self.block.steps();
        // A part of at least 64 elements: less would not pay for reading the table again.
        let part = (GRAIN / self.table.len().max(1)).max(64);
        parallel::split(block, part, |part| {
            self.each_position(0..self.table.len(), |offset, dense| {
                self.block.runs(part.clone(), |[i, d], len| f(offset + i, dense + d, len, steps));
            })
        });
    }

    /// Block elements outside, index positions inside.
    fn columns(&self, f: impl Fn(usize, usize, usize, [usize; 2]) + Sync) {
        let [si, sd] = self.block.steps();
        parallel::split(self.block.numel(), (GRAIN / self.table.len().max(1)).max(1), |part| {
            self.block.runs(part, |[i, d], len| {
                for j in 0..len {
                    self.each_position(0..self.table.len(), |offset, dense| {
                        f(offset + i + j * si, dense + d + j * sd, 1, [0, 0])
                    });
                }
            })
        });
    }

    /// Calls `f` with the block's offsets in both operands.
    #[inline]
    fn each_position(&self, range: Range<usize>, mut f: impl FnMut(usize, usize)) {
        let [step] = self.positions.steps();
        let mut at = range.start;
        self.positions.runs(range, |[dense], len| {
            for (i, &offset) in self.table[at..at + len].iter().enumerate() {
                f(offset, dense + i * step);
            }
            at += len;
        });
    }
}

/// Adds `index * stride` to every entry, or names the first index out of range.
fn add_offsets(
    table: &mut [usize],
    view: &View,
    size: usize,
    stride: usize,
    negative: Negative,
) -> Result<(), IndexOutOfRange> {
    Indices::new(view).each(|at, index| {
        table[at] += position(index, size, negative).ok_or(IndexOutOfRange { index, size })? * stride;
        Ok(())
    })
}

/// Copies the indexed blocks to `out`.
fn copy_out(plan: &Plan, input: &View, out: &ViewMut) {
    let (from, to) = (*input, *out);
    with_bytes!(out.dtype().size(), T => plan.read(|i, d, len, steps| {
        // SAFETY: the plan's offsets lie within both views.
        unsafe { copy::<T>(from.as_ptr().cast::<T>().add(i), steps[0], to.as_ptr().cast::<T>().add(d), steps[1], len) }
    }));
}

/// Copies `src` to the indexed blocks of `out`.
fn copy_in(plan: &Plan, out: &ViewMut, src: &View) {
    let (from, to) = (*src, *out);
    with_bytes!(out.dtype().size(), T => plan.write(|i, d, len, steps| {
        // SAFETY: as in `copy_out`.
        unsafe { copy::<T>(from.as_ptr().cast::<T>().add(d), steps[1], to.as_ptr().cast::<T>().add(i), steps[0], len) }
    }));
}

/// Adds `alpha * src` to the indexed blocks of `out`.
fn add_in<T: Arithmetic>(plan: &Plan, out: &ViewMut, src: &View, alpha: T) {
    let (from, to) = (*src, *out);
    plan.write(|i, d, len, steps| {
        // SAFETY: as in `copy_out`.
        unsafe { add(from.ptr::<T>().add(d), steps[1], to.ptr::<T>().add(i), steps[0], len, alpha) }
    });
}

/// # Safety
/// `len` elements lie behind both pointers at their steps.
#[inline(always)]
unsafe fn copy<T: Copy>(from: *const T, step: usize, to: *mut T, to_step: usize, len: usize) {
    // SAFETY: the caller's promise; the ranges may overlap.
    unsafe {
        if step == 1 && to_step == 1 {
            return std::ptr::copy(from, to, len);
        }
        for k in 0..len {
            to.add(k * to_step).write(from.add(k * step).read());
        }
    }
}

/// Adds `alpha` times one run to another.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn add<T: Arithmetic>(from: *const T, step: usize, to: *mut T, to_step: usize, len: usize, alpha: T) {
    // SAFETY: the caller's promise.
    let each = |k: usize, step: usize, to_step: usize| unsafe {
        let p = to.add(k * to_step);
        p.write(p.read().plus(from.add(k * step).read().times(alpha)));
    };
    // The common case on its own, so that it becomes vectors.
    if step == 1 && to_step == 1 {
        (0..len).for_each(|k| each(k, 1, 1))
    } else {
        (0..len).for_each(|k| each(k, step, to_step))
    }
}

/// `out = input[indices]`: one entry per leading dimension, `None` for a full slice, all of the same sizes.
///
/// `out` has [`index_sizes`]. Negative indices count from the end.
pub fn index(input: &View, indices: &[Option<View>], out: &ViewMut) -> Result<(), IndexOutOfRange> {
    assert_eq!(input.dtype(), out.dtype());
    let dense = (out.sizes(), out.strides());
    copy_out(&Plan::new(input.sizes(), input.strides(), indices, dense, Negative::Wrap)?, input, out);
    Ok(())
}

/// `out[indices] = values`, or `+=` with `accumulate`; `values` has [`index_sizes`] of `out`.
pub fn index_put(
    out: &ViewMut,
    indices: &[Option<View>],
    values: &View,
    accumulate: bool,
) -> Result<(), IndexOutOfRange> {
    assert_eq!(values.dtype(), out.dtype());
    let dense = (values.sizes(), values.strides());
    let plan = Plan::new(out.sizes(), out.strides(), indices, dense, Negative::Wrap)?;
    if accumulate {
        with_element!(out.dtype(), T => add_in::<T>(&plan, out, values, T::ONE));
    } else {
        copy_in(&plan, out, values);
    }
    Ok(())
}

/// The plan of a one-dimensional index along `dim`.
fn along(
    sizes: &[usize],
    strides: &[usize],
    dim: usize,
    index: &View,
    dense: (&[usize], &[usize]),
    negative: Negative,
) -> Result<Plan, IndexOutOfRange> {
    let mut indices: SmallVec<[Option<View>; 8]> = SmallVec::from_elem(None, dim);
    indices.push(Some(*index));
    Plan::new(sizes, strides, &indices, dense, negative)
}

/// `out[.., i, ..] = input[.., index[i], ..]` along `dim`.
pub fn index_select(input: &View, dim: usize, index: &View, out: &ViewMut) -> Result<(), IndexOutOfRange> {
    assert_eq!(input.dtype(), out.dtype());
    let dense = (out.sizes(), out.strides());
    copy_out(&along(input.sizes(), input.strides(), dim, index, dense, Negative::Refuse)?, input, out);
    Ok(())
}

/// `out[.., index[i], ..] += alpha * src[.., i, ..]` along `dim`.
pub fn index_add(out: &ViewMut, dim: usize, index: &View, src: &View, alpha: f64) -> Result<(), IndexOutOfRange> {
    assert_eq!(src.dtype(), out.dtype());
    let dense = (src.sizes(), src.strides());
    let plan = along(out.sizes(), out.strides(), dim, index, dense, Negative::Refuse)?;
    with_element!(out.dtype(), T => add_in::<T>(&plan, out, src, factor(alpha)));
    Ok(())
}

/// `out[.., index[i], ..] = src[.., i, ..]` along `dim`.
pub fn index_copy(out: &ViewMut, dim: usize, index: &View, src: &View) -> Result<(), IndexOutOfRange> {
    assert_eq!(src.dtype(), out.dtype());
    let dense = (src.sizes(), src.strides());
    copy_in(&along(out.sizes(), out.strides(), dim, index, dense, Negative::Refuse)?, out, src);
    Ok(())
}

/// `out[.., index[i], ..] = value` along `dim`, where `value` has no dimensions. Negative indices count from the end.
pub fn index_fill(out: &ViewMut, dim: usize, index: &View, value: &View) -> Result<(), IndexOutOfRange> {
    assert!(value.dtype() == out.dtype() && value.numel() == 1, "one value of the target's dtype");
    let mut sizes = Dims::from_slice(out.sizes());
    sizes.remove(dim);
    sizes.insert_many(dim, index.sizes().iter().copied());
    let dense = (&sizes[..], &*Dims::from_elem(0, sizes.len()));
    copy_in(&along(out.sizes(), out.strides(), dim, index, dense, Negative::Wrap)?, out, value);
    Ok(())
}

/// `out[b..] = weight[indices[b..]]`: rows of a matrix, for indices of any shape.
pub fn embedding(weight: &View, indices: &View, out: &ViewMut) -> Result<(), IndexOutOfRange> {
    assert_eq!(weight.dtype(), out.dtype());
    let (indices, dense) = ([Some(*indices)], (out.sizes(), out.strides()));
    copy_out(&Plan::new(weight.sizes(), weight.strides(), &indices, dense, Negative::Refuse)?, weight, out);
    Ok(())
}

/// Adds the rows of `grad` to the rows of `grad_weight` that they were read from; `grad_weight` starts as zeros.
///
/// Rows read by `padding_idx` are left out. With `scale_grad_by_freq` each is divided by how often its index occurs.
pub fn embedding_dense_backward(
    grad: &View,
    indices: &View,
    grad_weight: &ViewMut,
    padding_idx: Option<usize>,
    scale_grad_by_freq: bool,
) -> Result<(), IndexOutOfRange> {
    assert_eq!(grad.dtype(), grad_weight.dtype());
    let (&[rows, width], &[row, column]) = (grad_weight.sizes(), grad_weight.strides()) else {
        unreachable!("a weight has two dimensions")
    };
    assert!(grad.sizes().split_last() == Some((&width, indices.sizes())), "a row of gradients for each index");
    let mut counts = scratch::filled(0usize, rows);
    let mut named = scratch::room(indices.numel());
    Indices::new(indices).each(|_, index| {
        let at = position(index, rows, Negative::Refuse).ok_or(IndexOutOfRange { index, size: rows })?;
        counts[at] += 1;
        named.push(at);
        Ok(())
    })?;
    let (lead, step) = (&grad.strides()[..indices.ndim()], last(grad.strides()));
    let positions = Joined::new(indices.sizes(), [lead]);
    let [along] = positions.steps();
    let (from, to) = (*grad, *grad_weight);
    with_element!(grad.dtype(), T => parallel::split(width, (GRAIN / named.len().max(1)).max(64), |columns| {
        let mut at = 0;
        positions.runs(0..named.len(), |[offset], len| {
            for (i, &index) in named[at..at + len].iter().enumerate() {
                if padding_idx == Some(index) {
                    continue;
                }
                let scale = if scale_grad_by_freq { T::from_f64(1.0 / counts[index] as f64) } else { T::ONE };
                // SAFETY: index and columns lie within the weight; position and columns within grad.
                unsafe {
                    let g = from.ptr::<T>().add(offset + i * along + columns.start * step);
                    add(g, step, to.ptr::<T>().add(index * row + columns.start * column), column, columns.len(), scale);
                }
            }
            at += len;
        })
    }));
    Ok(())
}

/// Offsets of elements named by their position in logical order.
fn flat_table(sizes: &[usize], strides: &[usize], index: &View) -> Result<Vec<usize>, IndexOutOfRange> {
    let size = sizes.iter().product();
    let joined = Joined::new(sizes, [strides]);
    let mut table = scratch::room(index.numel());
    Indices::new(index).each(|_, index| {
        let mut at = position(index, size, Negative::Wrap).ok_or(IndexOutOfRange { index, size })?;
        let mut offset = 0;
        for (&n, &s) in joined.sizes.iter().zip(&joined.strides[0]).rev() {
            offset += at % n * s;
            at /= n;
        }
        table.push(offset);
        Ok(())
    })?;
    Ok(table)
}

fn flat(
    sizes: &[usize],
    strides: &[usize],
    index: &View,
    (dense_sizes, dense): (&[usize], &[usize]),
) -> Result<Plan, IndexOutOfRange> {
    assert_eq!(dense_sizes, index.sizes(), "an element for each index");
    Ok(Plan {
        table: flat_table(sizes, strides, index)?,
        positions: Joined::new(index.sizes(), [dense]),
        block: Joined::new(&[], [&[], &[]]),
        positions_inside: false,
    })
}

/// `out[b..] = input.flatten()[index[b..]]`. Negative indices count from the end.
pub fn take(input: &View, index: &View, out: &ViewMut) -> Result<(), IndexOutOfRange> {
    assert_eq!(input.dtype(), out.dtype());
    copy_out(&flat(input.sizes(), input.strides(), index, (out.sizes(), out.strides()))?, input, out);
    Ok(())
}

/// `out.flatten()[index[b..]] = src[b..]`, or `+=` with `accumulate`. Negative indices count from the end.
pub fn put(out: &ViewMut, index: &View, src: &View, accumulate: bool) -> Result<(), IndexOutOfRange> {
    assert_eq!(src.dtype(), out.dtype());
    let plan = flat(out.sizes(), out.strides(), index, (src.sizes(), src.strides()))?;
    if accumulate {
        with_element!(out.dtype(), T => add_in::<T>(&plan, out, src, T::ONE));
    } else {
        copy_in(&plan, out, src);
    }
    Ok(())
}
