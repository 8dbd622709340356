//! f32 products whose right side lies transposed (`x @ wᵀ`, the product of every linear layer) or that have few columns or rows
//! (low-rank adapters).
//!
//! The right side is packed for tiles of 8 rows by 32 columns, of which an instruction set computes as much at once as its
//! registers hold, and turned 16 × 16 at a time. That packing is why this exists: the `gemm` crate turns such a side element by element, which costs half of the
//! time at 128 rows and nine tenths of it at 8. The left side is read where it lies if its rows are contiguous, and packed otherwise; so is
//! the right side if there are few rows that would use what was packed.
//!
//! Where things live while they are used: a panel of `b` (depth × 32) in L1, a block of `a` and all panels in L2.
//! The term (a bias, say) is read where it lies, by the first pass over the depth.
//! Guarantee: an element is the sum over its own row and column, in order, cut in depth by a rule that knows the depth
//! only; so any cut of rows or columns gives the same bits.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Mat, Product};
use crate::scratch;
use crate::sets::{self, LANES, TileKernel, Vector, first};
use std::cell::RefCell;

/// Rows of a packed strip.
const MR: usize = 8;
/// Columns of a packed panel: two vectors.
const NR: usize = 2 * LANES;
/// Most depth of a panel: 256 × 32 × 4 B = 32 kB.
const KC: usize = 256;
/// Rows of a block of `a`: 192 kB.
const MC: usize = 192;
/// Columns packed at once: 512 kB.
const NC: usize = 512;
/// Elements of a side that are read where they lie, in rows far apart: from memory that would take twice the time of packing.
const NEAR: usize = 1 << 20;
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
    let turned = p.b.row == 1 && p.b.col != 1;
    // The crate computes with whole vectors of rows, and few rows or columns do not pay for packing the other side.
    let few = p.n < NR && p.n >= 4 || in_place(p) && p.n >= NR;
    let lies = p.out.col == 1 && (p.a.col == 1 || p.a.row == 1) && (p.beta == 0.0 || p.term.col == 1);
    lies && p.k >= 16 && (few && (turned || p.b.col == 1) || turned && p.n >= NR)
}

/// Whether the whole panels of the right side are read where they lie: for one strip of rows, if they are in the cache.
fn in_place(p: &Product<f32>) -> bool {
    (MR / 2 + 1..=MR).contains(&p.m) && p.b.col == 1 && p.k * p.n <= NEAR
}

/// `out = beta * term + alpha * a @ b` on this thread; [`takes`] has said yes to it, or to the product it is a part of.
pub(super) fn product(p: &Product<f32>) {
    let other = p.transposed();
    if p.a.row == 1 && p.a.col != 1 && in_place(&other) && other.n >= NR {
        return turned(p);
    }
    // Blocks of nearly the same depth: a short rest would cost a pass over `out` of its own.
    let depth = p.k.div_ceil(p.k.div_ceil(KC)).next_multiple_of(16);
    let (strip, panel) = (depth * MR + PAD, depth * NR + PAD);
    let strips = if p.a.col == 1 { 0 } else { MC.min(p.m).next_multiple_of(16) / MR };
    let panels = if in_place(p) { 1 } else { NC.min(p.n).div_ceil(NR) };
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
                // SAFETY: the room was made for blocks and panels of these sizes.
                unsafe { sets::tiles(Pass { p: &part, a: (packed_a, strip), b: (packed_b, panel) }) };
            }
        }
    });
}

/// The transposed product, for few columns and a left side that lies transposed: that is not packed then. The bits are those of the
/// product itself.
fn turned(p: &Product<f32>) {
    let mut room = scratch::filled(0f32, p.m * p.n);
    let sums = Mat { ptr: room.as_mut_ptr(), row: p.m, col: 1 };
    if p.beta != 0.0 {
        for (i, j) in (0..p.m).flat_map(|i| (0..p.n).map(move |j| (i, j))) {
            // SAFETY: inside the room and the term.
            unsafe { *sums.at(j, i) = *p.term.at(i, j) }
        }
    }
    product(&Product { term: sums, out: sums, ..p.transposed() });
    for (i, j) in (0..p.m).flat_map(|i| (0..p.n).map(move |j| (i, j))) {
        // SAFETY: inside the room and `out`.
        unsafe { *p.out.at(i, j) = *sums.at(j, i) }
    }
}

/// One depth block of at most [`NC`] columns: packs the right side once, the left side a block of rows at a time.
/// To be run with matrices in bounds, and packed sides that have room, each with the step between its strips or panels.
struct Pass<'a> {
    p: &'a Product<f32>,
    a: (*mut f32, usize),
    b: (*mut f32, usize),
}

impl TileKernel for Pass<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Pass { p, a, b } = self;
        // SAFETY: the caller's promise; masks keep to the rows and columns that exist.
        unsafe {
            let lying = if in_place(p) { p.n / NR } else { 0 };
            pack_b::<V>(&p.cols(lying * NR..p.n), b.0, b.1);
            for i in (0..p.m).step_by(MC) {
                let block = p.rows(i..p.m.min(i + MC));
                let rows_lie = p.a.col == 1;
                if !rows_lie {
                    pack_a::<V>(&block, a.0, a.1);
                }
                for j in 0..p.n.div_ceil(NR) {
                    let panel = match j.checked_sub(lying) {
                        None => (p.b.at(0, j * NR).cast_const(), p.b.row),
                        Some(j) => (b.0.add(j * b.1).cast_const(), NR),
                    };
                    for s in 0..block.m.div_ceil(MR) {
                        let (at, strip) = ((s * MR, j * NR), a.0.wrapping_add(s * a.1));
                        match rows_lie {
                            true => tile::<V, R, N, true>(&block, at, strip, panel),
                            false => tile::<V, R, N, false>(&block, at, strip, panel),
                        }
                    }
                }
            }
        }
    }
}

