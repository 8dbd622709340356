//! Argument types for methods whose PyTorch counterparts accept several types: dimensions, a tensor or a number, an optional number.
//!
//! Conversions only; the op decides what an argument means. The functions of `ops` take plain types.

use crate::{Scalar, Tensor};
use smallvec::SmallVec;
use std::ops::{Deref, RangeFull};

/// A list of integers, mostly dimensions.
pub type Ints = SmallVec<[i64; 6]>;

/// Dimensions, or any other list of integers (strides, kernel sizes): `1`, `[0, 2]`, a slice or a `Vec`.
pub trait IntoDims {
    /// The list.
    fn into_dims(self) -> Ints;
}

/// Optional dimensions: anything that converts [`IntoDims`], `..` for all of them, or an `Option`.
pub trait IntoOptionalDims {
    /// The list; `None` for all dimensions.
    fn into_optional_dims(self) -> Option<Ints>;
}

impl IntoOptionalDims for RangeFull {
    fn into_optional_dims(self) -> Option<Ints> {
        None
    }
}
// The only implementation for an option, so that a bare `None` needs no type.
impl IntoOptionalDims for Option<&[i64]> {
    fn into_optional_dims(self) -> Option<Ints> {
        self.map(Ints::from_slice)
    }
}

/// An integer that names a dimension, from the front or, if negative, from the back.
pub trait Dim: Copy {
    /// The dimension.
    fn dim(self) -> i64;
}

macro_rules! dim {
    ($($t:ty),*) => {$(
        impl Dim for $t {
            #[inline]
            fn dim(self) -> i64 {
                // What is beyond i64 is beyond every dimension: it is refused as i64::MAX is.
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
dim!(i64, i32, u32, usize);

macro_rules! dims {
    ($([$($generics:tt)*] $t:ty, |$x:ident| $list:expr;)*) => {$(
        impl<D: Dim, $($generics)*> IntoDims for $t {
            #[inline]
            fn into_dims(self) -> Ints {
                let $x = self;
                $list
            }
        }
        impl<D: Dim, $($generics)*> IntoOptionalDims for $t {
            #[inline]
            fn into_optional_dims(self) -> Option<Ints> {
                Some(self.into_dims())
            }
        }
    )*};
}
dims! {
    [] D, |d| Ints::from_slice(&[d.dim()]);
    [const N: usize] [D; N], |d| d.into_iter().map(Dim::dim).collect();
    [const N: usize] &[D; N], |d| d.iter().map(|d| d.dim()).collect();
    [] &[D], |d| d.iter().map(|d| d.dim()).collect();
    [] Vec<D>, |d| d.into_iter().map(Dim::dim).collect();
    [] &Vec<D>, |d| d.iter().map(|d| d.dim()).collect();
}

/// The other operand of an op that takes a tensor or a number.
#[derive(Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number, weak in type promotion.
    Scalar(Scalar),
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    #[inline]
    fn from(t: &'a Tensor) -> Operand<'a> {
        Operand::Tensor(t)
    }
}
/// Parameters and anything else that dereferences to a tensor.
impl<'a, T: Deref<Target = Tensor>> From<&'a T> for Operand<'a> {
    #[inline]
    fn from(t: &'a T) -> Operand<'a> {
        Operand::Tensor(t)
    }
}

/// An optional number: the number itself, or an `Option` of a [`Scalar`].
pub trait IntoOptionalScalar {
    /// The number, if there is one.
    fn into_optional_scalar(self) -> Option<Scalar>;
}
// The only implementation for an option, so that a bare `None` needs no type.
impl IntoOptionalScalar for Option<Scalar> {
    fn into_optional_scalar(self) -> Option<Scalar> {
        self
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl From<$t> for Operand<'_> {
            #[inline]
            fn from(v: $t) -> Self {
                Operand::Scalar(v.into())
            }
        }
        impl IntoOptionalScalar for $t {
            fn into_optional_scalar(self) -> Option<Scalar> {
                Some(self.into())
            }
        }
    )*};
}
numbers!(Scalar, f64, f32, i64, i32, usize, bool);
