//! Transposes blocks of 16 × 16 values in registers, which makes packing a transposed matrix cheap.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// The first `n` of 16 lanes.
#[inline]
pub(crate) fn first(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// Sixteen rows of 16 numbers, `step` apart, turned: lane `r` of result `l` is number `l` of row `r`.
/// Rows from `rows` on, and lanes outside of `lanes`, count as zero.
///
/// # Safety
/// The rest is in bounds.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn turned(from: *const f32, step: usize, rows: usize, lanes: u16) -> [__m512; 16] {
    let r: [__m512; 16] = std::array::from_fn(|i| {
        let lanes = if i < rows { lanes } else { 0 };
        // SAFETY: what the mask leaves out is not read.
        unsafe { _mm512_maskz_loadu_ps(lanes, from.wrapping_add(i * step)) }
    });
    // Within each quarter of four rows: 4 × 4 blocks.
    let mut u = [_mm512_setzero_ps(); 16];
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
    out
}

/// `to[j][i] = from[i][j]` for a block of 16 × 16; the steps are those between rows.
///
/// # Safety
/// AVX-512F present; both blocks are in bounds.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn transpose16(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        for (j, v) in turned(from, from_step, 16, u16::MAX).into_iter().enumerate() {
            _mm512_storeu_ps(to.add(j * to_step), v);
        }
    }
}
