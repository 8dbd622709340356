//! Sampling of images at given points: `grid_sample` in two and three dimensions, and its derivatives of any order.
//!
//! Every mode is a product of weighted positions per dimension (`Taps`), with PyTorch's rules for coordinates. Memory is
//! contiguous: input `[batch, channels, (depth,) height, width]`, grid `[batch, output.., 2 or 3]` with x first.
//! Threads share out output points, or channels where gradients are added, so results do not depend on how many there are.
#![allow(unsafe_code)]

use crate::real::{Ptr, Real, RealsMut, reals, with_real};
use crate::{View, ViewMut, parallel};

/// The interpolation mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The two neighbors in each dimension.
    Linear,
    /// The nearest pixel, ties to even.
    Nearest,
    /// The four neighbors in each dimension.
    Cubic,
}

/// How positions outside the input are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zero.
    Zeros,
    /// The nearest border pixel.
    Border,
    /// The image mirrored at its border.
    Reflection,
}

/// Sizes and options of a sampling, with three spatial dimensions: the depth of an image is 1.
#[derive(Clone, Copy, Debug)]
pub struct GridSample {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Spatial dimensions: 2 or 3.
    pub dims: usize,
    /// Spatial sizes of the input.
    pub input: [usize; 3],
    /// Points sampled in each image.
    pub points: usize,
    /// The interpolation mode.
    pub interpolation: Interpolation,
    /// How positions outside the input are handled.
    pub padding: Padding,
    /// Whether -1 and 1 are the centres of the corner pixels, instead of their edges.
    pub align_corners: bool,
}

/// A weight and its derivatives by the grid's coordinate; all weights are polynomials of degree three or less.
type Jet<T> = [T; 5];

/// Positions along one dimension: index (if inside) and weight.
struct Taps<T> {
    n: usize,
    at: [(Option<usize>, Jet<T>); 4],
}

/// A number and its derivative by the grid's coordinate.
type Dual<T> = (T, T);

impl GridSample {
    fn in_plane(&self) -> usize {
        self.input.iter().product()
    }

    fn taps<T: Real>(&self, coordinate: T, size: usize) -> Taps<T> {
        let zero = T::ZERO;
        let mut at = [(None, [zero; 5]); 4];
        let raw = self.pixels(coordinate, size);
        if self.interpolation == Interpolation::Cubic {
            let first = raw.0.to_f64().floor();
            let t = raw.0 - T::from_f64(first);
            for (i, mut weight) in cubic(t).into_iter().enumerate() {
                let (place, _) = self.pad((T::from_f64(first + i as f64 - 1.0), zero), size);
                let mut factor = raw.1;
                for w in &mut weight[1..] {
                    *w = *w * factor;
                    factor = factor * raw.1;
                }
                at[i] = (inside(place.to_f64(), size), weight);
            }
            return Taps { n: 4, at };
        }
        let (place, slope) = self.pad(raw, size);
        if self.interpolation == Interpolation::Nearest {
            at[0] = (inside(place.to_f64().round_ties_even(), size), [T::ONE, zero, zero, zero, zero]);
            return Taps { n: 1, at };
        }
        let first = place.to_f64().floor();
        let t = place - T::from_f64(first);
        at[0] = (inside(first, size), [T::ONE - t, -slope, zero, zero, zero]);
        at[1] = (inside(first + 1.0, size), [t, slope, zero, zero, zero]);
        Taps { n: 2, at }
    }

    /// From -1..1 to pixels.
    fn pixels<T: Real>(&self, v: T, size: usize) -> Dual<T> {
        let (two, n) = (T::from_f64(2.0), T::from_i64(size as i64));
        if self.align_corners {
            ((v + T::ONE) / two * (n - T::ONE), (n - T::ONE) / two)
        } else {
            (((v + T::ONE) * n - T::ONE) / two, n / two)
        }
    }

    /// Maps a position into the input according to the padding; NaN ends up outside.
    fn pad<T: Real>(&self, v: Dual<T>, size: usize) -> Dual<T> {
        let v = match self.padding {
            Padding::Zeros => v,
            Padding::Border => clip(v, size),
            Padding::Reflection => clip(self.reflect(v, size), size),
        };
        if v.0.to_f64().abs() < f64::from(i32::MAX) { v } else { (T::from_f64(-100.0), v.1) }
    }

