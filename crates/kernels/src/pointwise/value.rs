//! Scalars of any type, and operands that are either memory or a scalar.

use crate::{Complex, DType, View};

/// A scalar operand, before it is converted to the dtype an op computes in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

impl Value {
    /// As a float: of a complex number the real part.
    #[inline]
    pub fn to_f64(self) -> f64 {
        match self {
            Value::Bool(v) => f64::from(u8::from(v)),
            Value::Int(v) => v as f64,
            Value::Float(v) => v,
            Value::Complex(v) => v.re,
        }
    }

    /// As a complex number.
    #[inline]
    pub fn to_complex(self) -> Complex<f64> {
        if let Value::Complex(v) = self { v } else { Complex::new(self.to_f64(), 0.0) }
    }

    /// As an integer, truncated.
    #[inline]
    pub fn to_i64(self) -> i64 {
        match self {
            Value::Bool(v) => i64::from(v),
            Value::Int(v) => v,
            Value::Float(v) => v as i64,
            Value::Complex(v) => v.re as i64,
        }
    }

    /// Whether it is not zero.
    #[inline]
    pub fn to_bool(self) -> bool {
        match self {
            Value::Bool(v) => v,
            Value::Int(v) => v != 0,
            Value::Float(v) => v != 0.0,
            Value::Complex(v) => v != Complex::ZERO,
        }
    }

    /// The bytes of a register of `dtype`'s compute type, in the low end of a word. Narrow integers are wrapped first.
    /// Complex registers are not of this kind: of those the real part.
    #[inline]
    pub(super) fn register(self, dtype: DType) -> u64 {
        match dtype {
            DType::F16 | DType::BF16 | DType::F32 | DType::C64 => {
                // From the integer itself: through f64 it would be rounded twice.
                let v = if let Value::Int(i) = self { i as f32 } else { self.to_f64() as f32 };
                u64::from(v.to_bits())
            }
            DType::F64 | DType::C128 => self.to_f64().to_bits(),
            DType::Bool => u64::from(self.to_bool()),
            DType::I64 => self.to_i64() as u64,
            DType::I32 => i64::from(self.to_i64() as i32) as u64,
            DType::I16 => i64::from(self.to_i64() as i16) as u64,
            DType::I8 => i64::from(self.to_i64() as i8) as u64,
            DType::U8 => u64::from(self.to_i64() as u8),
        }
    }
}

/// What an op reads: elements, or one value for all of them.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// Elements.
    View(View<'a>),
    /// The same value everywhere.
    Value(Value),
}

impl<'a> From<View<'a>> for Operand<'a> {
    #[inline]
    fn from(v: View<'a>) -> Operand<'a> {
        Operand::View(v)
    }
}

impl From<Value> for Operand<'_> {
    #[inline]
    fn from(v: Value) -> Self {
        Operand::Value(v)
    }
}
