//! From the loops of a kernel to one program of the tile executor.
//!
//! What a kernel computes and reads again stays in registers; what others read is stored. Equal instructions on equal operands
//! are one, conversions of known numbers are done here, and roundings to half types only in `bitwise` mode.

use super::fuse::Kernel;
use super::ir::*;
use firebrand_core::{DType, Layout};
use firebrand_kernels::pointwise::{Builder, Fold, Op, Program, RowOp, Sink, Source, Terms, Val, Value as Number};
use smallvec::SmallVec;
use std::collections::HashMap;

/// A kernel as it runs.
#[derive(Debug)]
pub(crate) struct Emitted {
    pub(crate) program: Program,
    /// What it reads, expanded to its domain.
    pub(crate) inputs: Vec<Load>,
    /// What it writes.
    pub(crate) outputs: Vec<Load>,
}

/// A value while emitting.
#[derive(Clone, Copy)]
enum Slot {
    /// By its number among the values.
    Value(usize),
    Number(Number, DType),
}

/// An instruction by what it does and what it reads.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Constant(DType, u8, u64),
    Op(Op, DType, [usize; 3]),
    Input(usize),
    Cast(DType, DType, usize),
    Round(DType, usize),
    Fold(Fold, usize),
    Sum(Terms, [usize; 2]),
    Row(RowOp, SmallVec<[usize; 5]>),
    OverRows(usize, usize),
}

struct Emitter<'a> {
    builder: Builder,
    values: Vec<Val>,
    known: HashMap<Key, usize>,
    inputs: Vec<Load>,
    /// What buffers hold at this point of the kernel.
    current: HashMap<BufferId, Slot>,
    buffers: &'a [Buffer],
    bitwise: bool,
}

/// Emits a kernel of loops. `visible` says which buffers are read outside of it.
pub(super) fn emit(lowered: &Lowered, kernel: &Kernel, visible: &dyn Fn(BufferId) -> bool, bitwise: bool) -> Emitted {
    let mut e = Emitter {
        builder: Builder::new(),
        values: Vec::new(),
        known: HashMap::new(),
        inputs: Vec::new(),
        current: HashMap::new(),
        buffers: &lowered.buffers,
        bitwise,
    };
    let mut stored: Vec<(BufferId, Slot, Sink, Layout)> = Vec::new();
    for &i in &kernel.items {
        let Work::Loop(l) = &lowered.items[i].work else { continue };
        let operands: Vec<Slot> = l.operands.iter().map(|o| e.operand(o, kernel.row)).collect();
        let mut steps: Vec<Slot> = Vec::with_capacity(l.code.len());
        for instr in &l.code {
            let slot = e.instr(instr, &operands, &steps);
            steps.push(slot);
        }
        for store in &l.stores {
            let slot = e.source(store.source, &operands, &steps, None);
            let b = store.load.buffer;
            if matches!(store.sink, Sink::Elements | Sink::Rows) {
                e.current.insert(b, slot);
            }
            if visible(b) {
                stored.retain(|(old, ..)| *old != b);
                let layout = match store.sink {
                    Sink::Elements if kernel.row > 1 => by_rows(&store.load.layout, kernel.row),
                    Sink::Elements => None,
                    Sink::Rows | Sink::Columns(_) | Sink::Total(_) => Some(store.load.layout.flattened()),
                };
                stored.push((b, slot, store.sink, layout.unwrap_or_else(|| store.load.layout.clone())));
            }
        }
    }
    let mut outputs = Vec::new();
    for (buffer, slot, sink, layout) in stored {
        let dtype = super::lower::register(lowered.buffers[buffer].dtype);
        let v = e.value(slot, dtype);
        let val = e.values[v];
        e.builder.output_to(val, sink);
        outputs.push(Load { buffer, layout });
    }
    e.builder.pair();
    Emitted { program: e.builder.finish(), inputs: e.inputs, outputs }
}

