//! Softmax and log-softmax along any dimension, and their derivatives.
//!
//! A line that is contiguous is handled as a whole, in cache; otherwise neighboring lines are handled side by side, so
//! both ways use full vectors. Half types are computed in f32 and rounded once; sums are joined in f64.
//! A line is never split, so results do not depend on the number of threads. Outputs do not overlap inputs.
#![allow(unsafe_code)]

use crate::along::Along;
use crate::lanes::{Buffer, Compute, Kernel, apart, dispatch, fold, load, store, sum_of};
use crate::real::{Scratch, with_real};
use crate::{DType, View, ViewMut, parallel};

/// `exp(x) / sum(exp(x))` along `dim`.
pub fn softmax(input: View, dim: usize, out: ViewMut) {
    run(Op::Softmax, input, input, dim, out)
}

/// `x - ln(sum(exp(x)))` along `dim`.
pub fn log_softmax(input: View, dim: usize, out: ViewMut) {
    run(Op::LogSoftmax, input, input, dim, out)
}

/// The input's gradient from the output's and the output of [`softmax`].
pub fn softmax_backward(grad: View, output: View, dim: usize, grad_input: ViewMut) {
    run(Op::SoftmaxBackward, grad, output, dim, grad_input)
}

/// The input's gradient from the output's and the output of [`log_softmax`].
pub fn log_softmax_backward(grad: View, output: View, dim: usize, grad_input: ViewMut) {
    run(Op::LogSoftmaxBackward, grad, output, dim, grad_input)
}

/// What is done to a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Softmax,
    LogSoftmax,
    SoftmaxBackward,
    LogSoftmaxBackward,
}

/// One contiguous line, for executors that hold it in cache. Ops of one operand do not look at `ys`.
pub(crate) fn line<X: Compute>(op: Op, xs: &[X], ys: &[X], out: &mut [X]) {
    dispatch(Line { op, xs, ys, out })
}

/// Elements that are worth a thread.
const GRAIN: usize = 1 << 14;
/// Elements whose exponentials are summed before the sum is added to the total.
const BLOCK: usize = 2048;
/// Lines handled side by side.
const WIDTH: usize = 1024;

fn run(op: Op, a: View, b: View, dim: usize, out: ViewMut) {
    assert!(a.sizes() == b.sizes() && a.sizes() == out.sizes(), "operands of one shape");
    with_real!(out.dtype(), X => {
        let g = Along::new(a.sizes(), [a.strides(), b.strides(), out.strides()], dim);
        if g.lines == 0 || g.len == 0 {
            return;
        }
        if g.beside() { columns::<X>(op, a, b, out, &g) } else { rows::<X>(op, a, b, out, &g) }
    })
}

/// The element `at` of a view, as an address.
#[inline(always)]
fn address(v: &View, at: usize) -> *const u8 {
    v.as_ptr().wrapping_add(at * v.dtype().size())
}

fn rows<X: Compute + Default>(op: Op, a: View, b: View, out: ViewMut, g: &Along<3>) {
    let direct = |dtype: DType, step: usize| dtype == X::DTYPE && (step == 1 || g.len == 1);
    let room = |d: bool| if d { 0 } else { g.len };
    parallel::split(g.lines, (GRAIN / g.len).max(1), |lines| {
        let out_direct = direct(out.dtype(), g.step[2]);
        let needs = [direct(a.dtype(), g.step[0]), direct(b.dtype(), g.step[1]), out_direct].map(room);
        let mut space = (needs != [0; 3]).then(|| Scratch::<X>::new(needs.iter().sum()));
        let space = space.as_mut().map_or(std::ptr::null_mut(), |s| s.as_mut_ptr());
        for k in lines {
            let at = g.line(k);
            // SAFETY: the line's elements lie inside the views; the scratch has room for the operands that need it, and
            // is written before it is read (old numbers otherwise, never uninitialised).
            unsafe {
                let xs = load(address(&a, at[0]), a.dtype(), g.step[0], g.len, space);
                let ys = match op {
                    Op::Softmax | Op::LogSoftmax => xs,
                    _ => load(address(&b, at[1]), b.dtype(), g.step[1], g.len, space.wrapping_add(needs[0])),
                };
                let to = out.as_ptr().wrapping_add(at[2] * out.dtype().size());
                let dst = if out_direct { to.cast() } else { space.wrapping_add(needs[0] + needs[1]) };
                let dst = std::slice::from_raw_parts_mut(dst, g.len);
                dispatch(Line { op, xs, ys, out: dst });
                if !out_direct {
                    store(dst, to, out.dtype(), g.step[2])
                }
            }
        }
    })
}

