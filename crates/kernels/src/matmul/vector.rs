//! f32 matrix times vector: one token of a language model, whose time is that of reading the weights.
//!
//! Several rows are read at once, ahead of their use: one row after another leaves half of the memory's bandwidth unused, because a
//! core waits for the lines of one stream only. Where columns are contiguous, the next ones are asked for instead.
//! Guarantee: a row's sum never depends on which rows are computed together.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Product, put};
use crate::sets::{self, LANES, TileKernel, Vector, first};

/// Vectors of partial sums of a row.
const PARTS: usize = 4;
/// What is read ahead of its use, in elements: 2 kB of each row.
const AHEAD: usize = 512;

/// Columns between the one that is used and the one that is asked for.
const NEXT: usize = 2;

/// `out = beta * term + alpha * a @ x`, where rows or columns of `a` are contiguous.
///
/// # Panics
/// If neither are, or the vector does not have an element for each column.
pub(super) fn product(p: &Product<f32>, x: &[f32]) {
    assert!((p.a.col == 1 || p.a.row == 1) && x.len() == p.k, "contiguous lines, and a vector of as many elements");
    // SAFETY: the matrices lie inside their views; the vector is as long as a row.
    unsafe {
        match p.a.col == 1 {
            true => sets::tiles(Rows { p, x }),
            false => sets::tiles(Columns { p, x }),
        }
    }
}

/// To be run with matrices in bounds.
#[derive(Clone, Copy)]
struct Rows<'a> {
    p: &'a Product<f32>,
    x: &'a [f32],
}

impl TileKernel for Rows<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            match R * N / PARTS {
                4.. => self.groups::<V, 4>(),
                2..4 => self.groups::<V, 2>(),
                _ => self.groups::<V, 1>(),
            }
        }
    }
}

impl Rows<'_> {
    /// All rows, W at a time.
    ///
    /// # Safety
    /// Like [`Rows`].
    #[inline(always)]
    unsafe fn groups<V: Vector, const W: usize>(&self) {
        let together = self.p.m / W * W;
        // SAFETY: rows that exist.
        unsafe {
            for i in (0..together).step_by(W) {
                self.some::<V, W>(i)
            }
            for i in together..self.p.m {
                self.some::<V, 1>(i)
            }
        }
    }

    /// W rows from a row on.
    ///
    /// # Safety
    /// They exist.
    #[inline(always)]
    unsafe fn some<V: Vector, const W: usize>(&self, i: usize) {
        let Rows { p, x } = *self;
        let whole = p.k / (PARTS * LANES) * (PARTS * LANES);
        let mut sums = [[V::zero(); PARTS]; W];
        for l in (0..whole).step_by(PARTS * LANES) {
            for h in 0..PARTS {
                // SAFETY: inside the vector.
                let v = unsafe { V::load(x.as_ptr().add(l + h * LANES)) };
                for r in 0..W {
                    let at = p.a.at(i + r, l + h * LANES);
                    V::prefetch(at.wrapping_add(AHEAD));
                    // SAFETY: inside the row.
                    sums[r][h] = unsafe { V::load(at) }.mul_add(v, sums[r][h]);
                }
            }
        }
        for r in 0..W {
            // Halves added to halves, as of one list of 64.
            let [a, b, c, d] = sums[r];
            let mut lanes = [0f32; LANES];
            // SAFETY: as many lanes as a vector has.
            unsafe { a.add(c).add(b.add(d)).store(lanes.as_mut_ptr()) };
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for l in 0..width {
                    lanes[l] += lanes[l + width];
                }
            }
            let mut tail = 0f32;
            for l in whole..p.k {
                // SAFETY: inside the row.
                tail += unsafe { *p.a.at(i + r, l) } * x[l];
            }
            // SAFETY: `out` has this row.
            unsafe { put(p, i + r, 0, lanes[0] + tail) }
        }
    }
}

/// To be run with matrices in bounds.
#[derive(Clone, Copy)]
struct Columns<'a> {
    p: &'a Product<f32>,
    x: &'a [f32],
}

impl TileKernel for Columns<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let mut i = 0;
        // SAFETY: the caller's promise, and rows that exist.
        unsafe {
            while i + R * N * LANES <= self.p.m {
                self.some::<V, R, N>(i, u16::MAX);
                i += R * N * LANES;
            }
            while i < self.p.m {
                self.some::<V, 1, 1>(i, first(self.p.m - i));
                i += LANES;
            }
        }
    }
}

impl Columns<'_> {
    /// As many rows as R times N vectors have lanes, from a row on.
    ///
    /// # Safety
    /// Those under the mask exist.
    #[inline(always)]
    unsafe fn some<V: Vector, const R: usize, const N: usize>(&self, i: usize, mask: u16) {
        let Columns { p, x } = *self;
        let mut sums = [[V::zero(); N]; R];
        for l in 0..p.k {
            let v = V::splat(x[l]);
            for r in 0..R {
                for h in 0..N {
                    let at = p.a.at(i + (r * N + h) * LANES, l);
                    V::prefetch(at.wrapping_add(NEXT * p.a.col));
                    // SAFETY: inside the column.
                    let a = unsafe { if mask == u16::MAX { V::load(at) } else { V::load_some(mask, at) } };
                    sums[r][h] = a.mul_add(v, sums[r][h]);
                }
            }
        }
        for r in 0..R {
            for h in 0..N {
                let mut lanes = [0f32; LANES];
                // SAFETY: as many lanes as a vector has.
                unsafe { sums[r][h].store(lanes.as_mut_ptr()) };
                for l in 0..LANES {
                    if mask >> l & 1 == 1 {
                        // SAFETY: `out` has this row.
                        unsafe { put(p, i + (r * N + h) * LANES + l, 0, lanes[l]) }
                    }
                }
            }
        }
    }
}
