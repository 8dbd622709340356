//! SymInt: a size that is an integer today and may be an expression under capture.
//!
//! One machine word, `Copy`. Integers are stored as they are; the lowest quarter of the range is reserved for indices
//! into an expression table, so that capture can let sizes flow through arithmetic without a different type.
//! Size arguments take anything that implements [`IntoSizes`]: arrays, slices and tuples of integers and `SymInt`s.

use smallvec::SmallVec;

/// A size argument: an integer (or, under capture, an expression).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SymInt(i64);

/// A list of sizes.
pub type SymInts = SmallVec<[SymInt; 5]>;

impl SymInt {
    /// The size 1.
    pub const ONE: SymInt = SymInt(1);

    /// The integer. Under capture this is what a guard is recorded on.
    #[inline]
    pub fn int(self) -> i64 {
        self.0
    }

    /// As an index or length; negative values are the caller's to refuse.
    #[inline]
    pub fn to_usize(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }
}

impl std::fmt::Debug for SymInt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
impl std::fmt::Display for SymInt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! conversions {
    ($($t:ty),*) => {$(
        impl From<$t> for SymInt {
            #[inline]
            fn from(v: $t) -> SymInt { SymInt(v as i64) }
        }
        impl PartialEq<$t> for SymInt {
            fn eq(&self, o: &$t) -> bool { self.0 == *o as i64 }
        }
        impl PartialOrd<$t> for SymInt {
            fn partial_cmp(&self, o: &$t) -> Option<std::cmp::Ordering> { self.0.partial_cmp(&(*o as i64)) }
        }
        impl From<SymInt> for $t {
            /// Panics if the size does not fit.
            fn from(v: SymInt) -> $t { <$t>::try_from(v.0).expect("a size fits the integer type it is converted to") }
        }
    )*};
}
conversions!(i32, u32, usize);

impl From<i64> for SymInt {
    #[inline]
    fn from(v: i64) -> SymInt {
        SymInt(v)
    }
}
impl From<SymInt> for i64 {
    #[inline]
    fn from(v: SymInt) -> i64 {
        v.0
    }
}
impl From<&SymInt> for SymInt {
    fn from(v: &SymInt) -> SymInt {
        *v
    }
}
impl PartialEq<i64> for SymInt {
    fn eq(&self, o: &i64) -> bool {
        self.0 == *o
    }
}
impl PartialOrd<i64> for SymInt {
    fn partial_cmp(&self, o: &i64) -> Option<std::cmp::Ordering> {
        self.0.partial_cmp(o)
    }
}
impl From<SymInt> for crate::Scalar {
    fn from(v: SymInt) -> crate::Scalar {
        crate::Scalar::Int(v.0)
    }
}

macro_rules! arithmetic {
    ($($trait:ident $f:ident $op:tt),*) => {$(
        impl<T: Into<SymInt>> std::ops::$trait<T> for SymInt {
            type Output = SymInt;
            fn $f(self, o: T) -> SymInt { SymInt(self.0 $op o.into().0) }
        }
    )*};
}
arithmetic!(Add add +, Sub sub -, Mul mul *, Div div /, Rem rem %);

impl std::ops::Neg for SymInt {
    type Output = SymInt;
    fn neg(self) -> SymInt {
        SymInt(-self.0)
    }
}

impl std::iter::Product for SymInt {
    fn product<I: Iterator<Item = SymInt>>(iter: I) -> SymInt {
        iter.fold(SymInt(1), |a, b| a * b)
    }
}

impl std::iter::Sum for SymInt {
    fn sum<I: Iterator<Item = SymInt>>(iter: I) -> SymInt {
        iter.fold(SymInt(0), |a, b| a + b)
    }
}

/// What a size argument accepts: arrays, slices, vectors and tuples of integers or [`SymInt`]s, or one number.
pub trait IntoSizes {
    /// The sizes.
    fn into_sizes(self) -> SymInts;
}

impl<T: Into<SymInt>, const N: usize> IntoSizes for [T; N] {
    fn into_sizes(self) -> SymInts {
        self.into_iter().map(Into::into).collect()
    }
}
impl<T: Copy + Into<SymInt>, const N: usize> IntoSizes for &[T; N] {
    fn into_sizes(self) -> SymInts {
        self.iter().map(|&v| v.into()).collect()
    }
}
impl<T: Copy + Into<SymInt>> IntoSizes for &[T] {
    fn into_sizes(self) -> SymInts {
        self.iter().map(|&v| v.into()).collect()
    }
}
impl<T: Copy + Into<SymInt>> IntoSizes for &Vec<T> {
    fn into_sizes(self) -> SymInts {
        self.iter().map(|&v| v.into()).collect()
    }
}
impl<T: Into<SymInt>> IntoSizes for Vec<T> {
    fn into_sizes(self) -> SymInts {
        self.into_iter().map(Into::into).collect()
    }
}
impl IntoSizes for SymInts {
    fn into_sizes(self) -> SymInts {
        self
    }
}
impl IntoSizes for &SymInts {
    fn into_sizes(self) -> SymInts {
        self.clone()
    }
}
impl IntoSizes for () {
    fn into_sizes(self) -> SymInts {
        SymInts::new()
    }
}

macro_rules! single {
    ($($t:ty),*) => {$(
        impl IntoSizes for $t {
            fn into_sizes(self) -> SymInts { smallvec::smallvec![self.into()] }
        }
    )*};
}
single!(i32, u32, i64, usize, SymInt);

macro_rules! tuples {
    ($(($($t:ident $n:tt),+)),*) => {$(
        impl<$($t: Into<SymInt>),+> IntoSizes for ($($t,)+) {
            fn into_sizes(self) -> SymInts { smallvec::smallvec![$(self.$n.into()),+] }
        }
    )*};
}
tuples!((A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3), (A 0, B 1, C 2, D 3, E 4), (A 0, B 1, C 2, D 3, E 4, F 5));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_an_integer() {
        let n = SymInt::from(6);
        assert_eq!(n / 2 + 1 - 4, 0);
        assert!(n > 5 && n < 7usize);
        assert_eq!([1, 2, 3, 4, 5, 6, 7][usize::from(n)], 7);
        assert_eq!((n, -1).into_sizes().as_slice(), &[SymInt::from(6), SymInt::from(-1)]);
    }
}
