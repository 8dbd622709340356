//! The machine's peaks: loops of nothing but fused multiply-adds, or of nothing but memory traffic.
//!
//! Each runs on the calling thread, compiled for the instruction set in use, and says how much it did; taking the time is
//! up to the caller. They compute nothing of use.
#![allow(unsafe_code)]

use crate::cpu::{Isa, isa};
use crate::lanes::{Compute, Kernel, dispatch};
use crate::sets::{LANES, TileKernel, Vector, tiles};
use std::hint::black_box;

/// Independent sums: enough to hide the latency of an instruction on every machine, and few enough to stay in registers.
const CHAINS: usize = 12;

/// Chains of multiply-adds in `L` lanes.
struct MultiplyAdd<const L: usize> {
    rounds: usize,
    by: f64,
}

impl<const L: usize> Kernel for MultiplyAdd<L> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut chains = [[1f64; L]; CHAINS];
        for _ in 0..self.rounds {
            for chain in &mut chains {
                for x in chain {
                    *x = Compute::mul_add::<FMA>(*x, self.by, self.by)
                }
            }
        }
        black_box(chains);
    }
}

/// A factor that the compiler does not know, below one: the sums stay finite and normal.
fn factor() -> f64 {
    black_box(0.5)
}

/// As many sums in vectors as the registers of a set hold. Plain loops over f32 are not enough: with sixteen lanes the compiler keeps
/// the sums in memory.
struct Sums {
    rounds: usize,
    by: f32,
}

impl TileKernel for Sums {
    type Out = u64;
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) -> u64 {
        let by = V::splat(self.by);
        let mut sums = [[V::splat(1.0); N]; R];
        for _ in 0..self.rounds {
            for row in &mut sums {
                for sum in row {
                    *sum = sum.mul_add(by, by)
                }
            }
        }
        black_box(sums);
        2 * (self.rounds * R * N * LANES) as u64
    }
}

/// Multiply-adds of f32 in registers; says how many operations it did: a multiply-add is two.
pub fn multiply_add_f32(rounds: usize) -> u64 {
    // SAFETY: the kernel takes no pointers.
    unsafe { tiles(Sums { rounds, by: factor() as f32 }) }
}

/// Multiply-adds of f64 in registers; says how many operations it did.
pub fn multiply_add_f64(rounds: usize) -> u64 {
    let by = factor();
    let lanes = match isa() {
        Isa::Avx512 => 8,
        Isa::Avx2 => 4,
        _ => 2,
    };
    match lanes {
        8 => dispatch(MultiplyAdd::<8> { rounds, by }),
        4 => dispatch(MultiplyAdd::<4> { rounds, by }),
        _ => dispatch(MultiplyAdd::<2> { rounds, by }),
    }
    2 * (rounds * CHAINS * lanes) as u64
}

struct Read<'a>(&'a [f32]);

impl Kernel for Read<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const L: usize = 64;
        let mut lanes = [0f32; L];
        // Four streams at once: a core does not read one as fast as memory can.
        let part = self.0.len() / 4;
        let (a, rest) = self.0.split_at(part);
        let (b, rest) = rest.split_at(part);
        let (c, d) = rest.split_at(part);
        let [a, b, c, d] = [a, b, c, d].map(|s| s.as_chunks::<L>().0);
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for i in 0..L {
                lanes[i] += (a[i] + b[i]) + (c[i] + d[i])
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
        // A multiply-add of one register is the least that a round is.
        for count in [multiply_add_f32, multiply_add_f64] {
            assert!(count(10) >= 10 * 4 && count(20) == 2 * count(10));
        }
    }
}
