//! Reductions over any set of dimensions of any strided view.
//!
//! Dimensions are sorted by stride and merged first, so only two loops remain: along memory for each output (`rows`), or
//! for a stretch of neighboring outputs at once (`columns`). Floats are merged a few at a time and then joined in f64, so
//! a sum is about as good as its last rounding; integers use i64 and wrap.
//! Work is cut by sizes only and joined in order: results do not depend on the number of threads.
//! Reducing no elements gives the identity; the caller decides whether that is an error.
#![allow(unsafe_code)]

mod arg;
mod fold;
#[cfg(test)]
mod tests;

pub use arg::{ArgReduce, arg_reduce};

use crate::lanes::{Buffer, Compute, dispatch, load, load_into, store_one};
use crate::real::Ptr;
use crate::{DType, Element, View, ViewMut, parallel, scratch};
use fold::{Block, Columns, Fold};
use smallvec::SmallVec;
use std::ops::Range;

/// What to compute of the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The sum over the count.
    Mean,
    /// The product.
    Prod,
    /// The largest; NaN if one is.
    Max,
    /// The smallest; NaN if one is.
    Min,
    /// Whether some element is not zero.
    Any,
    /// Whether no element is zero.
    All,
    /// The sum of squares.
    SumSquares,
    /// The vector norm of this order: 0 counts non-zeros, infinities take the extreme magnitude.
    Norm(f64),
    /// `ln(sum(exp(x)))` without overflow.
    LogSumExp,
    /// Mean squared distance from the mean, over the count less `correction`.
    Var {
        /// 1 for the unbiased estimate.
        correction: f64,
    },
    /// The square root of the variance.
    Std {
        /// As for the variance.
        correction: f64,
    },
}

impl Reduce {
    /// A fold whose result is the parameter of the main one, if two passes are needed.
    fn passes(self) -> (Option<Fold>, Fold) {
        match self {
            Reduce::Sum | Reduce::Mean => (None, Fold::Sum),
            Reduce::Prod => (None, Fold::Prod),
            Reduce::Max => (None, Fold::Max),
            Reduce::Min => (None, Fold::Min),
            Reduce::Any | Reduce::All => (None, Fold::Count),
            Reduce::SumSquares => (None, Fold::SquareSum),
            Reduce::Norm(0.0) => (None, Fold::Count),
            Reduce::Norm(1.0) => (None, Fold::AbsSum),
            Reduce::Norm(2.0) => (None, Fold::SquareSum),
            Reduce::Norm(f64::INFINITY) => (None, Fold::AbsMax),
            Reduce::Norm(f64::NEG_INFINITY) => (None, Fold::AbsMin),
            Reduce::Norm(p) => (None, Fold::AbsPowSum(p)),
            Reduce::LogSumExp => (Some(Fold::Max), Fold::ExpSum),
            Reduce::Var { .. } | Reduce::Std { .. } => (Some(Fold::WideSum), Fold::SquareDiffSum),
        }
    }

    /// The parameter of the main pass from the first pass's result.
    fn param(self, first: f64, count: usize) -> f64 {
        match self {
            Reduce::LogSumExp if first.is_infinite() => 0.0,
            Reduce::LogSumExp => first,
            _ => first / count as f64,
        }
    }

    /// The result from the main pass's total; `p` is its parameter, `first` the parameter before it was rounded.
    fn finish<W: Compute>(self, total: W, p: f64, first: f64, count: usize) -> W {
        let (t, n) = (total.to_f64(), count as f64);
        let variance = |correction: f64| around_rounded_mean(t / n, first - p) * (n / (n - correction).max(0.0));
        W::from_f64(match self {
            Reduce::Mean => t / n,
            Reduce::Any => f64::from(t != 0.0),
            Reduce::All => f64::from(t == n),
            Reduce::Norm(2.0) => t.sqrt(),
            Reduce::Norm(p) if p != 0.0 && p != 1.0 && p.is_finite() => t.powf(1.0 / p),
            Reduce::LogSumExp => t.ln() + p,
            Reduce::Var { correction } => variance(correction),
            Reduce::Std { correction } => variance(correction).sqrt(),
            _ => return total,
        })
    }
}