    fn reflect<T: Real>(&self, (v, slope): Dual<T>, size: usize) -> Dual<T> {
        // Mirrors at pixel centres or at pixel edges.
        let (low, span) = if self.align_corners { (0.0, size as f64 - 1.0) } else { (-0.5, size as f64) };
        if span == 0.0 {
            return (T::ZERO, T::ZERO);
        }
        let (low, span) = (T::from_f64(low), T::from_f64(span));
        let (v, slope) = if v < low { (low - v, -slope) } else { (v - low, slope) };
        let flips = (v / span).to_f64().floor();
        let extra = v - T::from_f64(flips) * span;
        if flips % 2.0 == 0.0 { (extra + low, slope) } else { (span - extra + low, -slope) }
    }

    /// The taps of a point, whose coordinates are x, y (, z), as dimensions z, y, x.
    fn point<T: Real>(&self, grid: &[T]) -> [Taps<T>; 3] {
        let alone = (Some(0), [T::ONE, T::ZERO, T::ZERO, T::ZERO, T::ZERO]);
        std::array::from_fn(|d| match grid.get(2 - d) {
            Some(&v) => self.taps(v, self.input[d]),
            None => Taps { n: 1, at: [alone; 4] },
        })
    }

    /// Calls `f(pixel in a plane, weight, derivatives by z, y and x)` for every pixel that a point reads; the weight is
    /// itself the derivative of the given order.
    #[inline(always)]
    fn each<T: Real>(&self, grid: &[T], order: Order, mut f: impl FnMut(usize, T, [T; 3])) {
        let [z, y, x] = self.point(grid);
        let [(kz, lz), (ky, ly), (kx, lx)] = order.map(|k| (k.min(4), (k + 1).min(4)));
        for (iz, wz) in &z.at[..z.n] {
            for (iy, wy) in &y.at[..y.n] {
                for (ix, wx) in &x.at[..x.n] {
                    if let (Some(iz), Some(iy), Some(ix)) = (iz, iy, ix) {
                        let at = (iz * self.input[1] + iy) * self.input[2] + ix;
                        let (z, y, x) = (wz[kz], wy[ky], wx[kx]);
                        f(at, z * y * x, [wz[lz] * y * x, z * wy[ly] * x, z * y * wx[lx]]);
                    }
                }
            }
        }
    }

    fn check(&self, x: usize, grid: usize, out: usize) {
        assert!(matches!(self.dims, 2 | 3), "two or three dimensions");
        assert_eq!(x, self.batch * self.channels * self.in_plane());
        assert_eq!(grid, self.batch * self.points * self.dims);
        assert_eq!(out, self.batch * self.channels * self.points);
    }
}

/// A whole position as an index, if it is inside.
fn inside(v: f64, size: usize) -> Option<usize> {
    (v >= 0.0 && v < size as f64).then_some(v as usize)
}

fn clip<T: Real>((v, slope): Dual<T>, size: usize) -> Dual<T> {
    let last = T::from_i64(size as i64 - 1);
    if v <= T::ZERO {
        (T::ZERO, T::ZERO)
    } else if v >= last {
        (last, T::ZERO)
    } else {
        (v, slope)
    }
}

/// Weights of cubic convolution (coefficient -0.75) and their derivatives, for a point `t` beyond the second of four pixels.
fn cubic<T: Real>(t: T) -> [Jet<T>; 4] {
    let of = T::from_f64;
    // c[0] x^3 + c[1] x^2 + c[2] x + c[3]
    let jet = |c: [f64; 4], x: T| {
        let [a, b, c, d] = c.map(of);
        let (two, three, six) = (of(2.0), of(3.0), of(6.0));
        let value = ((a * x + b) * x + c) * x + d;
        [value, (three * a * x + two * b) * x + c, six * a * x + two * b, six * a, T::ZERO]
    };
    let near = |x: T| jet([1.25, -2.25, 0.0, 1.0], x);
    let far = |x: T| jet([-0.75, 3.75, -6.0, 3.0], x);
    let (u, back) = (T::ONE - t, |[v, s, c, j, z]: Jet<T>| [v, -s, c, -j, z]);
    [far(t + T::ONE), near(t), back(near(u)), back(far(u + T::ONE))]
}

