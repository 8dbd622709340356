//! Programs on few contiguous elements: without the geometry, stages and parts of `exec`, which take longer than the work.
//!
//! Guarantee: the same loops on the same operands as there, so the same bits.
#![allow(unsafe_code)]

use super::convert::is_native;
use super::exec::{Code, SPLAT, TILE, splat, with_scratch};
use super::loops::{Arg, CHUNK, Loops};
use super::program::{Action, Place};
use super::{Operand, Sink};
use crate::{DType, ViewMut, is_contiguous};
use smallvec::SmallVec;

/// Runs `code` on operands of these sizes. False, and nothing done, unless all of them are contiguous, in a register's format,
/// and apart from every output.
pub(super) fn run(code: &Code, inputs: &[Operand], outputs: &[ViewMut], sizes: &[usize]) -> bool {
    let n: usize = sizes.iter().product();
    let plain = |action: Action| matches!(action, Action::Op(_) | Action::Pair(..) | Action::Cast(_));
    if n > TILE
        || code.folds
        || code.uniforms > 0
        || code.sinks.iter().any(|s| *s != Sink::Elements)
        || !code.instrs.iter().all(|i| plain(i.action) && !i.uniform)
    {
        return false;
    }
    let lies = |dtype: DType, used: DType, s: &[usize], strides: &[usize]| {
        dtype == used && is_native(dtype) && s == sizes && is_contiguous(s, strides)
    };
    let span = |p: *const u8, dtype: DType| (p as usize, p as usize + n * dtype.size());
    let apart = |(l, h): (usize, usize), o: &ViewMut| {
        let (low, high) = span(o.as_ptr(), o.dtype());
        h <= low || high <= l
    };
    for (k, (o, &used)) in outputs.iter().zip(code.outputs).enumerate() {
        let own = span(o.as_ptr(), o.dtype());
        if !lies(o.dtype(), used, o.sizes(), o.strides()) || !outputs[..k].iter().all(|p| apart(own, p)) {
            return false;
        }
    }
    let constants = code.registers.next_multiple_of(64);
    let values = constants + SPLAT * code.constants.len();
    with_scratch(values + SPLAT * inputs.len(), |base| {
        let mut args: SmallVec<[Arg; 32]> = SmallVec::new();
        for (k, (input, &used)) in inputs.iter().zip(code.inputs).enumerate() {
            match input {
                Operand::View(v) => {
                    let own = span(v.as_ptr(), v.dtype());
                    if !lies(v.dtype(), used, v.sizes(), v.strides()) || !outputs.iter().all(|o| apart(own, o)) {
                        return false;
                    }
                    args.push(Arg::tile(v.as_ptr()));
                }
                Operand::Value(value) => {
                    let to = base.wrapping_add(values + SPLAT * k);
                    // SAFETY: the scratch has room for a chunk of the widest registers for each input.
                    unsafe { splat(to, *value, used, n.min(CHUNK)) }
                    args.push(Arg::splat(to));
                }
            }
        }
        for (k, (value, dtype)) in code.constants.iter().enumerate() {
            // SAFETY: as above, for each constant.
            unsafe { splat(base.add(constants + SPLAT * k), *value, *dtype, n.min(CHUNK)) }
        }
        let arg = |place: Place| match place {
            Place::Register(at) => Arg::tile(base.wrapping_add(at as usize)),
            Place::Input(k) => args[k as usize],
            Place::Output(k) => Arg::tile(outputs[k as usize].as_ptr()),
            Place::Constant(k) => Arg::splat(base.wrapping_add(constants + SPLAT * k as usize)),
            // What an instruction has no operand for.
            Place::Summed | Place::Uniform(_) => Arg::tile(base),
        };
        let loops = Loops::get();
        for i in code.instrs {
            let (d, args) = (arg(i.dst).ptr.cast_mut(), [arg(i.args[0]), arg(i.args[1]), arg(i.args[2])]);
            // SAFETY: registers hold a tile, which is no less than `n` elements; inputs and outputs have `n` of the type the program
            // gave them and outputs overlap nothing; a program never writes a place that it reads in the same instruction.
            unsafe {
                match i.action {
                    Action::Op(op) => loops.step(op, i.dtype, d, &args, n),
                    Action::Pair(first, then) => (loops.pair)(first, then, d, &args, n),
                    Action::Cast(to) => (loops.cast)(i.dtype, to, d, args[0], n),
                    _ => unreachable!("only these were let in"),
                }
            }
        }
        true
    })
}
