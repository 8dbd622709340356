//! Element types, as PyTorch names them.
//!
//! The list is closed; every dtype has one Rust type ([`Element`]) with the memory representation of its elements. Memory may hold
//! any bytes, so kernels read bools as [`Truth`], never as `bool`: any byte but 0 is true.

use half::{bf16, f16};
use num_complex::Complex;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// One byte; 0 is false, any other is true, and kernels write 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE half precision.
    F16,
    /// Brain float: the upper half of an `f32`.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// Two `f32`: real and imaginary part.
    C64,
    /// Two `f64`: real and imaginary part.
    C128,
}

impl DType {
    /// Every dtype, in promotion order.
    pub const ALL: [DType; 12] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
    ];

    /// All real dtypes.
    pub fn reals() -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(|d| !d.is_complex())
    }

    /// Bytes of one element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// f16, bf16, f32 or f64.
    #[inline]
    pub const fn is_floating_point(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// A pair of floats.
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// The dtype of real and imaginary part; a dtype that is not complex itself.
    #[inline]
    pub const fn to_real(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            d => d,
        }
    }

    /// The complex dtype that holds this float type; a complex one itself, `C64` for all else.
    #[inline]
    pub const fn to_complex(self) -> DType {
        match self {
            DType::F64 | DType::C128 => DType::C128,
            _ => DType::C64,
        }
    }

    /// Whether tensors of this type can have gradients.
    #[inline]
    pub const fn is_differentiable(self) -> bool {
        self.is_floating_point() || self.is_complex()
    }

    /// An integer type; bool is not one.
    #[inline]
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// The register type that arithmetic on this dtype is done in: `F32`, `F64`, `I64`, `Bool`, or a complex type itself.
    #[inline]
    pub const fn compute(self) -> DType {
        match self {
            DType::F16 | DType::BF16 | DType::F32 => DType::F32,
            DType::F64 | DType::Bool | DType::C64 | DType::C128 => self,
            _ => DType::I64,
        }
    }

    /// PyTorch's name: `float32`, `int64`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "uint8",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
        }
    }

    /// The abbreviation of logs and graph text: `f32`, `i64`, `b8`, …
    pub const fn short(self) -> &'static str {
        match self {
            DType::Bool => "b8",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C64 => "c64",
            DType::C128 => "c128",
        }
    }

    /// The word in the names of PyTorch's classes: `Float` of `FloatTensor` and `FloatStorage`.
    pub const fn class(self) -> &'static str {
        match self {
            DType::Bool => "Bool",
            DType::U8 => "Byte",
            DType::I8 => "Char",
            DType::I16 => "Short",
            DType::I32 => "Int",
            DType::I64 => "Long",
            DType::F16 => "Half",
            DType::BF16 => "BFloat16",
            DType::F32 => "Float",
            DType::F64 => "Double",
            DType::C64 => "ComplexFloat",
            DType::C128 => "ComplexDouble",
        }
    }

    /// The dtype with this long or short name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name || d.short() == name)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The memory representation of a bool. Every byte is valid: 0 is false, all others are true and equal.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Truth(u8);

impl Truth {
    /// Stored as 0 or 1.
    #[inline(always)]
    pub const fn new(v: bool) -> Truth {
        Truth(v as u8)
    }

    /// As a `bool`.
    #[inline(always)]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Truth {
    #[inline(always)]
    fn from(v: bool) -> Truth {
        Truth::new(v)
    }
}

impl PartialEq for Truth {
    #[inline(always)]
    fn eq(&self, other: &Truth) -> bool {
        self.get() == other.get()
    }
}

