//! Combining two elements of one dtype, rounding after every step as PyTorch's scatter and index_add do.

use crate::{Complex, DType, Element, Truth, bf16, f16};

pub(crate) trait Arithmetic: Element {
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;
    const HIGHEST: Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The larger one; NaN if either is.
    fn larger(self, other: Self) -> Self;
    /// The smaller one; NaN if either is.
    fn smaller(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Arithmetic for $t {
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const LOWEST: $t = <$t>::MIN;
            const HIGHEST: $t = <$t>::MAX;
            #[inline(always)]
            fn plus(self, other: $t) -> $t { self.wrapping_add(other) }
            #[inline(always)]
            fn times(self, other: $t) -> $t { self.wrapping_mul(other) }
            #[inline(always)]
            fn larger(self, other: $t) -> $t { Ord::max(self, other) }
            #[inline(always)]
            fn smaller(self, other: $t) -> $t { Ord::min(self, other) }
        }
    )*};
}
integers!(u8 i8 i16 i32 i64);

impl Arithmetic for Truth {
    const ZERO: Truth = Truth::new(false);
    const ONE: Truth = Truth::new(true);
    const LOWEST: Truth = Truth::new(false);
    const HIGHEST: Truth = Truth::new(true);
    #[inline(always)]
    fn plus(self, other: Truth) -> Truth {
        (self.get() | other.get()).into()
    }
    #[inline(always)]
    fn times(self, other: Truth) -> Truth {
        (self.get() & other.get()).into()
    }
    #[inline(always)]
    fn larger(self, other: Truth) -> Truth {
        self.plus(other)
    }
    #[inline(always)]
    fn smaller(self, other: Truth) -> Truth {
        self.times(other)
    }
}

macro_rules! floats {
    ($($t:ty, $zero:expr, $one:expr;)*) => {$(
        impl Arithmetic for $t {
            const ZERO: $t = $zero;
            const ONE: $t = $one;
            const LOWEST: $t = <$t>::NEG_INFINITY;
            const HIGHEST: $t = <$t>::INFINITY;
            #[inline(always)]
            fn plus(self, other: $t) -> $t { self + other }
            #[inline(always)]
            fn times(self, other: $t) -> $t { self * other }
            #[inline(always)]
            fn larger(self, other: $t) -> $t { if self > other || self.is_nan() { self } else { other } }
            #[inline(always)]
            fn smaller(self, other: $t) -> $t { if self < other || self.is_nan() { self } else { other } }
        }
    )*};
}
floats! {
    f16, f16::ZERO, f16::ONE;
    bf16, bf16::ZERO, bf16::ONE;
    f32, 0.0, 1.0;
    f64, 0.0, 1.0;
}

/// Complex numbers add and multiply; they have no order, and ops that need one are rejected earlier.
macro_rules! complexes {
    ($($t:ty)*) => {$(
        impl Arithmetic for Complex<$t> {
            const ZERO: Self = Complex::new(0.0, 0.0);
            const ONE: Self = Complex::new(1.0, 0.0);
            const LOWEST: Self = Complex::new(<$t>::NEG_INFINITY, 0.0);
            const HIGHEST: Self = Complex::new(<$t>::INFINITY, 0.0);
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            fn larger(self, _: Self) -> Self { unreachable!("complex numbers have no order") }
            fn smaller(self, _: Self) -> Self { unreachable!("complex numbers have no order") }
        }
    )*};
}
complexes!(f32 f64);

/// `alpha` as the factor of an element: floats from the float, integers from the integer.
pub(super) fn factor<T: Element>(alpha: f64) -> T {
    if T::DTYPE == DType::Bool || T::DTYPE.is_integer() { T::from_i64(alpha as i64) } else { T::from_f64(alpha) }
}
