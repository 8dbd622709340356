//! One instruction at a time: what an eager op calls.
//!
//! Contiguous operands in a register's own format go straight to the loop, without a plan, scratch or allocation; all
//! else is a program of one instruction.
#![allow(unsafe_code)]

use super::convert::is_native;
use super::exec::{self, Code, STREAM_BYTES, TILE, splat};
use super::loops::{Arg, CHUNK, Loops};
use super::program::{Action, Instr, Place};
use super::{Op, Operand};
use crate::{DType, View, ViewMut, parallel};

/// Elements below which one thread does the work.
const GRAIN: usize = 32 * 1024;

/// `out = op(a)`, computed in `compute`: the promoted dtype of the op, whose width integers wrap to.
#[inline]
pub fn unary(op: Op, compute: DType, a: View, out: ViewMut) {
    run(op, compute, [Operand::View(a)], out)
}

/// `out = op(a, b)`, computed in `compute`.
#[inline]
pub fn binary(op: Op, compute: DType, a: Operand, b: Operand, out: ViewMut) {
    run(op, compute, [a, b], out)
}

/// `out = op(a, b, c)`, computed in `compute`.
#[inline]
pub fn ternary(op: Op, compute: DType, a: Operand, b: Operand, c: Operand, out: ViewMut) {
    run(op, compute, [a, b, c], out)
}

fn run<const N: usize>(op: Op, compute: DType, args: [Operand; N], out: ViewMut) {
    assert_eq!(N, op.arity(), "operands of {op:?}");
    let result = op.result(compute);
    let n = out.numel();
    let bytes = n * result.size();
    let simple = out.dtype() == result && is_native(compute) && bytes < STREAM_BYTES && out.is_contiguous();
    if !simple || !direct(op, compute, &args, out, n) {
        general(op, compute, &args, out)
    }
}

/// Runs the loop on the memory itself, if every operand is contiguous and in the format of a register.
#[inline]
fn direct<const N: usize>(op: Op, compute: DType, args: &[Operand; N], out: ViewMut, n: usize) -> bool {
    let size = out.dtype().size();
    let (lo, hi) = (out.as_ptr() as usize, out.as_ptr() as usize + n * size);
    let mut overlap = false;
    let mut values = [[0u64; CHUNK]; N];
    let mut places = [Arg::tile(out.as_ptr()); 3];
    let mut sizes = [0; 3];
    for (k, arg) in args.iter().enumerate() {
        let dtype = op.operand(k, compute);
        match arg {
            Operand::View(v) => {
                if v.dtype() != dtype || v.sizes() != out.sizes() || !v.is_contiguous() {
                    return false;
                }
                let at = v.as_ptr() as usize;
                overlap |= at < hi && lo < at + n * dtype.size();
                places[k] = Arg::tile(v.as_ptr());
                sizes[k] = dtype.size();
            }
            Operand::Value(v) => {
                let d = values[k].as_mut_ptr().cast();
                // SAFETY: a chunk of the widest registers.
                unsafe { splat(d, *v, dtype, n.min(CHUNK)) }
                places[k] = Arg::splat(d);
            }
        }
    }
    let loops = Loops::get();
    let part = |from: usize, d: *mut u8, n: usize| {
        let mut at = places;
        // SAFETY: element `from` lies inside every operand; a scalar has size 0 and stays.
        (0..3).for_each(|k| at[k].ptr = unsafe { at[k].ptr.add(from * sizes[k]) });
        // SAFETY: `n` elements from there are inside, `d` does not overlap them.
        unsafe { loops.step(op, compute, d, &at, n) }
    };
    if overlap {
        // Computed beside the memory, then put there: a loop never writes what it reads.
        parallel::split(n, GRAIN, |r| {
            let mut tile = [0u64; TILE];
            let buffer = tile.as_mut_ptr().cast::<u8>();
            for from in r.clone().step_by(TILE) {
                let n = TILE.min(r.end - from);
                part(from, buffer, n);
                // SAFETY: `n` elements inside the output; the buffer is on the stack.
                unsafe { std::ptr::copy_nonoverlapping(buffer, out.as_ptr().add(from * size), n * size) }
            }
        })
    } else if n <= GRAIN {
        part(0, out.as_ptr(), n)
    } else {
        // SAFETY: `r` lies inside the output.
        parallel::split(n, GRAIN, |r| part(r.start, unsafe { out.as_ptr().add(r.start * size) }, r.len()))
    }
    true
}

/// A program of one instruction.
#[inline(never)]
fn general(op: Op, compute: DType, args: &[Operand], out: ViewMut) {
    assert!(op.supports(compute), "{op:?} is not defined for {compute}");
    let mut places = [Place::Input(0); 3];
    let mut inputs = [compute; 3];
    for k in 0..args.len() {
        places[k] = Place::Input(k as u16);
        inputs[k] = op.operand(k, compute);
    }
    let instr = Instr { action: Action::Op(op), dtype: compute, dst: Place::Output(0), args: places };
    let code = Code {
        instrs: &[instr],
        registers: 0,
        constants: &[],
        inputs: &inputs[..args.len()],
        outputs: &[op.result(compute)],
    };
    exec::run(code, args, &[out])
}
