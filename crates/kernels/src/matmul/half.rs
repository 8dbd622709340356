//! Products of f16 and bf16: both sides are packed from where they lie, sums are f32, results are rounded once.
//!
//! Two kinds of [`Arithmetic`] share packing loops and blocks. Where the machine has AVX512-BF16, [`pairs`] multiplies bf16 as it is,
//! two numbers of the depth at a time, at twice the rate of f32. Elsewhere, and for f16, [`Wide`] widens while it packs and multiplies in f32,
//! so that a product takes the time of one of f32 on half the memory.
//!
//! The code is compiled once for both types: elements are bits, and a flag says how they are read.
//! Guarantee: an element is the sum over its own row and column, in order, cut in depth by a rule that knows the depth
//! only; so any cut of rows or columns gives the same bits.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Batch, GRAIN, Given, Mat, Product, ROWS, SMALL};
use crate::real::{Scratch, per_isa};
use crate::sets::{self, LANES, TileKernel, Vector};
use crate::vmath::{from_bf16, from_f16, to_bf16, to_f16};
use crate::{DType, Element, parallel, scratch};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod pairs;

/// Rows of a tile.
const MR: usize = 8;
/// Columns of a tile, which is a panel of the right side: two vectors.
const NR: usize = 2 * LANES;
/// Rows of the left side that are packed at once.
const MC: usize = 192;
/// Columns of the right side that are packed at once.
const NC: usize = 512;
/// Most words of the depth in a panel: 256 × 32 × 4 B = 32 kB, which two thirds of a first cache hold.
const MOST: usize = 256;

/// A tile's sums, row by row.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Tile([f32; MR * NR]);

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code)] [u32; 16]);

