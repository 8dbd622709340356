//! f32 products on AVX-512 whose right side lies transposed: `x @ wᵀ`, the product of every linear layer.
//!
//! Both sides are packed for a kernel of 8 rows by 32 columns; a transposed side is turned in registers, 16 × 16 at a
//! time. That packing is why this exists: the `gemm` crate turns such a side element by element, which costs half of the
//! time at 128 rows and nine tenths of it at 8.
//!
//! Where things live while they are used: a panel of `b` (depth × 32) in L1, a block of `a` and all panels in L2.
//! The term (a bias, say) is read where it lies, by the first pass over the depth.
//! Guarantee: an element is the sum over its own row and column, in order, cut in depth by a rule that knows the depth
//! only; so any cut of rows or columns gives the same bits.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::Product;
use crate::scratch;
use crate::transpose::{first, turned};
use std::arch::x86_64::*;
use std::cell::RefCell;

/// Rows of the kernel.
const MR: usize = 8;
/// Columns of the kernel: two vectors.
const NR: usize = 32;
/// Most depth of a panel: 256 × 32 × 4 B = 32 kB.
const KC: usize = 256;
/// Rows of a block of `a`: 192 kB.
const MC: usize = 192;
/// Columns packed at once: 512 kB.
const NC: usize = 512;
/// Added to the length of a panel, so that panels do not begin in the same set of a cache.
const PAD: usize = 16;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code)] [f32; 16]);

thread_local! {
    /// Room for packed sides: at most about 0.7 MB a thread, kept from one product to the next.
    static ROOM: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Whether [`product`] takes this one, and is the better choice.
pub(super) fn takes(p: &Product<f32>) -> bool {
    let turned = p.b.row == 1 && p.b.col != 1 && p.out.col == 1 && (p.a.col == 1 || p.a.row == 1);
    let term = p.beta == 0.0 || p.term.col == 1;
    turned && term && p.n >= NR && p.k >= 16 && crate::cpu::isa() == crate::cpu::Isa::Avx512
}

/// `out = beta * term + alpha * a @ b` on this thread; [`takes`] has said yes to it, or to the product it is a part of.
pub(super) fn product(p: &Product<f32>) {
    // Blocks of nearly the same depth: a short rest would cost a pass over `out` of its own.
    let depth = p.k.div_ceil(p.k.div_ceil(KC)).next_multiple_of(16);
    let (strip, panel) = (depth * MR + PAD, depth * NR + PAD);
    let strips = MC.min(p.m).next_multiple_of(16) / MR;
    let panels = NC.min(p.n).div_ceil(NR);
    ROOM.with_borrow_mut(|room| {
        let lines = (strips * strip + panels * panel) / 16;
        scratch::grow(room, lines, Line([0.0; 16]));
        let packed_a: *mut f32 = room.as_mut_ptr().cast();
        let packed_b = packed_a.wrapping_add(strips * strip);
        for j in (0..p.n).step_by(NC) {
            for k in (0..p.k).step_by(depth) {
                let out = p.out.from(0, j);
                let (term, beta) = if k == 0 { (p.term.from(0, j), p.beta) } else { (out, 1.0) };
                let part = Product {
                    n: NC.min(p.n - j),
                    k: depth.min(p.k - k),
                    a: p.a.from(0, k),
                    b: p.b.from(k, j),
                    term,
                    out,
                    beta,
                    ..*p
                };
                // SAFETY: AVX-512 is there, by `takes`; the room was made for blocks and panels of these sizes.
                unsafe { pass(&part, (packed_a, strip), (packed_b, panel)) };
            }
        }
    });
}

/// One depth block of at most [`NC`] columns: packs the right side once, the left side a block of rows at a time.
///
/// # Safety
/// The matrices are in bounds, and the packed sides have room, each with the step between its strips or panels.
#[target_feature(enable = "avx512f")]
unsafe fn pass(p: &Product<f32>, a: (*mut f32, usize), b: (*mut f32, usize)) {
    // SAFETY: the caller's promise; masks keep to the rows and columns that exist.
    unsafe {
        pack_b(p, b.0, b.1);
        for i in (0..p.m).step_by(MC) {
            let block = p.rows(i..p.m.min(i + MC));
            pack_a(&block, a.0, a.1);
            for j in 0..p.n.div_ceil(NR) {
                for s in 0..block.m.div_ceil(MR) {
                    tile(&block, s * MR, j * NR, a.0.add(s * a.1), b.0.add(j * b.1));
                }
            }
        }
    }
}

/// Strips of eight rows: element `[k][row]` of a strip is `a[row][k]`, zero for rows that do not exist.
///
/// # Safety
/// Like [`pass`].
#[target_feature(enable = "avx512f")]
unsafe fn pack_a(p: &Product<f32>, to: *mut f32, strip: usize) {
    // SAFETY: two strips of eight rows are written at a time, and there is an even number of them.
    let put = |to: *mut f32, v: __m512| unsafe {
        _mm256_storeu_ps(to, _mm512_castps512_ps256(v));
        let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v)));
        _mm256_storeu_ps(to.wrapping_add(strip), high);
    };
    if p.a.col == 1 {
        for i in (0..p.m).step_by(16) {
            let to = to.wrapping_add(i / MR * strip);
            for k in (0..p.k).step_by(16) {
                // SAFETY: rows and lanes beyond the matrix are not read.
                let turned = unsafe { turned(p.a.at(i, k), p.a.row, 16.min(p.m - i), first(p.k - k)) };
                for (q, v) in turned.into_iter().enumerate() {
                    put(to.wrapping_add((k + q) * MR), v);
                }
            }
        }
    } else {
        // Whole rows of what lies in memory: reading it strip by strip would touch every page again for each strip.
        for k in 0..p.k {
            for i in (0..p.m).step_by(16) {
                // SAFETY: lanes beyond the matrix are not read.
                let v = unsafe { _mm512_maskz_loadu_ps(first(p.m - i), p.a.at(i, k)) };
                put(to.wrapping_add(i / MR * strip + k * MR), v);
            }
        }
    }
}