/// The mean square around the mean, from that around a rounded mean and how far the mean was `off`.
#[inline(always)]
pub(crate) fn around_rounded_mean(square: f64, off: f64) -> f64 {
    // Infinite and undefined means say all there is to say in the square.
    if off == 0.0 || !off.is_finite() { square } else { (square - off * off).max(0.0) }
}

/// Reduces `dims` of `input` into `out`, which has the input's rank and size 1 at `dims`.
///
/// The computation is done in the wider of both dtypes' compute types, and the result rounded once to `out`'s dtype.
pub fn reduce(op: Reduce, input: View, dims: &[usize], out: ViewMut) {
    start(op, input, dims, out, None)
}

/// The variance into `var` and the mean into `mean`.
pub fn var_mean(input: View, dims: &[usize], correction: f64, var: ViewMut, mean: ViewMut) {
    assert_eq!(var.dtype(), mean.dtype());
    start(Reduce::Var { correction }, input, dims, var, Some(mean))
}

fn start(op: Reduce, input: View, dims: &[usize], out: ViewMut, mean: Option<ViewMut>) {
    let (from, to) = (input.dtype().compute(), out.dtype().compute());
    let compute = match op {
        Reduce::Any | Reduce::All => from,
        _ if from == DType::F64 || to == DType::F64 => DType::F64,
        _ => to,
    };
    match compute {
        DType::F32 => Job::new(op, input, dims, out, mean).run::<f32>(),
        DType::F64 => Job::new(op, input, dims, out, mean).run::<f64>(),
        _ => Job::new(op, input, dims, out, mean).run::<i64>(),
    }
}

/// Elements folded in one go.
const BLOCK: usize = 2048;
/// Columns folded side by side.
const WIDTH: usize = 1024;
/// Elements that are worth a thread.
const GRAIN: usize = 1 << 15;
/// Least elements of a part when one output's elements are shared between threads.
const PART: usize = 1 << 16;
/// Fewer tasks than this are split further.
const FEW: usize = 8;

/// One dimension: its size, and the steps of input, output and mean.
#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    step: usize,
    out: [usize; 2],
}

type Dims = SmallVec<[Dim; 6]>;

/// Sorts by stride, outermost first, and merges. Repeated dimensions go outermost.
fn simplify(dims: &mut Dims) {
    dims.sort_by_key(|d| std::cmp::Reverse(d.step.wrapping_sub(1)));
    merge(dims)
}

/// Merges neighbors that are one dimension in memory; at least one dimension is left.
fn merge(dims: &mut Dims) {
    let mut kept = 0;
    for i in 1..dims.len() {
        let (a, b) = (dims[kept], dims[i]);
        if a.step == b.step * b.size && a.out == b.out.map(|s| s * b.size) {
            dims[kept] = Dim { size: a.size * b.size, ..b };
        } else {
            kept += 1;
            dims[kept] = b;
        }
    }
    dims.truncate(kept + 1);
    if dims.is_empty() {
        dims.push(Dim { size: 1, step: 1, out: [1; 2] });
    }
}

/// Offset of the element with this row-major index.
#[inline]
fn offset(dims: &[Dim], mut index: usize) -> usize {
    if let [d] = dims {
        return index * d.step;
    }
    let mut at = 0;
    for d in dims.iter().rev() {
        at += index % d.size * d.step;
        index /= d.size;
    }
    at
}

#[inline]
fn out_offset(dims: &[Dim], mut index: usize, which: usize) -> usize {
    let mut at = 0;
    for d in dims.iter().rev() {
        at += index % d.size * d.out[which];
        index /= d.size;
    }
    at
}

/// Elements `at..at + n`, in row-major order of `dims`, of the memory at `base`; gathered into `buf` if need be.
///
/// # Safety
/// The indices lie within `dims`, their elements are readable, and `buf` has room for `n`.
unsafe fn block<'a, X: Compute>(
    base: *const u8,
    dtype: DType,
    dims: &[Dim],
    at: usize,
    n: usize,
    buf: *mut X,
) -> &'a [X] {
    let along = dims[dims.len() - 1];
    // SAFETY: the caller's promise.
    unsafe {
        let start = |at: usize| base.add(offset(dims, at) * dtype.size());
        let mut run = along.size - at % along.size;
        if run >= n {
            return load(start(at), dtype, along.step, n, buf);
        }
        let mut done = 0;
        while done < n {
            let m = run.min(n - done);
            load_into(start(at + done), dtype, along.step, m, buf.add(done));
            done += m;
            run = along.size;
        }
        std::slice::from_raw_parts(buf, n)
    }
}

