//! A pointwise program: straight-line instructions over typed registers, inputs, outputs and constants.
//!
//! Guarantees (made by [`Builder::finish`]):
//! - operands have the type the instruction expects, and the instruction is defined for it;
//! - an instruction never writes a place it reads, so every loop gets disjoint slices and vectorises without checks;
//! - registers are reused after a value's last use, so the working set is the number of live values, not of instructions;
//! - the value that becomes an output is written there directly, and what nothing uses is dropped.

use super::exec::{self, Code, TILE};
use super::{Fold, Op, Operand, Sink, Value, record};
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
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Op(Op),
    /// From the instruction's dtype to this one.
    Cast(DType),
    /// A row to one number.
    Fold(Fold),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Instr {
    pub(super) action: Action,
    /// The type computed in.
    pub(super) dtype: DType,
    pub(super) dst: Place,
    pub(super) args: [Place; 3],
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
    Do(Action, DType, [Val; 3], usize),
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
        let mut a = [args[0]; 3];
        a[..args.len()].copy_from_slice(args);
        self.def(Def::Do(Action::Op(op), dtype, a, args.len()), op.result(dtype))
    }

    /// The value converted to another type; to `F16` or `BF16` it is rounded, though its register stays f32.
    pub fn cast(&mut self, v: Val, dtype: DType) -> Val {
        let from = self.dtype(v);
        if from == dtype {
            return v;
        }
        self.def(Def::Do(Action::Cast(dtype), from, [v; 3], 1), dtype)
    }

    /// An f32 value rounded to the precision of a half type; it stays f32.
    pub fn round(&mut self, v: Val, half: DType) -> Val {
        assert_eq!(self.dtype(v), DType::F32, "what is rounded");
        self.def(Def::Do(Action::Cast(half), DType::F32, [v; 3], 1), DType::F32)
    }

    /// A row of floats as one number, which every later instruction of the row sees.
    pub fn fold(&mut self, how: Fold, v: Val) -> Val {
        let dtype = self.dtype(v);
        assert!(matches!(dtype, DType::F32 | DType::F64), "folds are of f32 and f64, not {dtype}");
        self.def(Def::Do(Action::Fold(how), dtype, [v; 3], 1), dtype)
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
        self.def(Def::Do(Action::Op(Op::Copy), dtype, [v; 3], 1), dtype)
    }

    /// Which values are one number along a row: known only where rows are, so in programs that fold.
    fn uniform(&self) -> Vec<bool> {
        let mut uniform = vec![false; self.defs.len()];
        for (i, (def, _)) in self.defs.iter().enumerate() {
            uniform[i] = match def {
                Def::Leaf(p) => matches!(p, Place::Constant(_)),
                Def::Do(Action::Fold(_), ..) => true,
                Def::Do(_, _, a, n) => a[..*n].iter().all(|v| uniform[v.0]),
            };
        }
        uniform
    }

    /// Turns `a * b + c` into one rounding where the product has no other use. Changes the last bit of results, so eager
    /// never asks for it and the compiler does.
    pub fn contract(&mut self) {
        let mut uses = vec![0; self.defs.len()];
        for (def, _) in &self.defs {
            if let Def::Do(_, _, a, n) = def {
                a[..*n].iter().for_each(|v| uses[v.0] += 1);
            }
        }
        self.outputs.iter().for_each(|v| uses[v.0] += 1);
        for i in 0..self.defs.len() {
            let (Def::Do(Action::Op(Op::Add), dtype, [p, q, _], _), _) = self.defs[i] else { continue };
            if !dtype.is_floating_point() {
                continue;
            }
            for (m, c) in [(p, q), (q, p)] {
                if let (Def::Do(Action::Op(Op::Mul), _, [a, b, _], _), _) = self.defs[m.0]
                    && uses[m.0] == 1
                {
                    self.defs[i].0 = Def::Do(Action::Op(Op::MulAdd), dtype, [a, b, c], 3);
                    break;
                }
            }
        }
    }

    /// Assigns places by linear scan and drops what nothing uses.
    pub fn finish(mut self) -> Program {
        let folds = self.defs.iter().any(|(d, _)| matches!(d, Def::Do(Action::Fold(_), ..)));
        let mut uniform = if folds { self.uniform() } else { vec![false; self.defs.len()] };
        // An output has its own value: what is a leaf, or an output already, is copied. Only a value per row is uniform.
        let mut place: Vec<Option<Place>> = vec![None; self.defs.len()];
        for k in 0..self.outputs.len() {
            let mut v = self.outputs[k];
            let one_a_row = self.sinks[k] == Sink::Rows;
            if matches!(self.defs[v.0].0, Def::Leaf(_)) || place[v.0].is_some() || uniform[v.0] && !one_a_row {
                v = self.copied(v);
                place.push(None);
                uniform.push(one_a_row);
            }
            assert!(!one_a_row || uniform[v.0], "a value per row comes from a fold");
            if !one_a_row {
                place[v.0] = Some(Place::Output(k as u16));
            }
            self.outputs[k] = v;
        }
        const DEAD: usize = 0;
        let mut last = vec![DEAD; self.defs.len()]; // the last reader; nothing is read by instruction 0
        self.outputs.iter().for_each(|v| last[v.0] = usize::MAX);
        for (i, (def, _)) in self.defs.iter().enumerate().rev() {
            if let Def::Do(_, _, a, k) = def
                && last[i] != DEAD
            {
                a[..*k].iter().for_each(|v| last[v.0] = last[v.0].max(i));
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
            code.push(Instr { action, dtype: compute, dst, args, uniform });
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
