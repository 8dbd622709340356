//! Resizing of planes: nearest, nearest-exact, linear (1 to 3 dimensions) and cubic, forward and backward.
//!
//! Every mode is a few weighted source positions per output position and dimension (`Axis`), with PyTorch's formulas.
//! Forward first mixes source rows, then columns; backward runs the same in reverse. Memory is contiguous planes
//! (`batch * channels`), threads share them out, so results do not depend on how many there are.
#![allow(unsafe_code)]

use crate::real::{Ptr, Real, RealsMut, Scratch, per_isa, reals, with_real};
use crate::{View, ViewMut, parallel, scratch};

/// The interpolation mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The pixel at `floor(dst * scale)`.
    Nearest,
    /// The pixel whose centre is nearest.
    NearestExact,
    /// The two neighbors in each dimension.
    Linear {
        /// Corner pixels map to corner pixels, instead of edges to edges.
        align_corners: bool,
    },
    /// The four neighbors in each dimension, cubic convolution with coefficient -0.75.
    Cubic {
        /// Corner pixels map to corner pixels, instead of edges to edges.
        align_corners: bool,
    },
}

/// Source positions and weights of each output position of one dimension; unused ones have weight 0.
struct Axis<T> {
    input: usize,
    taps: usize,
    at: Vec<([usize; 4], [T; 4])>,
}

impl<T: Real> Axis<T> {
    fn new(mode: Mode, input: usize, output: usize, scale: Option<f64>) -> Axis<T> {
        let taps = match mode {
            Mode::Nearest | Mode::NearestExact => 1,
            Mode::Linear { .. } => 2,
            Mode::Cubic { .. } => 4,
        };
        let at = (0..output).map(|o| {
            let mut weights = [T::ZERO; 4];
            let at = match mode {
                Mode::Nearest | Mode::NearestExact => {
                    weights[0] = T::ONE;
                    [nearest::<T>(mode, o, input, output, scale); 4]
                }
                Mode::Linear { .. } if input == output => {
                    weights[0] = T::ONE;
                    [o; 4]
                }
                Mode::Linear { align_corners } => {
                    let source = source::<T>(o, input, output, align_corners, scale);
                    let source = if source < T::ZERO { T::ZERO } else { source };
                    let first = (source.to_f64() as usize).min(input - 1);
                    weights[1] = fraction(source, first as i64);
                    weights[0] = T::ONE - weights[1];
                    let second = (first + 1).min(input - 1);
                    [first, second, second, second]
                }
                Mode::Cubic { align_corners } => {
                    let source = source::<T>(o, input, output, align_corners, scale);
                    let first = (source.to_f64().floor() as i64).min(input as i64 - 1);
                    weights = cubic(fraction(source, first));
                    [-1, 0, 1, 2].map(|d| (first + d).clamp(0, input as i64 - 1) as usize)
                }
            };
            (at, weights)
        });
        Axis { input, taps, at: scratch::collected(at) }
    }
}

/// The nearest source position, rounded exactly where PyTorch rounds: at ties a last bit decides.
fn nearest<T: Real>(mode: Mode, o: usize, input: usize, output: usize, scale: Option<f64>) -> usize {
    let scale = scale_of::<T>(input, output, scale);
    let source = if mode == Mode::NearestExact {
        // The product is not rounded by itself (in f64 an f32 product is exact).
        let source = T::from_f64(scale.to_f64() * (o as f64 + 0.5) - 0.5);
        (source.to_f64() as f32).max(0.0) + 0.5
    } else {
        (scale * T::from_i64(o as i64)).to_f64() as f32
    };
    (source.floor() as usize).min(input - 1)
}

/// Input pixels an output pixel advances.
fn scale_of<T: Real>(input: usize, output: usize, scale: Option<f64>) -> T {
    match scale {
        Some(s) if s > 0.0 => T::from_f64(1.0 / s),
        _ => T::from_i64(input as i64) / T::from_i64(output as i64),
    }
}

/// The position in the input that an output position maps to.
fn source<T: Real>(o: usize, input: usize, output: usize, align_corners: bool, scale: Option<f64>) -> T {
    let of = |v: usize| T::from_i64(v as i64);
    if align_corners {
        let scale = if output > 1 { of(input - 1) / of(output - 1) } else { T::ZERO };
        return scale * of(o);
    }
    let half = T::from_f64(0.5);
    scale_of::<T>(input, output, scale) * (of(o) + half) - half
}

/// How far `source` lies beyond `first`, between 0 and 1.
fn fraction<T: Real>(source: T, first: i64) -> T {
    let f = source - T::from_i64(first);
    if f < T::ZERO {
        T::ZERO
    } else if f > T::ONE {
        T::ONE
    } else {
        f
    }
}

/// Weights of cubic convolution for a point `t` beyond the second of four pixels.
fn cubic<T: Real>(t: T) -> [T; 4] {
    let of = T::from_f64;
    let a = of(-0.75);
    let near = |x: T| ((a + of(2.0)) * x - (a + of(3.0))) * x * x + T::ONE;
    let far = |x: T| ((a * x - of(5.0) * a) * x + of(8.0) * a) * x - of(4.0) * a;
    let u = T::ONE - t;
    [far(t + T::ONE), near(t), near(u), far(u + T::ONE)]
}

