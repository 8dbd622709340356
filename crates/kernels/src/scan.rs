//! Running results along a dimension: cumulative sums, products, extremes and log-sum-exps.
//!
//! Everything is carried in f64 or i64, so a long running sum is good to the rounding of its outputs. Lines are
//! independent; one line is never split, so results do not depend on the number of threads.
#![allow(unsafe_code)]

use crate::along::Along;
use crate::lanes::{Buffer, Compute, Kernel, dispatch, load_into, store};
use crate::{DType, View, ViewMut, parallel};

/// What to carry along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// `ln(sum(exp(x)))` so far.
    LogSumExp,
}

/// Which extreme to carry along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanExtreme {
    /// The largest so far.
    Max,
    /// The smallest so far.
    Min,
}

/// Elements or lines handled at once.
const BLOCK: usize = 512;
/// Elements that are worth a thread.
const GRAIN: usize = 1 << 14;

/// Writes the running `op` along `dim` of `input` to `out`, which has the same sizes and may be the same memory.
pub fn scan(op: Scan, input: View, dim: usize, out: ViewMut) {
    if input.dtype().is_floating_point() || out.dtype().is_floating_point() {
        run::<f64>(op, input, dim, out)
    } else {
        run::<i64>(op, input, dim, out)
    }
}

#[inline(always)]
fn join<W: Compute>(op: Scan, a: W, x: W) -> W {
    match op {
        Scan::Sum => a.add(x),
        Scan::Prod => a.mul(x),
        Scan::LogSumExp => {
            let (a, x) = (a.to_f64(), x.to_f64());
            let (hi, lo) = if a > x || a.is_nan() { (a, x) } else { (x, a) };
            // Equal infinities have no difference; NaN falls through to the sum.
            W::from_f64(if hi == lo && hi.is_infinite() { hi } else { hi + (lo - hi).exp().ln_1p() })
        }
    }
}

fn run<W: Compute>(op: Scan, input: View, dim: usize, out: ViewMut) {
    assert_eq!(input.sizes(), out.sizes());
    let g = Along::new(input.sizes(), [input.strides(), out.strides()], dim);
    if g.lines == 0 || g.len == 0 {
        return;
    }
    let unit = match op {
        Scan::Sum => W::ZERO,
        Scan::Prod => W::ONE,
        Scan::LogSumExp => W::LOWEST,
    };
    let from = |at: usize| input.as_ptr().wrapping_add(at * input.dtype().size());
    let to = |at: usize| out.as_ptr().wrapping_add(at * out.dtype().size());
    if !g.beside() {
        return parallel::split(g.lines, (GRAIN / g.len).max(1), |lines| {
            let mut buf = Buffer::<W, BLOCK>::new();
            for k in lines {
                let [i, o] = g.line(k);
                let mut a = unit;
                for at in (0..g.len).step_by(BLOCK) {
                    let n = BLOCK.min(g.len - at);
                    let buf = buf.as_mut_ptr();
                    // SAFETY: elements of the line; the buffer holds a block and is written before it is read.
                    unsafe {
                        load_into(from(i + at * g.step[0]), input.dtype(), g.step[0], n, buf);
                        let xs = std::slice::from_raw_parts_mut(buf, n);
                        for x in xs.iter_mut() {
                            a = join(op, a, *x);
                            *x = a
                        }
                        store(xs, to(o + at * g.step[1]), out.dtype(), g.step[1])
                    }
                }
            }
        });
    }
    let (blocks, place) = g.blocks(BLOCK);
    parallel::split(blocks, (GRAIN / (g.len * g.inner.size.min(BLOCK))).max(1), |range| {
        let (mut buf, mut acc) = (Buffer::<W, BLOCK>::new(), Buffer::<W, BLOCK>::new());
        for b in range {
            let (k, w) = place(b);
            let [i, o] = g.line(k);
            let acc = acc.filled(w, unit);
            for r in 0..g.len {
                let buf = buf.as_mut_ptr();
                // SAFETY: row `r` of these lines; the buffer holds `w` elements and is written before it is read.
                let xs = unsafe {
                    load_into(from(i + r * g.step[0]), input.dtype(), g.inner.step[0], w, buf);
                    std::slice::from_raw_parts(buf, w)
                };
                dispatch(Row { op, acc, xs });
                // SAFETY: as above.
                unsafe { store(acc, to(o + r * g.step[1]), out.dtype(), g.inner.step[1]) }
            }
        }
    })
}

