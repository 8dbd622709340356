//! Layer norm: each row of `n` elements to mean 0 and variance 1, then scaled and shifted element by element.
#![allow(unsafe_code)]

use super::{BLOCK, GRAIN, LANES, Stretch, need_flat, put, vector, vector_or};
use crate::lanes::{Compute, Kernel, apart, dispatch, fold, fold_wide};
use crate::real::{Ptr, Scratch, with_real};
use crate::reduce::around_rounded_mean;
use crate::{Element, View, ViewMut, parallel};

/// Normalizes rows of `n` elements: `(x - mean) * rstd * weight + bias`. `mean` and `rstd` have one element a row.
pub fn layer_norm(
    input: View,
    n: usize,
    weight: Option<View>,
    bias: Option<View>,
    eps: f64,
    out: ViewMut,
    mean: ViewMut,
    rstd: ViewMut,
) {
    with_real!(input.dtype(), X => forward::<X>(input, n, weight, bias, eps, out, mean, rstd))
}

fn forward<X: Compute>(
    input: View,
    n: usize,
    weight: Option<View>,
    bias: Option<View>,
    eps: f64,
    out: ViewMut,
    mean: ViewMut,
    rstd: ViewMut,
) {
    let rows = mean.numel();
    need_flat(rows * n, &[&input], &[Some(out)]);
    need_flat(rows, &[], &[Some(mean), Some(rstd)]);
    let (w, b) = (vector_or(weight, n, X::ONE), vector_or(bias, n, X::ZERO));
    let (w, b): (&[X], &[X]) = (&w, &b);
    parallel::split(rows, (GRAIN / n.max(1)).max(1), |range| {
        let (mut from, mut to) = (Stretch::<X>::new(input.dtype(), n), Stretch::<X>::new(out.dtype(), n));
        let mut stats = Stretch::<X>::new(mean.dtype(), 1);
        for r in range {
            let xs = from.read(&input, r * n, n);
            let mut found = (X::ZERO, X::ZERO);
            to.write(&out, r * n, n, |out| found = dispatch(Row { xs, w, b, eps, out }));
            stats.write(&mean, r, 1, |m| m[0] = found.0);
            stats.write(&rstd, r, 1, |s| s[0] = found.1);
        }
    })
}

struct Row<'a, X> {
    xs: &'a [X],
    w: &'a [X],
    b: &'a [X],
    eps: f64,
    out: &'a mut [X],
}

impl<X: Compute> Kernel for Row<'_, X> {
    /// Mean and reciprocal deviation.
    type Out = (X, X);
    #[inline(always)]
    fn run<const FMA: bool>(self) -> (X, X) {
        let Row { xs, w, b, eps, out } = self;
        let n = xs.len();
        let sum = fold_wide(xs, X::Wide::ZERO, |x| x, X::add, X::Wide::add).to_f64();
        let exact = sum / n as f64;
        let mean = X::from_f64(exact);
        let square = |x: X| {
            let d = x.sub(mean);
            d.mul(d)
        };
        let squares = fold_wide(xs, X::Wide::ZERO, square, X::add, X::Wide::add).to_f64();
        let var = around_rounded_mean(squares / n as f64, exact - mean.to_f64());
        let rstd = X::from_f64(1.0 / (var + eps).sqrt());
        Normalised { xs, w, b, mean, rstd, out }.run::<FMA>();
        (mean, rstd)
    }
}

/// The last step of a row: `(x - mean) * rstd * w + b`.
pub(crate) struct Normalised<'a, X> {
    pub(crate) xs: &'a [X],
    pub(crate) w: &'a [X],
    pub(crate) b: &'a [X],
    pub(crate) mean: X,
    pub(crate) rstd: X,
    pub(crate) out: &'a mut [X],
}

impl<X: Compute> Kernel for Normalised<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Normalised { xs, w, b, mean, rstd, out } = self;
        let n = xs.len();
        let (w, b, out) = (&w[..n], &b[..n], &mut out[..n]);
        for i in 0..n {
            out[i] = xs[i].sub(mean).mul(rstd).mul_add::<FMA>(w[i], b[i])
        }
    }
}

/// The gradients that are needed, from the output's gradient and what [`layer_norm`] saw and found.
pub fn layer_norm_backward(
    grad: View,
    input: View,
    n: usize,
    mean: View,
    rstd: View,
    weight: Option<View>,
    grad_input: Option<ViewMut>,
    grad_weight: Option<ViewMut>,
    grad_bias: Option<ViewMut>,
) {
    with_real!(input.dtype(), X => {
        backward::<X>(grad, input, n, mean, rstd, weight, grad_input, grad_weight, grad_bias)
    })
}

