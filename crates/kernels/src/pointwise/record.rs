//! Recording: what pointwise work would do, as straight-line code, instead of doing it.
//!
//! While [`record`] runs, pointwise kernels, copies and fills of this thread write no memory; each is noted on a
//! [`Tape`]. Memory is known by address, so a formula that goes through temporaries is followed through them. This is how a
//! compiler learns what an op means from the one place that says it: the kernel that runs it eagerly.
//!
//! Half types have registers of f32, so a tape computes in f32 and says [`Action::Round`] where memory of a half type was
//! written. Kernels that are not pointwise run as ever: what they write is unknown to the tape.

use super::program::{Action as Instruction, Instr, Place};
use super::{Op, Operand, Value};
use crate::{DType, View, ViewMut};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// What a step does to its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// An instruction.
    Op(Op),
    /// A conversion to another register type.
    Cast(DType),
    /// A rounding to a half type; the register stays f32.
    Round(DType),
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// Memory that was there before, by the address of its first element.
    Memory(usize),
    /// A number.
    Value(Value),
    /// The result of an earlier step.
    Step(usize),
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// The register type the operands have (but for the bool of [`Op::Where`]).
    pub dtype: DType,
    /// What is read.
    pub args: Vec<Source>,
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// Steps in order; each reads only earlier ones.
    pub steps: Vec<Step>,
    written: HashMap<usize, Source>,
}

impl Tape {
    /// What was written to this address last; none if nothing was.
    pub fn at(&self, address: usize) -> Option<Source> {
        self.written.get(&address).copied()
    }

    fn push(&mut self, action: Action, dtype: DType, args: Vec<Source>) -> Source {
        self.steps.push(Step { action, dtype, args });
        Source::Step(self.steps.len() - 1)
    }

    /// An operand as it is used in `to`. As the executor does: a conversion to a half type also rounds.
    fn read(&mut self, operand: &Operand, to: DType) -> Source {
        match operand {
            Operand::Value(v) => Source::Value(*v),
            Operand::View(v) => {
                let address = v.as_ptr() as usize;
                let source = self.at(address).unwrap_or(Source::Memory(address));
                let (from, register_to) = (register(v.dtype()), register(to));
                let converted = self.cast(source, from, register_to);
                if from == register_to || register_to == to {
                    return converted;
                }
                self.push(Action::Round(to), DType::F32, vec![converted])
            }
        }
    }

    fn cast(&mut self, source: Source, from: DType, to: DType) -> Source {
        if from == to { source } else { self.push(Action::Cast(to), from, vec![source]) }
    }

    /// A register of type `from` goes to memory.
    fn write(&mut self, source: Source, from: DType, out: &ViewMut) {
        let mut source = self.cast(source, from, register(out.dtype()));
        if register(out.dtype()) != out.dtype() {
            source = self.push(Action::Round(out.dtype()), DType::F32, vec![source]);
        }
        self.written.insert(out.as_ptr() as usize, source);
    }
}

/// The register type of a tape: f32 for half types, else the type itself (narrow integers wrap to their width).
fn register(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static TAPE: RefCell<Tape> = RefCell::default();
}

/// Whether this thread records.
#[inline(always)]
pub(crate) fn active() -> bool {
    ACTIVE.get()
}

/// Runs `f` with pointwise work recorded instead of done.
pub fn record<R>(f: impl FnOnce() -> R) -> (R, Tape) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            ACTIVE.set(false);
        }
    }
    TAPE.take();
    ACTIVE.set(true);
    let stop = Stop;
    let result = f();
    drop(stop);
    (result, TAPE.take())
}

/// Notes one instruction.
#[cold]
pub(super) fn note(op: Op, compute: DType, args: &[&Operand], out: &ViewMut) {
    TAPE.with_borrow_mut(|tape| {
        let dtype = register(compute);
        let args = args.iter().enumerate().map(|(k, a)| tape.read(a, op.operand(k, compute))).collect();
        let result = tape.push(Action::Op(op), dtype, args);
        tape.write(result, op.result(dtype), out)
    })
}

/// Notes a copy, with the conversion it does.
#[cold]
pub(crate) fn note_copy(src: View, dst: &ViewMut) {
    TAPE.with_borrow_mut(|tape| {
        let from = register(src.dtype());
        let source = tape.read(&Operand::View(src), from);
        tape.write(source, from, dst)
    })
}

/// Notes a fill.
#[cold]
pub(crate) fn note_fill(dst: &ViewMut, value: Value) {
    TAPE.with_borrow_mut(|tape| {
        let dtype = register(dst.dtype());
        let result = tape.push(Action::Op(Op::Copy), dtype, vec![Source::Value(value)]);
        tape.write(result, dtype, dst)
    })
}

/// Notes a whole program, instruction by instruction.
#[cold]
pub(super) fn note_program(
    code: &[Instr],
    constants: &[(Value, DType)],
    types: [&[DType]; 2],
    inputs: &[Operand],
    outputs: &[ViewMut],
) {
    TAPE.with_borrow_mut(|tape| {
        let loaded: Vec<Source> = inputs.iter().zip(types[0]).map(|(i, &used)| tape.read(i, used)).collect();
        let mut places: HashMap<(u8, u32), Source> = HashMap::new();
        let key = |p: Place| match p {
            Place::Register(at) => (0, at),
            Place::Output(k) => (1, u32::from(k)),
            Place::Input(k) => (2, u32::from(k)),
            Place::Constant(k) => (3, u32::from(k)),
            Place::Uniform(k) => (4, u32::from(k)),
            Place::Summed => (5, 0),
        };
        let read = |places: &HashMap<(u8, u32), Source>, p: Place| match p {
            Place::Input(k) => loaded[k as usize],
            Place::Constant(k) => Source::Value(constants[k as usize].0),
            other => places[&key(other)],
        };
        for i in code {
            let (action, arity) = match i.action {
                Instruction::Op(op) => (Action::Op(op), op.arity()),
                Instruction::Cast(to) => (Action::Cast(register(to)), 1),
                Instruction::Fold(_) | Instruction::Sum(_) | Instruction::Row(_) => {
                    unreachable!("eager formulas are pointwise")
                }
                Instruction::Pair(..) => unreachable!("eager formulas are single steps"),
            };
            let args = i.args[..arity].iter().map(|&p| read(&places, p)).collect();
            let result = tape.push(action, register(i.dtype), args);
            places.insert(key(i.dst), result);
        }
        for (k, (out, &used)) in outputs.iter().zip(types[1]).enumerate() {
            let result = read(&places, Place::Output(k as u16));
            tape.write(result, register(used), out)
        }
    })
}
