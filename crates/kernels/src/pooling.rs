//! Max and average pooling, plain and adaptive, in one to three dimensions.
//!
//! Memory is contiguous planes (`batch * channels` of them), threads share out the planes. Half types compute in f32.
//! Every pooling is a list of input spans per dimension (`Span`) and one of two loops over them.
//! As in PyTorch: indices are flat positions in the input plane, and a NaN wins every maximum (the last one, if several).
//! Output sizes come from the caller, who knows `ceil_mode`.
#![allow(unsafe_code)]

use crate::real::{Ptr, Real, RealsMut, reals, with_real};
use crate::{View, ViewMut, parallel, scratch};

/// Sizes of a pooling, with three spatial dimensions: missing leading ones are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Batch times channels.
    pub planes: usize,
    /// Spatial sizes of the input.
    pub input: [usize; 3],
    /// Spatial sizes of the output.
    pub output: [usize; 3],
    /// Sizes of the window.
    pub kernel: [usize; 3],
    /// Steps of the window.
    pub stride: [usize; 3],
    /// How far windows may begin before the input.
    pub padding: [usize; 3],
    /// Distances inside the window; average pooling has 1.
    pub dilation: [usize; 3],
}

impl PoolShape {
    /// A pooling in one to three dimensions; all slices have one entry a dimension.
    pub fn new(
        planes: usize,
        (input, output): (&[usize], &[usize]),
        kernel: &[usize],
        stride: &[usize],
        padding: &[usize],
        dilation: &[usize],
    ) -> PoolShape {
        PoolShape {
            planes,
            input: wide(input, 1),
            output: wide(output, 1),
            kernel: wide(kernel, 1),
            stride: wide(stride, 1),
            padding: wide(padding, 0),
            dilation: wide(dilation, 1),
        }
    }
}

/// Three dimensions from one to three, filled in front.
fn wide(s: &[usize], fill: usize) -> [usize; 3] {
    let mut a = [fill; 3];
    a[3 - s.len()..].copy_from_slice(s);
    a
}

/// What one output position covers along one dimension: inputs `start..end` in steps of the dilation, and its factor of
/// the number that a sum is divided by.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    count: usize,
}

/// The spans of every output position, by dimension.
struct Spans {
    planes: usize,
    input: [usize; 3],
    axes: [Vec<Span>; 3],
    step: [usize; 3],
}

impl Spans {
    /// The spans that `span(dimension, position)` gives. An output without elements has none, however long its other
    /// dimensions are.
    fn new(
        planes: usize,
        (input, output): ([usize; 3], [usize; 3]),
        step: [usize; 3],
        span: impl Fn(usize, usize) -> Span,
    ) -> Spans {
        let empty = planes == 0 || output.contains(&0);
        let axes = [0, 1, 2].map(|d| scratch::collected((0..if empty { 0 } else { output[d] }).map(|o| span(d, o))));
        Spans { planes, input, axes, step }
    }

    fn max(s: &PoolShape) -> Spans {
        Spans::new(s.planes, (s.input, s.output), s.dilation, |d, o| {
            let (n, p, step) = (s.input[d], s.padding[d], s.dilation[d]);
            let at = o * s.stride[d]; // in padded coordinates
            let end = (at + (s.kernel[d] - 1) * step + 1).saturating_sub(p).min(n);
            // The first position of the window that is not padding.
            let start = at + p.saturating_sub(at).div_ceil(step) * step - p;
            Span { start: start.min(n - 1), end: end.max(start), count: 1 }
        })
    }

    fn average(s: &PoolShape, count_include_pad: bool) -> Spans {
        Spans::new(s.planes, (s.input, s.output), [1; 3], |d, o| {
            let (n, p) = (s.input[d], s.padding[d]);
            let at = o * s.stride[d];
            let stop = (at + s.kernel[d]).min(n + 2 * p); // in padded coordinates
            let (start, end) = (at.saturating_sub(p), stop.saturating_sub(p).min(n));
            let inside = end.saturating_sub(start);
            Span { start, end, count: if count_include_pad { stop.saturating_sub(at) } else { inside } }
        })
    }

    fn adaptive(planes: usize, input: &[usize], output: &[usize]) -> Spans {
        let (input, output) = (wide(input, 1), wide(output, 1));
        Spans::new(planes, (input, output), [1; 3], |d, o| {
            let (n, m) = (input[d], output[d]);
            let (start, end) = (o * n / m, ((o + 1) * n).div_ceil(m));
            Span { start, end, count: end - start }
        })
    }

