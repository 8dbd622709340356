//! A pointwise program: straight-line instructions over typed registers, inputs, outputs and constants.
//!
//! Guarantees (made by [`Builder::finish`]):
//! - operands have the type the instruction expects, and the instruction is defined for it;
//! - an instruction never writes a place it reads, so every loop gets disjoint slices and vectorises without checks;
//! - registers are reused after a value's last use, so the working set is the number of live values, not of instructions;
//! - the value that becomes an output is written there directly, and what nothing uses is dropped.

use super::exec::{self, Code, TILE};
use super::pair::{First, Then};
use super::{Fold, Op, Operand, RowOp, Sink, Terms, Value, record};
use crate::{DType, ViewMut};

/// Where an operand lives while a tile runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// Bytes from the start of the scratch.
    Register(u32),
    Input(u16),
    Output(u16),
    Constant(u16),
    /// A register that holds one number many times.
    Uniform(u16),
    /// Nowhere: the instruction that makes it adds it to its output.
    Summed,
}

/// Operands of an instruction, at most.
pub(super) const ARGS: usize = 5;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Op(Op),
    /// From the instruction's dtype to this one.
    Cast(DType),
    /// A row to one number.
    Fold(Fold),
    /// The sum of terms of two rows.
    Sum(Terms),
    /// A row to a row.
    Row(RowOp),
    /// Two instructions on f32 as one.
    Pair(First, Then),
}