impl Emitter<'_> {
    fn add(&mut self, key: Key, make: impl FnOnce(&mut Builder, &[Val]) -> Val) -> usize {
        if let Some(&k) = self.known.get(&key) {
            return k;
        }
        self.values.push(make(&mut self.builder, &self.values));
        self.known.insert(key, self.values.len() - 1);
        self.values.len() - 1
    }

    fn operand(&mut self, operand: &Operand, row: usize) -> Slot {
        let load = match operand {
            Operand::Number(n, dtype) => return Slot::Number(*n, *dtype),
            Operand::Load(load) => load,
        };
        if let Some(&slot) = self.current.get(&load.buffer) {
            return slot;
        }
        let layout = if row > 1 { by_rows(&load.layout, row) } else { None };
        let layout = layout.unwrap_or_else(|| load.layout.clone());
        let same = |l: &Load| {
            l.buffer == load.buffer && l.layout.offset() == layout.offset() && l.layout.same_geometry(&layout)
        };
        let k = self.inputs.iter().position(same).unwrap_or_else(|| {
            self.inputs.push(Load { buffer: load.buffer, layout });
            self.inputs.len() - 1
        });
        let dtype = super::lower::register(self.buffers[load.buffer].dtype);
        Slot::Value(self.add(Key::Input(k), |b, _| b.input(dtype)))
    }

    fn constant(&mut self, number: Number, dtype: DType) -> usize {
        let (kind, bits) = match number {
            Number::Bool(v) => (0, u64::from(v)),
            Number::Int(v) => (1, v as u64),
            Number::Float(v) => (2, v.to_bits()),
            // Rare enough not to be shared.
            Number::Complex(_) => {
                self.values.push(self.builder.constant(dtype, number));
                return self.values.len() - 1;
            }
        };
        self.add(Key::Constant(dtype, kind, bits), |b, _| b.constant(dtype, number))
    }

    /// The value in a register of type `dtype`, which it has already unless it is a number.
    fn value(&mut self, slot: Slot, dtype: DType) -> usize {
        match slot {
            Slot::Value(v) => v,
            Slot::Number(n, _) => self.constant(n, dtype),
        }
    }

    fn source(&mut self, s: Source, operands: &[Slot], steps: &[Slot], dtype: Option<DType>) -> Slot {
        match s {
            Source::Memory(k) => operands[k],
            Source::Step(k) => steps[k],
            Source::Value(v) => Slot::Number(v, dtype.unwrap_or(DType::F64)),
        }
    }

    fn instr(&mut self, i: &Instr, operands: &[Slot], steps: &[Slot]) -> Slot {
        let arg = |e: &mut Self, k: usize, dtype| e.source(i.args[k], operands, steps, Some(dtype));
        match i.action {
            Action::Op(op) => {
                let mut at = [0; 3];
                for (k, at) in at.iter_mut().enumerate().take(op.arity()) {
                    let dtype = op.operand(k, i.dtype);
                    let slot = arg(self, k, dtype);
                    *at = self.value(slot, dtype);
                }
                Slot::Value(self.add(Key::Op(op, i.dtype, at), |b, values| {
                    let args: Vec<Val> = at[..op.arity()].iter().map(|&k| values[k]).collect();
                    b.op(op, &args)
                }))
            }
            Action::Cast(to) => match arg(self, 0, i.dtype) {
                Slot::Number(n, from) => Slot::Number(super::lower::rounded(n, from), to),
                Slot::Value(v) => Slot::Value(self.add(Key::Cast(i.dtype, to, v), |b, values| b.cast(values[v], to))),
            },
            Action::Round(to) => match arg(self, 0, i.dtype) {
                slot if !self.bitwise => slot,
                Slot::Number(n, from) => Slot::Number(super::lower::rounded(n, to), from),
                Slot::Value(v) => Slot::Value(self.add(Key::Round(to, v), |b, values| b.round(values[v], to))),
            },
            Action::Fold(how) => {
                let v = self.operand_value(i, 0, operands, steps);
                Slot::Value(self.add(Key::Fold(how, v), |b, values| b.fold(how, values[v])))
            }
            Action::Sum(terms) => {
                let at = [0, 1].map(|k| self.operand_value(i, k, operands, steps));
                Slot::Value(self.add(Key::Sum(terms, at), |b, values| b.sum(terms, values[at[0]], values[at[1]])))
            }
            Action::Row(op) => {
                let at: SmallVec<[usize; 5]> =
                    (0..op.arity()).map(|k| self.operand_value(i, k, operands, steps)).collect();
                Slot::Value(self.add(Key::Row(op, at.clone()), |b, values| {
                    let args: SmallVec<[Val; 5]> = at.iter().map(|&k| values[k]).collect();
                    b.row(op, &args)
                }))
            }
            Action::OverRows(k) => {
                let v = self.operand_value(i, 0, operands, steps);
                Slot::Value(self.add(Key::OverRows(k, v), |b, values| b.sum_over_rows(values[v], k)))
            }
        }
    }

    /// Operand `k` of an instruction, in a register of the instruction's type.
    fn operand_value(&mut self, i: &Instr, k: usize, operands: &[Slot], steps: &[Slot]) -> usize {
        let slot = self.source(i.args[k], operands, steps, Some(i.dtype));
        self.value(slot, i.dtype)
    }
}
