//! Two instructions as one pass: a sum, difference or product whose only reader takes it on at once.
//!
//! The value between the two stays in a vector register, which halves the passes of a chain. Each step rounds as it would
//! alone, so results are those of two instructions to the bit. Pairs are of f32; who else has a chain runs it step by step.
#![allow(unsafe_code)]

use super::Op;
use super::loops::{Arg, mixed2, mixed3};
use crate::vmath;

/// The first step of a pair, on operands `a` and `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    Add,
    Sub,
    Mul,
}

/// What becomes of the first step's value `v`, with a third operand `c` or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Add,
    /// `v - c`
    Sub,
    /// `c - v`
    From,
    Mul,
    Square,
    Relu,
    Exp,
    Tanh,
    Sigmoid,
}

impl First {
    /// The first step that an instruction can be.
    pub(super) fn of(op: Op) -> Option<First> {
        match op {
            Op::Add => Some(First::Add),
            Op::Sub => Some(First::Sub),
            Op::Mul => Some(First::Mul),
            _ => None,
        }
    }
}

impl Then {
    /// What an instruction is that reads `v` as its operand number `at`.
    pub(super) fn of(op: Op, at: usize) -> Option<Then> {
        match op {
            Op::Add => Some(Then::Add),
            Op::Sub => Some(if at == 0 { Then::Sub } else { Then::From }),
            Op::Mul => Some(Then::Mul),
            Op::Square => Some(Then::Square),
            Op::Relu => Some(Then::Relu),
            Op::Exp => Some(Then::Exp),
            Op::Tanh => Some(Then::Tanh),
            Op::Sigmoid => Some(Then::Sigmoid),
            _ => None,
        }
    }
}

/// Runs a pair on `n` elements.
///
/// # Safety
/// `d` is writable and `args` are readable for `n` elements of f32 (for a scalar: one); `d` overlaps none of them.
#[inline(always)]
pub(super) unsafe fn step<const F: bool>(first: First, then: Then, d: *mut u8, args: &[Arg; 3], n: usize) {
    // A scalar comes second where the order does not matter.
    let swapped = [args[1], args[0], args[2]];
    let args = if args[0].step == 0 && first != First::Sub { &swapped } else { args };
    // SAFETY: passed on.
    unsafe {
        match first {
            First::Add => second::<F>(then, d, args, n, |a, b| a + b),
            First::Sub => second::<F>(then, d, args, n, |a, b| a - b),
            First::Mul => second::<F>(then, d, args, n, |a, b| a * b),
        }
    }
}

/// # Safety
/// As for [`step`].
#[inline(always)]
unsafe fn second<const F: bool>(
    then: Then,
    d: *mut u8,
    args: &[Arg; 3],
    n: usize,
    first: impl Fn(f32, f32) -> f32 + Copy,
) {
    // SAFETY: passed on.
    unsafe {
        match then {
            Then::Add => mixed3(d, args, n, |a: f32, b: f32, c: f32| first(a, b) + c),
            Then::Sub => mixed3(d, args, n, |a: f32, b: f32, c: f32| first(a, b) - c),
            Then::From => mixed3(d, args, n, |a: f32, b: f32, c: f32| c - first(a, b)),
            Then::Mul => mixed3(d, args, n, |a: f32, b: f32, c: f32| first(a, b) * c),
            Then::Square => mixed2(d, args[0], args[1], n, |a: f32, b: f32| {
                let v = first(a, b);
                v * v
            }),
            Then::Relu => mixed2(d, args[0], args[1], n, |a: f32, b: f32| {
                let v = first(a, b);
                if v < 0.0 { 0.0 } else { v }
            }),
            Then::Exp => mixed2(d, args[0], args[1], n, |a: f32, b: f32| vmath::exp::<F>(first(a, b))),
            Then::Tanh => mixed2(d, args[0], args[1], n, |a: f32, b: f32| vmath::tanh::<F>(first(a, b))),
            Then::Sigmoid => mixed2(d, args[0], args[1], n, |a: f32, b: f32| vmath::sigmoid::<F>(first(a, b))),
        }
    }
}
