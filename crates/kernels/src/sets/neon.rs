//! NEON, which every 64-bit ARM has, fused multiply-add included: a vector is four of 32 registers. Nothing is detected
//! and no function needs a feature of its own; products of bf16 and of bytes, which do, are in `matmul/pairs.rs`.
#![allow(unsafe_code)]

use super::TileKernel;
use super::wide::{Register, Wide};
use crate::lanes::Kernel;
use std::arch::aarch64::*;

#[inline(always)]
pub(super) fn rows<K: Kernel>(k: K) -> K::Out {
    k.run::<true>()
}

/// Sixteen registers of sums; a vector and the values it is multiplied with take less than the other sixteen.
///
/// # Safety
/// What the kernel says.
#[inline(always)]
pub(super) unsafe fn tiles<K: TileKernel>(k: K) -> K::Out {
    // SAFETY: the caller's promise.
    unsafe { k.run::<Wide<float32x4_t, 4>, 4, 1>() }
}

// SAFETY, for all of them: NEON is part of the architecture; memory is the caller's promise.
impl Register for float32x4_t {
    const LANES: usize = 4;
    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see above.
        unsafe { vdupq_n_f32(v) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { vst1q_f32(to, self) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { vaddq_f32(self, o) }
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { vsubq_f32(self, o) }
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { vmulq_f32(self, o) }
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: see above.
        unsafe { vfmaq_f32(c, self, b) }
    }
    #[inline(always)]
    fn unzip(self, o: Self) -> [Self; 2] {
        // SAFETY: see above.
        unsafe { [vuzp1q_f32(self, o), vuzp2q_f32(self, o)] }
    }
    #[inline(always)]
    fn zip(self, o: Self) -> [Self; 2] {
        // SAFETY: see above.
        unsafe { [vzip1q_f32(self, o), vzip2q_f32(self, o)] }
    }
}