    fn in_plane(&self) -> usize {
        // Sizes beside an empty batch need not have a product.
        if self.planes == 0 { 0 } else { self.input.iter().product() }
    }
    fn out_plane(&self) -> usize {
        self.axes.iter().map(Vec::len).product()
    }
    /// Planes that are worth a thread.
    fn grain(&self) -> usize {
        (1 << 15) / (self.in_plane() + 4 * self.out_plane()).max(1) + 1
    }

    /// Calls `f(output position, spans)` for every output of a plane, in order.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, [Span; 3])) {
        let mut at = 0;
        for &z in &self.axes[0] {
            for &y in &self.axes[1] {
                for &x in &self.axes[2] {
                    f(at, [z, y, x]);
                    at += 1;
                }
            }
        }
    }

    /// Calls `f(start of the row's stretch, length)` for every input row that spans cover.
    #[inline(always)]
    fn rows(&self, [z, y, x]: [Span; 3], mut f: impl FnMut(usize, usize)) {
        for iz in (z.start..z.end).step_by(self.step[0]) {
            for iy in (y.start..y.end).step_by(self.step[1]) {
                f((iz * self.input[1] + iy) * self.input[2] + x.start, x.end.saturating_sub(x.start));
            }
        }
    }
}

/// Maximum of each window, and where it was.
pub fn max_pool(shape: &PoolShape, x: View<'_>, out: ViewMut<'_>, indices: ViewMut<'_>) {
    maxima(&Spans::max(shape), x, out, indices)
}

/// Maximum of each of `output` nearly equal parts of the input, and where it was.
pub fn adaptive_max_pool(
    planes: usize,
    input: &[usize],
    output: &[usize],
    x: View<'_>,
    out: ViewMut<'_>,
    indices: ViewMut<'_>,
) {
    maxima(&Spans::adaptive(planes, input, output), x, out, indices)
}

fn maxima(s: &Spans, x: View<'_>, out: ViewMut<'_>, indices: ViewMut<'_>) {
    let (plane, pixels) = (s.in_plane(), s.out_plane());
    assert!(x.numel() == s.planes * plane && out.numel() == s.planes * pixels && indices.numel() == out.numel());
    assert!(indices.dtype() == crate::DType::I64 && indices.is_contiguous());
    with_real!(x.dtype(), T => {
        let x = reals::<T>(x);
        let mut out = RealsMut::<T>::new(out);
        let to = Ptr::new(&mut out);
        parallel::split(s.planes, s.grain(), |r| {
            for p in r {
                // SAFETY: one plane of both outputs a step.
                let (out, indices) = unsafe {
                    let indices = indices.ptr::<i64>().add(p * pixels);
                    (to.slice(p * pixels, pixels), std::slice::from_raw_parts_mut(indices, pixels))
                };
                max_plane(s, &x[p * plane..][..plane], out, indices);
            }
        });
        out.finish();
    })
}

fn max_plane<T: Real>(s: &Spans, x: &[T], out: &mut [T], indices: &mut [i64]) {
    s.each(|o, spans| {
        let [z, y, w] = spans;
        let mut best = T::NEG_INFINITY;
        let mut at = (z.start * s.input[1] + y.start) * s.input[2] + w.start;
        s.rows(spans, |start, len| {
            for (i, &v) in x[start..start + len].iter().enumerate().step_by(s.step[2]) {
                // Unequal to itself: NaN.
                #[allow(clippy::eq_op)]
                if v > best || v != v {
                    (best, at) = (v, start + i);
                }
            }
        });
        (out[o], indices[o]) = (best, at as i64);
    });
}

/// Gradient of any max pooling: adds each output's gradient to the input it came from.
pub fn max_pool_backward(planes: usize, dy: View<'_>, indices: View<'_>, dx: ViewMut<'_>) {
    assert_eq!(dy.numel(), indices.numel());
    let indices = indices.as_slice::<i64>().expect("contiguous int64 indices");
    with_real!(dy.dtype(), T => {
        let dy = reals::<T>(dy);
        let mut dx = RealsMut::<T>::zeroed(dx);
        let (plane, pixels) = (dx.len() / planes.max(1), dy.len() / planes.max(1));
        let to = Ptr::new(&mut dx);
        parallel::split(planes, (1 << 15) / (plane + pixels + 1) + 1, |r| {
            for p in r {
                // SAFETY: one plane a step.
                let dx = unsafe { to.slice(p * plane, plane) };
                let range = p * pixels..(p + 1) * pixels;
                for (&dy, &i) in dy[range.clone()].iter().zip(&indices[range]) {
                    dx[i as usize] += dy;
                }
            }
        });
        dx.finish();
    })
}

