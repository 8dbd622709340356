//! The layer that takes ops apart while a program is traced: an op with a rule becomes the ops of its rule, all others
//! go on to the layer that writes them down.

use super::rules;
use firebrand_core::dispatch::{Args, Interpreter, Next, Op, Outputs, Value};
use firebrand_core::{DType, Error, Result, Scalar, Tensor};

/// Takes ops apart.
pub(super) struct Decompose;

impl Interpreter for Decompose {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        Emit { next: &next }.run(op, args)
    }
}

/// Calls ops below autograd, each by its rule if it has one.
pub(super) struct Emit<'a> {
    next: &'a Next<'a>,
}

impl Emit<'_> {
    fn run(&self, op: Op, args: &[Value]) -> Result<Outputs> {
        match rules::apply(self, op.name(), &Args::new(op.name(), args))? {
            Some(outputs) => Ok(outputs),
            None => self.next.call(op, args),
        }
    }

    /// All results of an op of ATen, written as `add.Tensor`.
    pub(super) fn all(&self, name: &str, args: &[Value]) -> Result<Outputs> {
        let qualified = format!("aten::{name}");
        let missing = || Error::argument("run_decompositions", format!("{qualified} is not an op of this build"));
        self.run(Op::from_name(&qualified).ok_or_else(missing)?, args)
    }

    /// The one tensor that an op gives.
    pub(super) fn op(&self, name: &str, args: &[Value]) -> Result<Tensor> {
        match self.all(name, args)?.into_iter().next() {
            Some(Value::Tensor(t)) => Ok(t),
            _ => Err(Error::argument("run_decompositions", format!("aten::{name} gives no tensor"))),
        }
    }

    /// An op of one tensor.
    pub(super) fn unary(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        self.op(name, &[x.into()])
    }

    /// `a + b`
    pub(super) fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op("add.Tensor", &[a.into(), b.into()])
    }

    /// `a - b`
    pub(super) fn sub(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op("sub.Tensor", &[a.into(), b.into()])
    }

    /// `a * b`
    pub(super) fn mul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op("mul.Tensor", &[a.into(), b.into()])
    }

    /// `a / b`
    pub(super) fn div(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op("div.Tensor", &[a.into(), b.into()])
    }

    /// `a` where the condition holds, else `b`.
    pub(super) fn choose(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op("where.self", &[condition.into(), a.into(), b.into()])
    }

    /// A number that takes part in type promotion as numbers do.
    pub(super) fn number(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::wrapped_number(value.into())
    }

    /// A tensor of one element, for ops that take no number.
    pub(super) fn scalar_tensor(&self, value: impl Into<Scalar>, like: &Tensor) -> Result<Tensor> {
        let none = Value::None;
        self.op("scalar_tensor", &[value.into().into(), like.dtype().into(), none, like.device().into()])
    }

    /// A comparison with a number, such as `gt.Scalar`.
    pub(super) fn compare(&self, name: &str, x: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.op(name, &[x.into(), value.into().into()])
    }

    /// The sum over dimensions; none of them means all.
    pub(super) fn sum(&self, x: &Tensor, dims: &[i64], keep: bool, dtype: Option<DType>) -> Result<Tensor> {
        self.op("sum.dim_IntList", &[x.into(), dims.into(), keep.into(), dtype.into()])
    }

    /// Another shape over the same memory.
    pub(super) fn permute(&self, x: &Tensor, order: &[i64]) -> Result<Tensor> {
        self.op("permute", &[x.into(), order.into()])
    }
}