/// One contiguous line.
struct Line<'a, X> {
    op: Op,
    xs: &'a [X],
    ys: &'a [X],
    out: &'a mut [X],
}

impl<X: Compute> Kernel for Line<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Line { op, xs, ys, out } = self;
        match op {
            Op::Softmax => {
                let m = most(xs);
                let mut total = 0.0;
                for (x, o) in xs.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
                    total += exp_sum::<X, FMA>(x, m, o).to_f64()
                }
                let scale = X::from_f64(1.0 / total);
                for o in out {
                    *o = o.mul(scale)
                }
            }
            Op::LogSoftmax => {
                let m = most(xs);
                let mut total = 0.0;
                for x in xs.chunks(BLOCK) {
                    total += fold(x, X::ZERO, |x| x.sub(m).exp::<FMA>(), X::add).to_f64()
                }
                let log = X::from_f64(total.ln());
                for (o, &x) in out.iter_mut().zip(xs) {
                    *o = x.sub(m).sub(log)
                }
            }
            Op::SoftmaxBackward => {
                let mut total = 0.0;
                for (g, y) in xs.chunks(BLOCK).zip(ys.chunks(BLOCK)) {
                    total += sum_of(g, y, |s, g, y| g.mul_add::<FMA>(y, s))
                }
                let s = X::from_f64(total);
                for ((o, &g), &y) in out.iter_mut().zip(xs).zip(ys) {
                    *o = g.sub(s).mul(y)
                }
            }
            Op::LogSoftmaxBackward => {
                let mut total = 0.0;
                for g in xs.chunks(BLOCK) {
                    total += fold(g, X::ZERO, |g| g, X::add).to_f64()
                }
                let s = X::from_f64(-total);
                for ((o, &g), &y) in out.iter_mut().zip(xs).zip(ys) {
                    *o = y.exp::<FMA>().mul_add::<FMA>(s, g)
                }
            }
        }
    }
}

/// The largest number. A NaN shows here or in the sum of exponentials.
#[inline(always)]
fn most<X: Compute>(xs: &[X]) -> X {
    let mut most = X::LOWEST.rank();
    for x in xs {
        most = most.max(x.rank())
    }
    X::of_rank(most)
}

/// Writes `exp(x - m)` and returns the sum.
#[inline(always)]
fn exp_sum<X: Compute, const FMA: bool>(xs: &[X], m: X, out: &mut [X]) -> X {
    let mut wide = [X::ZERO; 64];
    let (xc, xr) = xs.as_chunks::<64>();
    let (oc, or) = out.as_chunks_mut::<64>();
    for (x, o) in xc.iter().zip(oc) {
        for i in 0..64 {
            let e = x[i].sub(m).exp::<FMA>();
            o[i] = e;
            wide[i] = wide[i].add(e);
        }
    }
    let lanes = apart(wide);
    let mut sum = fold(&lanes, X::ZERO, |x| x, X::add);
    for (&x, o) in xr.iter().zip(or) {
        *o = x.sub(m).exp::<FMA>();
        sum = sum.add(*o);
    }
    sum
}

