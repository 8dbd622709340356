//! Convolutions with one input channel per group: loops over taps that run along rows.
//!
//! There is no depth to multiply over, so a matrix product would mostly move memory. Jobs are planes (for the weight
//! gradient, output channels), so sums do not depend on the number of threads.
#![allow(unsafe_code)]

use super::ConvShape;
use crate::parallel;
use crate::real::{Ptr, Real, per_isa};

/// Calls `f(first output pixel, first input pixel, length)` for every stretch of a row that tap `t` serves.
#[inline(always)]
fn rows(s: &ConvShape, t: usize, mut f: impl FnMut(usize, usize, usize)) {
    let k = s.tap(t);
    let [z, y, x] = [0, 1, 2].map(|d| s.reach(d, k[d]));
    let input = |d: usize, o: usize| o * s.stride[d] + k[d] * s.dilation[d] - s.padding[d];
    if x.0 >= x.1 {
        return;
    }
    for oz in z.0..z.1 {
        for oy in y.0..y.1 {
            let from = (input(0, oz) * s.input[1] + input(1, oy)) * s.input[2] + input(2, x.0);
            f((oz * s.output[1] + oy) * s.output[2] + x.0, from, x.1 - x.0);
        }
    }
}

fn grain(s: &ConvShape) -> usize {
    (1 << 15) / (s.taps() * s.out_plane()) + 1
}

pub(super) fn forward<T: Real>(s: &ConvShape, x: &[T], w: &[T], bias: Option<&[T]>, out: &mut [T]) {
    let (pixels, plane, mg, taps) = (s.out_plane(), s.in_plane(), s.group_out(), s.taps());
    let to = Ptr::new(out);
    parallel::split(s.batch * s.out_channels, grain(s), |r| {
        for i in r {
            let (n, m) = (i / s.out_channels, i % s.out_channels);
            // SAFETY: one output plane a step.
            let out = unsafe { to.slice(i * pixels, pixels) };
            out.fill(bias.map_or(T::ZERO, |b| b[m]));
            let x = &x[(n * s.in_channels + m / mg) * plane..][..plane];
            forward_plane(s, x, &w[m * taps..][..taps], out);
        }
    });
}

per_isa! {
    fn forward_plane<T: Real>(s: &ConvShape, x: &[T], w: &[T], out: &mut [T]) {
        let step = s.stride[2];
        for (t, &w) in w.iter().enumerate() {
            rows(s, t, |o, i, len| {
                let (out, x) = (&mut out[o..o + len], &x[i..]);
                if step == 1 {
                    out.iter_mut().zip(&x[..len]).for_each(|(out, &x)| *out += w * x);
                } else {
                    out.iter_mut().zip(x.iter().step_by(step)).for_each(|(out, &x)| *out += w * x);
                }
            });
        }
    }
}

pub(super) fn grad_input<T: Real>(s: &ConvShape, dy: &[T], w: &[T], bias: Option<&[T]>, dx: &mut [T]) {
    let (pixels, plane, mg, taps) = (s.out_plane(), s.in_plane(), s.group_out(), s.taps());
    let to = Ptr::new(dx);
    parallel::split(s.batch * s.in_channels, grain(s), |r| {
        for i in r {
            let (n, c) = (i / s.in_channels, i % s.in_channels);
            // SAFETY: one input plane a step.
            let dx = unsafe { to.slice(i * plane, plane) };
            dx.fill(bias.map_or(T::ZERO, |b| b[c]));
            for m in c * mg..(c + 1) * mg {
                let dy = &dy[(n * s.out_channels + m) * pixels..][..pixels];
                grad_input_plane(s, dy, &w[m * taps..][..taps], dx);
            }
        }
    });
}

per_isa! {
    fn grad_input_plane<T: Real>(s: &ConvShape, dy: &[T], w: &[T], dx: &mut [T]) {
        let step = s.stride[2];
        for (t, &w) in w.iter().enumerate() {
            rows(s, t, |o, i, len| {
                let (dy, dx) = (&dy[o..o + len], &mut dx[i..]);
                if step == 1 {
                    dx[..len].iter_mut().zip(dy).for_each(|(dx, &dy)| *dx += w * dy);
                } else {
                    dx.iter_mut().step_by(step).zip(dy).for_each(|(dx, &dy)| *dx += w * dy);
                }
            });
        }
    }
}

pub(super) fn grad_weight<T: Real>(s: &ConvShape, x: &[T], dy: &[T], dw: &mut [T]) {
    let (pixels, plane, mg, taps) = (s.out_plane(), s.in_plane(), s.group_out(), s.taps());
    let to = Ptr::new(dw);
    parallel::split(s.out_channels, grain(s).div_ceil(s.batch), |r| {
        for m in r {
            // SAFETY: one output channel a step.
            let dw = unsafe { to.slice(m * taps, taps) };
            dw.fill(T::ZERO);
            for n in 0..s.batch {
                let x = &x[(n * s.in_channels + m / mg) * plane..][..plane];
                let dy = &dy[(n * s.out_channels + m) * pixels..][..pixels];
                grad_weight_plane(s, x, dy, dw);
            }
        }
    });
}

per_isa! {
    /// Adds one image's part of the gradient, each tap in 32 partial sums.
    fn grad_weight_plane<T: Real>(s: &ConvShape, x: &[T], dy: &[T], dw: &mut [T]) {
        const LANES: usize = 32;
        let step = s.stride[2];
        for (t, dw) in dw.iter_mut().enumerate() {
            let mut acc = [T::ZERO; LANES];
            rows(s, t, |o, i, len| {
                let (dy, x) = (&dy[o..o + len], &x[i..]);
                if step == 1 {
                    let (dys, xs) = (dy.chunks_exact(LANES), x[..len].chunks_exact(LANES));
                    let (dy_rest, x_rest) = (dys.remainder(), xs.remainder());
                    for (dy, x) in dys.zip(xs) {
                        for l in 0..LANES {
                            acc[l] += dy[l] * x[l];
                        }
                    }
                    for (acc, (&dy, &x)) in acc.iter_mut().zip(dy_rest.iter().zip(x_rest)) {
                        *acc += dy * x;
                    }
                } else {
                    for (l, (&dy, &x)) in dy.iter().zip(x.iter().step_by(step)).enumerate() {
                        acc[l % LANES] += dy * x;
                    }
                }
            });
            *dw += acc.iter().fold(T::ZERO, |sum, &v| sum + v);
        }
    }
}
