//! Walking strided memory in row-major order, a run along the last dimension at a time.
//!
//! Knows sizes and strides only, no pointer and no dtype. Every kernel whose order is PyTorch's logical order walks
//! through here.

use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Calls `f(offsets, len)` for runs along the last dimension that together cover the row-major positions `range`.
///
/// `offsets` are those of the run's first element in each of the `N` operands; the caller steps on by the operands'
/// last strides. A tensor without dimensions is one run of one element.
#[inline]
pub(crate) fn for_runs<const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    range: Range<usize>,
    mut f: impl FnMut([usize; N], usize),
) {
    let mut runs = Runs::new(sizes, strides, range);
    while let Some((offsets, len)) = runs.next() {
        f(offsets, len);
    }
}

/// Where a walk is. Apart from the loop around it, which is compiled for every kernel.
struct Runs<'a, const N: usize> {
    /// Sizes but for the last, which is `inner`.
    outer: &'a [usize],
    inner: usize,
    strides: [&'a [usize]; N],
    index: SmallVec<[usize; 8]>,
    /// Of the first element of the current row.
    offsets: [usize; N],
    /// The next position in the row.
    first: usize,
    at: usize,
    end: usize,
}

impl<'a, const N: usize> Runs<'a, N> {
    #[inline(never)]
    fn new(sizes: &'a [usize], strides: [&'a [usize]; N], range: Range<usize>) -> Runs<'a, N> {
        let (inner, outer) = sizes.split_last().map_or((1, sizes), |(inner, outer)| (*inner, outer));
        let (at, end) = (range.start, range.end);
        let mut runs =
            Runs { outer, inner, strides, index: smallvec![0; outer.len()], offsets: [0; N], first: 0, at, end };
        if range.is_empty() {
            return runs;
        }
        runs.first = at % inner;
        let mut rest = at / inner;
        for k in (0..outer.len()).rev() {
            runs.index[k] = rest % outer[k];
            rest /= outer[k];
            for (offset, strides) in runs.offsets.iter_mut().zip(&strides) {
                *offset += runs.index[k] * strides[k];
            }
        }
        runs
    }

    #[inline(never)]
    fn next(&mut self) -> Option<([usize; N], usize)> {
        if self.at >= self.end {
            return None;
        }
        let len = (self.inner - self.first).min(self.end - self.at);
        let mut offsets = self.offsets;
        if self.first > 0 {
            for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                *offset += self.first * strides[self.outer.len()];
            }
            self.first = 0;
        }
        self.at += len;
        if self.at < self.end {
            self.advance();
        }
        Some((offsets, len))
    }

    /// Goes to the next row.
    #[inline]
    fn advance(&mut self) {
        for k in (0..self.outer.len()).rev() {
            self.index[k] += 1;
            if self.index[k] < self.outer[k] {
                for n in 0..N {
                    self.offsets[n] += self.strides[n][k];
                }
                return;
            }
            self.index[k] = 0;
            for n in 0..N {
                self.offsets[n] -= (self.outer[k] - 1) * self.strides[n][k];
            }
        }
    }
}

/// The step along the last dimension; 0 without dimensions.
#[inline]
pub(crate) fn last(strides: &[usize]) -> usize {
    strides.last().copied().unwrap_or(0)
}

/// `values` without entry `dim`.
#[inline]
pub(crate) fn without(values: &[usize], dim: usize) -> SmallVec<[usize; 8]> {
    values.iter().enumerate().filter(|&(k, _)| k != dim).map(|(_, &v)| v).collect()
}

/// Sizes and strides of `N` operands, with neighboring dimensions joined where every operand allows it.
pub(crate) struct Joined<const N: usize> {
    pub(crate) sizes: SmallVec<[usize; 8]>,
    pub(crate) strides: [SmallVec<[usize; 8]>; N],
}

impl<const N: usize> Joined<N> {
    /// Walks the same elements in the same order, in longer runs.
    pub(crate) fn new(sizes: &[usize], strides: [&[usize]; N]) -> Joined<N> {
        let mut joined = Joined { sizes: SmallVec::new(), strides: std::array::from_fn(|_| SmallVec::new()) };
        for (k, &n) in sizes.iter().enumerate() {
            if n == 1 {
                continue;
            }
            let fits = |(before, now): (&SmallVec<[usize; 8]>, &&[usize])| last(before) == now[k] * n;
            if !joined.sizes.is_empty() && joined.strides.iter().zip(&strides).all(fits) {
                let end = joined.sizes.len() - 1;
                joined.sizes[end] *= n;
                (0..N).for_each(|i| joined.strides[i][end] = strides[i][k]);
            } else {
                joined.sizes.push(n);
                (0..N).for_each(|i| joined.strides[i].push(strides[i][k]));
            }
        }
        joined
    }

    pub(crate) fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The steps along the last dimension.
    pub(crate) fn steps(&self) -> [usize; N] {
        std::array::from_fn(|i| last(&self.strides[i]))
    }

    /// [`for_runs`] over these operands.
    #[inline]
    pub(crate) fn runs(&self, range: Range<usize>, f: impl FnMut([usize; N], usize)) {
        for_runs(&self.sizes, self.borrowed(), range, f)
    }

    fn borrowed(&self) -> [&[usize]; N] {
        std::array::from_fn(|i| &self.strides[i][..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row-major strides of `sizes`.
    fn contiguous_strides(sizes: &[usize]) -> SmallVec<[usize; 8]> {
        let mut strides: SmallVec<[usize; 8]> = smallvec![1; sizes.len()];
        for k in (1..sizes.len()).rev() {
            strides[k - 1] = strides[k] * sizes[k].max(1);
        }
        strides
    }

    #[test]
    fn any_range_of_any_shape_is_covered_in_order() {
        for sizes in [&[][..], &[5], &[2, 3], &[4, 1, 3], &[2, 3, 4], &[3, 0, 2]] {
            let total: usize = sizes.iter().product();
            let strides = contiguous_strides(sizes);
            for start in 0..=total {
                for end in start..=total {
                    let mut seen = Vec::new();
                    for_runs(sizes, [&strides, &strides], start..end, |[a, b], len| {
                        assert_eq!(a, b);
                        seen.extend(a..a + len)
                    });
                    assert!(seen.into_iter().eq(start..end));
                }
            }
        }
    }
}