fn columns<X: Compute>(op: Op, a: View, b: View, out: ViewMut, g: &Along<3>) {
    let (blocks, place) = g.blocks(WIDTH);
    parallel::split(blocks, (GRAIN / (g.len * g.inner.size.min(WIDTH))).max(1), |range| {
        let mut bufs = [const { Buffer::<X, WIDTH>::new() }; 3];
        let mut state = [const { Buffer::<X, WIDTH>::new() }; 2];
        let mut sums = Buffer::<f64, WIDTH>::new();
        for block in range {
            let (k, w) = place(block);
            let at = g.line(k);
            let [max, shift] = &mut state;
            let (max, shift) = (max.filled(w, X::LOWEST), shift.filled(w, X::ZERO));
            let sums = sums.filled(w, 0.0);
            let mut pass = |step: Step, max: &mut [X], shift: &[X], sums: &mut [f64]| {
                for r in 0..g.len {
                    // SAFETY: row `r` of these lines lies inside the views; each buffer holds `w` elements, and the last
                    // is written by the step before it is stored.
                    unsafe {
                        let [p, q, o] = [0, 1, 2].map(|i| at[i] + r * g.step[i]);
                        let xs = load(address(&a, p), a.dtype(), g.inner.step[0], w, bufs[0].as_mut_ptr());
                        let ys = match op {
                            Op::Softmax | Op::LogSoftmax => xs,
                            _ => load(address(&b, q), b.dtype(), g.inner.step[1], w, bufs[1].as_mut_ptr()),
                        };
                        if step != Step::Emit {
                            dispatch(Row { op, step, xs, ys, max, shift, sums, out: &mut [] });
                            continue;
                        }
                        let to = out.as_ptr().wrapping_add(o * out.dtype().size());
                        if out.dtype() == X::DTYPE && g.inner.step[2] == 1 {
                            let out = std::slice::from_raw_parts_mut(to.cast(), w);
                            dispatch(Row { op, step, xs, ys, max, shift, sums, out });
                        } else {
                            let dst = bufs[2].filled(w, X::ZERO);
                            dispatch(Row { op, step, xs, ys, max, shift, sums, out: dst });
                            store(dst, to, out.dtype(), g.inner.step[2])
                        }
                    }
                }
            };
            if matches!(op, Op::Softmax | Op::LogSoftmax) {
                pass(Step::Max, max, shift, sums);
            }
            pass(Step::Sum, max, shift, sums);
            for (s, &t) in shift.iter_mut().zip(sums.iter()) {
                *s = X::from_f64(match op {
                    Op::Softmax => 1.0 / t,
                    Op::LogSoftmax => t.ln(),
                    _ => t,
                })
            }
            pass(Step::Emit, max, shift, sums);
        }
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The maximum of each line.
    Max,
    /// What each line sums.
    Sum,
    /// The result.
    Emit,
}

/// One element of many lines. `shift` is what became of the sums.
struct Row<'a, X> {
    op: Op,
    step: Step,
    xs: &'a [X],
    ys: &'a [X],
    max: &'a mut [X],
    shift: &'a [X],
    sums: &'a mut [f64],
    out: &'a mut [X],
}

impl<X: Compute> Kernel for Row<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Row { op, step, xs, ys, max, shift, sums, out } = self;
        let n = xs.len();
        let (ys, max, shift, sums) = (&ys[..n], &mut max[..n], &shift[..n], &mut sums[..n]);
        // Plain loops: a closure might stay a call, and that would be compiled without the instruction set.
        match (step, op) {
            (Step::Max, _) => {
                for i in 0..n {
                    max[i] = max[i].max(xs[i])
                }
            }
            (Step::Sum, Op::Softmax | Op::LogSoftmax) => {
                for i in 0..n {
                    sums[i] += xs[i].sub(max[i]).exp::<FMA>().to_f64()
                }
            }
            (Step::Sum, Op::SoftmaxBackward) => {
                for i in 0..n {
                    sums[i] += xs[i].mul(ys[i]).to_f64()
                }
            }
            (Step::Sum, Op::LogSoftmaxBackward) => {
                for i in 0..n {
                    sums[i] += xs[i].to_f64()
                }
            }
            (Step::Emit, op) => {
                let out = &mut out[..n];
                match op {
                    Op::Softmax => {
                        for i in 0..n {
                            out[i] = xs[i].sub(max[i]).exp::<FMA>().mul(shift[i])
                        }
                    }
                    Op::LogSoftmax => {
                        for i in 0..n {
                            out[i] = xs[i].sub(max[i]).sub(shift[i])
                        }
                    }
                    Op::SoftmaxBackward => {
                        for i in 0..n {
                            out[i] = xs[i].sub(shift[i]).mul(ys[i])
                        }
                    }
                    Op::LogSoftmaxBackward => {
                        for i in 0..n {
                            out[i] = xs[i].sub(ys[i].exp::<FMA>().mul(shift[i]))
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, assert_close, everywhere, noise, tolerance};

    /// Applies `f` to the pairs of lines of `a` and `b` along `d`.
    fn by_line(a: &Tensor, b: &Tensor, d: usize, f: impl Fn(&[f64], &[f64]) -> Vec<f64>) -> Vec<f64> {
        let (x, y) = (a.values(), b.values());
        let Some(&n) = a.sizes.get(d) else { return f(&x, &y) };
        let inner: usize = a.sizes[d + 1..].iter().product();
        let mut out = x.clone();
        for first in (0..x.len()).filter(|i| (i / inner).is_multiple_of(n)) {
            let line = |v: &[f64]| (0..n).map(|j| v[first + j * inner]).collect::<Vec<_>>();
            f(&line(&x), &line(&y)).into_iter().enumerate().for_each(|(j, v)| out[first + j * inner] = v);
        }
        out
    }

    fn naive(op: Op, a: &[f64], b: &[f64]) -> Vec<f64> {
        let m = a.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = a.iter().map(|x| (x - m).exp()).sum();
        let dot: f64 = a.iter().zip(b).map(|(g, y)| g * y).sum();
        let sum: f64 = a.iter().sum();
        let each = |(&a, &b): (&f64, &f64)| match op {
            Op::Softmax => (a - m).exp() / total,
            Op::LogSoftmax => a - m - total.ln(),
            Op::SoftmaxBackward => (a - dot) * b,
            Op::LogSoftmaxBackward => a - b.exp() * sum,
        };
        a.iter().zip(b).map(each).collect()
    }

    #[test]
    fn every_layout_and_dtype() {
        everywhere(|| {
            let mut all = Vec::new();
            for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
                let t = |sizes: &[usize]| Tensor::new(dtype, sizes, |i| noise(i) * 4.0);
                let layouts = [
                    t(&[]),
                    t(&[1]),
                    t(&[0, 4]),
                    t(&[7, 65]),
                    t(&[3, 2100]),
                    t(&[3, 20, 300]),
                    t(&[40, 6, 18]).halve(2).permute(&[2, 0, 1]),
                    t(&[5, 1, 12]).expand(1, 9),
                ];
                for a in layouts {
                    let b = Tensor::new(dtype, &a.sizes, |i| noise(i + 999) - 1.0);
                    for d in 0..a.sizes.len().max(1) {
                        for op in [Op::Softmax, Op::LogSoftmax, Op::SoftmaxBackward, Op::LogSoftmaxBackward] {
                            let out = Tensor::zeros(dtype, &a.sizes);
                            run(op, a.view(), b.view(), d, out.view_mut());
                            let expected = by_line(&a, &b, d, |a, b| naive(op, a, b));
                            let scale = 1.0 + expected.iter().fold(0.0, |m: f64, e| m.max(e.abs()));
                            let what = format!("{dtype} {:?} along {d}", a.sizes);
                            assert_close(&out.values(), &expected, tolerance(dtype) * scale, &what);
                            all.extend(out.values());
                        }
                    }
                }
            }
            all
        });
    }

    #[test]
    fn infinities_and_nan() {
        let inf = f64::INFINITY;
        let run = |line: [f64; 3]| {
            let (t, out) = (Tensor::new(DType::F32, &[3], |i| line[i]), Tensor::zeros(DType::F32, &[3]));
            softmax(t.view(), 0, out.view_mut());
            out.values()
        };
        assert_eq!(run([0.0, -inf, 0.0]), [0.5, 0.0, 0.5]);
        for bad in [[-inf; 3], [inf, 0.0, 0.0], [f64::NAN, 1.0, 1.0]] {
            assert!(run(bad).iter().any(|v| v.is_nan()), "{bad:?}");
        }
        assert_eq!(run([1e30, -1e30, 0.0]), [1.0, 0.0, 0.0]);
    }
}
