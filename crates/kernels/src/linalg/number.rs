//! The element types that matrices are decomposed in.

use super::library::Field;
use crate::{Complex, Element};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A real or complex number.
pub trait Number:
    Field
    + Element
    + Default
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Nothing.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Whether there are imaginary parts.
    const COMPLEX: bool;
    /// The relative distance of neighboring numbers.
    const EPSILON: f64;

    /// A real number.
    fn real(x: f64) -> Self;
    /// The real part.
    fn re(self) -> f64;
    /// The imaginary part.
    fn im(self) -> f64;
    /// The conjugate.
    fn conj(self) -> Self;
    /// The absolute value.
    fn size(self) -> f64;

    /// A complex number of this precision, in f64.
    fn widen(x: Complex<Self::Real>) -> Complex<f64>;
    /// A complex number rounded to this precision.
    fn narrow(x: Complex<f64>) -> Complex<Self::Real>;

    /// What pivots are chosen by: the sum of the absolute parts.
    #[inline(always)]
    fn weight(self) -> f64 {
        self.re().abs() + self.im().abs()
    }

    /// Where the first of the heaviest numbers is ([`Number::weight`]). One that cannot be compared counts only if it is the first.
    #[inline(always)]
    fn heaviest(x: &[Self]) -> usize {
        let mut most = 0;
        for (i, candidate) in x.iter().enumerate() {
            if candidate.weight() > x[most].weight() {
                most = i;
            }
        }
        most
    }

    /// Neither infinite nor NaN.
    #[inline(always)]
    fn finite(self) -> bool {
        self.re().is_finite() && self.im().is_finite()
    }
}

macro_rules! real {
    ($($t:ty),*) => {$(
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const COMPLEX: bool = false;
            const EPSILON: f64 = <$t>::EPSILON as f64;

            #[inline(always)]
            fn real(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn re(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn im(self) -> f64 {
                0.0
            }
            #[inline(always)]
            fn conj(self) -> Self {
                self
            }
            #[inline(always)]
            fn size(self) -> f64 {
                self.abs() as f64
            }
            #[inline(always)]
            fn heaviest(x: &[$t]) -> usize {
                // By lanes, so that it vectorises: the largest, then where it is.
                const LANES: usize = 32;
                let (chunks, rest) = x.as_chunks::<LANES>();
                if chunks.is_empty() {
                    return (0..x.len()).fold(0, |most, i| if x[i].abs() > x[most].abs() { i } else { most });
                }
                let larger = |most: $t, x: $t| if x.abs() > most { x.abs() } else { most };
                let mut largest = [0.0; LANES];
                for chunk in chunks {
                    largest.iter_mut().zip(chunk).for_each(|(most, x)| *most = larger(*most, *x));
                }
                let mut lanes = LANES;
                while lanes > 1 {
                    lanes /= 2;
                    (0..lanes).for_each(|i| largest[i] = larger(largest[i], largest[i + lanes]));
                }
                let most = rest.iter().fold(largest[0], |most, x| larger(most, *x));
                if x[0].is_nan() || most == 0.0 {
                    return 0;
                }
                let here = |x: &$t| x.abs() == most;
                let before = chunks.iter().position(|chunk| chunk.iter().fold(false, |found, x| found | here(x)));
                let from = before.unwrap_or(chunks.len()) * LANES;
                from + x[from..].iter().position(here).unwrap_or(0)
            }
            #[inline(always)]
            fn widen(x: Complex<$t>) -> Complex<f64> {
                Complex { re: x.re as f64, im: x.im as f64 }
            }
            #[inline(always)]
            fn narrow(x: Complex<f64>) -> Complex<$t> {
                Complex { re: x.re as $t, im: x.im as $t }
            }
        }
    )*};
}

real!(f32, f64);

impl Number for Complex<f64> {
    const ZERO: Self = Complex { re: 0.0, im: 0.0 };
    const ONE: Self = Complex { re: 1.0, im: 0.0 };
    const COMPLEX: bool = true;
    const EPSILON: f64 = f64::EPSILON;

    #[inline(always)]
    fn real(x: f64) -> Self {
        Complex { re: x, im: 0.0 }
    }
    #[inline(always)]
    fn re(self) -> f64 {
        self.re
    }
    #[inline(always)]
    fn im(self) -> f64 {
        self.im
    }
    #[inline(always)]
    fn conj(self) -> Self {
        Complex { re: self.re, im: -self.im }
    }
    #[inline(always)]
    fn size(self) -> f64 {
        self.re.hypot(self.im)
    }
    #[inline(always)]
    fn widen(x: Self) -> Self {
        x
    }
    #[inline(always)]
    fn narrow(x: Self) -> Self {
        x
    }
}
