//! One instruction at a time: what an eager op calls.
//!
//! Contiguous operands in a register's own format go straight to the loop, without a plan, scratch or allocation; of little
//! work, operands that lie otherwise (broadcast, transposed, sliced) or in another format (half precision, small integers) are
//! copied to where a loop reads them; all else is a program of one instruction.
#![allow(unsafe_code)]

use super::convert::is_native;
use super::exec::{self, Code, STREAM_BYTES, TILE, splat};
use super::loops::{Arg, CHUNK, Loops};
use super::program::{ARGS, Action, Instr, Place};
use super::{Op, Operand, Sink, record};
use crate::moves::move2d;
use crate::walk::for_runs;
use crate::{DType, Flat, View, ViewMut, parallel};
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Elements below which one thread does the work.
const GRAIN: usize = 32 * 1024;

/// `out = op(a)`, computed in `compute`: the promoted dtype of the op, whose width integers wrap to.
#[inline]
pub fn unary(op: Op, compute: DType, a: View, out: ViewMut) {
    run(op, compute, [&Operand::View(a)], &out)
}

/// `out = op(a, b)`, computed in `compute`.
#[inline]
pub fn binary(op: Op, compute: DType, a: Operand, b: Operand, out: ViewMut) {
    run(op, compute, [&a, &b], &out)
}

/// `out = op(a, b, c)`, computed in `compute`.
#[inline]
pub fn ternary(op: Op, compute: DType, a: Operand, b: Operand, c: Operand, out: ViewMut) {
    run(op, compute, [&a, &b, &c], &out)
}

/// Elements up to which [`binary_flat`] runs its own loop: for fewer, the way to a vectorised one costs more.
const TINY: usize = 16;

/// `out = op(a, b)` on as many elements each, all of one dtype.
/// False, and nothing done, unless the work is small and the output's storage is neither operand's.
#[inline]
pub fn binary_flat(op: Op, dtype: DType, a: Flat, b: Flat, out: Flat) -> bool {
    let n = out.len;
    let apart = !out.storage.ptr_eq(a.storage) && !out.storage.ptr_eq(b.storage);
    if record::active() || n > GRAIN || a.len != n || b.len != n || !apart || !is_native(dtype) || op.yields_bool() {
        return false;
    }
    let (x, y, d) = (a.elements(dtype), b.elements(dtype), out.elements(dtype));
    if n <= TINY && dtype == DType::F32 {
        // SAFETY: `n` elements of both, by `elements`; the output is another storage.
        let (x, y, d) = unsafe {
            (
                from_raw_parts(x.cast::<f32>(), n),
                from_raw_parts(y.cast::<f32>(), n),
                from_raw_parts_mut(d.cast::<f32>(), n),
            )
        };
        // Exactly rounded, so the same as in any vectorised loop.
        let done = match op {
            Op::Add => tiny(x, y, d, |x, y| x + y),
            Op::Sub => tiny(x, y, d, |x, y| x - y),
            Op::Mul => tiny(x, y, d, |x, y| x * y),
            _ => false,
        };
        if done {
            return true;
        }
    }
    let places = [Arg::tile(x), Arg::tile(y), Arg::tile(x)];
    // SAFETY: every operand has `n` elements of its type, and none overlaps the output.
    unsafe { Loops::get().step(op, dtype, d, &places, n) }
    true
}

#[inline(always)]
fn tiny(x: &[f32], y: &[f32], d: &mut [f32], f: impl Fn(f32, f32) -> f32) -> bool {
    for ((d, x), y) in d.iter_mut().zip(x).zip(y) {
        *d = f(*x, *y)
    }
    true
}

#[inline]
fn run<const N: usize>(op: Op, compute: DType, args: [&Operand; N], out: &ViewMut) {
    assert_eq!(N, op.arity(), "operands of {op:?}");
    if record::active() {
        return record::note(op, compute, &args, out);
    }
    if !direct(op, compute, args, out) && !gathered(op, compute, args, out) {
        general(op, compute, &args.map(|a| *a), *out)
    }
}

