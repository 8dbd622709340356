//! AVX-512 (F, VL, DQ, BW): a vector is one of 32 registers, and masks are registers of their own.
#![allow(unsafe_code)]

use super::{LANES, TileKernel, Vector};
use crate::lanes::Kernel;
use std::arch::x86_64::*;

/// Compiles a function for this set.
macro_rules! for_avx512 {
    ($($function:tt)*) => {
        #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,bmi2")]
        $($function)*
    };
}
pub(crate) use for_avx512;

/// Whether this machine has the set.
pub(crate) fn available() -> bool {
    super::avx2::available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
}

for_avx512! {
    /// # Safety
    /// The machine has the set.
    pub(super) unsafe fn rows<K: Kernel>(k: K) -> K::Out {
        k.run::<true>()
    }
}

for_avx512! {
    /// 16 sums, and 16 registers for what is multiplied.
    ///
    /// # Safety
    /// The machine has the set; what the kernel says.
    pub(super) unsafe fn tiles<K: TileKernel>(k: K) -> K::Out {
        // SAFETY: the caller's promise.
        unsafe { k.run::<__m512, 8, 2>() }
    }
}

/// The even lanes of two vectors: numbers 0 to 15 are those of the first.
#[inline(always)]
fn even() -> __m512i {
    // SAFETY: code that handles vectors runs where the machine has the set.
    unsafe { _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) }
}

// SAFETY, for all of them: code that handles vectors runs where the machine has the set; memory is the caller's promise.
impl Vector for __m512 {
    #[inline(always)]
    fn splat(v: f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn load_over(self, mask: u16, from: *const f32) -> Self {
        // SAFETY: see above; lanes outside of the mask are not read.
        unsafe { _mm512_mask_loadu_ps(self, mask, from) }
    }
    #[inline(always)]
    unsafe fn load_some(mask: u16, from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
    #[inline(always)]
    unsafe fn store_some(self, mask: u16, to: *mut f32) {
        // SAFETY: see above; lanes outside of the mask are not written.
        unsafe { _mm512_mask_storeu_ps(to, mask, self) }
    }
    #[inline(always)]
    unsafe fn gather(mask: u16, from: *const f32, offsets: &[i32; LANES]) -> Self {
        // SAFETY: see above; lanes outside of the mask are not read.
        unsafe {
            let offsets = _mm512_loadu_si512(offsets.as_ptr().cast());
            _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), mask, offsets, from)
        }
    }
    #[inline(always)]
    unsafe fn store_halves(self, low: *mut f32, high: *mut f32) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_ps(low, _mm512_castps512_ps256(self));
            _mm256_storeu_ps(high, _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self))));
        }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(self, o) }
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(self, o) }
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(self, o) }
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    fn larger(first: (Self, Self), second: (Self, Self)) -> (Self, Self) {
        // SAFETY: see above.
        unsafe {
            let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(second.0, first.0);
            let wins = above | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(second.0, second.0);
            (_mm512_mask_mov_ps(first.0, wins, second.0), _mm512_mask_mov_ps(first.1, wins, second.1))
        }
    }
    #[inline(always)]
    fn unzip(self, o: Self) -> [Self; 2] {
        // SAFETY: see above.
        unsafe {
            let odd = _mm512_add_epi32(even(), _mm512_set1_epi32(1));
            [_mm512_permutex2var_ps(self, even(), o), _mm512_permutex2var_ps(self, odd, o)]
        }
    }
    #[inline(always)]
    fn zip(self, o: Self) -> [Self; 2] {
        // SAFETY: see above.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            [_mm512_permutex2var_ps(self, low, o), _mm512_permutex2var_ps(self, high, o)]
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, step: usize, rows: usize, mask: u16, mut put: impl FnMut(usize, Self)) {
        // SAFETY: see above; what the mask leaves out is not read.
        unsafe {
            let mut r = [_mm512_setzero_ps(); LANES];
            for (i, r) in r.iter_mut().enumerate() {
                *r = _mm512_maskz_loadu_ps(if i < rows { mask } else { 0 }, from.wrapping_add(i * step));
            }
            // Within each quarter of four rows: 4 × 4 blocks.
            let mut u = r;
            for q in 0..4 {
                let (a, b, c, d) = (r[4 * q], r[4 * q + 1], r[4 * q + 2], r[4 * q + 3]);
                let (ab, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (cd, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                u[4 * q] = _mm512_shuffle_ps::<0x44>(ab, cd);
                u[4 * q + 1] = _mm512_shuffle_ps::<0xee>(ab, cd);
                u[4 * q + 2] = _mm512_shuffle_ps::<0x44>(ab_high, cd_high);
                u[4 * q + 3] = _mm512_shuffle_ps::<0xee>(ab_high, cd_high);
            }
            // Then the blocks change places.
            let mut out = u;
            for j in 0..4 {
                let (a, b, c, d) = (u[j], u[4 + j], u[8 + j], u[12 + j]);
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (even2, odd2) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                out[j] = _mm512_shuffle_f32x4::<0x88>(even, even2);
                out[j + 4] = _mm512_shuffle_f32x4::<0x88>(odd, odd2);
                out[j + 8] = _mm512_shuffle_f32x4::<0xdd>(even, even2);
                out[j + 12] = _mm512_shuffle_f32x4::<0xdd>(odd, odd2);
            }
            for (l, v) in out.into_iter().enumerate() {
                put(l, v);
            }
        }
    }

    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
