//! Formulas of several instructions that run as one pass over memory.
//!
//! A formula is written once as arithmetic on [`V`]; the first call in each register type turns it into a program.
//! Numbers that change from call to call (slopes, bounds) are inputs, so a formula needs few programs.

use super::expand;
use crate::{DType, Result, Scalar, Tensor};
use firebrand_kernels::pointwise::{Builder, Op, Operand, Program, Val};
use std::cell::RefCell;
use std::sync::OnceLock;

/// The program being written.
pub(crate) struct Code {
    builder: RefCell<Builder>,
    dtype: DType,
}

/// A value of a formula.
#[derive(Clone, Copy)]
pub(crate) struct V<'a> {
    code: &'a Code,
    val: Val,
}

/// What stands beside a value: another value or a constant.
pub(crate) trait Beside<'a> {
    /// The operand, as a value of the same program.
    fn of(self, code: &'a Code) -> V<'a>;
}

impl<'a> Beside<'a> for V<'a> {
    fn of(self, _: &'a Code) -> V<'a> {
        self
    }
}

impl<'a> Beside<'a> for f64 {
    fn of(self, code: &'a Code) -> V<'a> {
        V { code, val: code.builder.borrow_mut().constant(code.dtype, self) }
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl<'a, B: Beside<'a>> std::ops::$trait<B> for V<'a> {
            type Output = V<'a>;
            fn $method(self, other: B) -> V<'a> {
                self.two(Op::$op, other)
            }
        }
        impl<'a> std::ops::$trait<V<'a>> for f64 {
            type Output = V<'a>;
            fn $method(self, other: V<'a>) -> V<'a> {
                self.of(other.code).two(Op::$op, other)
            }
        }
    )*};
}
arithmetic!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl<'a> std::ops::Neg for V<'a> {
    type Output = V<'a>;
    fn neg(self) -> V<'a> {
        self.one(Op::Neg)
    }
}

impl<'a> V<'a> {
    /// One instruction on this value.
    pub(crate) fn one(self, op: Op) -> V<'a> {
        V { val: self.code.builder.borrow_mut().op(op, &[self.val]), ..self }
    }

    /// One instruction on this value and another.
    pub(crate) fn two(self, op: Op, other: impl Beside<'a>) -> V<'a> {
        let other = other.of(self.code).val;
        V { val: self.code.builder.borrow_mut().op(op, &[self.val, other]), ..self }
    }

    /// The conjugate; of real numbers the value itself.
    pub(crate) fn conj(self) -> V<'a> {
        if self.code.dtype.is_complex() { self.one(Op::Conj) } else { self }
    }

    /// `yes` where this bool is true, else `no`.
    pub(crate) fn select(self, yes: impl Beside<'a>, no: impl Beside<'a>) -> V<'a> {
        let (yes, no) = (yes.of(self.code).val, no.of(self.code).val);
        V { val: self.code.builder.borrow_mut().op(Op::Where, &[self.val, yes, no]), ..self }
    }

    /// `self * factor + term`, rounded once where the machine can.
    pub(crate) fn mul_add(self, factor: impl Beside<'a>, term: impl Beside<'a>) -> V<'a> {
        let (factor, term) = (factor.of(self.code).val, term.of(self.code).val);
        V { val: self.code.builder.borrow_mut().op(Op::MulAdd, &[self.val, factor, term]), ..self }
    }

    /// `self < other`
    pub(crate) fn lt(self, other: impl Beside<'a>) -> V<'a> {
        self.two(Op::Lt, other)
    }

    /// `self <= other`
    pub(crate) fn le(self, other: impl Beside<'a>) -> V<'a> {
        self.two(Op::Le, other)
    }

    /// `self > other`
    pub(crate) fn gt(self, other: impl Beside<'a>) -> V<'a> {
        self.two(Op::Gt, other)
    }

    /// `self == other`
    pub(crate) fn eq(self, other: impl Beside<'a>) -> V<'a> {
        self.two(Op::Eq, other)
    }

    /// `min(max(self, low), high)`
    pub(crate) fn clamp(self, low: f64, high: f64) -> V<'a> {
        self.two(Op::Maximum, low).two(Op::Minimum, high)
    }

    /// Both of two bools.
    pub(crate) fn and(self, other: V<'a>) -> V<'a> {
        self.two(Op::LogicalAnd, other)
    }
}

/// An operand of a formula at run time.
pub(crate) enum Input<'a> {
    T(&'a Tensor),
    S(Scalar),
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(t: &'a Tensor) -> Self {
        Input::T(t)
    }
}
impl From<Scalar> for Input<'_> {
    fn from(s: Scalar) -> Self {
        Input::S(s)
    }
}
impl From<f64> for Input<'_> {
    fn from(v: f64) -> Self {
        Input::S(Scalar::Float(v))
    }
}

type Build<const N: usize> = for<'a> fn([V<'a>; N]) -> V<'a>;

/// A formula of `N` inputs.
pub(crate) struct Fused<const N: usize> {
    build: Build<N>,
    // Boxed, as most formulas are never asked for most dtypes: a program is 170 bytes, in the file of every build.
    programs: [OnceLock<Box<Program>>; 6],
}

impl<const N: usize> Fused<N> {
    pub(crate) const fn new(build: Build<N>) -> Self {
        Fused { build, programs: [const { OnceLock::new() }; 6] }
    }

    fn program(&self, compute: DType) -> &Program {
        let dtype = compute.compute();
        let slot = match dtype {
            DType::F32 => 0,
            DType::F64 => 1,
            DType::I64 => 2,
            DType::C64 => 4,
            DType::C128 => 5,
            _ => 3,
        };
        self.programs[slot].get_or_init(|| {
            let mut builder = Builder::new();
            let inputs: [Val; N] = std::array::from_fn(|_| builder.input(dtype));
            let code = Code { builder: RefCell::new(builder), dtype };
            let out = (self.build)(inputs.map(|val| V { code: &code, val })).val;
            let mut builder = code.builder.into_inner();
            builder.output(out);
            Box::new(builder.finish())
        })
    }

    /// Runs in `compute`, with the tensors broadcast to the shape of `out`.
    pub(crate) fn run(&self, compute: DType, inputs: [Input<'_>; N], out: &Tensor) -> Result<()> {
        let mut expanded = [const { None }; N];
        for (slot, i) in expanded.iter_mut().zip(&inputs) {
            if let Input::T(t) = i {
                *slot = Some(expand(t, out.shape())?);
            }
        }
        let operands: [Operand<'_>; N] = std::array::from_fn(|k| match (&expanded[k], &inputs[k]) {
            (Some(e), _) => e.view().into(),
            (None, Input::S(s)) => Operand::Value((*s).into()),
            (None, Input::T(_)) => unreachable!("tensors were expanded above"),
        });
        self.program(compute).run(&operands, &[out.write()?.view_mut()]);
        Ok(())
    }
}