/// Runs the loop on the memory itself, if every operand is contiguous and in the format of a register.
///
/// Operands are only read through references: copying what was just written in smaller pieces stalls longer than a short
/// loop takes.
fn direct<const N: usize>(op: Op, compute: DType, args: [&Operand; N], out: &ViewMut) -> bool {
    let Some(n) = flat(out.sizes(), out.strides()) else { return false };
    let size = out.dtype().size();
    if out.dtype() != op.result(compute) || !is_native(compute) || n * size >= STREAM_BYTES {
        return false;
    }
    let (lo, hi) = (out.as_ptr() as usize, out.as_ptr() as usize + n * size);
    let mut overlap = false;
    let mut values = [const { MaybeUninit::<[u64; 2 * CHUNK]>::uninit() }; N]; // zeroing would cost more than the op
    let mut places = [Arg::tile(out.as_ptr()); 3];
    let mut sizes = [0; 3];
    for (k, arg) in args.into_iter().enumerate() {
        let dtype = op.operand(k, compute);
        match arg {
            Operand::View(v) => {
                // Equal sizes are the caller's promise; equal counts keep the loop inside the memory.
                if v.dtype() != dtype || flat(v.sizes(), v.strides()) != Some(n) {
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
    if overlap || n > GRAIN {
        large(op, compute, &places, &sizes, overlap, out, n)
    } else {
        // SAFETY: every operand has `n` elements of its type, and none overlaps the output.
        unsafe { Loops::get().step(op, compute, out.as_ptr(), &places, n) }
    }
    true
}

/// Bytes of an operand's registers up to which it is copied: a plan for so few elements takes longer than the op.
const FEW: usize = 4096;
type Room = MaybeUninit<[u64; FEW / 8]>;

/// Runs the loop on copies of those operands that do not lie as the result does, or not in registers' format, where they are
/// small. Promotions are left to a program.
fn gathered<const N: usize>(op: Op, compute: DType, args: [&Operand; N], out: &ViewMut) -> bool {
    let Some(n) = flat(out.sizes(), out.strides()) else { return false };
    let result = op.result(compute);
    let fits = |dtype: DType| n * dtype.compute().size().max(dtype.size()) <= FEW;
    if out.dtype() != result || !fits(compute) || !fits(result) || !op.supports(compute) {
        return false;
    }
    let loops = Loops::get();
    let (lo, hi) = (out.as_ptr() as usize, out.as_ptr() as usize + n * result.size());
    let (mut raw, mut own) = ([const { Room::uninit() }; N], [const { Room::uninit() }; N]);
    let mut places = [Arg::tile(out.as_ptr()); 3];
    for (k, arg) in args.into_iter().enumerate() {
        let (dtype, to) = (op.operand(k, compute), own[k].as_mut_ptr().cast());
        match arg {
            Operand::View(v) => {
                if v.dtype() != dtype || v.sizes() != out.sizes() || !fits(dtype) {
                    return false;
                }
                let (mut from, at) = (v.as_ptr(), v.as_ptr() as usize);
                if flat(v.sizes(), v.strides()).is_none() || (at < hi && lo < at + n * dtype.size()) {
                    let copy = raw[k].as_mut_ptr().cast();
                    // SAFETY: there is room for `n` elements.
                    unsafe { gather(v, copy) }
                    from = copy.cast_const();
                }
                if is_native(dtype) {
                    places[k] = Arg::tile(from);
                } else {
                    // SAFETY: `n` elements of this type, and room for as many registers.
                    unsafe { (loops.load)(dtype, to, Arg::tile(from), n) }
                    places[k] = Arg::tile(to);
                }
            }
            Operand::Value(v) => {
                // SAFETY: a chunk of the widest registers.
                unsafe { splat(to, *v, dtype, n.min(CHUNK)) }
                places[k] = Arg::splat(to);
            }
        }
    }
    let mut computed = Room::uninit();
    let at = if is_native(result) { out.as_ptr() } else { computed.as_mut_ptr().cast() };
    // SAFETY: every operand has `n` registers; those that could overlap the output were copied. The output, or the room for its
    // registers, holds `n`.
    unsafe {
        loops.step(op, compute, at, &places, n);
        if !is_native(result) {
            (loops.store)(result, out.as_ptr(), Arg::tile(at), n);
        }
    }
    true
}

/// Copies all elements in row-major order.
///
/// # Safety
/// There is room for them at `to`, apart from the view.
unsafe fn gather(v: &View, to: *mut u8) {
    let (size, lead) = (v.dtype().size(), v.ndim().saturating_sub(1));
    // Rows along the last dimension, the rows of a run along the one before it.
    let (outer, cols) = (&v.sizes()[..lead], v.sizes().last().copied().unwrap_or(1));
    let step = v.strides().last().copied().unwrap_or(0);
    let next = lead.checked_sub(1).map_or(0, |k| v.strides()[k]);
    let mut at = to;
    for_runs(outer, [&v.strides()[..lead]], 0..outer.iter().product(), |[from], rows| {
        // SAFETY: rows of the view, and as much room as was not written yet.
        unsafe {
            move2d(size, v.as_ptr().add(from * size), [next, step], at, [cols, 1], rows, cols);
            at = at.add(rows * cols * size);
        }
    });
}

/// How many elements there are, if they lie in row-major order without gaps: both questions in one short walk.
#[inline]
fn flat(sizes: &[usize], strides: &[usize]) -> Option<usize> {
    let mut n = 1;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size != 1 {
            if stride != n {
                return None;
            }
            n *= size;
        }
    }
    Some(n)
}

/// Contiguous operands in parts; `sizes` are bytes an element, 0 for a scalar.
#[inline(never)]
fn large(op: Op, compute: DType, places: &[Arg; 3], sizes: &[usize; 3], overlap: bool, out: &ViewMut, n: usize) {
    let loops = Loops::get();
    let size = out.dtype().size();
    let part = |from: usize, d: *mut u8, n: usize| {
        // SAFETY: element `from` lies inside every operand; a scalar has size 0 and stays.
        let at = std::array::from_fn(|k| Arg { ptr: unsafe { places[k].ptr.add(from * sizes[k]) }, ..places[k] });
        // SAFETY: `n` elements from there are inside, `d` does not overlap them.
        unsafe { loops.step(op, compute, d, &at, n) }
    };
    parallel::split(n, GRAIN, |r| {
        // SAFETY: `r` lies inside the output.
        let d = unsafe { out.as_ptr().add(r.start * size) };
        if !overlap {
            return part(r.start, d, r.len());
        }
        // Computed beside the memory, then put there: a loop never writes what it reads.
        let mut tile = MaybeUninit::<[u64; 2 * TILE]>::uninit();
        let buffer = tile.as_mut_ptr().cast::<u8>();
        for from in (0..r.len()).step_by(TILE) {
            let n = TILE.min(r.len() - from);
            part(r.start + from, buffer, n);
            // SAFETY: `n` elements inside the output; the buffer is on the stack.
            unsafe { std::ptr::copy_nonoverlapping(buffer, d.add(from * size), n * size) }
        }
    })
}

/// A program of one instruction.
#[inline(never)]
fn general(op: Op, compute: DType, args: &[Operand], out: ViewMut) {
    assert!(op.supports(compute), "{op:?} is not defined for {compute}");
    let mut places = [Place::Input(0); ARGS];
    let mut inputs = [compute; 3];
    for k in 0..args.len() {
        places[k] = Place::Input(k as u16);
        inputs[k] = op.operand(k, compute);
    }
    let (action, dst) = (Action::Op(op), Place::Output(0));
    let instr = Instr { action, dtype: compute, dst, args: places, sums: [None; 2], uniform: false };
    let code = Code {
        instrs: &[instr],
        registers: 0,
        constants: &[],
        inputs: &inputs[..args.len()],
        outputs: &[op.result(compute)],
        sinks: &[Sink::Elements],
        places: &[Place::Output(0)],
        uniforms: 0,
        folds: false,
    };
    exec::run(code, args, &[out])
}
