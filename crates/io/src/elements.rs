//! Elements as bytes: NumPy's type strings, and both byte orders.

use crate::{Error, Result};
use firebrand_core::autograd::no_grad;
use firebrand_core::{Complex, DType, Element, Tensor, bf16, f16};
use std::io::{Read, Write};

/// An element with a byte representation.
pub(crate) trait Stored: Element + Default {
    fn from_bytes(bytes: &[u8], big_endian: bool) -> Self;
    fn put(self, out: &mut Vec<u8>);
}

macro_rules! stored {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            fn from_bytes(bytes: &[u8], big_endian: bool) -> Self {
                let bytes = bytes.try_into().expect("chunks have the size of an element");
                if big_endian { <$t>::from_be_bytes(bytes) } else { <$t>::from_le_bytes(bytes) }
            }
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
stored!(u8, i8, i16, i32, i64, f16, bf16, f32, f64);

/// The real part, then the imaginary one.
impl<T: Stored> Stored for Complex<T>
where
    Complex<T>: Element + Default,
{
    fn from_bytes(bytes: &[u8], big_endian: bool) -> Self {
        let (re, im) = bytes.split_at(bytes.len() / 2);
        Complex::new(T::from_bytes(re, big_endian), T::from_bytes(im, big_endian))
    }
    fn put(self, out: &mut Vec<u8>) {
        self.re.put(out);
        self.im.put(out);
    }
}

impl Stored for bool {
    fn from_bytes(bytes: &[u8], _: bool) -> Self {
        bytes[0] != 0
    }
    fn put(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}

/// Runs `$body` with `$t` standing for the Rust type of a dtype.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(@ $dtype, $t, $body, Bool bool, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64,
            C64 Complex<f32>, C128 Complex<f64>)
    };
    (@ $dtype:expr, $t:ident, $body:expr, $($d:ident $r:ty),*) => {
        match $dtype {$( DType::$d => { type $t = $r; $body } )*}
    };
}

/// NumPy's type string of a dtype. bfloat16 is stored as its bits.
pub(crate) fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::BF16 => "<u2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
    }
}

/// The dtype of a type string, and whether its bytes come most significant first.
pub(crate) fn dtype_of(descr: &str) -> Result<(DType, bool)> {
    let refused = || Error::ElementType { descr: descr.to_string() };
    let (order, kind) = descr.split_at_checked(1).ok_or_else(refused)?;
    let big_endian = match order {
        "<" | "|" => false,
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        _ => return Err(refused()),
    };
    let dtype = match kind {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "f2" => DType::F16,
        // Bits of bfloat16: as integers, or as the opaque two bytes that NumPy extensions write.
        "u2" | "V2" => DType::BF16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => return Err(refused()),
    };
    Ok((dtype, big_endian))
}

/// Number of elements buffered at once.
const PIECE: usize = 1 << 16;

/// Reads elements in row-major order into a tensor of these sizes. The caller has checked that the bytes exist, and that they
/// may be spent; besides the tensor only a piece of it is in memory.
pub(crate) fn read(source: &mut dyn Read, dtype: DType, big_endian: bool, sizes: &[usize]) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    with_type!(dtype, T => {
        let mut bytes = vec![0u8; PIECE.min(count) * dtype.size()];
        let mut piece = |n: usize| -> Result<Vec<T>> {
            let bytes = &mut bytes[..n * dtype.size()];
            source.read_exact(bytes)?;
            Ok(bytes.chunks_exact(dtype.size()).map(|b| <T as Stored>::from_bytes(b, big_endian)).collect())
        };
        if count <= PIECE {
            return Ok(Tensor::try_from_vec(piece(count)?, sizes)?);
        }
        no_grad(|| {
            let whole = Tensor::try_full([count], 0i64, dtype)?;
            for at in (0..count).step_by(PIECE) {
                let n = PIECE.min(count - at);
                let part = Tensor::try_from_vec(piece(n)?, [n])?;
                whole.try_narrow(0, at as i64, n as i64)?.try_copy_(&part, false)?;
            }
            let sizes: Vec<i64> = sizes.iter().map(|&n| n as i64).collect();
            Ok(whole.try_view(sizes)?)
        })
    })
}

/// Writes the elements in row-major order, little-endian. A contiguous tensor is written in parts, any other copied once.
pub(crate) fn write(out: &mut dyn Write, t: &Tensor) -> Result<()> {
    no_grad(|| {
        let flat = t.try_detach()?.try_contiguous()?.try_view([-1])?;
        with_type!(t.dtype(), T => {
            let mut buffer = Vec::new();
            for at in (0..t.numel()).step_by(PIECE) {
                let n = PIECE.min(t.numel() - at);
                buffer.clear();
                let part = flat.try_narrow(0, at as i64, n as i64)?.try_to_vec::<T>()?;
                part.into_iter().for_each(|v| Stored::put(v, &mut buffer));
                out.write_all(&buffer)?;
            }
            Ok(())
        })
    })
}