thread_local! {
    /// Room for packed sides: at most about 0.7 MB a thread, kept from one product to the next.
    static ROOM: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// One product: `out = beta * term + alpha * a @ b`, elements as bits.
#[derive(Clone, Copy)]
struct Halves {
    m: usize,
    n: usize,
    k: usize,
    a: Mat<u16>,
    b: Mat<u16>,
    term: Mat<u16>,
    out: Mat<u16>,
    alpha: f32,
    beta: f32,
    /// bf16; otherwise f16.
    brain: bool,
}
// SAFETY: pointers into views that may be used from any thread; parts given to threads write disjoint elements.
unsafe impl Send for Halves {}
// SAFETY: as above.
unsafe impl Sync for Halves {}

impl Halves {
    fn new<T: Element>(p: Product<T>, alpha: f64, beta: f64) -> Halves {
        let bits = |m: Mat<T>| Mat { ptr: m.ptr.cast::<u16>(), row: m.row, col: m.col };
        let [a, b, term, out] = [p.a, p.b, p.term, p.out].map(bits);
        let (alpha, beta) = (alpha as f32, beta as f32);
        Halves { m: p.m, n: p.n, k: p.k, a, b, term, out, alpha, beta, brain: T::DTYPE == DType::BF16 }
    }

    fn rows(self, r: Range<usize>) -> Self {
        let [a, term, out] = [self.a, self.term, self.out].map(|m| m.from(r.start, 0));
        Halves { m: r.len(), a, term, out, ..self }
    }

    fn cols(self, r: Range<usize>) -> Self {
        let [b, term, out] = [self.b, self.term, self.out].map(|m| m.from(0, r.start));
        Halves { n: r.len(), b, term, out, ..self }
    }

    fn depth(self, r: Range<usize>) -> Self {
        Halves { k: r.len(), a: self.a.from(0, r.start), b: self.b.from(r.start, 0), ..self }
    }

    /// The same product with the roles of rows and columns exchanged.
    fn transposed(self) -> Self {
        let [a, b, term, out] = [self.b, self.a, self.term, self.out].map(Mat::transposed);
        Halves { m: self.n, n: self.m, a, b, term, out, ..self }
    }

    #[inline(always)]
    fn wide(&self, bits: u16) -> f32 {
        if self.brain { from_bf16(bits) } else { from_f16(bits) }
    }

    /// Writes a finished sum.
    ///
    /// # Safety
    /// `out` has this element.
    #[inline(always)]
    unsafe fn put(&self, i: usize, j: usize, sum: f32) {
        let v = self.alpha * sum;
        // SAFETY: the caller's promise; the term has the sizes of `out`.
        unsafe {
            let v = if self.beta == 0.0 { v } else { self.beta * self.wide(*self.term.at(i, j)) + v };
            *self.out.at(i, j) = if self.brain { to_bf16(v) } else { to_f16(v) };
        }
    }
}

/// All products of a batch of f16 or bf16.
pub(super) fn products<T: Element>(given: Given<'_>, alpha: f64, beta: f64) {
    let batch = Batch::<T>::new(given, T::from_f64(1.0), T::from_f64(0.0));
    let of = |i| Halves::new(batch.get(i), alpha, beta);
    let work = batch.first.work();
    // As products of f32: a batch is split as such unless it has fewer products than there are threads and they are large.
    if batch.count > 1 && (batch.count >= parallel::num_threads() || work < 4 * GRAIN) {
        let grain = (GRAIN / work.max(1)).max(1);
        parallel::split(batch.count, grain, |r| r.for_each(|i| one(of(i), false)));
    } else {
        (0..batch.count).for_each(|i| one(of(i), true));
    }
}

/// One product, on this thread or on several. What computes it is chosen for the whole, so that a cut does not change the bits.
fn one(p: Halves, threads: bool) {
    let work = p.m * p.n * p.k;
    if p.n == 1 || p.m == 1 {
        let p = if p.n == 1 { p } else { p.transposed() };
        let grain = if threads { (GRAIN / 2 / p.k.max(1)).next_multiple_of(ROWS) } else { p.m };
        let x = scratch::collected((0..p.k).map(|l| {
            // SAFETY: inside the right side.
            p.wide(unsafe { *p.b.at(l, 0) })
        }));
        return parallel::split(p.m, grain, |r| {
            let p = p.rows(r);
            if p.a.row == 1 && p.a.col != 1 { columns(p, &x) } else { dots(p, &x) }
        });
    }
    if work <= SMALL {
        return small(p);
    }
    // Rows of the result are written as a whole.
    let p = if p.out.col != 1 && p.out.row == 1 { p.transposed() } else { p };
    let by_rows = p.m >= p.n;
    let (len, side) = if by_rows { (p.m, MR) } else { (p.n, NR) };
    let parts = if threads && work >= 2 * GRAIN { parallel::num_threads().min(len.div_ceil(side)) } else { 1 };
    let step = len.div_ceil(parts).next_multiple_of(side);
    parallel::run(len.div_ceil(step), &|i| {
        let r = i * step..len.min((i + 1) * step);
        block(if by_rows { p.rows(r) } else { p.cols(r) })
    });
}

/// Widens `n` elements, `step` apart.
///
/// # Safety
/// They are readable, and as many f32 writable.
#[inline(always)]
unsafe fn widen(brain: bool, from: *const u16, step: usize, n: usize, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match (brain, step) {
            (true, 1) => {
                for i in 0..n {
                    *to.add(i) = from_bf16(*from.add(i));
                }
            }
            (false, 1) => {
                for i in 0..n {
                    *to.add(i) = from_f16(*from.add(i));
                }
            }
            _ => {
                for i in 0..n {
                    let bits = *from.add(i * step);
                    *to.add(i) = if brain { from_bf16(bits) } else { from_f16(bits) };
                }
            }
        }
    }
}

/// Plain loops.
fn small(p: Halves) {
    for i in 0..p.m {
        for j in 0..p.n {
            let mut sum = 0.0;
            for l in 0..p.k {
                // SAFETY: inside both sides.
                sum += unsafe { p.wide(*p.a.at(i, l)) * p.wide(*p.b.at(l, j)) };
            }
            // SAFETY: inside `out`.
            unsafe { p.put(i, j, sum) }
        }
    }
}

per_isa! {
    /// Matrix times vector where columns are contiguous: sums of scaled columns.
    fn columns(p: Halves, x: &[f32]) {
        for i in (0..p.m).step_by(ROWS) {
            let n = (p.m - i).min(ROWS);
            let (mut sums, mut column) = ([0.0; ROWS], [0.0; ROWS]);
            for (l, &x) in x.iter().enumerate() {
                // SAFETY: a stretch of column `l`.
                unsafe { widen(p.brain, p.a.at(i, l), 1, n, column.as_mut_ptr()) };
                for r in 0..ROWS {
                    sums[r] += column[r] * x;
                }
            }
            for (r, &sum) in sums[..n].iter().enumerate() {
                // SAFETY: inside `out`.
                unsafe { p.put(i + r, 0, sum) }
            }
        }
    }
}

