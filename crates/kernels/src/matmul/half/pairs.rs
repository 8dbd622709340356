//! bf16 by AVX512-BF16: `vdpbf16ps` adds the products of two pairs of bf16 to a sum in f32, in sixteen lanes.
//!
//! A word is a pair of neighbors of the depth. Rows that are contiguous are read where they lie.
//! The instruction takes subnormal numbers for zero, and rounds each sum to nearest.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)]

use super::{Arithmetic, Halves, Left, MR, NR, Pass, Rows};
use crate::cpu::{Isa, isa};
use crate::sets::{LANES, Vector, first};
use std::arch::x86_64::*;

/// Whether this machine has the instruction, and is to use it.
pub(super) fn available() -> bool {
    isa() == Isa::Avx512 && is_x86_feature_detected!("avx512bf16")
}

/// # Safety
/// [`available`] has said yes, and the pass has what it says.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,avx2,fma,bmi2")]
pub(super) unsafe fn run(pass: Pass<'_>) {
    // SAFETY: the caller's promise.
    unsafe { super::tiles::<Pairs>(pass) }
}

struct Pairs;

/// Words of the numbers at two places, `step` apart: those at `high` are zero if there is nothing.
///
/// # Safety
/// `n` numbers are readable at both, and `n` words writable.
#[inline(always)]
unsafe fn join(low: *const u16, high: Option<*const u16>, step: usize, n: usize, to: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        match (high, step) {
            (Some(high), 1) => {
                for i in 0..n {
                    *to.add(i) = u32::from(*low.add(i)) | u32::from(*high.add(i)) << 16;
                }
            }
            (Some(high), _) => {
                for i in 0..n {
                    *to.add(i) = u32::from(*low.add(i * step)) | u32::from(*high.add(i * step)) << 16;
                }
            }
            (None, _) => {
                for i in 0..n {
                    *to.add(i) = u32::from(*low.add(i * step));
                }
            }
        }
    }
}

impl Arithmetic for Pairs {
    const PER_WORD: usize = 2;

    #[inline(always)]
    unsafe fn left(p: &Halves, room: *mut u32) -> Left {
        if p.a.col == 1 {
            return Left { at: p.a.ptr.cast_const().cast(), strip: MR * p.a.row * 2, row: p.a.row * 2, word: 4 };
        }
        let strip = (p.k.div_ceil(2) + 2) * MR;
        for s in 0..p.m.div_ceil(MR) {
            let count = MR.min(p.m - s * MR);
            for k in (0..p.k).step_by(2) {
                let high = (k + 1 < p.k).then(|| p.a.at(s * MR, k + 1).cast_const());
                let to = room.wrapping_add(s * strip + k / 2 * MR);
                // SAFETY: inside the side, and the room for these rows.
                unsafe {
                    match count == MR {
                        true => join(p.a.at(s * MR, k), high, p.a.row, MR, to),
                        false => join(p.a.at(s * MR, k), high, p.a.row, count, to),
                    }
                }
            }
        }
        Left { at: room.cast_const().cast(), strip: strip * 4, row: 4, word: MR * 4 }
    }

    #[inline(always)]
    unsafe fn right(p: &Halves, room: *mut u32) {
        let turned = p.b.row == 1 && p.b.col != 1 && p.b.col.is_multiple_of(2);
        let pairs = if turned { p.k / 2 } else { 0 };
        let columns = if turned { p.n } else { 0 };
        for j in (0..columns).step_by(LANES) {
            for k in (0..pairs).step_by(LANES) {
                // SAFETY: words and columns beyond the side are not read; a panel has room for a depth rounded up to 16 words.
                unsafe {
                    <__m512 as Vector>::transpose(
                        p.b.at(2 * k, j).cast_const().cast(),
                        p.b.col / 2,
                        p.n - j,
                        first(pairs - k),
                        |q, v| v.store(room.add((k + q) * NR + j).cast()),
                    );
                }
            }
        }
        for k in (2 * pairs..p.k).step_by(2) {
            let high = (k + 1 < p.k).then(|| p.b.at(k + 1, 0).cast_const());
            let to = room.wrapping_add(k / 2 * NR);
            // SAFETY: inside the side and the room.
            unsafe {
                match p.n == NR {
                    true => join(p.b.at(k, 0), high, p.b.col, NR, to),
                    false => join(p.b.at(k, 0), high, p.b.col, p.n, to),
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply(rows: &Rows, panel: *const u32, (_, n, k): (usize, usize, usize), tile: *mut f32, add: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            match n <= LANES {
                true => registers::<1>(rows, panel, k, tile, add),
                false => registers::<2>(rows, panel, k, tile, add),
            }
        }
    }

    /// As `to_bf16`, sixteen at a time: products of small matrices would spend most of their time here.
    #[inline(always)]
    unsafe fn round(_: bool, sums: *const f32, n: usize, to: *mut u16) {
        for c in (0..n).step_by(LANES) {
            let some = first(n - c);
            // SAFETY: lanes beyond `n` are neither read nor written; the machine has the instructions, as it has those of the products.
            unsafe {
                let v = _mm512_maskz_loadu_ps(some, sums.add(c));
                let bits = _mm512_castps_si512(v);
                let even = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                let up = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
                let rounded = _mm512_mask_mov_epi32(_mm512_srli_epi32::<16>(up), nan, _mm512_set1_epi32(0x7fc0));
                _mm256_mask_storeu_epi16(to.add(c).cast(), some, _mm512_cvtepi32_epi16(rounded));
            }
        }
    }
}

/// Eight rows of N vectors, summed in registers.
///
/// # Safety
/// As [`Arithmetic::multiply`].
#[inline(always)]
unsafe fn registers<const N: usize>(rows: &Rows, panel: *const u32, depth: usize, tile: *mut f32, add: bool) {
    let at = rows.at;
    // SAFETY: rows and panel have this depth; the last word of an odd one is a single number, whose neighbor is not read.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); N]; MR];
        for k in 0..depth / 2 {
            let mut columns = [_mm512_setzero_si512(); N];
            for h in 0..N {
                columns[h] = _mm512_loadu_si512(panel.add(k * NR + h * LANES).cast());
            }
            for r in 0..MR {
                let pair = _mm512_set1_epi32(at[r].add(k * rows.word).cast::<i32>().read_unaligned());
                for h in 0..N {
                    sums[r][h] = add_pairs(sums[r][h], pair, columns[h]);
                }
            }
        }
        if !depth.is_multiple_of(2) {
            let k = depth / 2;
            for r in 0..MR {
                let single = at[r].add(k * rows.word).cast::<u16>().read_unaligned();
                let pair = _mm512_set1_epi32(i32::from(single));
                for h in 0..N {
                    let columns = _mm512_loadu_si512(panel.add(k * NR + h * LANES).cast());
                    sums[r][h] = add_pairs(sums[r][h], pair, columns);
                }
            }
        }
        for r in 0..MR {
            for h in 0..N {
                let to = tile.wrapping_add(r * NR + h * LANES);
                let sum = if add { _mm512_add_ps(sums[r][h], _mm512_loadu_ps(to)) } else { sums[r][h] };
                _mm512_storeu_ps(to, sum);
            }
        }
    }
}

/// `sums + a.0 * b.0 + a.1 * b.1` in every lane.
///
/// # Safety
/// The machine has the instruction.
#[inline(always)]
unsafe fn add_pairs(sums: __m512, a: __m512i, b: __m512i) -> __m512 {
    // SAFETY: vectors of bf16 are bits, as those of integers are; the rest is the caller's promise.
    unsafe {
        _mm512_dpbf16_ps(sums, std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b))
    }
}
