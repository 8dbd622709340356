//! Between storage and registers, and between registers of different types.
//!
//! Narrow floats load as f32, narrow integers as i64; a cast between types goes from register to register, so there is
//! no pair of storage dtypes. Casts are PyTorch's: floats truncate to integers, integers wrap, bool is `!= 0`, a complex
//! number becomes its real part. A bool is any byte; registers that come from one hold 0 or 1, except where memory serves as
//! the register, and readers test for `!= 0`.
#![allow(unsafe_code)]

use super::loops::{Arg, map1};
use crate::vmath::{from_bf16, from_f16, to_bf16, to_f16};
use crate::{Complex, DType};

/// Whether elements of `dtype` have the same representation in memory and in a register.
#[inline]
pub(super) const fn is_native(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I64 | DType::Bool | DType::C64 | DType::C128)
}

/// Storage of `dtype` to registers of its compute type.
///
/// # Safety
/// As for a step of the loops.
#[inline(always)]
pub(super) unsafe fn load(dtype: DType, d: *mut u8, a: Arg, n: usize) {
    // SAFETY: passed on; the closures name the storage type.
    unsafe {
        match dtype {
            DType::U8 => map1(d, a, n, |x: u8| i64::from(x)),
            DType::I8 => map1(d, a, n, |x: i8| i64::from(x)),
            DType::I16 => map1(d, a, n, |x: i16| i64::from(x)),
            DType::I32 => map1(d, a, n, |x: i32| i64::from(x)),
            DType::F16 => map1(d, a, n, from_f16),
            DType::BF16 => map1(d, a, n, from_bf16),
            DType::F32 => map1(d, a, n, |x: u32| x),
            DType::I64 | DType::F64 | DType::C64 => map1(d, a, n, |x: u64| x),
            DType::C128 => map1(d, a, n, |x: [u64; 2]| x),
            DType::Bool => map1(d, a, n, |x: u8| x.min(1)),
        }
    }
}

/// Registers to storage of `dtype`.
///
/// # Safety
/// As for a step of the loops.
#[inline(always)]
pub(super) unsafe fn store(dtype: DType, d: *mut u8, a: Arg, n: usize) {
    // SAFETY: passed on; the closures name the storage type.
    unsafe {
        match dtype {
            DType::U8 | DType::I8 => map1(d, a, n, |x: i64| x as u8),
            DType::I16 => map1(d, a, n, |x: i64| x as i16),
            DType::I32 => map1(d, a, n, |x: i64| x as i32),
            DType::F16 => map1(d, a, n, to_f16),
            DType::BF16 => map1(d, a, n, to_bf16),
            DType::F32 => map1(d, a, n, |x: u32| x),
            DType::I64 | DType::F64 | DType::C64 => map1(d, a, n, |x: u64| x),
            DType::C128 => map1(d, a, n, |x: [u64; 2]| x),
            DType::Bool => map1(d, a, n, |x: u8| x.min(1)),
        }
    }
}