impl Action {
    /// Its name in a summary.
    fn word(&self) -> String {
        match self {
            Action::Op(op) => format!("{op:?}"),
            Action::Cast(dtype) => format!("to {dtype:?}"),
            Action::Fold(fold) => format!("{fold:?}"),
            Action::Sum(_) => "sum".to_string(),
            Action::Row(row) => format!("{row:?}"),
            Action::Pair(first, then) => format!("{first:?}+{then:?}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Instr {
    pub(super) action: Action,
    /// The type computed in.
    pub(super) dtype: DType,
    pub(super) dst: Place,
    /// The first ones that the action takes; the others repeat the first.
    pub(super) args: [Place; ARGS],
    /// The outputs that receive sums which the instruction makes itself.
    pub(super) sums: [Option<u16>; 2],
    /// Whether all operands are uniform, so that a few elements stand for all.
    pub(super) uniform: bool,
}

/// Instructions with their places assigned. Build one with [`Builder`]; it can be run many times and from many threads.
#[derive(Clone, Debug)]
pub struct Program {
    code: Vec<Instr>,
    registers: usize,
    uniforms: usize,
    constants: Vec<(Value, DType)>,
    inputs: Vec<DType>,
    outputs: Vec<DType>,
    sinks: Vec<Sink>,
    /// Where each output is when a tile has been computed.
    places: Vec<Place>,
    folds: bool,
}

impl Program {
    /// What it does in a few words: its first instructions, and how many there are.
    pub fn summary(&self) -> String {
        const SHOWN: usize = 4;
        let shown: Vec<String> = self.code.iter().take(SHOWN).map(|i| i.action.word().to_lowercase()).collect();
        let more =
            if self.code.len() > SHOWN { format!("… {} instructions", self.code.len()) } else { String::new() };
        format!("fused({}{more})", shown.join(", "))
    }

    /// Runs over views that all have the sizes of the outputs (expanded with stride 0 where they repeat); an output that is
    /// not [`Sink::Elements`] has as many elements as its sink stores.
    ///
    /// A program that folds takes the last dimension as its rows. Views may have any dtype: loads and stores convert. An output may be exactly one of the inputs; other overlaps
    /// give unspecified numbers.
    pub fn run(&self, inputs: &[Operand], outputs: &[ViewMut]) {
        if record::active() {
            let types = [&self.inputs[..], &self.outputs[..]];
            return record::note_program(&self.code, &self.constants, types, inputs, outputs);
        }
        let code = Code {
            instrs: &self.code,
            registers: self.registers,
            uniforms: self.uniforms,
            constants: &self.constants,
            inputs: &self.inputs,
            outputs: &self.outputs,
            sinks: &self.sinks,
            places: &self.places,
            folds: self.folds,
        };
        exec::run(code, inputs, outputs)
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether it computes nothing.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }
}

/// A value of a program under construction.
#[derive(Clone, Copy, Debug)]
pub struct Val(usize);

#[derive(Clone, Copy)]
enum Def {
    Leaf(Place),
    Do(Action, DType, [Val; ARGS], usize),
    /// A sum over rows that the instruction behind this value makes.
    Sum(Val, usize),
}

/// Builds programs in SSA form; [`Builder::finish`] assigns places.
#[derive(Default)]
pub struct Builder {
    defs: Vec<(Def, DType)>,
    inputs: Vec<DType>,
    constants: Vec<(Value, DType)>,
    outputs: Vec<Val>,
    sinks: Vec<Sink>,
}

impl Builder {
    /// An empty program.
    pub fn new() -> Builder {
        Builder::default()
    }

    fn def(&mut self, def: Def, dtype: DType) -> Val {
        self.defs.push((def, dtype));
        Val(self.defs.len() - 1)
    }

    /// The next input, used as `dtype`: views of another dtype are converted when they are loaded.
    pub fn input(&mut self, dtype: DType) -> Val {
        self.inputs.push(dtype);
        self.def(Def::Leaf(Place::Input(self.inputs.len() as u16 - 1)), dtype)
    }

    /// A constant of type `dtype`.
    pub fn constant(&mut self, dtype: DType, value: impl Into<Value>) -> Val {
        self.constants.push((value.into(), dtype));
        self.def(Def::Leaf(Place::Constant(self.constants.len() as u16 - 1)), dtype)
    }

    /// The type of a value.
    pub fn dtype(&self, v: Val) -> DType {
        self.defs[v.0].1
    }

    /// An instruction. It computes in the type of its last operand, which the others must have too (but for the bool of
    /// [`Op::Where`]).
    ///
    /// # Panics
    /// If the operands are not those of `op`, or `op` is not defined for their type.
    pub fn op(&mut self, op: Op, args: &[Val]) -> Val {
        assert_eq!(args.len(), op.arity(), "operands of {op:?}");
        let dtype = self.dtype(args[args.len() - 1]);
        assert!(op.supports(dtype), "{op:?} is not defined for {dtype}");
        for (k, &a) in args.iter().enumerate() {
            assert_eq!(self.dtype(a), op.operand(k, dtype), "operand {k} of {op:?}");
        }
        let mut a = [args[0]; ARGS];
        a[..args.len()].copy_from_slice(args);
        self.def(Def::Do(Action::Op(op), dtype, a, args.len()), op.result(dtype))
    }

    /// The value converted to another type; to `F16` or `BF16` it is rounded, though its register stays f32.
    pub fn cast(&mut self, v: Val, dtype: DType) -> Val {
        let from = self.dtype(v);
        if from == dtype {
            return v;
        }
        self.def(Def::Do(Action::Cast(dtype), from, [v; ARGS], 1), dtype)
    }

    /// An f32 value rounded to the precision of a half type; it stays f32.
    pub fn round(&mut self, v: Val, half: DType) -> Val {
        assert_eq!(self.dtype(v), DType::F32, "what is rounded");
        self.def(Def::Do(Action::Cast(half), DType::F32, [v; ARGS], 1), DType::F32)
    }

    /// A row of floats as one number, which every later instruction of the row sees.
    pub fn fold(&mut self, how: Fold, v: Val) -> Val {
        let dtype = self.dtype(v);
        assert!(matches!(dtype, DType::F32 | DType::F64), "folds are of f32 and f64, not {dtype}");
        self.def(Def::Do(Action::Fold(how), dtype, [v; ARGS], 1), dtype)
    }

    /// The sum of terms of two rows of floats, as [`Builder::fold`] of their values but in one pass.
    pub fn sum(&mut self, terms: Terms, a: Val, b: Val) -> Val {
        let dtype = self.dtype(a);
        assert!(matches!(dtype, DType::F32 | DType::F64), "folds are of f32 and f64, not {dtype}");
        assert_eq!(self.dtype(b), dtype, "terms of one type");
        self.def(Def::Do(Action::Sum(terms), dtype, [a, b, a, a, a], 2), dtype)
    }

    /// A whole row of floats from whole rows.
    ///
    /// # Panics
    /// If there are not as many rows as `op` takes, or they are not of one float type.
    pub fn row(&mut self, op: RowOp, args: &[Val]) -> Val {
        let dtype = self.dtype(args[0]);
        assert!(matches!(dtype, DType::F32 | DType::F64), "rows are of f32 and f64, not {dtype}");
        assert_eq!(args.len(), op.arity(), "operands of {op:?}");
        assert!(args.iter().all(|&a| self.dtype(a) == dtype), "rows of one type");
        let mut a = [args[0]; ARGS];
        a[..args.len()].copy_from_slice(args);
        self.def(Def::Do(Action::Row(op), dtype, a, args.len()), dtype)
    }

    /// Sum `k` over rows that a row instruction makes beside its value: an output with [`Sink::Columns`] and factor 1.
    ///
    /// # Panics
    /// If `v` is not the value of such an instruction.
    pub fn sum_over_rows(&mut self, v: Val, k: usize) -> Val {
        let (Def::Do(Action::Row(op), dtype, ..), _) = self.defs[v.0] else { panic!("no row instruction") };
        assert!(k < op.sums(), "sums of {op:?}");
        self.def(Def::Sum(v, k), dtype)
    }

    /// The next output.
    pub fn output(&mut self, v: Val) {
        self.output_to(v, Sink::Elements)
    }

    /// The next output, stored in this way.
    ///
    /// # Panics
    /// If an integer is to be summed.
    pub fn output_to(&mut self, v: Val, sink: Sink) {
        let summed = matches!(sink, Sink::Columns(_) | Sink::Total(_));
        assert!(!summed || matches!(self.dtype(v), DType::F32 | DType::F64), "sums are of f32 and f64");
        self.outputs.push(v);
        self.sinks.push(sink);
    }

    fn copied(&mut self, v: Val) -> Val {
        let dtype = self.dtype(v);
        self.def(Def::Do(Action::Op(Op::Copy), dtype, [v; ARGS], 1), dtype)
    }

    /// Which values are one number along a row: known only where rows are, so in programs that fold.
    fn uniform(&self) -> Vec<bool> {
        let mut uniform = vec![false; self.defs.len()];
        for (i, (def, _)) in self.defs.iter().enumerate() {
            uniform[i] = match def {
                Def::Leaf(p) => matches!(p, Place::Constant(_)),
                Def::Sum(..) => false,
                Def::Do(Action::Fold(_) | Action::Sum(_), ..) => true,
                Def::Do(Action::Row(_), ..) => false,
                Def::Do(_, _, a, n) => a[..*n].iter().all(|v| uniform[v.0]),
            };
        }
        uniform
    }

    /// Turns `a * b + c` into one rounding where the product has no other use. Changes the last bit of results, so eager
    /// never asks for it and the compiler does.
    pub fn contract(&mut self) {
        let uses = self.uses();
        for i in 0..self.defs.len() {
            let (Def::Do(Action::Op(Op::Add), dtype, [p, q, ..], _), _) = self.defs[i] else { continue };
            if !dtype.is_floating_point() {
                continue;
            }
            for (m, c) in [(p, q), (q, p)] {
                if let (Def::Do(Action::Op(Op::Mul), _, [a, b, ..], _), _) = self.defs[m.0]
                    && uses[m.0] == 1
                {
                    self.defs[i].0 = Def::Do(Action::Op(Op::MulAdd), dtype, [a, b, c, a, a], 3);
                    break;
                }
            }
        }
    }

    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.defs.len()];
        for (def, _) in &self.defs {
            if let Def::Do(_, _, a, n) = def {
                a[..*n].iter().for_each(|v| uses[v.0] += 1);
            }
        }
        self.outputs.iter().for_each(|v| uses[v.0] += 1);
        uses
    }

    fn has_rows(&self) -> bool {
        let along = |a: &Action| matches!(a, Action::Fold(_) | Action::Sum(_) | Action::Row(_));
        self.defs.iter().any(|(d, _)| matches!(d, Def::Do(a, ..) if along(a)))
    }

    /// Makes one instruction of two where the value between them has no other use. Results stay the same to the bit; a
    /// program that is recorded keeps its single steps, so eager never asks for it.
    pub fn pair(&mut self) {
        let uses = self.uses();
        let uniform = if self.has_rows() { self.uniform() } else { vec![false; self.defs.len()] };
        for i in 0..self.defs.len() {
            let (Def::Do(Action::Op(op), DType::F32, args, n), DType::F32) = self.defs[i] else { continue };
            for at in 0..n.min(2) {
                let v = args[at];
                let (Def::Do(Action::Op(inner), DType::F32, [a, b, ..], 2), _) = self.defs[v.0] else { continue };
                if let (Some(first), Some(then)) = (First::of(inner), Then::of(op, at))
                    && uses[v.0] == 1
                    && !uniform[v.0]
                {
                    let c = if n == 2 { args[1 - at] } else { a };
                    self.defs[i].0 = Def::Do(Action::Pair(first, then), DType::F32, [a, b, c, a, a], n + 1);
                    break;
                }
            }
        }
    }

    /// Assigns places by linear scan and drops what nothing uses.
    pub fn finish(mut self) -> Program {
        let folds = self.has_rows();
        let mut uniform = if folds { self.uniform() } else { vec![false; self.defs.len()] };
        // Stored elements have their own value: what is a leaf, or an output already, is copied. Only a value per row is uniform.
        let mut place: Vec<Option<Place>> = vec![None; self.defs.len()];
        for k in 0..self.outputs.len() {
            let (mut v, sink) = (self.outputs[k], self.sinks[k]);
            let elements = sink == Sink::Elements;
            let leaf = matches!(self.defs[v.0].0, Def::Leaf(_));
            if elements && (leaf || place[v.0].is_some() || uniform[v.0]) || sink == Sink::Rows && leaf {
                v = self.copied(v);
                place.push(None);
                uniform.push(!elements);
            }
            assert!(sink != Sink::Rows || uniform[v.0], "a value per row comes from a fold");
            if elements {
                place[v.0] = Some(Place::Output(k as u16));
            }
            self.outputs[k] = v;
        }
        let mut sums: Vec<[Option<u16>; 2]> = vec![[None; 2]; self.defs.len()];
        for (k, v) in self.outputs.iter().enumerate() {
            if let Def::Sum(of, at) = self.defs[v.0].0 {
                assert_eq!(self.sinks[k], Sink::Columns(1.0), "a sum over rows is one number a column");
                sums[of.0][at] = Some(k as u16);
            }
        }
        const DEAD: usize = 0;
        let mut last = vec![DEAD; self.defs.len()]; // the last reader; nothing is read by instruction 0
        self.outputs.iter().for_each(|v| last[v.0] = usize::MAX);
        for (i, (def, _)) in self.defs.iter().enumerate().rev() {
            match def {
                Def::Do(_, _, a, k) if last[i] != DEAD => {
                    a[..*k].iter().for_each(|v| last[v.0] = last[v.0].max(i));
                }
                Def::Sum(of, _) if last[i] != DEAD => last[of.0] = last[of.0].max(i),
                _ => {}
            }
        }
        let mut code = vec![];
        let mut free: [Vec<u32>; 17] = Default::default(); // by bytes an element
        let (mut registers, mut uniforms) = (0, 0);
        for (i, (def, dtype)) in self.defs.iter().enumerate() {
            if last[i] == DEAD {
                continue;
            }
            let (action, compute, a, k) = match *def {
                Def::Leaf(p) => {
                    place[i] = Some(p);
                    continue;
                }
                Def::Sum(..) => {
                    place[i] = Some(Place::Summed);
                    continue;
                }
                Def::Do(action, compute, a, k) => (action, compute, a, k),
            };
            let size = dtype.compute().size();
            let dst = place[i].unwrap_or_else(|| {
                if uniform[i] {
                    uniforms += 1;
                    return Place::Uniform(uniforms as u16 - 1);
                }
                Place::Register(free[size].pop().unwrap_or_else(|| {
                    registers += TILE * size;
                    (registers - TILE * size) as u32
                }))
            });
            place[i] = Some(dst);
            // Unused operands repeat the first, so that every place is one that holds something.
            let args = a.map(|v| place[v.0].expect("operands are defined before use"));
            let uniform = a[..k].iter().all(|v| uniform[v.0]) && uniform[i];
            code.push(Instr { action, dtype: compute, dst, args, sums: sums[i], uniform });
            // Freed only after dst was chosen: that is what keeps the two apart.
            for (j, v) in a[..k].iter().enumerate() {
                let again = a[..j].iter().any(|w| w.0 == v.0);
                if let (Some(Place::Register(r)), true, false) = (place[v.0], last[v.0] == i, again) {
                    free[self.defs[v.0].1.compute().size()].push(r);
                }
            }
        }
        let outputs = self.outputs.iter().map(|&v| self.defs[v.0].1).collect();
        let places = self.outputs.iter().map(|v| place[v.0].expect("outputs are computed")).collect();
        let (constants, inputs, sinks) = (self.constants, self.inputs, self.sinks);
        Program { code, registers, uniforms, constants, inputs, outputs, sinks, places, folds }
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Value {
        Value::Float(v)
    }
}
impl From<i64> for Value {
    fn from(v: i64) -> Value {
        Value::Int(v)
    }
}
impl From<bool> for Value {
    fn from(v: bool) -> Value {
        Value::Bool(v)
    }
}
