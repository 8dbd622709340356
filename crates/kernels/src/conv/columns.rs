//! Convolution through patches materialized as a matrix (im2col): works for every type and instruction set.
//!
//! Images, groups, and blocks of pixels or channels are the jobs, all cut by the sizes only. A kernel of one tap with
//! stride 1 and no padding reads the input in place of patches.
#![allow(unsafe_code)]

use super::{ConvShape, fill_bias, partial_sums, sum_parts};
use crate::matmul::{Matrix, product};
use crate::parallel;
use crate::real::{Ptr, Real, Scratch};
use std::ops::Range;

/// Elements in a block of patches: half a megabyte of f32.
const BLOCK: usize = 1 << 17;

/// Whether patches are the input itself.
fn is_pointwise(s: &ConvShape) -> bool {
    s.kernel == [1; 3] && s.stride == [1; 3] && s.padding == [0; 3]
}

/// Calls `f(input row, first output pixel, length, first input column)` for each
/// stretch of output pixels inside `pixels` whose inputs under tap `t` lie in one row of the input; pixels without an
/// input are left out.
#[inline(always)]
fn stretches(s: &ConvShape, t: usize, pixels: Range<usize>, mut f: impl FnMut(usize, usize, usize, usize)) {
    let ([_, oh, ow], k) = (s.output, s.tap(t));
    let reach = [0, 1, 2].map(|d| s.reach(d, k[d]));
    let input = |d: usize, o: usize| o * s.stride[d] + k[d] * s.dilation[d] - s.padding[d];
    for row in pixels.start / ow..pixels.end.div_ceil(ow) {
        let (oz, oy) = (row / oh, row % oh);
        if oz < reach[0].0 || oz >= reach[0].1 || oy < reach[1].0 || oy >= reach[1].1 {
            continue;
        }
        let lo = reach[2].0.max(pixels.start.saturating_sub(row * ow));
        let hi = reach[2].1.min(pixels.end - row * ow);
        if lo < hi {
            f(input(0, oz) * s.input[1] + input(1, oy), row * ow + lo, hi - lo, input(2, lo));
        }
    }
}

/// `col[(c - channels.start) * taps + t][pixel - pixels.start]` of one image's group.
fn write_patches<T: Real>(s: &ConvShape, x: &[T], channels: Range<usize>, pixels: Range<usize>, col: &mut [T]) {
    let (taps, plane, sx, width) = (s.taps(), s.in_plane(), s.stride[2], s.input[2]);
    for t in 0..taps {
        let full = (0..3).all(|d| s.reach(d, s.tap(t)[d]) == (0, s.output[d]));
        for (i, c) in channels.clone().enumerate() {
            let row = &mut col[(i * taps + t) * pixels.len()..][..pixels.len()];
            let x = &x[c * plane..][..plane];
            if !full {
                row.fill(T::ZERO);
            }
            stretches(s, t, pixels.clone(), |y, at, len, from| {
                let to = &mut row[at - pixels.start..][..len];
                let from = &x[y * width + from..];
                if sx == 1 {
                    to.copy_from_slice(&from[..len]);
                } else {
                    to.iter_mut().zip(from.iter().step_by(sx)).for_each(|(to, v)| *to = *v);
                }
            });
        }
    }
}

/// Adds patches back to where they came from: the transpose of [`write_patches`], for all pixels.
fn add_patches<T: Real>(s: &ConvShape, col: &[T], channels: usize, dx: &mut [T]) {
    let (taps, plane, pixels) = (s.taps(), s.in_plane(), s.out_plane());
    let (sx, width) = (s.stride[2], s.input[2]);
    for c in 0..channels {
        let dx = &mut dx[c * plane..][..plane];
        for t in 0..taps {
            let row = &col[(c * taps + t) * pixels..][..pixels];
            stretches(s, t, 0..pixels, |y, at, len, to| {
                let (to, from) = (&mut dx[y * width + to..], &row[at..][..len]);
                if sx == 1 {
                    to.iter_mut().zip(from).for_each(|(to, v)| *to += *v);
                } else {
                    to.iter_mut().step_by(sx).zip(from).for_each(|(to, v)| *to += *v);
                }
            });
        }
    }
}

