//! The position of the largest or smallest element.
//!
//! The first occurrence wins, and NaN counts as the extreme, as in PyTorch. A block is folded to its extreme first, with
//! vectors; only if that beats the best so far is its place looked up.
#![allow(unsafe_code)]

use super::fold::{Extreme, Fold};
use super::{BLOCK, Dim, Dims, GRAIN, PART, block, merge, need_reduced, offset, out_offset, simplify};
use crate::lanes::{Buffer, Compute, Kernel, dispatch, load, store_one};
use crate::real::Ptr;
use crate::{DType, View, ViewMut, parallel};
use smallvec::SmallVec;
use std::ops::Range;

/// Which extreme to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgReduce {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Finds the extreme along `dim`, or of all elements in row-major order, and writes its value and index.
///
/// `indices` (i64) and `values` (the input's dtype) have the input's rank and size 1 at `dim`; for all elements, one element.
/// There is at least one element to choose from, or no output.
pub fn arg_reduce(op: ArgReduce, input: View, dim: Option<usize>, values: Option<ViewMut>, indices: ViewMut) {
    assert_eq!(indices.dtype(), DType::I64);
    for out in values.iter().chain([&indices]) {
        match dim {
            Some(dim) => need_reduced(&input, |d| dim == d, out),
            None => assert_eq!(out.numel(), 1, "one extreme of all elements"),
        }
    }
    let (mut kept, mut reduced) = (Dims::new(), Dims::new());
    for (i, (&size, &step)) in input.sizes().iter().zip(input.strides()).enumerate() {
        if dim.is_none_or(|d| d == i) {
            if size != 1 {
                reduced.push(Dim { size, step, out: [0; 2] });
            }
        } else if size != 1 {
            kept.push(Dim { size, step, out: [indices.strides()[i], values.map_or(0, |v| v.strides()[i])] });
        }
    }
    simplify(&mut kept);
    merge(&mut reduced);
    let count = reduced.iter().map(|d| d.size).product();
    let job = Job { op, input, values, indices, kept, reduced, count };
    match input.dtype().compute() {
        DType::F32 => job.run::<f32>(),
        DType::F64 => job.run::<f64>(),
        _ => job.run::<i64>(),
    }
}

/// Columns searched side by side.
const WIDTH: usize = 512;

struct Job<'a> {
    op: ArgReduce,
    input: View<'a>,
    values: Option<ViewMut<'a>>,
    indices: ViewMut<'a>,
    kept: Dims,
    reduced: Dims,
    count: usize,
}

/// Whether `x` takes the place of an earlier `best`.
#[inline(always)]
fn beats<X: Compute>(op: ArgReduce, x: X, best: X) -> bool {
    let more = match op {
        ArgReduce::Max => x > best,
        ArgReduce::Min => x < best,
    };
    more | (x.is_nan() & !best.is_nan())
}