/// Carries many lines one step on.
struct Row<'a, W> {
    op: Scan,
    acc: &'a mut [W],
    xs: &'a [W],
}

impl<W: Compute> Kernel for Row<'_, W> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Row { op, acc, xs } = self;
        match op {
            Scan::Sum => acc.iter_mut().zip(xs).for_each(|(a, &x)| *a = join(Scan::Sum, *a, x)),
            Scan::Prod => acc.iter_mut().zip(xs).for_each(|(a, &x)| *a = join(Scan::Prod, *a, x)),
            Scan::LogSumExp => acc.iter_mut().zip(xs).for_each(|(a, &x)| *a = join(Scan::LogSumExp, *a, x)),
        }
    }
}

/// Writes the extreme so far along `dim` to `values` (the input's dtype) and its latest index to `indices` (i64).
///
/// Among equals the latest counts, and once there was a NaN, the latest NaN, as in PyTorch.
pub fn scan_extreme(op: ScanExtreme, input: View, dim: usize, values: ViewMut, indices: ViewMut) {
    assert_eq!(indices.dtype(), DType::I64);
    assert!(input.sizes() == values.sizes() && input.sizes() == indices.sizes(), "outputs have the input's sizes");
    if input.dtype().is_floating_point() {
        run_extreme::<f64>(op, input, dim, values, indices)
    } else {
        run_extreme::<i64>(op, input, dim, values, indices)
    }
}

