//! The layer that decomposes ops while a program is traced: an op with a rule becomes the ops of its rule, all others
//! go on to the layer that records them.

use super::rules;
use firebrand_core::dispatch::{Args, Decomposition, Interpreter, MemoryFormat, Next, Op, Outputs, Value};
use firebrand_core::{DType, Device, Error, Result, Scalar, Tensor};

/// Decomposes ops.
pub(super) struct Decompose;

impl Interpreter for Decompose {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        Emit::new(&|op, args| next.call(op, args)).all(op, args)
    }
}

/// Calls ops below autograd, each by its rule if it has one.
pub(super) struct Emit<'a> {
    next: &'a dyn Fn(Op, &[Value]) -> Result<Outputs>,
}

impl<'a> Emit<'a> {
    /// Ops that are kept go to `next`.
    pub(super) fn new(next: &'a dyn Fn(Op, &[Value]) -> Result<Outputs>) -> Emit<'a> {
        Emit { next }
    }

    /// All results of an op.
    pub(super) fn all(&self, op: Op, args: &[Value]) -> Result<Outputs> {
        if op.info().decomposition == Decomposition::Rule
            && let Some(outputs) = rules::apply(self, op, &Args::new(op.name(), args))?
        {
            return Ok(outputs);
        }
        (self.next)(op, args)
    }

    /// The one tensor that an op gives.
    pub(super) fn op(&self, op: Op, args: &[Value]) -> Result<Tensor> {
        match self.all(op, args)?.into_iter().next() {
            Some(Value::Tensor(t)) => Ok(t),
            _ => Err(Error::argument("run_decompositions", format!("{op:?} gives no tensor"))),
        }
    }

    /// An op of one tensor.
    pub(super) fn unary(&self, op: Op, x: &Tensor) -> Result<Tensor> {
        self.op(op, &[x.into()])
    }

    /// `a + b`
    pub(super) fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(Op::ADD_TENSOR, &[a.into(), b.into()])
    }

    /// `a - b`
    pub(super) fn sub(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(Op::SUB_TENSOR, &[a.into(), b.into()])
    }

    /// `a * b`
    pub(super) fn mul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(Op::MUL_TENSOR, &[a.into(), b.into()])
    }

    /// `a / b`
    pub(super) fn div(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(Op::DIV_TENSOR, &[a.into(), b.into()])
    }

    /// `a` where the condition holds, else `b`.
    pub(super) fn choose(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(Op::WHERE_SELF, &[condition.into(), a.into(), b.into()])
    }

    /// A number that takes part in type promotion as numbers do.
    pub(super) fn number(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::try_wrapped_number(value.into())
    }

    /// A tensor of one element, for ops that take no number.
    pub(super) fn scalar_tensor(&self, value: impl Into<Scalar>, like: &Tensor) -> Result<Tensor> {
        let none = Value::None;
        self.op(Op::SCALAR_TENSOR, &[value.into().into(), like.dtype().into(), none, like.device().into()])
    }

    /// A comparison with a number, such as `gt.Scalar`.
    pub(super) fn compare(&self, op: Op, x: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.op(op, &[x.into(), value.into().into()])
    }

    /// The sum over dimensions; none of them means all.
    pub(super) fn sum(&self, x: &Tensor, dims: &[i64], keep: bool, dtype: Option<DType>) -> Result<Tensor> {
        self.op(Op::SUM_DIM_INTLIST, &[x.into(), dims.into(), keep.into(), dtype.into()])
    }

    /// Another shape over the same memory.
    pub(super) fn permute(&self, x: &Tensor, order: &[i64]) -> Result<Tensor> {
        self.op(Op::PERMUTE, &[x.into(), order.into()])
    }

    /// `a` times a number.
    pub(super) fn scale(&self, a: &Tensor, factor: impl Into<Scalar>) -> Result<Tensor> {
        let factor = factor.into();
        if factor.to_f64() == 1.0 { Ok(a.clone()) } else { self.mul(a, &self.number(factor)?) }
    }

    /// `a` plus a number.
    pub(super) fn plus(&self, a: &Tensor, n: impl Into<Scalar>) -> Result<Tensor> {
        self.add(a, &self.number(n)?)
    }

    /// A number minus `a`.
    pub(super) fn rsub(&self, n: impl Into<Scalar>, a: &Tensor) -> Result<Tensor> {
        self.sub(&self.number(n)?, a)
    }

    /// `a` where the condition holds, else a number.
    pub(super) fn choose_or(&self, condition: &Tensor, a: &Tensor, other: impl Into<Scalar>) -> Result<Tensor> {
        self.choose(condition, a, &self.scalar_tensor(other, a)?)
    }

    /// Both hold.
    pub(super) fn both(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(Op::LOGICAL_AND, &[a.into(), b.into()])
    }

    /// With another element type, if it is one.
    pub(super) fn cast(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        if x.dtype() == dtype { Ok(x.clone()) } else { self.op(Op::_TO_COPY, &[x.into(), dtype.into()]) }
    }

    /// Integers from `from` to before `to`.
    pub(super) fn range(&self, from: i64, to: i64, step: i64, device: Device) -> Result<Tensor> {
        let [from, to, step] = [from, to, step].map(|n| Value::from(Scalar::Int(n)));
        self.op(Op::ARANGE_START_STEP, &[from, to, step, DType::I64.into(), Value::None, device.into()])
    }

    /// A tensor of one number, of the type of another tensor.
    pub(super) fn full(&self, sizes: &[i64], value: impl Into<Scalar>, like: &Tensor) -> Result<Tensor> {
        let value: Scalar = value.into();
        self.op(Op::FULL, &[sizes.into(), value.into(), like.dtype().into(), Value::None, like.device().into()])
    }

    /// Another shape over the same memory.
    pub(super) fn view(&self, x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
        self.op(Op::VIEW, &[x.into(), sizes.into()])
    }

    /// Another shape, over a copy if the memory order asks for one.
    pub(super) fn reshape(&self, x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
        match x.is_contiguous() {
            true => self.view(x, sizes),
            false => {
                let copy = self.op(Op::CLONE, &[x.into(), Value::MemoryFormat(MemoryFormat::Contiguous)])?;
                self.view(&copy, sizes)
            }
        }
    }

    /// A dimension of one element more.
    pub(super) fn unsqueeze(&self, x: &Tensor, dim: i64) -> Result<Tensor> {
        self.op(Op::UNSQUEEZE, &[x.into(), dim.into()])
    }

    /// Elements `from` to before `to` of a dimension.
    pub(super) fn slice(&self, x: &Tensor, dim: i64, from: i64, to: i64) -> Result<Tensor> {
        self.op(Op::SLICE_TENSOR, &[x.into(), dim.into(), from.into(), to.into()])
    }

    /// Tensors one behind the other.
    pub(super) fn cat(&self, parts: Vec<Tensor>, dim: i64) -> Result<Tensor> {
        self.op(Op::CAT, &[parts.into(), dim.into()])
    }

    /// Elements by index, one list a dimension; none takes all.
    pub(super) fn index(&self, x: &Tensor, indices: Vec<Option<Tensor>>) -> Result<Tensor> {
        self.op(Op::INDEX_TENSOR, &[x.into(), Value::OptTensors(indices)])
    }

    /// With other elements at these indices, added to or replaced.
    pub(super) fn put(
        &self,
        x: &Tensor,
        indices: Vec<Option<Tensor>>,
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        self.op(Op::INDEX_PUT, &[x.into(), Value::OptTensors(indices), values.into(), accumulate.into()])
    }
}
