//! Instruction sets: one file each, and the little that kernels need to be written once for all of them.
//!
//! Two kinds of kernels exist. A [`Kernel`](crate::lanes::Kernel) is plain loops that LLVM vectorises; a set only compiles it with its features on.
//! A [`TileKernel`] keeps sums in registers and is written over [`Vector`], sixteen f32 side by side: one register of AVX-512,
//! two of AVX2, four of NEON, simd128 or SSE2 (see [`wide`]). The set says how many rows and vectors of such sums its
//! registers hold.
//!
//! To add a set: a file with its features, its register and its two entries, and then one line each where a set is named: in
//! [`crate::cpu::Isa`], in [`rows`] and [`tiles`], in `pointwise/loops.rs` (a table of loops, which `instruction_set!` compiles), and, if the
//! baseline of its architecture is below it, in `per_isa!`. No kernel changes. What a set can do that others cannot is beside the kernel that
//! wants it: products of bf16 and bytes in `matmul/pairs.rs`.
//!
//! Everything here is `#[inline(always)]`: only code that ends up inside an entry is compiled for the set.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", feature = "avx2"))]
pub(crate) mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod simd128;
#[cfg(test)]
mod tests;
mod wide;

#[allow(unused_imports)] // WebAssembly without simd128 has no arm that names a set
use crate::cpu::Isa;
use crate::cpu::isa;
use crate::lanes::Kernel;

/// Values in a [`Vector`].
pub(crate) const LANES: usize = 16;

/// A loop body over vectors, to be compiled for every instruction set. `run` must be `#[inline(always)]`, and so must be
/// what it calls.
pub(crate) trait TileKernel {
    /// What it computes.
    type Out;
    /// The body. Registers hold `R` rows of `N` vectors of sums, and what is needed to add to them; `R` divides 8 and `N` is 1 or 2.
    ///
    /// # Safety
    /// What the kernel says, and the machine has the instruction set of `V`.
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) -> Self::Out;
}

/// Runs the loops compiled for the instruction set in use.
#[inline]
pub(crate) fn rows<K: Kernel>(k: K) -> K::Out {
    match isa() {
        // SAFETY: `isa` names a set this machine has.
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        Isa::Avx512 => unsafe { avx512::rows(k) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
        Isa::Avx2 => unsafe { avx2::rows(k) },
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::rows(k),
        _ => portable::rows(k),
    }
}

/// Runs the tile kernel compiled for the instruction set in use.
///
/// # Safety
/// What the kernel says.
#[inline]
pub(crate) unsafe fn tiles<K: TileKernel>(k: K) -> K::Out {
    // SAFETY: the caller's promise; `isa` names a set this machine has.
    unsafe {
        match isa() {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Isa::Avx512 => avx512::tiles(k),
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            Isa::Avx2 => avx2::tiles(k),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::tiles(k),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => simd128::tiles(k),
            _ => portable::tiles(k),
        }
    }
}

/// Sixteen f32. A *mask* says of which lanes a load or store takes notice, the lowest bit of the first lane; memory under
/// the other lanes is not touched.
///
/// The methods that do not take pointers are safe because a vector is only handled inside a [`TileKernel`], whose caller has promised
/// that the machine has the instruction set.
pub(crate) trait Vector: Copy {
    fn splat(v: f32) -> Self;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    /// # Safety
    /// Sixteen values are readable.
    unsafe fn load(from: *const f32) -> Self;
    /// # Safety
    /// Sixteen values are writable.
    unsafe fn store(self, to: *mut f32);
    /// The lanes of the mask; the others are those of `self`.
    ///
    /// # Safety
    /// The lanes of the mask are readable.
    unsafe fn load_over(self, mask: u16, from: *const f32) -> Self;
    /// # Safety
    /// The lanes of the mask are writable.
    unsafe fn store_some(self, mask: u16, to: *mut f32);
    /// Lane `l` from `from[offsets[l]]`; zero outside of the mask.
    ///
    /// # Safety
    /// The lanes of the mask are readable.
    unsafe fn gather(mask: u16, from: *const f32, offsets: &[i32; LANES]) -> Self;

    /// The lanes of the mask; zero in the others.
    ///
    /// # Safety
    /// The lanes of the mask are readable.
    #[inline(always)]
    unsafe fn load_some(mask: u16, from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::zero().load_over(mask, from) }
    }

    /// The first eight lanes to one place, the last eight to another.
    ///
    /// # Safety
    /// Eight values are writable at both.
    unsafe fn store_halves(self, low: *mut f32, high: *mut f32);

    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// `self * b + c`, rounded once where that is an instruction.
    fn mul_add(self, b: Self, c: Self) -> Self;

    /// The larger of two in each lane, and what belongs to it: the second where it is larger than the first, or NaN.
    #[inline(always)]
    fn larger(first: (Self, Self), second: (Self, Self)) -> (Self, Self) {
        let mut lanes = [[0.0; LANES]; 4];
        for (v, lanes) in [first.0, first.1, second.0, second.1].into_iter().zip(&mut lanes) {
            // SAFETY: sixteen values.
            unsafe { v.store(lanes.as_mut_ptr()) }
        }
        let [mut best, mut of_best, value, of_value] = lanes;
        for l in 0..LANES {
            let wins = value[l] > best[l] || value[l].is_nan();
            best[l] = if wins { value[l] } else { best[l] };
            of_best[l] = if wins { of_value[l] } else { of_best[l] };
        }
        // SAFETY: sixteen values.
        unsafe { (Self::load(best.as_ptr()), Self::load(of_best.as_ptr())) }
    }

    /// Lanes 0, 2, 4, … of the thirty-two, and lanes 1, 3, 5, ….
    fn unzip(self, o: Self) -> [Self; 2];
    /// The inverse of [`Vector::unzip`].
    fn zip(self, o: Self) -> [Self; 2];

    /// Sixteen rows of sixteen values, `step` apart, transposed: `put(l, v)` is called with lane `r` of `v` being value `l` of
    /// row `r`. Rows from `rows` on, and values outside of the mask, count as zero.
    ///
    /// # Safety
    /// The rest is readable.
    unsafe fn transpose(from: *const f32, step: usize, rows: usize, mask: u16, put: impl FnMut(usize, Self));

    /// Asks for the line of the cache at this address, which may be anywhere.
    #[inline(always)]
    fn prefetch(_at: *const f32) {}
}

/// The first `n` of 16 lanes.
#[inline(always)]
pub(crate) fn first(n: usize) -> u16 {
    if n >= LANES { u16::MAX } else { (1 << n) - 1 }
}

/// `to[j][i] = from[i][j]` for a block of 16 × 16; the steps are those between rows.
///
/// # Safety
/// Both blocks are in bounds; the machine has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn transpose16<V: Vector>(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
    // SAFETY: the caller's promise.
    unsafe { V::transpose(from, from_step, LANES, u16::MAX, |j, v| v.store(to.add(j * to_step))) }
}