struct Job<'a> {
    op: Reduce,
    input: View<'a>,
    out: ViewMut<'a>,
    mean: Option<ViewMut<'a>>,
    kept: Dims,
    reduced: Dims,
    /// Elements per output.
    count: usize,
}

/// Asserts that an output has an element for each of the input's that are not reduced away.
fn need_reduced(input: &View, gone: impl Fn(usize) -> bool, out: &ViewMut) {
    let fits = input.ndim() == out.ndim()
        && (0..out.ndim()).all(|d| out.sizes()[d] == if gone(d) { 1 } else { input.sizes()[d] });
    assert!(fits, "an output of sizes {:?} for an input of {:?}", out.sizes(), input.sizes());
}

impl<'a> Job<'a> {
    fn new(op: Reduce, input: View<'a>, dims: &[usize], out: ViewMut<'a>, mean: Option<ViewMut<'a>>) -> Self {
        need_reduced(&input, |d| dims.contains(&d), &out);
        mean.iter().for_each(|m| need_reduced(&input, |d| dims.contains(&d), m));
        let (mut kept, mut reduced) = (Dims::new(), Dims::new());
        let mut count = 1;
        for (i, (&size, &step)) in input.sizes().iter().zip(input.strides()).enumerate() {
            if dims.contains(&i) {
                count *= size;
                if size != 1 {
                    reduced.push(Dim { size, step, out: [0; 2] });
                }
            } else if size != 1 {
                kept.push(Dim { size, step, out: [out.strides()[i], mean.map_or(0, |m| m.strides()[i])] });
            }
        }
        simplify(&mut kept);
        simplify(&mut reduced);
        Job { op, input, out, mean, kept, reduced, count }
    }

    fn run<X: Compute>(&self) {
        let outputs: usize = self.kept.iter().map(|d| d.size).product();
        if outputs == 0 {
            return;
        }
        if self.count == 0 {
            let unit = self.op.passes().1.unit::<X::Wide>();
            return (0..outputs).for_each(|k| self.write::<X>(k, unit, X::Wide::ZERO));
        }
        let (inner, along) = (self.kept[self.kept.len() - 1], self.reduced[self.reduced.len() - 1]);
        let beside = inner.step != 0 && inner.size >= 8 && inner.step < along.step;
        if beside || (self.count < 32 && inner.size >= 32) {
            self.columns::<X>(outputs / inner.size, inner)
        } else {
            self.rows::<X>(outputs)
        }
    }

    /// Where output `k`'s elements start.
    fn base(&self, dims: &[Dim], k: usize) -> *const u8 {
        // SAFETY: an index within the sizes lies inside the view.
        unsafe { self.input.as_ptr().add(offset(dims, k) * self.input.dtype().size()) }
    }

    /// The parameter of the main pass from the first pass's total, before it is rounded.
    fn param<X: Compute>(&self, first: X::Wide) -> X::Wide {
        X::Wide::from_f64(self.op.param(first.to_f64(), self.count))
    }

    /// Writes output `k`; `param` is the parameter of the main pass before it was rounded to the compute type.
    fn write<X: Compute>(&self, k: usize, total: X::Wide, param: X::Wide) {
        let p = X::from_f64(param.to_f64());
        let v = self.op.finish(total, p.to_f64(), param.to_f64(), self.count);
        let put = |view: &ViewMut, which: usize, v: X::Wide| {
            let at = out_offset(&self.kept, k, which) * view.dtype().size();
            // SAFETY: output `k` lies inside, and only its task writes it.
            unsafe { store_one(v, view.as_ptr().add(at), view.dtype()) }
        };
        put(&self.out, 0, v);
        if let Some(mean) = &self.mean {
            put(mean, 1, if self.count == 0 { X::Wide::from_f64(f64::NAN) } else { p.widen() })
        }
    }