pub(super) fn forward<T: Real>(s: &ConvShape, x: &[T], w: &[T], bias: Option<&[T]>, out: &mut [T]) {
    let (cg, mg, pixels, plane) = (s.group_in(), s.group_out(), s.out_plane(), s.in_plane());
    let depth = cg * s.taps();
    let width = (BLOCK / depth).next_multiple_of(64).min(pixels);
    let blocks = pixels.div_ceil(width);
    fill_bias(out, bias, s.out_channels, pixels);
    let to = Ptr::new(out);
    parallel::run(s.batch * s.groups * blocks, &|i| {
        let (n, g, b) = (i / blocks / s.groups, i / blocks % s.groups, i % blocks);
        let range = b * width..((b + 1) * width).min(pixels);
        let x = &x[(n * s.in_channels + g * cg) * plane..][..cg * plane];
        let w = Matrix::new(&w[g * mg * depth..][..mg * depth], mg, depth);
        // SAFETY: each job writes its own pixels of its group's channels, all inside `out`.
        let out = |cols| unsafe {
            Matrix::from_raw(to.at((n * s.out_channels + g * mg) * pixels + range.start), mg, cols, pixels)
        };
        if is_pointwise(s) {
            let x = Matrix::new(x, cg, plane).columns(range.clone());
            product(w, x, out(range.len()), true);
        } else {
            let mut col = Scratch::new(depth * range.len());
            write_patches(s, x, 0..cg, range.clone(), &mut col);
            product(w, Matrix::new(&col, depth, range.len()), out(range.len()), true);
        }
    });
}

pub(super) fn grad_input<T: Real>(s: &ConvShape, dy: &[T], w: &[T], bias: Option<&[T]>, dx: &mut [T]) {
    let (cg, mg, pixels, plane, taps) = (s.group_in(), s.group_out(), s.out_plane(), s.in_plane(), s.taps());
    let depth = cg * taps;
    let channels = (BLOCK / (taps * pixels)).clamp(1, cg);
    let blocks = cg.div_ceil(channels);
    fill_bias(dx, bias, s.in_channels, plane);
    let to = Ptr::new(dx);
    parallel::run(s.batch * s.groups * blocks, &|i| {
        let (n, g, b) = (i / blocks / s.groups, i / blocks % s.groups, i % blocks);
        let range = b * channels..((b + 1) * channels).min(cg);
        let dy = Matrix::new(&dy[(n * s.out_channels + g * mg) * pixels..][..mg * pixels], mg, pixels);
        let w = Matrix::new(&w[g * mg * depth..][..mg * depth], mg, depth);
        let w = w.columns(range.start * taps..range.end * taps).transposed();
        // SAFETY: each job writes its own channels of one image.
        let dx = unsafe { to.slice((n * s.in_channels + g * cg + range.start) * plane, range.len() * plane) };
        let mut col = Scratch::new(range.len() * taps * pixels);
        let len = range.len() * taps;
        product(w, dy, Matrix::new_mut(&mut col, len, pixels), false);
        add_patches(s, &col, range.len(), dx);
    });
}

pub(super) fn grad_weight<T: Real>(s: &ConvShape, x: &[T], dy: &[T], dw: &mut [T]) {
    let (cg, mg, pixels, plane, taps) = (s.group_in(), s.group_out(), s.out_plane(), s.in_plane(), s.taps());
    let (depth, len) = (cg * taps, s.weight_len());
    let parts = partial_sums(s.batch, len);
    let channels = (BLOCK / (taps * pixels)).clamp(1, cg);
    let blocks = cg.div_ceil(channels);
    let mut sums = Scratch::<T>::new(parts * len);
    let to = Ptr::new(&mut sums);
    parallel::run(parts * s.groups * blocks, &|i| {
        let (part, g, b) = (i / blocks / s.groups, i / blocks % s.groups, i % blocks);
        let range = b * channels..((b + 1) * channels).min(cg);
        let rows = range.len() * taps;
        let mut col = Scratch::new(rows * pixels);
        for (j, n) in (s.batch * part / parts..s.batch * (part + 1) / parts).enumerate() {
            let x = &x[(n * s.in_channels + g * cg) * plane..][..cg * plane];
            write_patches(s, x, range.clone(), 0..pixels, &mut col);
            let dy = Matrix::new(&dy[(n * s.out_channels + g * mg) * pixels..][..mg * pixels], mg, pixels);
            // SAFETY: each job writes its own columns of its part's sum.
            let sum =
                unsafe { Matrix::from_raw(to.at(part * len + g * mg * depth + range.start * taps), mg, rows, depth) };
            product(dy, Matrix::new(&col, rows, pixels).transposed(), sum, j > 0);
        }
    });
    sum_parts(&mut sums, len);
    dw.copy_from_slice(&sums[..len]);
}