impl Job<'_> {
    fn run<X: Compute>(&self) {
        let outputs: usize = self.kept.iter().map(|d| d.size).product();
        if outputs == 0 || self.count == 0 {
            return;
        }
        let (inner, along) = (self.kept[self.kept.len() - 1], self.reduced[0]);
        if self.reduced.len() == 1 && inner.size >= 8 && (inner.step < along.step || self.count < 32) {
            return self.columns::<X>(outputs / inner.size, inner);
        }
        if outputs > 1 || self.count < 2 * PART {
            return parallel::split(outputs, (GRAIN / self.count).max(1), |range| {
                for k in range {
                    // SAFETY: output `k`'s elements start inside the view.
                    let base = unsafe { self.input.as_ptr().add(offset(&self.kept, k) * self.input.dtype().size()) };
                    let (best, at) = self.search::<X>(base, 0..self.count);
                    self.write(k, best, at)
                }
            });
        }
        let len = PART.max(self.count.div_ceil(64)).next_multiple_of(BLOCK);
        let mut found: SmallVec<[(X, usize); 64]> = SmallVec::from_elem((X::ZERO, 0), self.count.div_ceil(len));
        let to = Ptr::new(&mut found);
        parallel::split(self.count, len, |range| {
            let part = range.start / len;
            // SAFETY: each part has its own slot.
            unsafe { *to.at(part) = self.search::<X>(self.input.as_ptr(), range) }
        });
        let best = found.into_iter().reduce(|a, b| if beats(self.op, b.0, a.0) { b } else { a });
        let (best, at) = best.expect("there is at least one part");
        self.write(0, best, at)
    }

    fn write<X: Compute>(&self, k: usize, best: X, at: usize) {
        // SAFETY: output `k` lies inside both, and only its task writes it.
        unsafe {
            *self.indices.ptr::<i64>().add(out_offset(&self.kept, k, 0)) = at as i64;
            if let Some(v) = &self.values {
                store_one(best, v.as_ptr().add(out_offset(&self.kept, k, 1) * v.dtype().size()), v.dtype())
            }
        }
    }

    /// The extreme of the elements `range` at `base`, and its index.
    fn search<X: Compute>(&self, base: *const u8, range: Range<usize>) -> (X, usize) {
        let mut buf = Buffer::<X, BLOCK>::new();
        let mut best: Option<(X, usize)> = None;
        let fold = match self.op {
            ArgReduce::Max => Fold::Max,
            ArgReduce::Min => Fold::Min,
        };
        let mut at = range.start;
        while at < range.end {
            let n = BLOCK.min(range.end - at);
            // SAFETY: the indices lie inside the view; the buffer holds a block.
            let xs = unsafe { block::<X>(base, self.input.dtype(), &self.reduced, at, n, buf.as_mut_ptr()) };
            let m = dispatch(Extreme { fold, xs });
            if best.is_none_or(|(b, _)| beats(self.op, m, b)) {
                let i = xs.iter().position(|&x| x == m || (m.is_nan() && x.is_nan()));
                best = Some((m, at + i.expect("the extreme is one of the elements")));
            }
            at += n;
        }
        best.expect("a range is not empty")
    }

    /// Neighbouring outputs together: `outer` times the dimension `inner`.
    fn columns<X: Compute>(&self, outer: usize, inner: Dim) {
        let (dtype, along) = (self.input.dtype(), self.reduced[0]);
        let blocks = inner.size.div_ceil(WIDTH);
        let grain = (GRAIN / (self.count * inner.size.min(WIDTH))).max(1);
        parallel::split(outer * blocks, grain, |range| {
            let mut buf = Buffer::<X, WIDTH>::new();
            let (mut best, mut place) = (Buffer::<X, WIDTH>::new(), Buffer::<i64, WIDTH>::new());
            for task in range {
                let (o, column) = (task / blocks, task % blocks * WIDTH);
                let w = WIDTH.min(inner.size - column);
                let start = offset(&self.kept[..self.kept.len() - 1], o) + column * inner.step;
                let best = best.filled(w, X::ZERO);
                let place = place.filled(w, 0);
                for r in 0..self.count {
                    // SAFETY: row and column lie inside the view; the buffer holds a row.
                    let xs = unsafe {
                        let row = self.input.as_ptr().add((start + r * along.step) * dtype.size());
                        load::<X>(row, dtype, inner.step, w, buf.as_mut_ptr())
                    };
                    match r {
                        0 => best.copy_from_slice(xs),
                        _ => dispatch(Step { op: self.op, xs, row: r as i64, best, place }),
                    }
                }
                for i in 0..w {
                    self.write(o * inner.size + column + i, best[i], place[i] as usize)
                }
            }
        })
    }
}

/// Lets one row compete with the best so far.
struct Step<'a, X> {
    op: ArgReduce,
    xs: &'a [X],
    row: i64,
    best: &'a mut [X],
    place: &'a mut [i64],
}

impl<X: Compute> Kernel for Step<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let n = self.xs.len();
        let (xs, best, place) = (&self.xs[..n], &mut self.best[..n], &mut self.place[..n]);
        for i in 0..n {
            let better = beats(self.op, xs[i], best[i]);
            best[i] = if better { xs[i] } else { best[i] };
            place[i] = if better { self.row } else { place[i] };
        }
    }
}