per_isa! {
    /// Matrix times vector by rows: each a dot product in 64 partial sums.
    fn dots(p: Halves, x: &[f32]) {
        const WIDTH: usize = 64;
        let mut row = [0.0; WIDTH];
        for i in 0..p.m {
            let mut sums = [0.0; WIDTH];
            let (parts, rest) = x.as_chunks::<WIDTH>();
            for (at, x) in parts.iter().enumerate() {
                // SAFETY: inside the row.
                unsafe { widen(p.brain, p.a.at(i, at * WIDTH), p.a.col, WIDTH, row.as_mut_ptr()) };
                for l in 0..WIDTH {
                    sums[l] += row[l] * x[l];
                }
            }
            for (l, x) in rest.iter().enumerate() {
                // SAFETY: as above.
                sums[l] += p.wide(unsafe { *p.a.at(i, parts.len() * WIDTH + l) }) * x;
            }
            let mut width = WIDTH;
            while width > 1 {
                width /= 2;
                for l in 0..width {
                    sums[l] += sums[l + width];
                }
            }
            // SAFETY: inside `out`.
            unsafe { p.put(i, 0, sums[0]) }
        }
    }
}

/// One product by tiles, on this thread.
fn block(p: Halves) {
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    let in_pairs = p.brain && pairs::available();
    #[cfg(not(all(target_arch = "x86_64", feature = "avx512")))]
    let in_pairs = false;
    // Blocks of nearly the same depth: a short rest would cost a pass of its own.
    let per_word = 1 + usize::from(in_pairs);
    let words = p.k.div_ceil(p.k.div_ceil(MOST * per_word)).next_multiple_of(16 * per_word) / per_word;
    // Sixteen more, so that panels and rows do not begin in the same set of a cache.
    let (panel, panels) = (words * NR + 16, NC.min(p.n).div_ceil(NR));
    let left = MC.min(p.m).next_multiple_of(16) * (words + 16);
    // Sums of more than one block of the depth wait here, tile by tile.
    let one_block = p.k <= words * per_word;
    let mut waiting = Scratch::<f32>::new(if one_block { 0 } else { p.m.div_ceil(MR) * panels * MR * NR });
    ROOM.with_borrow_mut(|room| {
        scratch::grow(room, (left + panels * panel).div_ceil(16), Line([0; 16]));
        let room: *mut u32 = room.as_mut_ptr().cast();
        let waiting = if one_block { None } else { Some(waiting.as_mut_ptr()) };
        let pass = Pass { p: &p, words, left: room, right: room.wrapping_add(left), panel, waiting };
        // SAFETY: the caller's matrices are in bounds and the room is as large as this depth needs; `in_pairs` says that the
        // machine has that instruction.
        unsafe {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            if in_pairs {
                return pairs::run(pass);
            }
            sets::tiles(pass)
        }
    });
}

/// A product, and room for its parts.
struct Pass<'a> {
    p: &'a Halves,
    /// Most words of depth that are packed at once.
    words: usize,
    /// [`MC`] rows of the left side, each of `words + 16` words.
    left: *mut u32,
    /// Panels of the right side, each of `panel` words.
    right: *mut u32,
    panel: usize,
    /// Where sums wait, if there is more than one block of depth.
    waiting: Option<*mut f32>,
}

/// A way to multiply. `WORD`s are four bytes: what the packed sides are made of.
///
/// The methods must be `#[inline(always)]`, and are only called where the machine has their instructions.
trait Arithmetic {
    /// How many numbers of the depth are in a word.
    const PER_WORD: usize;

    /// The left side, which may stay where it is. There is room for its rows, rounded up to 16, of its words rounded up to 16, and 16 more.
    ///
    /// # Safety
    /// `p` is in bounds.
    unsafe fn left(p: &Halves, room: *mut u32) -> Left;

    /// One panel: words of a row and all columns, then of the next. Columns that do not exist are zero, or whatever was in the room.
    ///
    /// # Safety
    /// `p` is in bounds and has at most [`NR`] columns; there is room for a depth rounded up to 16 words.
    unsafe fn right(p: &Halves, room: *mut u32);

    /// Adds to the tile, or sets it. Only the first `m` rows and `n` columns of it count.
    ///
    /// # Safety
    /// Rows and panel have this depth.
    unsafe fn multiply(rows: &Rows, panel: *const u32, size: (usize, usize, usize), tile: *mut f32, add: bool);