/// Points that are worth a thread.
const GRAIN: usize = 256;

/// How often to differentiate by z, y and x of the grid.
pub type Order = [usize; 3];

/// `out[n, c, point]`: the input of channel `c` at each point of the grid, or a derivative of that by the point.
pub fn grid_sample(s: &GridSample, order: Order, x: View<'_>, grid: View<'_>, out: ViewMut<'_>) {
    s.check(x.numel(), grid.numel(), out.numel());
    with_real!(x.dtype(), T => {
        let (x, grid) = (reals::<T>(x), reals::<T>(grid));
        let mut out = RealsMut::<T>::zeroed(out);
        let (to, plane) = (Ptr::new(&mut out), s.in_plane());
        parallel::split(s.batch * s.points, GRAIN, |r| {
            for i in r {
                let (n, p) = (i / s.points, i % s.points);
                s.each(&grid[i * s.dims..][..s.dims], order, |at, weight, _| {
                    for c in n * s.channels..(n + 1) * s.channels {
                        // SAFETY: inside `out`; no other step writes this point.
                        unsafe { *to.at(c * s.points + p) += weight * x[c * plane + at] };
                    }
                });
            }
        });
        out.finish();
    })
}

/// Gradient of [`grid_sample`] with respect to the input.
pub fn grid_sample_grad_input(s: &GridSample, order: Order, dy: View<'_>, grid: View<'_>, dx: ViewMut<'_>) {
    s.check(dx.numel(), grid.numel(), dy.numel());
    with_real!(dy.dtype(), T => {
        let (dy, grid) = (reals::<T>(dy), reals::<T>(grid));
        let mut dx = RealsMut::<T>::zeroed(dx);
        let (to, plane) = (Ptr::new(&mut dx), s.in_plane());
        // Few channels at a time: their planes are added to by this thread alone.
        parallel::split(s.batch * s.channels, 4, |r| {
            for n in r.start / s.channels..r.end.div_ceil(s.channels) {
                let channels = r.start.max(n * s.channels)..r.end.min((n + 1) * s.channels);
                for p in 0..s.points {
                    s.each(&grid[(n * s.points + p) * s.dims..][..s.dims], order, |at, weight, _| {
                        for c in channels.clone() {
                            // SAFETY: inside the plane of channel `c`, which belongs to this range.
                            unsafe { *to.at(c * plane + at) += weight * dy[c * s.points + p] };
                        }
                    });
                }
            }
        });
        dx.finish();
    })
}

/// Gradient of [`grid_sample`] with respect to the grid.
pub fn grid_sample_grad_grid(
    s: &GridSample,
    order: Order,
    dy: View<'_>,
    x: View<'_>,
    grid: View<'_>,
    dgrid: ViewMut<'_>,
) {
    s.check(x.numel(), grid.numel(), dy.numel());
    assert_eq!(dgrid.numel(), grid.numel());
    with_real!(x.dtype(), T => {
        let (dy, x, grid) = (reals::<T>(dy), reals::<T>(x), reals::<T>(grid));
        let mut dgrid = RealsMut::<T>::new(dgrid);
        let (to, plane) = (Ptr::new(&mut dgrid), s.in_plane());
        parallel::split(s.batch * s.points, GRAIN, |r| {
            for i in r {
                let (n, p) = (i / s.points, i % s.points);
                let mut sums = [T::ZERO; 3];
                s.each(&grid[i * s.dims..][..s.dims], order, |at, _, slopes| {
                    let value = (n * s.channels..(n + 1) * s.channels)
                        .fold(T::ZERO, |sum, c| sum + dy[c * s.points + p] * x[c * plane + at]);
                    sums.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope * value);
                });
                // SAFETY: inside `dgrid`; no other step writes this point.
                let to = unsafe { to.slice(i * s.dims, s.dims) };
                to.iter_mut().zip(sums.iter().rev()).for_each(|(to, sum)| *to = *sum);
            }
        });
        dgrid.finish();
    })
}

#[cfg(test)]
mod tests;
