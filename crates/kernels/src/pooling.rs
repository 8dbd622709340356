//! Max and average pooling, plain and adaptive, in one to three dimensions.
//!
//! Memory is contiguous planes (`batch * channels` of them), threads share out the planes. Half types compute in f32.
//! Every pooling is a list of input spans per dimension (`Span`) and one of two loops over them. Neighbors in a row whose spans are
//! alike are computed side by side, each in the order in which it is computed alone.
//! As in PyTorch: indices are flat positions in the input plane, and a NaN wins every maximum (the last one, if several).
//! Output sizes come from the caller, who knows `ceil_mode`.
#![allow(unsafe_code)]
// Lanes are indexed on purpose: that is what gets vectorised.
#![allow(clippy::needless_range_loop)]

use crate::real::{Ptr, Real, RealsMut, Scratch, f32s, f32s_mut, per_isa, reals, with_real};
use crate::sets::{self, LANES, TileKernel, Vector};
use crate::{DType, Element, View, ViewMut, parallel, scratch};

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

/// Positions of a row whose spans are alike: of one length and count, each as far from its neighbor.
#[derive(Clone, Copy, Default)]
struct Alike {
    from: usize,
    to: usize,
    stride: usize,
}

/// Fewest neighbors that are computed side by side.
const FEWEST: usize = 4;

impl Alike {
    /// The stretch around the middle of a row.
    fn of(row: &[Span]) -> Alike {
        let middle = row.len() / 2;
        let Some([a, b]) = row.get(middle..middle + 2) else { return Alike::default() };
        let Some(stride) = b.start.checked_sub(a.start) else { return Alike::default() };
        let follows = |a: &Span, b: &Span| b.start == a.start + stride && b.end == a.end + stride && a.count == b.count;
        let (mut from, mut to) = (middle, middle + 1);
        while from > 0 && follows(&row[from - 1], &row[from]) {
            from -= 1;
        }
        while to < row.len() && follows(&row[to - 1], &row[to]) {
            to += 1;
        }
        if to - from < FEWEST || a.start >= a.end { Alike::default() } else { Alike { from, to, stride } }
    }
}

/// The spans of every output position, by dimension.
struct Spans {
    planes: usize,
    input: [usize; 3],
    axes: [Vec<Span>; 3],
    step: [usize; 3],
    alike: Alike,
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
        // Positions side by side are counted in 32 bits.
        let counted = planes > 0 && input.iter().product::<usize>() <= u32::MAX as usize;
        let alike = if counted { Alike::of(&axes[2]) } else { Alike::default() };
        Spans { planes, input, axes, step, alike }
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
    maxima(&Spans::max(shape), Maxima::serves(shape).then_some(shape), x, out, indices)
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
    maxima(&Spans::adaptive(planes, input, output), None, x, out, indices)
}

/// The maxima of spans; `regular` if they are windows that [`Maxima`] takes.
fn maxima(s: &Spans, regular: Option<&PoolShape>, x: View<'_>, out: ViewMut<'_>, indices: ViewMut<'_>) {
    let (plane, pixels) = (s.in_plane(), s.out_plane());
    assert!(x.numel() == s.planes * plane && out.numel() == s.planes * pixels && indices.numel() == out.numel());
    assert!(indices.dtype() == crate::DType::I64 && indices.is_contiguous());
    if out.numel() == 0 {
        return;
    }
    with_real!(x.dtype(), T => {
        let x = reals::<T>(x);
        let mut out = RealsMut::<T>::new(out);
        let to = Ptr::new(&mut out);
        parallel::split(s.planes, s.grain(), |r| {
            let all = r.start * pixels..r.end * pixels;
            // SAFETY: the planes of both outputs that are this part's.
            let (out, indices) = unsafe {
                let indices = indices.ptr::<i64>().add(all.start);
                (to.slice(all.start, all.len()), std::slice::from_raw_parts_mut(indices, all.len()))
            };
            let x = &x[r.start * plane..r.end * plane];
            if let (Some(shape), DType::F32) = (regular, T::DTYPE) {
                let (x, out) = (f32s(x), f32s_mut(out));
                // SAFETY: slices of whole planes.
                return unsafe { sets::tiles(Maxima { shape, spans: s, x, out, indices }) };
            }
            for (i, (out, indices)) in
                out.chunks_exact_mut(pixels).zip(indices.chunks_exact_mut(pixels)).enumerate()
            {
                max_plane(s, &x[i * plane..][..plane], out, indices);
            }
        });
        out.finish();
    })
}