impl std::fmt::Debug for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// A Rust type that is stored as the elements of some [`DType`].
///
/// Sealed: every implementor is plain data. All but `bool` are valid for any bytes; memory is read as [`Truth`] in its place.
pub trait Element: sealed::Sealed + Copy + Send + Sync + PartialEq + std::fmt::Debug + 'static {
    /// The dtype it is stored as.
    const DTYPE: DType;
    /// Whether any bytes are a value of this type, so that memory may be borrowed as a slice of it.
    const ANY_BYTES: bool = true;
    /// Nearest value of this type, rounding once; integers truncate and wrap as PyTorch's casts do.
    fn from_f64(v: f64) -> Self;
    /// Nearest value of this type; integers wrap.
    fn from_i64(v: i64) -> Self;
    /// The value as `f64`.
    fn to_f64(self) -> f64;
    /// The value as `i64`, truncating.
    fn to_i64(self) -> i64;
}

macro_rules! element {
    ($($t:ty, $d:ident, |$f:ident| $from_f:expr, |$i:ident| $from_i:expr, |$v:ident| $to_f:expr, $to_i:expr $(, $any:literal)?;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            $(const ANY_BYTES: bool = $any;)?
            #[inline(always)]
            fn from_f64($f: f64) -> Self { $from_f }
            #[inline(always)]
            fn from_i64($i: i64) -> Self { $from_i }
            #[inline(always)]
            fn to_f64(self) -> f64 { let $v = self; $to_f }
            #[inline(always)]
            fn to_i64(self) -> i64 { let $v = self; $to_i }
        }
    )*};
}

element! {
    bool, Bool, |f| f != 0.0, |i| i != 0, |v| f64::from(u8::from(v)), i64::from(v), false;
    Truth, Bool, |f| (f != 0.0).into(), |i| (i != 0).into(), |v| f64::from(u8::from(v.get())), i64::from(v.get());
    u8, U8, |f| f as i64 as u8, |i| i as u8, |v| f64::from(v), i64::from(v);
    i8, I8, |f| f as i64 as i8, |i| i as i8, |v| f64::from(v), i64::from(v);
    i16, I16, |f| f as i64 as i16, |i| i as i16, |v| f64::from(v), i64::from(v);
    i32, I32, |f| f as i64 as i32, |i| i as i32, |v| f64::from(v), i64::from(v);
    i64, I64, |f| f as i64, |i| i, |v| v as f64, v;
    f16, F16, |f| f16::from_f64(f), |i| f16::from_f64(i as f64), |v| v.to_f64(), v.to_f64() as i64;
    bf16, BF16, |f| bf16::from_f64(f), |i| bf16::from_f64(i as f64), |v| v.to_f64(), v.to_f64() as i64;
    f32, F32, |f| f as f32, |i| i as f32, |v| f64::from(v), v as i64;
    f64, F64, |f| f, |i| i as f64, |v| v, v as i64;
    // As numbers they are their real part.
    Complex<f32>, C64, |f| Complex::new(f as f32, 0.0), |i| Complex::new(i as f32, 0.0), |v| f64::from(v.re), v.re as i64;
    Complex<f64>, C128, |f| Complex::new(f, 0.0), |i| Complex::new(i as f64, 0.0), |v| v.re, v.re as i64;
}

/// Runs `$body` with the alias `$t` standing for the Rust type of `$dtype`: the one place where a dtype becomes a type.
/// Bool is [`Truth`], so that any bytes may be read.
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::DType::Bool => {
                type $t = $crate::Truth;
                $body
            }
            $crate::DType::U8 => {
                type $t = u8;
                $body
            }
            $crate::DType::I8 => {
                type $t = i8;
                $body
            }
            $crate::DType::I16 => {
                type $t = i16;
                $body
            }
            $crate::DType::I32 => {
                type $t = i32;
                $body
            }
            $crate::DType::I64 => {
                type $t = i64;
                $body
            }
            $crate::DType::F16 => {
                type $t = $crate::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $t = $crate::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $t = f32;
                $body
            }
            $crate::DType::F64 => {
                type $t = f64;
                $body
            }
            $crate::DType::C64 => {
                type $t = $crate::Complex<f32>;
                $body
            }
            $crate::DType::C128 => {
                type $t = $crate::Complex<f64>;
                $body
            }
        }
    };
}
