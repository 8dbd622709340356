//! Norms over channels of a contiguous `[samples, channels, rest]`: batch norm and group norm.
//!
//! Both are the same three loops (an affine map, two sums, and an affine map of two tensors) with constants per channel,
//! or per sample and channel.
#![allow(unsafe_code)]

use super::{GRAIN, Stretch, made, need_flat, put, sum_pairs, vector, vector_or};
use crate::lanes::{Compute, Kernel, dispatch};
use crate::real::{Ptr, Scratch, with_real};
use crate::reduce::var_mean;
use crate::{Element, View, ViewMut, parallel};
use std::ops::Range;

/// Mean and biased variance of each channel of `[samples, channels, rest]`, over samples and rest. Any strides.
pub fn batch_norm_stats(input: View, mean: ViewMut, var: ViewMut) {
    need_flat(input.sizes()[1], &[], &[Some(mean), Some(var)]);
    let sizes = [1, input.sizes()[1], 1];
    // SAFETY: the same elements with dimensions of size 1 around.
    let (mean, var) = unsafe { (mean.with_geometry(0, &sizes, &[1, 1, 1]), var.with_geometry(0, &sizes, &[1, 1, 1])) };
    var_mean(input, &[0, 2], 0.0, var, mean)
}

/// `(x - mean) * invstd * weight + bias` with vectors over the channels.
pub fn batch_norm(input: View, mean: View, invstd: View, weight: Option<View>, bias: Option<View>, out: ViewMut) {
    with_real!(input.dtype(), X => {
        let shape = Shape::of(&input);
        need_flat(input.numel(), &[&input], &[Some(out)]);
        let (mean, invstd) = (vector::<X>(mean), vector::<X>(invstd));
        let (w, b) = (vector_or(weight, shape.c, 1.0 as X), vector_or(bias, shape.c, 0.0));
        let scale = made(shape.c, |c| invstd[c] * w[c]);
        shape.affine::<X>(&input, [&mean, &scale, &b], 0, &out)
    })
}

/// The gradients that are needed. In training the statistics came from this input; otherwise they are constants.
pub fn batch_norm_backward(
    grad: View,
    input: View,
    mean: View,
    invstd: View,
    weight: Option<View>,
    train: bool,
    grad_input: Option<ViewMut>,
    grad_weight: Option<ViewMut>,
    grad_bias: Option<ViewMut>,
) {
    with_real!(input.dtype(), X => {
        let shape = Shape::of(&input);
        let (n, c, s) = (shape.n, shape.c, shape.s);
        need_flat(input.numel(), &[&grad, &input], &[grad_input]);
        let (mean, invstd) = (vector::<X>(mean), vector::<X>(invstd));
        let w = vector_or(weight, c, 1.0 as X);
        let mut total = Scratch::<f64>::zeroed(2 * c);
        let samples = GRAIN.div_ceil((c * s).max(1)).max(n.div_ceil(32));
        if train || grad_weight.is_some() || grad_bias.is_some() {
            for part in shape.sums::<X>(&grad, &input, [&mean, &invstd], 0, samples).chunks(2 * c.max(1)) {
                total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
            }
        }
        let (gb, gw) = total.split_at(c);
        put(grad_weight, gw);
        put(grad_bias, gb);
        if let Some(out) = grad_input {
            let count = if train { (n * s) as f64 } else { f64::INFINITY };
            let a = made(c, |c| invstd[c] * w[c]);
            let k2 = made(c, |c| (-gw[c] / count * a[c].to_f64() * invstd[c].to_f64()) as X);
            let k1 = made(c, |c| (-gb[c] / count * a[c].to_f64()) as X);
            shape.grads::<X>(&grad, &input, [&mean, &a, &k2, &k1], 0, &out)
        }
    })
}

