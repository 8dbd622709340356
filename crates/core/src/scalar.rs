//! Scalar: a number outside a tensor, which keeps its kind for type promotion.

use crate::DType;
use firebrand_kernels::{Complex, bf16, f16};

/// A scalar argument of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating point number.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

impl Scalar {
    /// As a float; the real part of a complex number.
    #[inline]
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
            Scalar::Complex(c) => c.re,
        }
    }

    /// As a complex number.
    #[inline]
    pub fn to_complex(self) -> Complex<f64> {
        if let Scalar::Complex(c) = self { c } else { Complex::new(self.to_f64(), 0.0) }
    }

    /// Its conjugate.
    #[inline]
    pub fn conj(self) -> Scalar {
        if let Scalar::Complex(c) = self { Scalar::Complex(c.conj()) } else { self }
    }

    /// Whether it is a complex number.
    #[inline]
    pub fn is_complex(self) -> bool {
        matches!(self, Scalar::Complex(_))
    }

    /// As an integer, truncating.
    #[inline]
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::Float(f) => f as i64,
            Scalar::Complex(c) => c.re as i64,
        }
    }

    /// Whether it is not zero.
    #[inline]
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(c) => c != Complex::ZERO,
        }
    }

    /// The dtype of a tensor made from it alone: bool, i64, the default float type or its complex type.
    #[inline]
    pub fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => crate::dtype::default_dtype(),
            Scalar::Complex(_) => crate::dtype::default_dtype().to_complex(),
        }
    }

    /// The widest dtype of its kind: bool, i64, f64 or complex128.
    #[inline]
    pub fn dtype_of_kind(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => DType::F64,
            Scalar::Complex(_) => DType::C128,
        }
    }

    /// Equal to this number, whatever its kind.
    #[inline]
    pub fn equals(self, v: f64) -> bool {
        self.to_complex() == Complex::new(v, 0.0)
    }

    /// Whether it is a float or a complex number.
    #[inline]
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::Float(_) | Scalar::Complex(_))
    }

    /// Its negative; a bool becomes an integer.
    #[inline]
    pub fn negated(self) -> Scalar {
        match self {
            Scalar::Float(f) => Scalar::Float(-f),
            Scalar::Complex(c) => Scalar::Complex(-c),
            s => Scalar::Int(s.to_i64().wrapping_neg()),
        }
    }
}

macro_rules! from {
    ($($t:ty => $k:ident as $u:ty),*) => {$(
        impl From<$t> for Scalar {
            #[inline]
            fn from(v: $t) -> Scalar { Scalar::$k(<$u>::from(v)) }
        }
    )*};
}
from!(bool => Bool as bool, u8 => Int as i64, i8 => Int as i64, i16 => Int as i64, u16 => Int as i64, i32 => Int as i64,
      u32 => Int as i64, i64 => Int as i64, f32 => Float as f64, f64 => Float as f64, f16 => Float as f64, bf16 => Float as f64);

impl From<Complex<f64>> for Scalar {
    fn from(v: Complex<f64>) -> Scalar {
        Scalar::Complex(v)
    }
}
impl From<Complex<f32>> for Scalar {
    fn from(v: Complex<f32>) -> Scalar {
        Scalar::Complex(Complex::new(f64::from(v.re), f64::from(v.im)))
    }
}
impl From<usize> for Scalar {
    fn from(v: usize) -> Scalar {
        Scalar::Int(v as i64)
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Bool(b) => b.fmt(f),
            Scalar::Int(i) => i.fmt(f),
            Scalar::Float(x) => write!(f, "{x:?}"),
            Scalar::Complex(c) => write!(f, "({:?}{:+?}j)", c.re, c.im),
        }
    }
}

impl crate::dtype::Promotion {
    /// Adds a number.
    pub fn scalar(self, s: Scalar) -> Self {
        self.number(s.dtype())
    }
}
