//! WebAssembly's simd128, a choice of the build: a vector is four registers. Engines have 16 or 32 of them; there is no
//! multiply-add that is rounded once everywhere, so there is none.
#![allow(unsafe_code)]

use super::TileKernel;
use super::wide::{Register, Wide};
use std::arch::wasm32::*;

/// Eight registers of sums: engines on x86-64 have 16 in all.
///
/// # Safety
/// What the kernel says.
#[inline(always)]
pub(super) unsafe fn tiles<K: TileKernel>(k: K) -> K::Out {
    // SAFETY: the caller's promise.
    unsafe { k.run::<Wide<v128, 4>, 2, 1>() }
}

impl Register for v128 {
    const LANES: usize = 4;
    #[inline(always)]
    fn splat(v: f32) -> Self {
        f32x4_splat(v)
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; any alignment will do.
        unsafe { v128_load(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { v128_store(to.cast(), self) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        f32x4_add(self, o)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        f32x4_sub(self, o)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        f32x4_mul(self, o)
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        f32x4_add(f32x4_mul(self, b), c)
    }
    #[inline(always)]
    fn unzip(self, o: Self) -> [Self; 2] {
        [i32x4_shuffle::<0, 2, 4, 6>(self, o), i32x4_shuffle::<1, 3, 5, 7>(self, o)]
    }
    #[inline(always)]
    fn zip(self, o: Self) -> [Self; 2] {
        [i32x4_shuffle::<0, 4, 1, 5>(self, o), i32x4_shuffle::<2, 6, 3, 7>(self, o)]
    }
}