/// Normalizes each sample's groups of channels; `mean` and `rstd` have one element a sample and group.
pub fn group_norm(
    input: View,
    groups: usize,
    weight: Option<View>,
    bias: Option<View>,
    eps: f64,
    out: ViewMut,
    mean: ViewMut,
    rstd: ViewMut,
) {
    with_real!(input.dtype(), X => {
        let shape = Shape::of(&input);
        assert!(groups > 0 && shape.c.is_multiple_of(groups), "{} channels in {groups} groups", shape.c);
        need_flat(input.numel(), &[&input], &[Some(out)]);
        let (rows, d) = (shape.n * groups, shape.c / groups * shape.s);
        let (mut m, mut v) = (made::<X>(rows, |_| 0.0), made::<X>(rows, |_| 0.0));
        let (one, ones) = ([rows, 1], [1, 1]);
        // SAFETY: the contiguous input as a matrix; the scratch vectors as its columns.
        unsafe {
            let dtype = <X as Element>::DTYPE;
            let mv = ViewMut::new(m.as_mut_ptr().cast(), dtype, &one, &ones);
            let vv = ViewMut::new(v.as_mut_ptr().cast(), dtype, &one, &ones);
            var_mean(input.with_geometry(0, &[rows, d], &[d, 1]), &[1], 0.0, vv, mv);
        }
        v.iter_mut().for_each(|v| *v = (1.0 / (v.to_f64() + eps).sqrt()) as X);
        put(Some(mean), &m);
        put(Some(rstd), &v);
        let (w, b) = (vector_or(weight, shape.c, 1.0 as X), vector_or(bias, shape.c, 0.0));
        let group = |i: usize| i / (shape.c / groups);
        let mean = made(shape.n * shape.c, |i| m[group(i)]);
        let scale = made(shape.n * shape.c, |i| v[group(i)] * w[i % shape.c]);
        let shift = made(shape.n * shape.c, |i| b[i % shape.c]);
        shape.affine::<X>(&input, [&mean, &scale, &shift], shape.c, &out)
    })
}

/// The gradients that are needed, from what [`group_norm`] saw and found.
pub fn group_norm_backward(
    grad: View,
    input: View,
    groups: usize,
    mean: View,
    rstd: View,
    weight: Option<View>,
    grad_input: Option<ViewMut>,
    grad_weight: Option<ViewMut>,
    grad_bias: Option<ViewMut>,
) {
    with_real!(input.dtype(), X => {
        let shape = Shape::of(&input);
        let (n, c, s) = (shape.n, shape.c, shape.s);
        assert!(groups > 0 && c.is_multiple_of(groups), "{c} channels in {groups} groups");
        need_flat(input.numel(), &[&grad, &input], &[grad_input]);
        let per = c / groups;
        let (m, r) = (vector::<X>(mean), vector::<X>(rstd));
        let w = vector_or(weight, c, 1.0 as X);
        let (mean, rstd) = (made(n * c, |i| m[i / per]), made(n * c, |i| r[i / per]));
        // Per sample: the sums of grad, then those of grad times normalized input.
        let sums = shape.sums::<X>(&grad, &input, [&mean, &rstd], c, 1);
        let mut total = Scratch::<f64>::zeroed(2 * c);
        for part in sums.chunks(2 * c.max(1)) {
            total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
        }
        put(grad_bias, &total[..c]);
        put(grad_weight, &total[c..]);
        if let Some(out) = grad_input {
            let weighted = |which: usize| made(n * groups, |g: usize| {
                let (sample, first) = (g / groups, g % groups * per);
                let sums = &sums[(2 * sample + which) * c..][..c];
                (first..first + per).map(|i| sums[i] * w[i].to_f64()).sum::<f64>() / (per * s) as f64
            });
            let (s1, s2) = (weighted(0), weighted(1));
            let a = made(n * c, |i| rstd[i] * w[i % c]);
            let k2 = made(n * c, |i| (-s2[i / per] * rstd[i].to_f64() * rstd[i].to_f64()) as X);
            let k1 = made(n * c, |i| (-s1[i / per] * rstd[i].to_f64()) as X);
            shape.grads::<X>(&grad, &input, [&mean, &a, &k2, &k1], c, &out)
        }
    })
}

