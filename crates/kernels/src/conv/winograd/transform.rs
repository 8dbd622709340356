//! The transforms of F(2 x 2, 3 x 3): patches, weights, and sums back to outputs, sixteen at a time.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::tiles::Rows;
use std::arch::x86_64::*;

/// Positions in the transformed domain.
pub(super) const POSITIONS: usize = 16;

/// `Bt d B` of sixteen patches of a channel, its sixteen positions `step` apart.
///
/// # Safety
/// AVX-512F present; `plane` is the channel's plane in the first image; `to` holds the positions.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn patches(rows: &Rows<4>, plane: *const f32, to: *mut f32, step: usize) {
    let mut t = [[_mm512_setzero_ps(); 4]; 4];
    for r in 0..4 {
        // SAFETY: by contract.
        let [a, b, c, d] = unsafe { rows.patch_row(r, plane) };
        t[r] = [_mm512_sub_ps(a, c), _mm512_add_ps(b, c), _mm512_sub_ps(c, b), _mm512_sub_ps(b, d)];
    }
    for j in 0..4 {
        let [a, b, c, d] = [t[0][j], t[1][j], t[2][j], t[3][j]];
        let v = [_mm512_sub_ps(a, c), _mm512_add_ps(b, c), _mm512_sub_ps(c, b), _mm512_sub_ps(b, d)];
        for i in 0..4 {
            // SAFETY: by contract.
            unsafe { _mm512_storeu_ps(to.add((4 * i + j) * step), v[i]) };
        }
    }
}

/// `At m A + bias` of sixteen tiles of a channel, whose positions lie `step` apart, written to its plane.
///
/// # Safety
/// Like [`patches`]; nothing else uses these tiles of the plane.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn outputs(m: *const f32, step: usize, bias: f32, rows: &Rows<2>, plane: *mut f32) {
    let mut t = [[_mm512_setzero_ps(); 2]; 4];
    for i in 0..4 {
        // SAFETY: by contract.
        let [a, b, c, d] = [0, 1, 2, 3].map(|j| unsafe { _mm512_loadu_ps(m.add((4 * i + j) * step)) });
        t[i] = [_mm512_add_ps(_mm512_add_ps(a, b), c), _mm512_sub_ps(_mm512_sub_ps(b, c), d)];
    }
    let bias = _mm512_set1_ps(bias);
    let mut y = [[bias; 2]; 2];
    for j in 0..2 {
        let [a, b, c, d] = [t[0][j], t[1][j], t[2][j], t[3][j]];
        y[0][j] = _mm512_add_ps(y[0][j], _mm512_add_ps(_mm512_add_ps(a, b), c));
        y[1][j] = _mm512_add_ps(y[1][j], _mm512_sub_ps(_mm512_sub_ps(b, c), d));
    }
    for r in 0..2 {
        // SAFETY: by contract.
        unsafe { rows.write(r, y[r], plane) };
    }
}

/// `G g Gt` of sixteen kernels whose nine taps are `g`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn kernels(g: [[__m512; 3]; 3]) -> [__m512; POSITIONS] {
    let half = _mm512_set1_ps(0.5);
    let three = |a: __m512, b: __m512, c: __m512| {
        let (s, b) = (_mm512_mul_ps(_mm512_add_ps(a, c), half), _mm512_mul_ps(b, half));
        [a, _mm512_add_ps(s, b), _mm512_sub_ps(s, b), c]
    };
    let mut u = [_mm512_setzero_ps(); POSITIONS];
    let down = [0, 1, 2].map(|j| three(g[0][j], g[1][j], g[2][j]));
    for i in 0..4 {
        let row = three(down[0][i], down[1][i], down[2][i]);
        u[4 * i..4 * i + 4].copy_from_slice(&row);
    }
    u
}

/// `A y At` of sixteen tiles whose four outputs are `y`, its positions `step` apart.
///
/// # Safety
/// AVX-512F present; `to` holds the positions.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn gradients(y: [__m512; 4], to: *mut f32, step: usize) {
    let four =
        |a: __m512, b: __m512| [a, _mm512_add_ps(a, b), _mm512_sub_ps(a, b), _mm512_sub_ps(_mm512_setzero_ps(), b)];
    let (left, right) = (four(y[0], y[2]), four(y[1], y[3]));
    for i in 0..4 {
        for (j, v) in four(left[i], right[i]).into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe { _mm512_storeu_ps(to.add((4 * i + j) * step), v) };
        }
    }
}

/// `Gt u G` of sixteen kernels whose positions lie `step` apart: nine taps, `row` apart.
///
/// # Safety
/// AVX-512F present; `u` and `to` hold them.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn taps(u: *const f32, step: usize, to: *mut f32, row: usize) {
    let half = _mm512_set1_ps(0.5);
    let three = |[a, b, c, d]: [__m512; 4]| {
        let (s, t) = (_mm512_mul_ps(_mm512_add_ps(b, c), half), _mm512_mul_ps(_mm512_sub_ps(b, c), half));
        [_mm512_add_ps(a, s), t, _mm512_add_ps(s, d)]
    };
    // SAFETY: by contract.
    unsafe {
        let down = [0, 1, 2, 3].map(|j| three([0, 1, 2, 3].map(|i| _mm512_loadu_ps(u.add((4 * i + j) * step)))));
        for i in 0..3 {
            for (j, v) in three([0, 1, 2, 3].map(|j| down[j][i])).into_iter().enumerate() {
                _mm512_storeu_ps(to.add((3 * i + j) * row), v);
            }
        }
    }
}