/// Panels of 32 columns: element `[k][column]` of a panel is `b[k][column]`, zero for columns that do not exist.
///
/// # Safety
/// Like [`pass`].
#[target_feature(enable = "avx512f")]
unsafe fn pack_b(p: &Product<f32>, to: *mut f32, panel: usize) {
    for j in (0..p.n.next_multiple_of(NR)).step_by(16) {
        let to = to.wrapping_add(j / NR * panel + j % NR);
        for k in (0..p.k).step_by(16) {
            // SAFETY: rows and lanes beyond the matrix are not read; a panel has room for a depth rounded up to 16.
            unsafe {
                let turned = turned(p.b.at(k, j), p.b.col, p.n.saturating_sub(j).min(16), first(p.k - k));
                for (q, v) in turned.into_iter().enumerate() {
                    _mm512_store_ps(to.add((k + q) * NR), v);
                }
            }
        }
    }
}

/// Eight rows by 32 columns of `out` from row `i` and column `j` on: 16 sums in registers.
///
/// # Safety
/// Like [`pass`]; `a` and `b` are the strip and the panel of these rows and columns.
#[target_feature(enable = "avx512f")]
unsafe fn tile(p: &Product<f32>, i: usize, j: usize, a: *const f32, b: *const f32) {
    let (rows, masks) = (MR.min(p.m - i), [first(p.n - j), first((p.n - j).saturating_sub(16))]);
    for r in 0..rows {
        _mm_prefetch::<_MM_HINT_T0>(p.out.at(i + r, j).cast());
        _mm_prefetch::<_MM_HINT_T0>(p.out.at(i + r, j + 16).cast());
    }
    let mut sums = [[_mm512_setzero_ps(); 2]; MR];
    for k in 0..p.k {
        // SAFETY: inside the strip and the panel, which begin on lines of the cache.
        let (b, a) = unsafe { ([_mm512_load_ps(b.add(k * NR)), _mm512_load_ps(b.add(k * NR + 16))], a.add(k * MR)) };
        for r in 0..MR {
            // SAFETY: as above.
            let v = _mm512_set1_ps(unsafe { *a.add(r) });
            sums[r][0] = _mm512_fmadd_ps(v, b[0], sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(v, b[1], sums[r][1]);
        }
    }
    let (alpha, beta) = (_mm512_set1_ps(p.alpha), _mm512_set1_ps(p.beta));
    for r in 0..MR {
        if r == rows {
            break;
        }
        for h in 0..2 {
            let (from, to) = (p.term.at(i + r, j + 16 * h), p.out.at(i + r, j + 16 * h));
            let mut sum = _mm512_mul_ps(alpha, sums[r][h]);
            // SAFETY: the masks keep to the columns that exist; with beta 0 the term does not count.
            unsafe {
                if p.beta != 0.0 {
                    sum = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(masks[h], from), sum);
                }
                _mm512_mask_storeu_ps(to, masks[h], sum);
            }
        }
    }
}
