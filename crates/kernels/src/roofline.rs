//! What the machine can do at most: loops that do nothing but fused multiply-adds, or nothing but moving memory.
//!
//! Each runs on the calling thread, compiled for the instruction set in use, and says how much it did; taking the time is
//! up to the caller. They compute nothing of use.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use crate::cpu::{Isa, isa};
use crate::lanes::{Compute, Kernel, dispatch};
use crate::sets::{self, LANES, TileKernel, Vector};
use std::hint::black_box;

/// Independent sums: enough to hide the latency of an instruction on every machine, and few enough to stay in registers.
const CHAINS: usize = 12;

/// Chains of multiply-adds in `L` lanes.
struct MultiplyAdd<X, const L: usize> {
    rounds: usize,
    by: X,
}

impl<X: Compute, const L: usize> Kernel for MultiplyAdd<X, L> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut chains = [[X::ONE; L]; CHAINS];
        for _ in 0..self.rounds {
            for chain in &mut chains {
                for x in chain {
                    *x = x.mul_add::<FMA>(self.by, self.by)
                }
            }
        }
        black_box(chains);
    }
}

/// [`MultiplyAdd`] of f32 by vectors, `count` of them: LLVM leaves the plain loops in single lanes.
struct InVectors {
    rounds: usize,
    by: f32,
    count: usize,
}

impl TileKernel for InVectors {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        match self.count {
            CHAINS => self.chains::<V, CHAINS>(),
            6 => self.chains::<V, 6>(),
            _ => self.chains::<V, 3>(),
        }
    }
}

impl InVectors {
    #[inline(always)]
    fn chains<V: Vector, const C: usize>(self) {
        let (mut chains, by) = ([V::splat(1.0); C], V::splat(self.by));
        for _ in 0..self.rounds {
            for c in 0..C {
                chains[c] = chains[c].mul_add(by, by)
            }
        }
        let mut lanes = [0f32; LANES];
        for v in chains {
            // SAFETY: sixteen values.
            unsafe { v.store(lanes.as_mut_ptr()) };
            black_box(&mut lanes);
        }
    }
}

/// Runs `rounds` rounds and says how many operations that were; a multiply-add is two.
fn multiply_add<X: Compute>(rounds: usize) -> u64 {
    // A factor that the compiler does not know, below one: the sums stay finite and normal.
    let by = X::of(black_box(0.5f64));
    let bytes = match isa() {
        Isa::Avx512 => 64,
        Isa::Avx2 => 32,
        _ => 16,
    };
    let lanes = bytes / std::mem::size_of::<X>();
    match lanes {
        8 => dispatch(MultiplyAdd::<X, 8> { rounds, by }),
        4 => dispatch(MultiplyAdd::<X, 4> { rounds, by }),
        _ => dispatch(MultiplyAdd::<X, 2> { rounds, by }),
    }
    2 * (rounds * CHAINS * lanes) as u64
}

/// Multiply-adds of f32 in registers; says how many operations it did.
pub fn multiply_add_f32(rounds: usize) -> u64 {
    // As many registers as there are chains of f64.
    let count = match isa() {
        Isa::Avx512 => CHAINS,
        Isa::Avx2 => CHAINS / 2,
        _ => CHAINS / 4,
    };
    // SAFETY: it asks for nothing but its instruction set.
    unsafe { sets::tiles(InVectors { rounds, by: black_box(0.5), count }) };
    2 * (rounds * count * LANES) as u64
}

/// Multiply-adds of f64 in registers; says how many operations it did.
pub fn multiply_add_f64(rounds: usize) -> u64 {
    multiply_add::<f64>(rounds)
}

struct Read<'a>(&'a [f32]);

impl Kernel for Read<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const L: usize = 128;
        let mut lanes = [0f32; L];
        for chunk in self.0.as_chunks::<L>().0 {
            for i in 0..L {
                lanes[i] += chunk[i]
            }
        }
        black_box(lanes);
    }
}

/// Reads everything once; says how many bytes that were.
pub fn read(from: &[f32]) -> u64 {
    dispatch(Read(from));
    std::mem::size_of_val(from) as u64
}

/// Copies; says how many bytes were read and written.
///
/// # Panics
/// If the lengths differ.
pub fn copy(from: &[f32], to: &mut [f32]) -> u64 {
    to.copy_from_slice(from);
    black_box(to);
    2 * std::mem::size_of_val(from) as u64
}

struct Triad<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for Triad<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Triad(a, b, to) = self;
        for ((&a, &b), to) in a.iter().zip(b).zip(to) {
            *to = Compute::mul_add::<FMA>(b, 0.5, a)
        }
    }
}

/// `to = a + b / 2`; says how many bytes were read and written.
pub fn triad(a: &[f32], b: &[f32], to: &mut [f32]) -> u64 {
    dispatch(Triad(a, b, &mut *to));
    black_box(to);
    3 * std::mem::size_of_val(a).min(std::mem::size_of_val(b)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_say_what_they_did() {
        let (a, mut b) = (vec![1f32; 300], vec![0f32; 300]);
        assert_eq!((read(&a), copy(&a, &mut b)), (1200, 2400));
        assert_eq!(b, a);
        let twos = vec![2f32; 300];
        assert_eq!((triad(&a, &twos, &mut b), b[0], b[299]), (3600, 2.0, 2.0));
        // Whatever the width of a register, f64 has half the lanes of f32.
        assert_eq!(multiply_add_f32(10), 2 * multiply_add_f64(10));
    }
}