fn backward<X: Compute>(
    grad: View,
    input: View,
    n: usize,
    mean: View,
    rstd: View,
    weight: Option<View>,
    grad_input: Option<ViewMut>,
    grad_weight: Option<ViewMut>,
    grad_bias: Option<ViewMut>,
) {
    let rows = mean.numel();
    need_flat(rows * n, &[&grad, &input], &[grad_input]);
    let w = vector_or(weight, n, X::ONE);
    let (mean, rstd) = (vector::<X>(mean), vector::<X>(rstd));
    let (w, mean, rstd): (&[X], &[X], &[X]) = (&w, &mean, &rstd);
    // Few enough rows that plain sums over them are good, and enough that the partial sums are little to join.
    let chunk = (GRAIN / n.max(1)).max(rows.div_ceil(64)).clamp(16, 512);
    let mut partial = Scratch::<X>::new(rows.div_ceil(chunk) * 2 * n);
    let sums = Ptr::new(&mut partial);
    parallel::split(rows, chunk, |range| {
        let (mut gs, mut xs) = (Stretch::<X>::new(grad.dtype(), n), Stretch::<X>::new(input.dtype(), n));
        let mut to = grad_input.map(|v| (v, Stretch::<X>::new(v.dtype(), n)));
        // SAFETY: each chunk has its own sums.
        let own = unsafe { sums.slice(range.start / chunk * 2 * n, 2 * n) };
        own.fill(X::ZERO);
        let (gw, gb) = own.split_at_mut(n);
        for r in range {
            let (g, x) = (gs.read(&grad, r * n, n), xs.read(&input, r * n, n));
            let row = RowGrad { g, x, w, mean: mean[r], rstd: rstd[r], gw, gb, out: &mut [] };
            match &mut to {
                None => dispatch(row),
                Some((v, to)) => to.write(v, r * n, n, |out| dispatch(RowGrad { out, ..row })),
            }
        }
    });
    let mut total = Scratch::<f64>::zeroed(2 * n);
    for part in partial.chunks(2 * n.max(1)) {
        total.iter_mut().zip(part).for_each(|(t, p)| *t += p.to_f64());
    }
    put(grad_weight, &total[..n]);
    put(grad_bias, &total[n..]);
}

/// The gradients of a row; those of weight and bias are added to what is there.
pub(crate) struct RowGrad<'a, X> {
    pub(crate) g: &'a [X],
    pub(crate) x: &'a [X],
    pub(crate) w: &'a [X],
    pub(crate) mean: X,
    pub(crate) rstd: X,
    pub(crate) gw: &'a mut [X],
    pub(crate) gb: &'a mut [X],
    /// Empty if not needed.
    pub(crate) out: &'a mut [X],
}

impl<X: Compute> Kernel for RowGrad<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let RowGrad { g, x, w, mean, rstd, gw, gb, out } = self;
        let n = g.len();
        let (x, w, gw, gb) = (&x[..n], &w[..n], &mut gw[..n], &mut gb[..n]);
        let (mut s1, mut s2) = (0.0, 0.0);
        for at in (0..n).step_by(BLOCK) {
            let r = at..n.min(at + BLOCK);
            let ((gc, gr), (xc, xr)) = (g[r.clone()].as_chunks::<LANES>(), x[r.clone()].as_chunks::<LANES>());
            let (wc, wr) = w[r.clone()].as_chunks::<LANES>();
            let (gwc, gwr) = gw[r.clone()].as_chunks_mut::<LANES>();
            let (gbc, gbr) = gb[r].as_chunks_mut::<LANES>();
            let (mut a, mut b) = ([X::ZERO; LANES], [X::ZERO; LANES]);
            for ((((g, x), w), gw), gb) in gc.iter().zip(xc).zip(wc).zip(gwc).zip(gbc) {
                let (mut u, mut v) = (*gw, *gb); // copies: nothing here can alias, so the loop is all vectors
                let (g, x, w) = (*g, *x, *w);
                for l in 0..LANES {
                    let h = x[l].sub(mean).mul(rstd);
                    u[l] = g[l].mul_add::<FMA>(h, u[l]);
                    v[l] = v[l].add(g[l]);
                    let d = g[l].mul(w[l]);
                    a[l] = a[l].add(d);
                    b[l] = d.mul_add::<FMA>(h, b[l]);
                }
                (*gw, *gb) = (u, v);
            }
            s1 += fold(&apart(a), X::ZERO, |x| x, X::add).to_f64();
            s2 += fold(&apart(b), X::ZERO, |x| x, X::add).to_f64();
            for i in 0..gr.len() {
                let h = xr[i].sub(mean).mul(rstd);
                gwr[i] = gr[i].mul_add::<FMA>(h, gwr[i]);
                gbr[i] = gbr[i].add(gr[i]);
                let d = gr[i].mul(wr[i]);
                s1 += d.to_f64();
                s2 += d.mul(h).to_f64();
            }
        }
        if out.len() != n {
            return;
        }
        // rstd * (d - s1/n - h * s2/n), with the row's constants folded.
        let a = X::from_f64(-s1 / n as f64 * rstd.to_f64());
        let b = X::from_f64(-s2 / n as f64 * rstd.to_f64() * rstd.to_f64());
        for i in 0..n {
            let shift = x[i].sub(mean).mul_add::<FMA>(b, a);
            out[i] = g[i].mul(w[i]).mul_add::<FMA>(rstd, shift)
        }
    }
}