/// The maxima of a plane, window by window.
fn max_plane<T: Real>(s: &Spans, x: &[T], out: &mut [T], indices: &mut [i64]) {
    s.each(|o, spans| {
        let (best, at) = maximum(s, x, spans);
        (out[o], indices[o]) = (best, at as i64);
    });
}

/// Planes of windows a step of 1 or 2 apart in f32: the maxima of sixteen neighbors at once. To be run with outputs that nothing else uses,
/// as long as the input's planes.
struct Maxima<'a> {
    shape: &'a PoolShape,
    spans: &'a Spans,
    x: &'a [f32],
    out: &'a mut [f32],
    indices: &'a mut [i64],
}

impl Maxima<'_> {
    /// Whether it takes this pooling: places in a plane are counted in floats.
    fn serves(s: &PoolShape) -> bool {
        let pixels = s.input.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        let reach = s.kernel[2].saturating_mul(s.dilation[2]);
        matches!(s.stride[2], 1 | 2) && pixels.is_some_and(|n| n < 1 << 23) && reach < 1 << 20
    }
}

impl TileKernel for Maxima<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Maxima { shape, spans, x, out, indices } = self;
        let [_, height, width] = spans.input;
        let (plane, row, lines) = (spans.in_plane(), spans.axes[2].len(), spans.axes[1].len());
        let (step, apart, left) = (shape.stride[2], spans.step[2] as isize, shape.padding[2] as isize);
        // Of each output, where its window begins and where it would begin without padding: what a place is counted from.
        let mut begin = Scratch::<f32>::new(2 * row.next_multiple_of(LANES));
        let (begin, origin) = begin.split_at_mut(row.next_multiple_of(LANES));
        for o in 0..begin.len() {
            begin[o] = spans.axes[2][o.min(row - 1)].start as f32;
            origin[o] = (o * step) as f32;
        }
        let (mut best, mut place) = ([0.0; LANES], [0.0; LANES]);
        for (line, (out, indices)) in out.chunks_exact_mut(row).zip(indices.chunks_exact_mut(row)).enumerate() {
            let (p, z, y) = (line / lines / spans.axes[0].len(), line / lines % spans.axes[0].len(), line % lines);
            let (x, z, y) = (&x[p * plane..][..plane], spans.axes[0][z], spans.axes[1][y]);
            let first = V::splat(((z.start * height + y.start) * width) as f32);
            for o in (0..row).step_by(LANES) {
                // Nothing is larger than what is not there, so windows need not be cut where the plane ends.
                let lowest = V::splat(f32::NEG_INFINITY);
                // SAFETY: they are a whole number of vectors.
                let (begin, origin) = unsafe { (V::load(begin.as_ptr().add(o)), V::load(origin.as_ptr().add(o))) };
                let mut found = (lowest, first.add(begin).sub(origin));
                for iz in (z.start..z.end).step_by(spans.step[0]) {
                    for iy in (y.start..y.end).step_by(spans.step[1]) {
                        let line = ((iz * height + iy) * width) as isize;
                        for k in 0..shape.kernel[2] as isize {
                            let from = (o * step) as isize + k * apart - left;
                            // Columns from there on that are in the plane.
                            let inside = |from: isize| {
                                let bits = |n: isize| (1u32 << n.clamp(0, LANES as isize)) - 1;
                                (bits(width as isize - from) & !bits(-from)) as u16
                            };
                            let near = x.as_ptr().wrapping_offset(line + from);
                            // SAFETY: lanes outside of the line are masked off.
                            let v = unsafe {
                                let low = lowest.load_over(inside(from), near);
                                if step == 1 {
                                    low
                                } else {
                                    let next = from + LANES as isize;
                                    low.unzip(lowest.load_over(inside(next), near.wrapping_add(LANES)))[0]
                                }
                            };
                            found = V::larger(found, (v, V::splat((line + k * apart - left) as f32)));
                        }
                    }
                }
                // SAFETY: both have sixteen elements.
                unsafe {
                    found.0.store(best.as_mut_ptr());
                    found.1.add(origin).store(place.as_mut_ptr());
                }
                let mut places = [0; LANES];
                for l in 0..LANES {
                    places[l] = i64::from(place[l] as i32);
                }
                let lanes = LANES.min(row - o);
                out[o..o + lanes].copy_from_slice(&best[..lanes]);
                indices[o..o + lanes].copy_from_slice(&places[..lanes]);
            }
        }
    }
}

