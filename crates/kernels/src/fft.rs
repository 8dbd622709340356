//! Fourier transforms along one dimension, line by line, through the `rustfft` crate.
//!
//! Nothing is normalized here, and a plan is made once for each length. Lines are independent, so results are bit-equal
//! for any number of threads; the crate chooses its instruction set itself.
#![allow(unsafe_code)]

use crate::along::Along;
use crate::{Complex, DType, Element, View, ViewMut, parallel, scratch};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Elements that are worth a thread.
const GRAIN: usize = 1 << 13;

/// A float type with a planner of its own.
trait Planned: FftNum + Element {
    fn planner() -> &'static Mutex<FftPlanner<Self>>;
}

macro_rules! planned {
    ($($t:ty)*) => {$(
        impl Planned for $t {
            fn planner() -> &'static Mutex<FftPlanner<$t>> {
                static PLANNER: LazyLock<Mutex<FftPlanner<$t>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));
                &PLANNER
            }
        }
    )*};
}
planned!(f32 f64);

fn plan<T: Planned>(n: usize, forward: bool) -> Arc<dyn Fft<T>> {
    let direction = if forward { FftDirection::Forward } else { FftDirection::Inverse };
    // Tables of a plan are made by `rustfft`, which takes memory for granted; they are at most about four lines long.
    if n > 1 << 16 {
        drop(scratch::room::<Complex<T>>(4 * n));
    }
    T::planner().lock().unwrap_or_else(PoisonError::into_inner).plan_fft(n, direction)
}

/// Transforms complex numbers along `dim`, in place.
pub fn c2c(data: ViewMut<'_>, dim: usize, forward: bool) {
    match data.dtype() {
        DType::C64 => in_place::<f32>(data, dim, forward),
        d => {
            assert_eq!(d, DType::C128, "complex numbers");
            in_place::<f64>(data, dim, forward)
        }
    }
}

/// The inverse transform of the first half of a Hermitian spectrum along `dim`: real values.
/// `out` determines how many there are; imaginary parts that a Hermitian spectrum cannot have are ignored.
pub fn c2r(input: View<'_>, dim: usize, out: ViewMut<'_>) {
    match out.dtype() {
        DType::F32 => to_real::<f32>(input, dim, out),
        d => {
            assert_eq!(d, DType::F64, "real numbers");
            to_real::<f64>(input, dim, out)
        }
    }
}

fn in_place<T: Planned>(data: ViewMut<'_>, dim: usize, forward: bool)
where
    Complex<T>: Element,
{
    if data.numel() == 0 {
        return;
    }
    let along = Along::new(data.sizes(), [data.strides()], dim);
    let (n, step) = (along.len, along.step[0]);
    let fft = plan::<T>(n, forward);
    let base = data.ptr::<Complex<T>>() as usize;
    parallel::split(along.lines, (GRAIN / n).max(1), |range| {
        let zero = Complex::new(T::zero(), T::zero());
        let mut line = scratch::filled(zero, n);
        let mut work = scratch::filled(zero, fft.get_inplace_scratch_len());
        for k in range {
            let [at] = along.line(k);
            let first = (base as *mut Complex<T>).wrapping_add(at);
            for (i, v) in line.iter_mut().enumerate() {
                // SAFETY: element `i` of line `k` lies inside the view, and no other thread has this line.
                *v = unsafe { *first.add(i * step) };
            }
            fft.process_with_scratch(&mut line, &mut work);
            for (i, v) in line.iter().enumerate() {
                // SAFETY: as above.
                unsafe { *first.add(i * step) = *v }
            }
        }
    });
}

fn to_real<T: Planned>(input: View<'_>, dim: usize, out: ViewMut<'_>)
where
    Complex<T>: Element,
{
    let n = out.sizes()[dim];
    let half = n / 2 + 1;
    assert!(input.sizes()[dim] >= half, "half of the spectrum");
    if out.numel() == 0 {
        return;
    }
    // Lines of both lie where their first elements lie.
    let mut firsts: smallvec::SmallVec<[usize; 8]> = out.sizes().into();
    firsts[dim] = 1;
    let along = Along::new(&firsts, [input.strides(), out.strides()], dim);
    let (from, to) = (input.strides()[dim], out.strides()[dim]);
    let fft = plan::<T>(n, false);
    let (source, target) = (input.ptr::<Complex<T>>() as usize, out.ptr::<T>() as usize);
    parallel::split(along.lines, (GRAIN / n).max(1), |range| {
        let zero = Complex::new(T::zero(), T::zero());
        let mut line = scratch::filled(zero, n);
        let mut work = scratch::filled(zero, fft.get_inplace_scratch_len());
        for k in range {
            let [i, o] = along.line(k);
            let first = (source as *const Complex<T>).wrapping_add(i);
            for (j, v) in line[..half].iter_mut().enumerate() {
                // SAFETY: `half` elements of the line lie inside the input.
                *v = unsafe { *first.add(j * from) };
            }
            line[0].im = T::zero();
            if n.is_multiple_of(2) {
                line[n / 2].im = T::zero();
            }
            for j in half..n {
                line[j] = line[n - j].conj();
            }
            fft.process_with_scratch(&mut line, &mut work);
            let first = (target as *mut T).wrapping_add(o);
            for (j, v) in line.iter().enumerate() {
                // SAFETY: element `j` of line `k` lies inside the output, and no other thread has this line.
                unsafe { *first.add(j * to) = v.re }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    /// Against the definition, for lengths with large prime factors too, along both dimensions.
    #[test]
    fn transforms_follow_their_definition() {
        for n in [1usize, 2, 3, 5, 8, 12, 31] {
            let x: Vec<Complex<f64>> =
                (0..3 * n).map(|k| Complex::new((k * 7 % 11) as f64 - 4.0, (k * 5 % 13) as f64 / 3.0)).collect();
            for (sizes, strides, dim) in [([3, n], [n, 1], 1usize), ([n, 3], [3, 1], 0)] {
                for forward in [true, false] {
                    let mut y = x.clone();
                    // SAFETY: all elements lie in the vector, which is ours.
                    let view = unsafe { ViewMut::new(y.as_mut_ptr().cast(), DType::C128, &sizes, &strides) };
                    c2c(view, dim, forward);
                    for line in 0..3 {
                        let at = |k: usize| if dim == 1 { line * n + k } else { k * 3 + line };
                        for k in 0..n {
                            let sign = if forward { -TAU } else { TAU };
                            let want: Complex<f64> = (0..n)
                                .map(|j| x[at(j)] * Complex::from_polar(1.0, sign * (j * k % n) as f64 / n as f64))
                                .sum();
                            assert!((y[at(k)] - want).norm() < 1e-11, "{n} {dim} {forward}");
                        }
                    }
                }
            }
        }
    }
}
