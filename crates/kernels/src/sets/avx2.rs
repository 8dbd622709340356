//! AVX2 with fused multiply-add: a vector is two of 16 registers.
#![allow(unsafe_code)]

use super::TileKernel;
use super::wide::{Register, Wide};
use crate::lanes::Kernel;
use std::arch::x86_64::*;

/// Compiles a function for this set.
macro_rules! for_avx2 {
    ($($function:tt)*) => {
        #[target_feature(enable = "avx2,fma,bmi2")]
        $($function)*
    };
}
pub(crate) use for_avx2;

/// Whether this machine has the set.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2")
}

for_avx2! {
    /// # Safety
    /// The machine has the set.
    pub(super) unsafe fn rows<K: Kernel>(k: K) -> K::Out {
        k.run::<true>()
    }
}

for_avx2! {
    /// Eight sums of two registers' halves hide the latency of an addition; four rows and a vector leave registers to multiply from.
    ///
    /// # Safety
    /// The machine has the set; what the kernel says.
    pub(super) unsafe fn tiles<K: TileKernel>(k: K) -> K::Out {
        // SAFETY: the caller's promise.
        unsafe { k.run::<Wide<__m256, 2>, 4, 1>() }
    }
}

/// All bits of the lanes in the mask.
#[inline(always)]
fn spread(mask: u16) -> __m256i {
    // SAFETY: code that handles registers runs where the machine has the set.
    unsafe {
        let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(i32::from(mask)), bit), bit)
    }
}

// SAFETY, for all of them: code that handles registers runs where the machine has the set; memory is the caller's promise.
impl Register for __m256 {
    const LANES: usize = 8;
    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to, self) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(self, o) }
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_sub_ps(self, o) }
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(self, o) }
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    fn unzip(self, o: Self) -> [Self; 2] {
        // SAFETY: see above.
        unsafe {
            // Each 128-bit half by itself, then the middle quarters change places.
            let (even, odd) = (_mm256_shuffle_ps::<0x88>(self, o), _mm256_shuffle_ps::<0xdd>(self, o));
            let ordered = |v| _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(_mm256_castps_pd(v)));
            [ordered(even), ordered(odd)]
        }
    }
    #[inline(always)]
    fn zip(self, o: Self) -> [Self; 2] {
        // SAFETY: see above.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(self, o), _mm256_unpackhi_ps(self, o));
            [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)]
        }
    }
    #[inline(always)]
    unsafe fn load_over(self, mask: u16, from: *const f32) -> Self {
        // SAFETY: see above; lanes outside of the mask are not read.
        unsafe {
            let lanes = spread(mask);
            _mm256_blendv_ps(self, _mm256_maskload_ps(from, lanes), _mm256_castsi256_ps(lanes))
        }
    }
    #[inline(always)]
    unsafe fn store_some(self, mask: u16, to: *mut f32) {
        // SAFETY: see above; lanes outside of the mask are not written.
        unsafe { _mm256_maskstore_ps(to, spread(mask), self) }
    }
}
