//! Products of bf16, and of bytes, by the instructions of 64-bit ARM that multiply small matrices: `bfmmla` adds the product of
//! 2 × 4 and 4 × 2 numbers of bf16 to 2 × 2 sums in f32, `smmla` that of 2 × 8 and 8 × 2 bytes to 2 × 2 sums in i32. Machines
//! may lack either (the features `bf16` and `i8mm`); that is asked at run time.
//!
//! Both sides are packed in strips of eight rows (columns of the right side), for 8 × 8 sums in sixteen registers.
//! Guarantees: an element is the sum over its own row and column in order of depth, so any cut over threads gives the
//! same bits; sums of bytes are exact modulo 2³². `bfmmla` rounds its sums to odd and takes subnormal numbers for zero.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::{Batch, GRAIN, Given, Mat, Product, Ring, SMALL, put_half, put_ring};
use crate::cpu::{Isa, isa};
use crate::real::Ptr;
use crate::{DType, Element, bf16, parallel, scratch};
use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

/// Rows of a strip, and columns of one of the right side.
const SIDE: usize = 8;
/// Bytes that the instructions take of each row.
const BYTES: usize = 8;

/// A type that one of the instructions multiplies.
trait Pairs: Element {
    /// What the products are summed in.
    type Sum: Copy + Default;
    /// Whether this machine has the instruction.
    fn available() -> bool;
    /// `[8, 8]` sums of two strips of `blocks` × 64 bytes.
    ///
    /// # Safety
    /// The strips are readable and the machine has the instruction.
    unsafe fn multiply(a: *const u8, b: *const u8, blocks: usize) -> [[Self::Sum; SIDE]; SIDE];
}

macro_rules! multiply {
    ($name:ident, $feature:literal, $instruction:literal, $sum:ty, $zero:ident, $store:ident) => {
        /// # Safety
        /// As [`Pairs::multiply`].
        #[target_feature(enable = $feature)]
        unsafe fn $name(mut a: *const u8, mut b: *const u8, blocks: usize) -> [[$sum; SIDE]; SIDE] {
            let mut sums = [[$zero(0 as $sum); 4]; 4];
            for _ in 0..blocks {
                // SAFETY: the strips have 64 bytes of each block; the machine has the instruction.
                unsafe {
                    let left = [vld1q_u8(a), vld1q_u8(a.add(16)), vld1q_u8(a.add(32)), vld1q_u8(a.add(48))];
                    let right = [vld1q_u8(b), vld1q_u8(b.add(16)), vld1q_u8(b.add(32)), vld1q_u8(b.add(48))];
                    for i in 0..4 {
                        for j in 0..4 {
                            asm!(
                                $instruction,
                                inout(vreg) sums[i][j],
                                in(vreg) left[i],
                                in(vreg) right[j],
                                options(pure, nomem, nostack, preserves_flags)
                            );
                        }
                    }
                    (a, b) = (a.add(SIDE * BYTES), b.add(SIDE * BYTES));
                }
            }
            let mut out = [[0 as $sum; SIDE]; SIDE];
            for i in 0..4 {
                for j in 0..4 {
                    let mut square = [0 as $sum; 4];
                    // SAFETY: four sums.
                    unsafe { $store(square.as_mut_ptr(), sums[i][j]) };
                    for at in 0..4 {
                        out[2 * i + at / 2][2 * j + at % 2] = square[at];
                    }
                }
            }
            out
        }
    };
}
multiply!(multiply_bf16, "neon,bf16", "bfmmla {0:v}.4s, {1:v}.8h, {2:v}.8h", f32, vdupq_n_f32, vst1q_f32);
multiply!(multiply_bytes, "neon,i8mm", "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", i32, vdupq_n_s32, vst1q_s32);

impl Pairs for bf16 {
    type Sum = f32;
    fn available() -> bool {
        is_aarch64_feature_detected!("bf16")
    }
    unsafe fn multiply(a: *const u8, b: *const u8, blocks: usize) -> [[f32; SIDE]; SIDE] {
        // SAFETY: the caller's promise.
        unsafe { multiply_bf16(a, b, blocks) }
    }
}

/// Of unsigned bytes too: the lowest byte of a sum does not depend on the signs.
macro_rules! bytes {
    ($($t:ty)*) => {$(
        impl Pairs for $t {
            type Sum = i32;
            fn available() -> bool {
                is_aarch64_feature_detected!("i8mm")
            }
            unsafe fn multiply(a: *const u8, b: *const u8, blocks: usize) -> [[i32; SIDE]; SIDE] {
                // SAFETY: the caller's promise.
                unsafe { multiply_bytes(a, b, blocks) }
            }
        }
    )*};
}
bytes!(i8 u8);