#[derive(Clone, Copy)]
struct Shape {
    n: usize,
    c: usize,
    s: usize,
}

impl Shape {
    fn of(v: &View) -> Shape {
        let [n, c, s] = *v.sizes() else { unreachable!("the callers give samples, channels and the rest") };
        Shape { n, c, s }
    }

    /// Channels handled together: about a grain of elements.
    fn width(&self) -> usize {
        (GRAIN / self.s.max(1)).clamp(1, self.c.max(1))
    }

    /// Calls `f(sample, channels)` for all stretches of channels.
    fn stretches(&self, f: impl Fn(usize, Range<usize>) + Sync) {
        let (width, c) = (self.width(), self.c);
        let per = c.div_ceil(width);
        let grain = (GRAIN / (width * self.s).max(1)).max(1);
        parallel::split(self.n * per, grain, |tasks| {
            for t in tasks {
                let first = t % per * width;
                f(t / per, first..(first + width).min(c))
            }
        })
    }

    /// `(x - mean) * scale + shift`; the constants of sample `i` start at `i * stride`.
    fn affine<X: Compute>(&self, input: &View, [mean, scale, shift]: [&[X]; 3], stride: usize, out: &ViewMut) {
        let room = self.width() * self.s;
        self.stretches(|sample, cs| {
            let (at, len) = ((sample * self.c + cs.start) * self.s, cs.len() * self.s);
            let mut from = Stretch::<X>::new(input.dtype(), room);
            let x = from.read(input, at, len);
            let of = |v: &'_ [X]| -> Range<usize> {
                debug_assert!(stride * sample + cs.end <= v.len());
                stride * sample + cs.start..stride * sample + cs.end
            };
            let (mean, scale, shift) = (&mean[of(mean)], &scale[of(scale)], &shift[of(shift)]);
            Stretch::<X>::new(out.dtype(), room)
                .write(out, at, len, |out| dispatch(Affine { x, mean, scale, shift, s: self.s, out }))
        })
    }

    /// `grad * a + (x - mean) * k2 + k1`.
    fn grads<X: Compute>(&self, grad: &View, input: &View, k: [&[X]; 4], stride: usize, out: &ViewMut) {
        let room = self.width() * self.s;
        self.stretches(|sample, cs| {
            let (at, len) = ((sample * self.c + cs.start) * self.s, cs.len() * self.s);
            let (mut gs, mut xs) = (Stretch::<X>::new(grad.dtype(), room), Stretch::<X>::new(input.dtype(), room));
            let (g, x) = (gs.read(grad, at, len), xs.read(input, at, len));
            let k = k.map(|v| &v[stride * sample + cs.start..stride * sample + cs.end]);
            Stretch::<X>::new(out.dtype(), room).write(out, at, len, |out| dispatch(Grads { g, x, k, s: self.s, out }))
        })
    }

    /// For every chunk of `samples` samples: the sums over each channel of `grad`, then of `grad * (x - mean) * rstd`.
    fn sums<X: Compute>(
        &self,
        grad: &View,
        input: &View,
        [mean, rstd]: [&[X]; 2],
        stride: usize,
        samples: usize,
    ) -> Scratch<f64> {
        let chunks = self.n.div_ceil(samples);
        let mut sums = Scratch::<f64>::zeroed(chunks * 2 * self.c);
        let to = Ptr::new(&mut sums);
        let (width, room) = (self.width(), self.width() * self.s);
        let per = self.c.div_ceil(width);
        let grain = (GRAIN / (samples * room).max(1)).max(1);
        parallel::split(chunks * per, grain, |tasks| {
            let (mut gs, mut xs) = (Stretch::<X>::new(grad.dtype(), room), Stretch::<X>::new(input.dtype(), room));
            for t in tasks {
                let (chunk, first) = (t / per, t % per * width);
                let w = width.min(self.c - first);
                // SAFETY: each task has its own channels of its own chunk.
                let [sg, sgx] = [0, 1].map(|i| unsafe { to.slice((chunk * 2 + i) * self.c + first, w) });
                for sample in chunk * samples..((chunk + 1) * samples).min(self.n) {
                    let (at, len) = ((sample * self.c + first) * self.s, w * self.s);
                    let (g, x) = (gs.read(grad, at, len), xs.read(input, at, len));
                    let [mean, rstd] = [mean, rstd].map(|v| &v[stride * sample + first..][..w]);
                    dispatch(Sums { g, x, mean, rstd, s: self.s, sg: &mut *sg, sgx: &mut *sgx })
                }
            }
        });
        sums
    }
}