    /// How many parts the `count` elements of each output are cut into, and how long a part is: one, if there are tasks
    /// enough without. `width` outputs share a task.
    fn parts(&self, tasks: usize, width: usize, unit: usize) -> (usize, usize) {
        if tasks >= FEW || self.count * width < 2 * PART {
            return (1, self.count);
        }
        let len = PART.div_ceil(width).max(self.count.div_ceil(64)).next_multiple_of(unit);
        (self.count.div_ceil(len), len)
    }

    /// One output at a time.
    fn rows<X: Compute>(&self, outputs: usize) {
        let (first, main) = self.op.passes();
        let rounded = |p: X::Wide| X::from_f64(p.to_f64());
        let (parts, len) = self.parts(outputs, 1, BLOCK);
        if parts == 1 {
            return parallel::split(outputs, (GRAIN / self.count).max(1), |range| {
                for k in range {
                    let base = self.base(&self.kept, k);
                    let all = 0..self.count;
                    let none = X::Wide::ZERO;
                    let p = first.map_or(none, |f| self.param::<X>(self.total(f, base, all.clone(), X::ZERO)));
                    self.write::<X>(k, self.total(main, base, all, rounded(p)), p)
                }
            });
        }
        let mut partial: SmallVec<[X::Wide; 64]> = SmallVec::from_elem(X::Wide::ZERO, outputs * parts);
        let mut pass = |f: Fold, ps: &[X::Wide]| -> SmallVec<[X::Wide; FEW]> {
            let to = Ptr::new(&mut partial);
            parallel::run(outputs * parts, &|i| {
                let (k, part) = (i / parts, i % parts);
                let range = part * len..((part + 1) * len).min(self.count);
                // SAFETY: each task writes its own element.
                unsafe { *to.at(i) = self.total(f, self.base(&self.kept, k), range, rounded(ps[k])) }
            });
            partial.chunks(parts).map(|c| c.iter().fold(f.unit(), |a, &b| f.merge(a, b))).collect()
        };
        let mut ps: SmallVec<[X::Wide; FEW]> = SmallVec::from_elem(X::Wide::ZERO, outputs);
        if let Some(f) = first {
            ps = pass(f, &ps).iter().map(|&t| self.param::<X>(t)).collect();
        }
        for (k, &t) in pass(main, &ps).iter().enumerate() {
            self.write::<X>(k, t, ps[k])
        }
    }

    /// Folds the elements `range` of the output that starts at `base`.
    fn total<X: Compute>(&self, fold: Fold, base: *const u8, range: Range<usize>, p: X) -> X::Wide {
        let mut buf = Buffer::<X, BLOCK>::new();
        let mut total = fold.unit::<X::Wide>();
        let mut at = range.start;
        while at < range.end {
            let n = BLOCK.min(range.end - at);
            // SAFETY: indices below `count` lie inside the view; the buffer holds a block.
            let xs = unsafe { block(base, self.input.dtype(), &self.reduced, at, n, buf.as_mut_ptr()) };
            total = fold.merge(total, dispatch(Block { fold, xs, p }));
            at += n;
        }
        total
    }