/// Average of each window. A window that reaches into the padding counts it if `count_include_pad`; with a
/// `divisor_override` every sum is divided by that.
pub fn avg_pool(
    shape: &PoolShape,
    count_include_pad: bool,
    divisor_override: Option<i64>,
    x: View<'_>,
    out: ViewMut<'_>,
) {
    averages(&Spans::average(shape, count_include_pad), divisor_override, x, out)
}

/// Gradient of [`avg_pool`].
pub fn avg_pool_backward(
    shape: &PoolShape,
    count_include_pad: bool,
    divisor_override: Option<i64>,
    dy: View<'_>,
    dx: ViewMut<'_>,
) {
    averages_backward(&Spans::average(shape, count_include_pad), divisor_override, dy, dx)
}

/// Average of each of `output` nearly equal parts of the input.
pub fn adaptive_avg_pool(planes: usize, input: &[usize], output: &[usize], x: View<'_>, out: ViewMut<'_>) {
    averages(&Spans::adaptive(planes, input, output), None, x, out)
}

/// Gradient of [`adaptive_avg_pool`].
pub fn adaptive_avg_pool_backward(planes: usize, input: &[usize], output: &[usize], dy: View<'_>, dx: ViewMut<'_>) {
    averages_backward(&Spans::adaptive(planes, input, output), None, dy, dx)
}

/// What a window's sum is divided by.
#[inline(always)]
fn divisor<T: Real>(spans: [Span; 3], divisor_override: Option<i64>) -> T {
    let count = || spans.iter().map(|s| s.count as i64).product();
    T::from_i64(divisor_override.unwrap_or_else(count))
}

fn averages(s: &Spans, divisor_override: Option<i64>, x: View<'_>, out: ViewMut<'_>) {
    let (plane, pixels) = (s.in_plane(), s.out_plane());
    assert!(x.numel() == s.planes * plane && out.numel() == s.planes * pixels);
    with_real!(x.dtype(), T => {
        let x = reals::<T>(x);
        let mut out = RealsMut::<T>::new(out);
        let to = Ptr::new(&mut out);
        parallel::split(s.planes, s.grain(), |r| {
            for p in r {
                // SAFETY: one plane a step.
                let out = unsafe { to.slice(p * pixels, pixels) };
                let x = &x[p * plane..][..plane];
                s.each(|o, spans| {
                    let mut sum = T::ZERO;
                    s.rows(spans, |start, len| sum += sum_row(&x[start..start + len]));
                    let empty = spans.iter().any(|s| s.start >= s.end);
                    out[o] = if empty { T::ZERO } else { sum / divisor::<T>(spans, divisor_override) };
                });
            }
        });
        out.finish();
    })
}

/// Sum of a row, in 16 partial sums if it is long.
#[inline(always)]
fn sum_row<T: Real>(row: &[T]) -> T {
    let chunks = row.chunks_exact(16);
    let mut sum = chunks.remainder().iter().fold(T::ZERO, |a, &b| a + b);
    if row.len() >= 16 {
        let mut acc = [T::ZERO; 16];
        for chunk in chunks {
            acc.iter_mut().zip(chunk).for_each(|(a, &v)| *a += v);
        }
        sum = acc.iter().fold(sum, |a, &b| a + b);
    }
    sum
}

fn averages_backward(s: &Spans, divisor_override: Option<i64>, dy: View<'_>, dx: ViewMut<'_>) {
    let (plane, pixels) = (s.in_plane(), s.out_plane());
    assert!(dx.numel() == s.planes * plane && dy.numel() == s.planes * pixels);
    with_real!(dy.dtype(), T => {
        let dy = reals::<T>(dy);
        let mut dx = RealsMut::<T>::zeroed(dx);
        let to = Ptr::new(&mut dx);
        parallel::split(s.planes, s.grain(), |r| {
            for p in r {
                // SAFETY: one plane a step.
                let dx = unsafe { to.slice(p * plane, plane) };
                let dy = &dy[p * pixels..][..pixels];
                s.each(|o, spans| {
                    if spans.iter().all(|s| s.start < s.end) {
                        let share = dy[o] / divisor::<T>(spans, divisor_override);
                        s.rows(spans, |start, len| dx[start..start + len].iter_mut().for_each(|v| *v += share));
                    }
                });
            }
        });
        dx.finish();
    })
}

#[cfg(test)]
mod tests;