struct Affine<'a, X> {
    x: &'a [X],
    mean: &'a [X],
    scale: &'a [X],
    shift: &'a [X],
    s: usize,
    out: &'a mut [X],
}

impl<X: Compute> Kernel for Affine<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Affine { x, mean, scale, shift, s, out } = self;
        let n = mean.len();
        let (scale, shift) = (&scale[..n], &shift[..n]);
        if s == 1 {
            let (x, out) = (&x[..n], &mut out[..n]);
            for i in 0..n {
                out[i] = x[i].sub(mean[i]).mul_add::<FMA>(scale[i], shift[i])
            }
            return;
        }
        for c in 0..n {
            let (m, k, b) = (mean[c], scale[c], shift[c]);
            let (x, out) = (&x[c * s..][..s], &mut out[c * s..][..s]);
            for i in 0..s {
                out[i] = x[i].sub(m).mul_add::<FMA>(k, b)
            }
        }
    }
}

struct Grads<'a, X> {
    g: &'a [X],
    x: &'a [X],
    k: [&'a [X]; 4],
    s: usize,
    out: &'a mut [X],
}

impl<X: Compute> Kernel for Grads<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Grads { g, x, k: [mean, a, k2, k1], s, out } = self;
        let n = mean.len();
        let (a, k2, k1) = (&a[..n], &k2[..n], &k1[..n]);
        let one = |g: X, x: X, m: X, a: X, k2: X, k1: X| g.mul_add::<FMA>(a, x.sub(m).mul_add::<FMA>(k2, k1));
        if s == 1 {
            let (g, x, out) = (&g[..n], &x[..n], &mut out[..n]);
            for i in 0..n {
                out[i] = one(g[i], x[i], mean[i], a[i], k2[i], k1[i])
            }
            return;
        }
        for c in 0..n {
            let (m, a, k2, k1) = (mean[c], a[c], k2[c], k1[c]);
            let (g, x, out) = (&g[c * s..][..s], &x[c * s..][..s], &mut out[c * s..][..s]);
            for i in 0..s {
                out[i] = one(g[i], x[i], m, a, k2, k1)
            }
        }
    }
}

struct Sums<'a, X> {
    g: &'a [X],
    x: &'a [X],
    mean: &'a [X],
    rstd: &'a [X],
    s: usize,
    sg: &'a mut [f64],
    sgx: &'a mut [f64],
}

impl<X: Compute> Kernel for Sums<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Sums { g, x, mean, rstd, s, sg, sgx } = self;
        let n = mean.len();
        let (rstd, sg, sgx) = (&rstd[..n], &mut sg[..n], &mut sgx[..n]);
        if s == 1 {
            let (g, x) = (&g[..n], &x[..n]);
            for i in 0..n {
                sg[i] += g[i].to_f64();
                sgx[i] += g[i].mul(x[i].sub(mean[i]).mul(rstd[i])).to_f64();
            }
            return;
        }
        for c in 0..n {
            let (g, x, m) = (&g[c * s..][..s], &x[c * s..][..s], mean[c]);
            let (p, q) = sum_pairs(s, |i| (g[i], g[i].mul(x[i].sub(m))));
            sg[c] += p;
            sgx[c] += q * rstd[c].to_f64();
        }
    }
}