    /// Neighbouring outputs together: `outer` times the dimension `inner`.
    fn columns<X: Compute>(&self, outer: usize, inner: Dim) {
        let (first, main) = self.op.passes();
        let blocks = inner.size.div_ceil(WIDTH);
        let tasks = outer * blocks;
        let width = inner.size.min(WIDTH);
        let before = &self.kept[..self.kept.len() - 1];
        // First output, number of outputs and address of a task.
        let place = |task: usize| {
            let (o, column) = (task / blocks, task % blocks * WIDTH);
            // SAFETY: the column lies inside the view.
            let base = unsafe { self.base(before, o).add(column * inner.step * self.input.dtype().size()) };
            (o * inner.size + column, WIDTH.min(inner.size - column), base)
        };
        // The parameters, rounded into `ps` and as they were in `totals`.
        let params = |totals: &mut [X::Wide], ps: &mut [X]| {
            for (p, t) in ps.iter_mut().zip(totals) {
                *t = self.param::<X>(*t);
                *p = X::from_f64(t.to_f64())
            }
        };
        let (parts, len) = self.parts(tasks, width, 4);
        if parts == 1 {
            return parallel::split(tasks, (GRAIN / (width * self.count)).max(1), |range| {
                let mut wide = [const { Buffer::<X::Wide, WIDTH>::new() }; 2];
                let mut ps = Buffer::<X, WIDTH>::new();
                for task in range {
                    let (k, w, base) = place(task);
                    let ps = ps.filled(w, X::ZERO);
                    let [before, totals] = &mut wide;
                    let before = before.filled(w, first.map_or(X::Wide::ZERO, Fold::unit));
                    if let Some(f) = first {
                        self.column_totals(f, base, inner.step, 0..self.count, ps, before);
                        params(before, ps);
                    }
                    let totals = totals.filled(w, main.unit());
                    self.column_totals(main, base, inner.step, 0..self.count, ps, totals);
                    for (i, &t) in totals.iter().enumerate() {
                        self.write::<X>(k + i, t, before[i])
                    }
                }
            });
        }
        // A slot of `WIDTH` totals per task and part; the parts are joined into the first.
        let mut partial = scratch::filled(X::Wide::ZERO, tasks * parts * WIDTH);
        let slots = tasks * WIDTH;
        let (mut ps, mut before) = (scratch::filled(X::ZERO, slots), scratch::filled(X::Wide::ZERO, slots));
        for f in first.into_iter().chain([main]) {
            let to = Ptr::new(&mut partial);
            parallel::run(tasks * parts, &|i| {
                let (task, part) = (i / parts, i % parts);
                let (_, w, base) = place(task);
                let range = part * len..((part + 1) * len).min(self.count);
                // SAFETY: each run has its own slot.
                let totals = unsafe { std::slice::from_raw_parts_mut(to.at(i * WIDTH), w) };
                totals.fill(f.unit());
                self.column_totals(f, base, inner.step, range, &ps[task * WIDTH..][..w], totals);
            });
            for (task, slots) in partial.chunks_mut(parts * WIDTH).enumerate() {
                let (k, w, _) = place(task);
                let (joined, rest) = slots.split_at_mut(WIDTH);
                for slot in rest.chunks(WIDTH) {
                    joined.iter_mut().zip(slot).take(w).for_each(|(a, &b)| *a = f.merge(*a, b));
                }
                let (joined, before) = (&mut joined[..w], &mut before[task * WIDTH..][..w]);
                if f == main {
                    (0..w).for_each(|i| self.write::<X>(k + i, joined[i], before[i]))
                } else {
                    params(joined, &mut ps[task * WIDTH..][..w]);
                    before.copy_from_slice(joined);
                }
            }
        }
    }

    /// Adds the rows `range` of the columns at `base` to `totals`.
    fn column_totals<X: Compute>(
        &self,
        fold: Fold,
        base: *const u8,
        step: usize,
        range: Range<usize>,
        ps: &[X],
        totals: &mut [X::Wide],
    ) {
        let (dtype, along) = (self.input.dtype(), self.reduced[self.reduced.len() - 1]);
        let w = totals.len();
        let direct = dtype == X::DTYPE && step == 1;
        let mut buf = Buffer::<X, { 4 * WIDTH }>::new();
        let mut at = range.start;
        while at < range.end {
            let mut rows = (along.size - at % along.size).min(range.end - at);
            // SAFETY: rows of this output lie inside the view; the buffer holds four.
            let (first, pitch) = unsafe {
                let row = |i: usize| base.add((offset(&self.reduced, at) + i * along.step) * dtype.size());
                if direct {
                    (row(0).cast(), along.step)
                } else {
                    rows = rows.min(4);
                    let buf = buf.as_mut_ptr();
                    (0..rows).for_each(|i| load_into(row(i), dtype, step, w, buf.add(i * WIDTH)));
                    (buf.cast_const(), WIDTH)
                }
            };
            dispatch(Columns { fold, first, pitch, rows, acc: &mut *totals, p: ps });
            at += rows;
        }
    }
}
