//! Properties of a tensor in a program besides its sizes: element type, device, layout, memory format.
//!
//! These lists are wider than what this build computes with: a program that mentions `complex32` or `cuda:0` can be
//! read, printed and rewritten; only running it needs [`ScalarType::dtype`] to answer.

use firebrand_core::DType;
use std::fmt;
use std::sync::Arc;

macro_rules! named {
    ($(#[$doc:meta])* $ty:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $ty { $($(#[$vdoc])* $variant),* }

        impl $ty {
            /// Every one.
            pub const ALL: &'static [$ty] = &[$($ty::$variant),*];

            /// PyTorch's name.
            pub const fn name(self) -> &'static str {
                match self { $($ty::$variant => $name),* }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<$ty> {
                match name { $($name => Some($ty::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) }
        }
    };
}

named! {
    /// An element type, as programs name it.
    #[allow(missing_docs)]
    ScalarType {
        Bool = "bool", UInt8 = "uint8", Int8 = "int8", Int16 = "int16", Int32 = "int32", Int64 = "int64",
        UInt16 = "uint16", UInt32 = "uint32", UInt64 = "uint64",
        Float16 = "float16", BFloat16 = "bfloat16", Float32 = "float32", Float64 = "float64",
        Complex32 = "complex32", Complex64 = "complex64", Complex128 = "complex128",
        Float8E4M3Fn = "float8_e4m3fn", Float8E5M2 = "float8_e5m2", Float8E4M3FnUz = "float8_e4m3fnuz",
        Float8E5M2FnUz = "float8_e5m2fnuz", Float8E8M0Fnu = "float8_e8m0fnu",
    }
}

named! {
    /// The layout of a tensor's elements.
    #[allow(missing_docs)]
    MemoryLayout {
        Strided = "strided", SparseCoo = "sparse_coo", SparseCsr = "sparse_csr", SparseCsc = "sparse_csc",
        SparseBsr = "sparse_bsr", SparseBsc = "sparse_bsc", Mkldnn = "_mkldnn",
    }
}

named! {
    /// The order of elements in memory.
    #[allow(missing_docs)]
    MemoryFormat {
        Contiguous = "contiguous_format", ChannelsLast = "channels_last", ChannelsLast3d = "channels_last_3d",
        Preserve = "preserve_format",
    }
}

impl ScalarType {
    /// The dtype that tensors of this build have, or none if they cannot hold such elements.
    pub const fn dtype(self) -> Option<DType> {
        // Asked for at every call of a compiled function: no search by name.
        Some(match self {
            ScalarType::Bool => DType::Bool,
            ScalarType::UInt8 => DType::U8,
            ScalarType::Int8 => DType::I8,
            ScalarType::Int16 => DType::I16,
            ScalarType::Int32 => DType::I32,
            ScalarType::Int64 => DType::I64,
            ScalarType::Float16 => DType::F16,
            ScalarType::BFloat16 => DType::BF16,
            ScalarType::Float32 => DType::F32,
            ScalarType::Float64 => DType::F64,
            ScalarType::Complex64 => DType::C64,
            ScalarType::Complex128 => DType::C128,
            _ => return None,
        })
    }

    /// Whether values are floats or complex numbers, so that gradients can flow through them.
    pub fn is_differentiable(self) -> bool {
        let name = self.name();
        name.starts_with("float") || name.starts_with("bfloat") || name.starts_with("complex")
    }
}

impl From<DType> for ScalarType {
    fn from(dtype: DType) -> ScalarType {
        ScalarType::from_name(dtype.name()).expect("programs know every dtype of tensors")
    }
}

/// A device by type and index, such as `cpu` or `cuda:1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceName {
    /// `cpu`, `cuda`, …
    pub kind: Arc<str>,
    /// Its index, if given.
    pub index: Option<u32>,
}

impl DeviceName {
    /// The CPU.
    pub fn cpu() -> DeviceName {
        DeviceName { kind: "cpu".into(), index: None }
    }

    /// From `cpu` or `cuda:1`; none if the index is not a number or the type is not a word.
    pub fn parse(text: &str) -> Option<DeviceName> {
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(index.parse().ok()?)),
            None => (text, None),
        };
        let word = !kind.is_empty() && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        word.then(|| DeviceName { kind: kind.into(), index })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}:{index}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_of_tensors_has_its_name_in_programs() {
        for dtype in DType::ALL {
            assert_eq!(ScalarType::from(dtype).dtype(), Some(dtype), "{}", dtype.name());
        }
        for scalar in ScalarType::ALL {
            assert!(scalar.dtype().is_none_or(|d| d.name() == scalar.name()), "{scalar}");
        }
    }
}