/// Registers of `from`'s compute type to registers of `to`'s; a narrow `to` also rounds or wraps.
///
/// # Safety
/// As for a step of the loops.
#[inline(always)]
pub(super) unsafe fn cast(from: DType, to: DType, d: *mut u8, a: Arg, n: usize) {
    use DType::{Bool, C64, C128, F32, F64, I64};
    fn c64(re: f32) -> Complex<f32> {
        Complex::new(re, 0.0)
    }
    fn c128(re: f64) -> Complex<f64> {
        Complex::new(re, 0.0)
    }
    // SAFETY: passed on; the closures name the register types.
    unsafe {
        match (from.compute(), to.compute()) {
            (F32, F64) => map1(d, a, n, |x: f32| f64::from(x)),
            (F32, I64) => map1(d, a, n, |x: f32| x as i64),
            (F32, Bool) => map1(d, a, n, |x: f32| x != 0.0),
            (F64, F32) => map1(d, a, n, |x: f64| x as f32),
            (F64, I64) => map1(d, a, n, |x: f64| x as i64),
            (F64, Bool) => map1(d, a, n, |x: f64| x != 0.0),
            (I64, F32) => map1(d, a, n, |x: i64| x as f32),
            (I64, F64) => map1(d, a, n, |x: i64| x as f64),
            (I64, Bool) => map1(d, a, n, |x: i64| x != 0),
            (Bool, F32) => map1(d, a, n, |x: u8| f32::from(x.min(1))),
            (Bool, F64) => map1(d, a, n, |x: u8| f64::from(x.min(1))),
            (Bool, I64) => map1(d, a, n, |x: u8| i64::from(x.min(1))),
            (F32, C64) => map1(d, a, n, c64),
            (F64, C64) => map1(d, a, n, |x: f64| c64(x as f32)),
            (I64, C64) => map1(d, a, n, |x: i64| c64(x as f32)),
            (Bool, C64) => map1(d, a, n, |x: u8| c64(f32::from(x.min(1)))),
            (F32, C128) => map1(d, a, n, |x: f32| c128(f64::from(x))),
            (F64, C128) => map1(d, a, n, c128),
            (I64, C128) => map1(d, a, n, |x: i64| c128(x as f64)),
            (Bool, C128) => map1(d, a, n, |x: u8| c128(f64::from(x.min(1)))),
            (C64, C128) => map1(d, a, n, |x: Complex<f32>| Complex::new(f64::from(x.re), f64::from(x.im))),
            (C128, C64) => map1(d, a, n, |x: Complex<f64>| Complex::new(x.re as f32, x.im as f32)),
            (C64, F32) => map1(d, a, n, |x: Complex<f32>| x.re),
            (C64, F64) => map1(d, a, n, |x: Complex<f32>| f64::from(x.re)),
            (C64, I64) => map1(d, a, n, |x: Complex<f32>| x.re as i64),
            (C64, Bool) => map1(d, a, n, |x: Complex<f32>| x != Complex::ZERO),
            (C128, F32) => map1(d, a, n, |x: Complex<f64>| x.re as f32),
            (C128, F64) => map1(d, a, n, |x: Complex<f64>| x.re),
            (C128, I64) => map1(d, a, n, |x: Complex<f64>| x.re as i64),
            (C128, Bool) => map1(d, a, n, |x: Complex<f64>| x != Complex::ZERO),
            (C128, C128) => map1(d, a, n, |x: [u64; 2]| x),
            (Bool, _) => map1(d, a, n, |x: u8| x.min(1)),
            (F32, _) => map1(d, a, n, |x: u32| x),
            _ => map1(d, a, n, |x: u64| x),
        }
        match to {
            DType::F16 => each(d, n, |x| from_f16(to_f16(x))),
            DType::BF16 => each(d, n, |x| from_bf16(to_bf16(x))),
            _ => wrap(to, d, n),
        }
    }
}

/// Wraps integer registers to the width of `dtype`, in place.
///
/// # Safety
/// `d` holds `n` registers of `dtype`'s compute type.
pub(super) unsafe fn wrap(dtype: DType, d: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe {
        match dtype {
            DType::U8 => each(d, n, |x: i64| i64::from(x as u8)),
            DType::I8 => each(d, n, |x: i64| i64::from(x as i8)),
            DType::I16 => each(d, n, |x: i64| i64::from(x as i16)),
            DType::I32 => each(d, n, |x: i64| i64::from(x as i32)),
            _ => {}
        }
    }
}

/// # Safety
/// `d` holds `n` elements of type `T`.
#[inline(always)]
unsafe fn each<T: Copy>(d: *mut u8, n: usize, f: impl Fn(T) -> T) {
    // SAFETY: the caller's promise.
    let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<T>(), n) };
    for x in d {
        *x = f(*x)
    }
}