fn axes<T: Real>(mode: Mode, input: &[usize], output: &[usize], scales: &[Option<f64>]) -> [Axis<T>; 3] {
    let skip = 3 - input.len();
    std::array::from_fn(|d| match d.checked_sub(skip) {
        Some(d) => Axis::new(mode, input[d], output[d], scales.get(d).copied().flatten()),
        None => Axis::new(Mode::Nearest, 1, 1, None),
    })
}

/// Resizes `planes` planes from `input` to `output` sizes (one to three dimensions). `scales` are the factors the user
/// gave, if any: they, not the sizes, then say where pixels come from.
pub fn upsample(
    mode: Mode,
    planes: usize,
    input: &[usize],
    output: &[usize],
    scales: &[Option<f64>],
    x: View<'_>,
    out: ViewMut<'_>,
) {
    if out.numel() == 0 {
        return; // without planes there is no limit to their sizes
    }
    let (plane, pixels): (usize, usize) = (input.iter().product(), output.iter().product());
    assert!(x.numel() == planes * plane && out.numel() == planes * pixels);
    with_real!(x.dtype(), T => {
        let axes = axes::<T>(mode, input, output, scales);
        let x = reals::<T>(x);
        let mut out = RealsMut::<T>::new(out);
        let to = Ptr::new(&mut out);
        parallel::split(planes, (1 << 14) / (plane + pixels) + 1, |r| {
            for p in r {
                // SAFETY: one plane a step.
                resize(&axes, &x[p * plane..][..plane], unsafe { to.slice(p * pixels, pixels) });
            }
        });
        out.finish();
    })
}

/// Gradient of [`upsample`]: the same sizes, from `dy` back to `dx`.
pub fn upsample_backward(
    mode: Mode,
    planes: usize,
    input: &[usize],
    output: &[usize],
    scales: &[Option<f64>],
    dy: View<'_>,
    dx: ViewMut<'_>,
) {
    if dx.numel() == 0 {
        return;
    }
    let (plane, pixels): (usize, usize) = (input.iter().product(), output.iter().product());
    assert!(dx.numel() == planes * plane && dy.numel() == planes * pixels);
    with_real!(dy.dtype(), T => {
        let axes = axes::<T>(mode, input, output, scales);
        let dy = reals::<T>(dy);
        let mut dx = RealsMut::<T>::zeroed(dx);
        let to = Ptr::new(&mut dx);
        parallel::split(planes, (1 << 14) / (plane + pixels) + 1, |r| {
            for p in r {
                // SAFETY: one plane a step.
                resize_backward(&axes, &dy[p * pixels..][..pixels], unsafe { to.slice(p * plane, plane) });
            }
        });
        dx.finish();
    })
}

/// Calls `f(first element of a source row, weight)` for the rows that make up output row `(oz, oy)`.
#[inline(always)]
fn sources<T: Real>([z, y, x]: &[Axis<T>; 3], oz: usize, oy: usize, mut f: impl FnMut(usize, T)) {
    for i in 0..z.taps {
        for j in 0..y.taps {
            let ((az, wz), (ay, wy)) = (&z.at[oz], &y.at[oy]);
            f((az[i] * y.input + ay[j]) * x.input, wz[i] * wy[j]);
        }
    }
}

per_isa! {
    fn resize<T: Real>(axes: &[Axis<T>; 3], x: &[T], out: &mut [T]) {
        let [z, y, w] = axes;
        let mut mixed = Scratch::<T>::new(w.input);
        for (row, out) in out.chunks_exact_mut(w.at.len()).enumerate() {
            let mut first = true;
            sources(axes, row / y.at.len(), row % y.at.len(), |at, weight| {
                let from = &x[at..at + w.input];
                if z.taps == 1 && y.taps == 1 {
                    mixed.copy_from_slice(from);
                } else if first {
                    mixed.iter_mut().zip(from).for_each(|(m, &v)| *m = weight * v);
                } else if weight != T::ZERO {
                    mixed.iter_mut().zip(from).for_each(|(m, &v)| *m += weight * v);
                }
                first = false;
            });
            let mixed = &mixed[..];
            match w.taps {
                1 => out.iter_mut().zip(&w.at).for_each(|(o, (at, _))| *o = mixed[at[0]]),
                2 => out.iter_mut().zip(&w.at).for_each(|(o, (at, c))| {
                    *o = c[0] * mixed[at[0]] + c[1] * mixed[at[1]];
                }),
                _ => out.iter_mut().zip(&w.at).for_each(|(o, (at, c))| {
                    *o = c[0] * mixed[at[0]] + c[1] * mixed[at[1]] + c[2] * mixed[at[2]] + c[3] * mixed[at[3]];
                }),
            }
        }
    }
}

per_isa! {
    fn resize_backward<T: Real>(axes: &[Axis<T>; 3], dy: &[T], dx: &mut [T]) {
        let [_, y, w] = axes;
        let mut mixed = Scratch::<T>::new(w.input);
        for (row, dy) in dy.chunks_exact(w.at.len()).enumerate() {
            mixed.fill(T::ZERO);
            for (&dy, (at, c)) in dy.iter().zip(&w.at) {
                for i in 0..w.taps {
                    mixed[at[i]] += c[i] * dy;
                }
            }
            sources(axes, row / y.at.len(), row % y.at.len(), |at, weight| {
                dx[at..at + w.input].iter_mut().zip(&mixed[..]).for_each(|(d, &m)| *d += weight * m);
            });
        }
    }
}

#[cfg(test)]
mod tests;