    /// Rounds `n` sums to neighbors in bf16 or f16.
    ///
    /// # Safety
    /// As many are readable and writable.
    #[inline(always)]
    unsafe fn round(brain: bool, sums: *const f32, n: usize, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe {
            if brain {
                for c in 0..n {
                    *to.add(c) = to_bf16(*sums.add(c));
                }
            } else {
                for c in 0..n {
                    *to.add(c) = to_f16(*sums.add(c));
                }
            }
        }
    }
}

/// Where the left side of a product lies, as words; steps are in bytes.
#[derive(Clone, Copy)]
struct Left {
    at: *const u8,
    /// From a strip of [`MR`] rows to the next.
    strip: usize,
    row: usize,
    word: usize,
}

/// The rows of a tile: first words, and the bytes from a word to the next. Rows that do not exist are the last one.
struct Rows {
    at: [*const u8; MR],
    word: usize,
}

impl Left {
    #[inline(always)]
    fn rows(&self, strip: usize, count: usize) -> Rows {
        let first = self.at.wrapping_add(strip * self.strip);
        let mut at = [first; MR];
        for r in 0..MR {
            at[r] = first.wrapping_add(r.min(count - 1) * self.row);
        }
        Rows { at, word: self.word }
    }
}

/// The loops around the tiles.
///
/// # Safety
/// The matrices are in bounds, and the machine has the instructions of `A`.
#[inline(always)]
unsafe fn tiles<A: Arithmetic>(pass: Pass<'_>) {
    let (depth, mut own) = (pass.words * A::PER_WORD, Tile([0.0; MR * NR]));
    for j in (0..pass.p.n).step_by(NC) {
        let p = pass.p.cols(j..pass.p.n.min(j + NC));
        let panels = p.n.div_ceil(NR);
        for k in (0..p.k).step_by(depth) {
            let (part, last) = (p.depth(k..p.k.min(k + depth)), k + depth >= p.k);
            for q in 0..panels {
                let of = part.cols(q * NR..p.n.min((q + 1) * NR));
                // SAFETY: there is room for all panels.
                unsafe { A::right(&of, pass.right.wrapping_add(q * pass.panel)) };
            }
            for i in (0..p.m).step_by(MC) {
                let part = part.rows(i..p.m.min(i + MC));
                // SAFETY: there is room for a block of rows.
                let left = unsafe { A::left(&part, pass.left) };
                for q in 0..panels {
                    for s in 0..part.m.div_ceil(MR) {
                        let (m, n) = (MR.min(part.m - s * MR), NR.min(part.n - q * NR));
                        let tile = match pass.waiting {
                            None => own.0.as_mut_ptr(),
                            Some(tiles) => tiles.wrapping_add(((i / MR + s) * panels + q) * MR * NR),
                        };
                        let from = pass.right.wrapping_add(q * pass.panel).cast_const();
                        // SAFETY: the packed sides have these rows, columns and depth; the tile is ours.
                        unsafe {
                            A::multiply(&left.rows(s, m), from, (m, n, part.k), tile, k > 0);
                            if last {
                                finish::<A>(&part, (s * MR, q * NR), (m, n), tile);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Rounds the sums of a tile into `out`.
///
/// # Safety
/// `out` has these rows and columns; the tile is a whole one, and ours.
#[inline(always)]
unsafe fn finish<A: Arithmetic>(p: &Halves, (i, j): (usize, usize), (m, n): (usize, usize), tile: *mut f32) {
    for r in 0..m {
        let (row, to) = (tile.wrapping_add(r * NR), p.out.at(i + r, j));
        // SAFETY: a row of the tile, and the columns of one of `out`, whose sizes the term has.
        unsafe {
            if p.alpha != 1.0 {
                for c in 0..n {
                    *row.add(c) *= p.alpha;
                }
            }
            if p.beta != 0.0 {
                let mut term = [0.0; NR];
                widen(p.brain, p.term.at(i + r, j), p.term.col, n, term.as_mut_ptr());
                for c in 0..n {
                    *row.add(c) += p.beta * term[c];
                }
            }
            if p.out.col == 1 {
                A::round(p.brain, row, n, to);
            } else {
                for c in 0..n {
                    let v = *row.add(c);
                    *to.add(c * p.out.col) = if p.brain { to_bf16(v) } else { to_f16(v) };
                }
            }
        }
    }
}

/// Numbers are widened while they are packed: any instruction set.
impl TileKernel for Pass<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        // SAFETY: the caller's promise.
        unsafe { tiles::<Wide<V, R, N>>(self) }
    }
}

/// f32 in registers of R rows by N vectors.
struct Wide<V, const R: usize, const N: usize>(PhantomData<V>);

impl<V: Vector, const R: usize, const N: usize> Arithmetic for Wide<V, R, N> {
    const PER_WORD: usize = 1;

    #[inline(always)]
    unsafe fn left(p: &Halves, room: *mut u32) -> Left {
        let room: *mut f32 = room.cast();
        let row = p.k.next_multiple_of(16) + 16;
        if p.a.row == 1 && p.a.col != 1 {
            // Columns are contiguous: words of eight rows side by side.
            for s in 0..p.m.div_ceil(MR) {
                let count = MR.min(p.m - s * MR);
                for k in 0..p.k {
                    // SAFETY: inside the side and the room.
                    unsafe { widen(p.brain, p.a.at(s * MR, k), 1, count, room.add(s * MR * row + k * MR)) };
                }
            }
            return Left { at: room.cast_const().cast(), strip: MR * row * 4, row: 4, word: MR * 4 };
        }
        for i in 0..p.m {
            // SAFETY: as above.
            unsafe { widen(p.brain, p.a.at(i, 0), p.a.col, p.k, room.add(i * row)) };
        }
        Left { at: room.cast_const().cast(), strip: MR * row * 4, row: row * 4, word: 4 }
    }

    #[inline(always)]
    unsafe fn right(p: &Halves, room: *mut u32) {
        let room: *mut f32 = room.cast();
        if p.b.row != 1 || p.b.col == 1 {
            for k in 0..p.k {
                // SAFETY: inside the side and the room.
                unsafe { widen(p.brain, p.b.at(k, 0), p.b.col, p.n, room.add(k * NR)) };
            }
            return;
        }
        // Rows are contiguous down the depth: they are widened, then turned, 16 × 16 at a time.
        let mut square = [0.0; LANES * LANES];
        for j in (0..p.n).step_by(LANES) {
            for k in (0..p.k).step_by(LANES) {
                // SAFETY: as above; a panel has room for a depth rounded up to 16.
                unsafe {
                    for c in 0..LANES.min(p.n - j) {
                        let to = square.as_mut_ptr().add(c * LANES);
                        if p.k - k >= LANES {
                            widen(p.brain, p.b.at(k, j + c), 1, LANES, to);
                        } else {
                            widen(p.brain, p.b.at(k, j + c), 1, p.k - k, to);
                        }
                    }
                    V::transpose(square.as_ptr(), LANES, LANES, u16::MAX, |q, v| v.store(room.add((k + q) * NR + j)));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply(rows: &Rows, panel: *const u32, (m, n, k): (usize, usize, usize), tile: *mut f32, add: bool) {
        for up in (0..m).step_by(R) {
            let mut at = [rows.at[0]; R];
            at.copy_from_slice(&rows.at[up..up + R]);
            for across in (0..n).step_by(N * LANES) {
                let (panel, tile) = (panel.wrapping_add(across).cast(), tile.wrapping_add(up * NR + across));
                // SAFETY: the caller's promise.
                unsafe {
                    match n - across <= LANES {
                        true => registers::<V, R, 1>(at, rows.word, panel, k, tile, add),
                        false => registers::<V, R, N>(at, rows.word, panel, k, tile, add),
                    }
                }
            }
        }
    }
}

/// R rows of N vectors, summed in registers.
///
/// # Safety
/// As [`Arithmetic::multiply`].
#[inline(always)]
unsafe fn registers<V: Vector, const R: usize, const N: usize>(
    rows: [*const u8; R],
    word: usize,
    panel: *const f32,
    depth: usize,
    tile: *mut f32,
    add: bool,
) {
    let mut sums = [[V::zero(); N]; R];
    for k in 0..depth {
        let mut columns = [V::zero(); N];
        for h in 0..N {
            // SAFETY: inside the panel.
            columns[h] = unsafe { V::load(panel.add(k * NR + h * LANES)) };
        }
        for r in 0..R {
            // SAFETY: inside the row.
            let v = V::splat(unsafe { rows[r].add(k * word).cast::<f32>().read_unaligned() });
            for h in 0..N {
                sums[r][h] = v.mul_add(columns[h], sums[r][h]);
            }
        }
    }
    for r in 0..R {
        for h in 0..N {
            let to = tile.wrapping_add(r * NR + h * LANES);
            // SAFETY: inside the tile.
            unsafe {
                let sum = if add { sums[r][h].add(V::load(to)) } else { sums[r][h] };
                sum.store(to);
            }
        }
    }
}