fn run_extreme<W: Compute>(op: ScanExtreme, input: View, dim: usize, values: ViewMut, indices: ViewMut) {
    let g = Along::new(input.sizes(), [input.strides(), values.strides(), indices.strides()], dim);
    if g.lines == 0 || g.len == 0 {
        return;
    }
    parallel::split(g.lines, (GRAIN / g.len).max(1), |lines| {
        let mut buf = Buffer::<W, BLOCK>::new();
        for k in lines {
            let [i, v, p] = g.line(k);
            let mut best: Option<W> = None;
            let mut place = 0;
            for at in (0..g.len).step_by(BLOCK) {
                let n = BLOCK.min(g.len - at);
                let buf = buf.as_mut_ptr();
                // SAFETY: elements of the line in all three; the buffer holds a block and is written before it is read.
                unsafe {
                    let from = input.as_ptr().add((i + at * g.step[0]) * input.dtype().size());
                    load_into(from, input.dtype(), g.step[0], n, buf);
                    let xs = std::slice::from_raw_parts_mut(buf, n);
                    for (j, x) in xs.iter_mut().enumerate() {
                        let takes = best.is_none_or(|b| {
                            let more = if op == ScanExtreme::Max { *x >= b } else { *x <= b };
                            x.is_nan() || more
                        });
                        if takes {
                            (best, place) = (Some(*x), at + j)
                        }
                        *x = best.unwrap_or(*x);
                        *indices.ptr::<i64>().add(p + (at + j) * g.step[2]) = place as i64;
                    }
                    let to = values.as_ptr().add((v + at * g.step[1]) * values.dtype().size());
                    store(xs, to, values.dtype(), g.step[1])
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, assert_close, everywhere, noise, tolerance};

    /// Applies `f` to every line along `d`, in row-major order of the others, and puts the results back.
    fn by_line(t: &Tensor, d: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let values = t.values();
        let Some(&n) = t.sizes.get(d) else { return f(&values) };
        let inner: usize = t.sizes[d + 1..].iter().product();
        let mut out = values.clone();
        for first in (0..values.len()).filter(|i| (i / inner).is_multiple_of(n)) {
            let line: Vec<f64> = (0..n).map(|j| values[first + j * inner]).collect();
            f(&line).into_iter().enumerate().for_each(|(j, v)| out[first + j * inner] = v);
        }
        out
    }

    fn naive(op: Scan, xs: &[f64]) -> Vec<f64> {
        (1..=xs.len())
            .map(|n| match op {
                Scan::Sum => xs[..n].iter().sum(),
                Scan::Prod => xs[..n].iter().product(),
                Scan::LogSumExp => {
                    let m = xs[..n].iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let s: f64 = xs[..n].iter().map(|x| (x - m).exp()).sum();
                    if m.is_infinite() { m } else { s.ln() + m }
                }
            })
            .collect()
    }

    fn layouts(dtype: DType, value: impl Fn(usize) -> f64 + Copy) -> Vec<Tensor> {
        let t = |sizes: &[usize]| Tensor::new(dtype, sizes, value);
        vec![
            t(&[]),
            t(&[5]),
            t(&[513]),
            t(&[0, 3]),
            t(&[3, 40, 17]),
            t(&[6, 20, 9]).halve(0).permute(&[2, 0, 1]),
            t(&[4, 1, 9]).expand(1, 6),
            t(&[9, 600]),
        ]
    }

    #[test]
    fn sums_products_and_log_sums() {
        everywhere(|| {
            let mut all = Vec::new();
            for dtype in DType::reals() {
                // Up to 1, so that no product overflows.
                let value = |i| if dtype.is_floating_point() { noise(i) } else { noise(i).abs().round() };
                for t in layouts(dtype, value) {
                    for d in 0..t.sizes.len().max(1) {
                        let to = if dtype.is_floating_point() { dtype } else { DType::I64 };
                        for op in [Scan::Sum, Scan::Prod, Scan::LogSumExp] {
                            if op == Scan::LogSumExp && !dtype.is_floating_point() {
                                continue;
                            }
                            let out = Tensor::zeros(to, &t.sizes);
                            scan(op, t.view(), d, out.view_mut());
                            let expected = by_line(&t, d, |xs| naive(op, xs));
                            let what = format!("{op:?} of {dtype} {:?} along {d}", t.sizes);
                            assert_close(&out.values(), &expected, tolerance(to), &what);
                            all.extend(out.values());
                        }
                    }
                }
            }
            all
        });
    }

    #[test]
    fn extremes_keep_the_latest() {
        let naive = |op: ScanExtreme, xs: &[f64]| {
            let mut best = 0;
            let step = |i: usize| {
                let more = if op == ScanExtreme::Max { xs[i] >= xs[best] } else { xs[i] <= xs[best] };
                if xs[i].is_nan() || (more && !xs[best].is_nan()) {
                    best = i
                }
                best as f64
            };
            (0..xs.len()).map(step).collect::<Vec<_>>()
        };
        for dtype in DType::reals() {
            for t in layouts(dtype, |i| if i % 37 == 30 { f64::NAN } else { (noise(i) * 4.0).round() }) {
                for (d, op) in (0..t.sizes.len().max(1)).flat_map(|d| [(d, ScanExtreme::Max), (d, ScanExtreme::Min)]) {
                    let (v, p) = (Tensor::zeros(dtype, &t.sizes), Tensor::zeros(DType::I64, &t.sizes));
                    scan_extreme(op, t.view(), d, v.view_mut(), p.view_mut());
                    let what = format!("{op:?} of {dtype} {:?} along {d}", t.sizes);
                    assert_close(&p.values(), &by_line(&t, d, |xs| naive(op, xs)), 0.0, &what);
                    let picked = by_line(&t, d, |xs| naive(op, xs).iter().map(|&i| xs[i as usize]).collect());
                    assert_close(&v.values(), &picked, 0.0, &what);
                }
            }
        }
    }

    #[test]
    fn infinities_in_log_sums() {
        let inf = f64::INFINITY;
        let line = [-inf, -inf, 1.0, inf, 0.0];
        let t = Tensor::new(DType::F32, &[5], |i| line[i]);
        scan(Scan::LogSumExp, t.view(), 0, t.view_mut());
        assert_close(&t.values(), &[-inf, -inf, 1.0, inf, inf], 1e-6, "in place");
    }
}