/// The products, if there is an instruction for them and they are worth packing, which vectors and tiny matrices are not;
/// returns whether that was so.
pub(super) fn run(given: Given<'_>, alpha: f64, beta: f64) -> bool {
    match given.out.dtype() {
        DType::BF16 => {
            let batch = Batch::<bf16>::new(given, bf16::from_f64(alpha), bf16::from_f64(beta));
            let alpha = alpha as f32;
            // SAFETY: an element of the product.
            takes(&batch) && products(&batch, |p, i, j, sum| unsafe { put_half(p, i, j, alpha * sum, beta) })
        }
        DType::I8 => integers::<i8>(given, alpha, beta, |sum| sum as i8),
        DType::U8 => integers::<u8>(given, alpha, beta, |sum| sum as u8),
        _ => false,
    }
}

fn integers<T: Pairs<Sum = i32> + Ring>(given: Given<'_>, alpha: f64, beta: f64, cut: fn(i32) -> T) -> bool {
    let batch = Batch::<T>::new(given, T::from_f64(alpha), T::from_f64(beta));
    // SAFETY: an element of the product.
    takes(&batch) && products(&batch, |p, i, j, sum| unsafe { put_ring(p, i, j, cut(sum)) })
}

fn takes<T: Pairs>(batch: &Batch<'_, T>) -> bool {
    let Product { m, n, k, .. } = batch.first;
    isa() == Isa::Neon && m > 1 && n > 1 && k > 1 && m * n * k > SMALL && T::available()
}

/// Calls `put` with the sum for every row and column of every product; [`takes`] has said yes. Sums of different rows may
/// come from different threads. True.
fn products<T: Pairs>(batch: &Batch<'_, T>, put: impl Fn(&Product<T>, usize, usize, T::Sum) + Sync) -> bool {
    let work = batch.first.work();
    if batch.count > 1 && (batch.count >= parallel::num_threads() || work < 4 * GRAIN) {
        let grain = (GRAIN / work.max(1)).max(1);
        parallel::split(batch.count, grain, |r| r.for_each(|i| one(&batch.get(i), &put)));
    } else {
        (0..batch.count).for_each(|i| one(&batch.get(i), &put));
    }
    true
}

fn one<T: Pairs>(p: &Product<T>, put: &(impl Fn(&Product<T>, usize, usize, T::Sum) + Sync)) {
    let each = BYTES / size_of::<T>();
    let blocks = p.k.div_ceil(each);
    let len = blocks * each * SIDE;
    let zero = T::from_f64(0.0);
    let (strips, panels) = (p.m.div_ceil(SIDE), p.n.div_ceil(SIDE));
    let mut right = scratch::filled(zero, panels * len);
    let to = Ptr::new(&mut right);
    parallel::split(panels, (GRAIN / 4 / len).max(1), |r| {
        for j in r {
            // SAFETY: panels are disjoint; columns and depth are those of `b`.
            unsafe { pack(p.b.transposed().from(j * SIDE, 0), p.n - j * SIDE, p.k, to.slice(j * len, len)) }
        }
    });
    let from = to;
    parallel::split(strips, (GRAIN / (len * panels * SIDE)).max(1), |r| {
        let mut left = scratch::filled(zero, len);
        for i in r {
            let top = i * SIDE;
            // SAFETY: rows and depth are those of `a`; `takes` has asked for the instruction; the panels are packed.
            unsafe {
                pack(p.a.from(top, 0), p.m - top, p.k, &mut left);
                for j in 0..panels {
                    let sums = T::multiply(left.as_ptr().cast(), from.at(j * len).cast_const().cast(), blocks);
                    for (row, sums) in sums.iter().enumerate().take(p.m - top) {
                        for (column, &sum) in sums.iter().enumerate().take(p.n - j * SIDE) {
                            put(p, top + row, j * SIDE + column, sum);
                        }
                    }
                }
            }
        }
    });
}

/// A strip of the first eight of `rows` rows: eight bytes of each, then the next eight. What does not exist stays as it is.
///
/// # Safety
/// The matrix has these rows and this depth.
unsafe fn pack<T: Pairs>(side: Mat<T>, rows: usize, depth: usize, to: &mut [T]) {
    let each = BYTES / size_of::<T>();
    for row in 0..rows.min(SIDE) {
        for (block, to) in to.chunks_exact_mut(each * SIDE).enumerate() {
            let first = block * each;
            for (l, to) in to[row * each..][..each.min(depth - first)].iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *to = unsafe { *side.at(row, first + l) };
            }
        }
    }
}