/// The maximum of one window, and where it is.
#[inline(always)]
fn maximum<T: Real>(s: &Spans, x: &[T], spans: [Span; 3]) -> (T, usize) {
    let [z, y, w] = spans;
    let mut best = T::NEG_INFINITY;
    let mut at = (z.start * s.input[1] + y.start) * s.input[2] + w.start;
    for iz in (z.start..z.end).step_by(s.step[0]) {
        for iy in (y.start..y.end).step_by(s.step[1]) {
            let start = (iz * s.input[1] + iy) * s.input[2];
            for i in (w.start..w.end).step_by(s.step[2]) {
                let v = x[start + i];
                // Unequal to itself: NaN.
                #[allow(clippy::eq_op)]
                if v > best || v != v {
                    (best, at) = (v, start + i);
                }
            }
        }
    }
    (best, at)
}

/// `L` values, `stride` apart.
#[inline(always)]
fn strided<T: Real, const L: usize>(x: &[T], start: usize, stride: usize) -> [T; L] {
    let mut v = [T::ZERO; L];
    match stride {
        1 => v.copy_from_slice(&x[start..start + L]),
        // Pairs are read whole and split; the pair of the last value may end where the plane does.
        2 if start + 2 * L <= x.len() => {
            let pairs = &x[start..start + 2 * L];
            for l in 0..L {
                v[l] = pairs[2 * l];
            }
        }
        2 if start > 0 => {
            let pairs = &x[start - 1..start - 1 + 2 * L];
            for l in 0..L {
                v[l] = pairs[2 * l + 1];
            }
        }
        _ => {
            for l in 0..L {
                v[l] = x[start + l * stride];
            }
        }
    }
    v
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
                average_plane(s, divisor_override, &x[p * plane..][..plane], out);
            }
        });
        out.finish();
    })
}

per_isa! {
    /// The averages of a plane.
    fn average_plane<T: Real>(s: &Spans, divisor_override: Option<i64>, x: &[T], out: &mut [T]) {
        let (row, Alike { from, to, .. }) = (s.axes[2].len().max(1), s.alike);
        // Long rows have partial sums of their own.
        let (from, to) = if to > from && s.axes[2][from].end - s.axes[2][from].start < PARTS { (from, to) } else { (0, 0) };
        for (line, out) in out.chunks_exact_mut(row).enumerate() {
            let zy = [s.axes[0][line / s.axes[1].len()], s.axes[1][line % s.axes[1].len()]];
            for o in (0..from).chain(to..row) {
                let spans = [zy[0], zy[1], s.axes[2][o]];
                let mut sum = T::ZERO;
                s.rows(spans, |start, len| sum += sum_row(&x[start..start + len]));
                let empty = spans.iter().any(|s| s.start >= s.end);
                out[o] = if empty { T::ZERO } else { sum / divisor::<T>(spans, divisor_override) };
            }
            match to - from {
                0 => {}
                16.. => averages_side_by_side::<T, 16>(s, divisor_override, x, zy, out),
                8.. => averages_side_by_side::<T, 8>(s, divisor_override, x, zy, out),
                _ => averages_side_by_side::<T, FEWEST>(s, divisor_override, x, zy, out),
            }
        }
    }
}

/// The averages of the stretch of a row whose spans are alike and short, `L` at once, each summed as [`sum_row`] does.
#[inline(always)]
fn averages_side_by_side<T: Real, const L: usize>(
    s: &Spans,
    divisor_override: Option<i64>,
    x: &[T],
    [z, y]: [Span; 2],
    out: &mut [T],
) {
    let Alike { from, to, stride } = s.alike;
    let [_, height, width] = s.input;
    for o in (from..to).step_by(L) {
        let o = o.min(to - L);
        let w = s.axes[2][o];
        let mut sums = [T::ZERO; L];
        for iz in z.start..z.end {
            for iy in y.start..y.end {
                let mut row = [T::ZERO; L];
                for i in w.start..w.end {
                    let v = strided::<T, L>(x, (iz * height + iy) * width + i, stride);
                    for l in 0..L {
                        row[l] += v[l];
                    }
                }
                for l in 0..L {
                    sums[l] += row[l];
                }
            }
        }
        if [z, y].iter().all(|s| s.start < s.end) {
            let by = divisor::<T>([z, y, w], divisor_override);
            for l in 0..L {
                sums[l] = sums[l] / by;
            }
        }
        out[o..o + L].copy_from_slice(&sums);
    }
}

/// Partial sums of a long row.
const PARTS: usize = 16;

/// Sum of a row, in partial sums if it is long.
#[inline(always)]
fn sum_row<T: Real>(row: &[T]) -> T {
    let chunks = row.chunks_exact(PARTS);
    let mut sum = chunks.remainder().iter().fold(T::ZERO, |a, &b| a + b);
    if row.len() >= PARTS {
        let mut acc = [T::ZERO; PARTS];
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