/// Strips of eight rows of a side whose columns are contiguous: element `[k][row]` of a strip is `a[row][k]`, zero for rows
/// that do not exist.
///
/// # Safety
/// Like [`Pass`].
#[inline(always)]
unsafe fn pack_a<V: Vector>(p: &Product<f32>, to: *mut f32, strip: usize) {
    // Whole rows of what lies in memory: reading it strip by strip would touch every page again for each strip.
    for k in 0..p.k {
        for i in (0..p.m).step_by(LANES) {
            let to = to.wrapping_add(i / MR * strip + k * MR);
            // SAFETY: two strips of eight rows are written at a time, and there is an even number of them; rows beyond the
            // matrix are not read.
            unsafe { V::load_some(first(p.m - i), p.a.at(i, k)).store_halves(to, to.wrapping_add(strip)) }
        }
    }
}

/// Panels of 32 columns: element `[k][column]` of a panel is `b[k][column]`, zero for columns that do not exist.
///
/// # Safety
/// Like [`Pass`].
#[inline(always)]
unsafe fn pack_b<V: Vector>(p: &Product<f32>, to: *mut f32, panel: usize) {
    if p.b.col == 1 {
        for j in (0..p.n.next_multiple_of(NR)).step_by(LANES) {
            let (to, mask) = (to.wrapping_add(j / NR * panel + j % NR), first(p.n.saturating_sub(j)));
            // SAFETY: columns beyond the matrix are not read; a panel has room for the depth.
            (0..p.k).for_each(|k| unsafe { V::load_some(mask, p.b.at(k, j)).store(to.add(k * NR)) });
        }
        return;
    }
    for j in (0..p.n.next_multiple_of(NR)).step_by(LANES) {
        let to = to.wrapping_add(j / NR * panel + j % NR);
        for k in (0..p.k).step_by(LANES) {
            // SAFETY: rows and lanes beyond the matrix are not read; a panel has room for a depth rounded up to 16.
            unsafe {
                V::transpose(p.b.at(k, j), p.b.col, p.n.saturating_sub(j), first(p.k - k), |q, v| {
                    v.store(to.add((k + q) * NR))
                });
            }
        }
    }
}

/// Eight rows by 32 columns of `out` from a row and a column on, R rows of N vectors at a time.
///
/// # Safety
/// Like [`Pass`]; `a` and `b` are the strip and the panel of these rows and columns, the panel with the step between its rows.
/// IN_PLACE: the strip is not read, rows of the left side are contiguous.
#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const N: usize, const IN_PLACE: bool>(
    p: &Product<f32>,
    (i, j): (usize, usize),
    a: *const f32,
    b: (*const f32, usize),
) {
    for r in 0..MR.min(p.m - i) {
        V::prefetch(p.out.at(i + r, j));
        V::prefetch(p.out.at(i + r, j + LANES));
    }
    for up in (0..MR.min(p.m - i)).step_by(R) {
        // Rows that do not exist are computed as the last one, and not written.
        let mut rows = [a; R];
        for r in 0..R {
            rows[r] = if IN_PLACE { p.a.at((i + up + r).min(p.m - 1), 0) } else { a.wrapping_add(up + r) };
        }
        for across in (0..NR.min(p.n - j)).step_by(N * LANES) {
            let at = (i + up, j + across);
            // SAFETY: the caller's promise.
            unsafe {
                match p.n - at.1 <= LANES {
                    true => registers::<V, R, 1, IN_PLACE>(p, at, rows, (b.0.add(across), b.1)),
                    false => registers::<V, R, N, IN_PLACE>(p, at, rows, (b.0.add(across), b.1)),
                }
            }
        }
    }
}

/// R rows of N vectors of `out` from a row and a column on, summed in registers.
///
/// # Safety
/// Like [`tile`]; `rows` begin with the first element of each of these rows, and `b` with that of the columns in their panel.
#[inline(always)]
unsafe fn registers<V: Vector, const R: usize, const N: usize, const IN_PLACE: bool>(
    p: &Product<f32>,
    (i, j): (usize, usize),
    rows: [*const f32; R],
    b: (*const f32, usize),
) {
    let step = if IN_PLACE { 1 } else { MR };
    let mut sums = [[V::zero(); N]; R];
    for k in 0..p.k {
        let mut columns = [V::zero(); N];
        for h in 0..N {
            // SAFETY: inside the panel.
            columns[h] = unsafe { V::load(b.0.add(k * b.1 + h * LANES)) };
        }
        for r in 0..R {
            // SAFETY: inside the row, or the strip.
            let v = V::splat(unsafe { *rows[r].add(k * step) });
            for h in 0..N {
                sums[r][h] = v.mul_add(columns[h], sums[r][h]);
            }
        }
    }
    let (alpha, beta) = (V::splat(p.alpha), V::splat(p.beta));
    let count = R.min(p.m - i);
    for r in 0..R {
        if r == count {
            break;
        }
        for h in 0..N {
            let mask = first((p.n - j).saturating_sub(h * LANES));
            let (from, to) = (p.term.at(i + r, j + h * LANES), p.out.at(i + r, j + h * LANES));
            let mut sum = alpha.mul(sums[r][h]);
            // SAFETY: the mask keeps to the columns that exist; with beta 0 the term does not count.
            unsafe {
                if p.beta != 0.0 {
                    sum = beta.mul_add(V::load_some(mask, from), sum);
                }
                sum.store_some(mask, to);
            }
        }
    }
}
