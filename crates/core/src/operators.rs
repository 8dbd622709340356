//! `+ - * / %`, compound assignment and unary `-` on tensors and numbers. They panic with the message of the `try_` method.
//!
//! `x *= y` is `x.mul_(y)`, as in PyTorch: it writes the memory that other handles and views of `x` see.

pub(crate) use crate::error::expect_ok;
use crate::{Operand, Result, Scalar, SymInt, Tensor, capture, ops};

/// A number beside a tensor.
pub trait NumberOperand {
    /// The 0-dim tensor that it is in an op.
    fn operand(self) -> Result<Tensor>;
}

macro_rules! operands {
    ($($t:ty),*) => {$(
        impl NumberOperand for $t {
            #[inline]
            fn operand(self) -> Result<Tensor> { Tensor::try_wrapped_number(Scalar::from(self)) }
        }
    )*};
}
operands!(Scalar, bool, u8, i8, i16, u16, i32, u32, i64, usize, f32, f64, crate::f16, crate::bf16);
operands!(crate::Complex<f32>, crate::Complex<f64>);

/// Under capture a size stays what it is: the number of each call.
impl NumberOperand for SymInt {
    fn operand(self) -> Result<Tensor> {
        match capture::tracer().filter(|_| self.expression().is_some()) {
            Some(tracer) => tracer.size_operand(self),
            None => Tensor::try_wrapped_number(Scalar::Int(self.int())),
        }
    }
}

macro_rules! binary {
    ($($trait:ident $f:ident |$a:ident, $b:ident| $e:expr;)*) => {$(
        impl std::ops::$trait<&Tensor> for &Tensor {
            type Output = Tensor;
            #[inline]
            #[track_caller]
            fn $f(self, rhs: &Tensor) -> Tensor { let ($a, $b) = (self, rhs); expect_ok($e) }
        }
        impl std::ops::$trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: Tensor) -> Tensor { std::ops::$trait::$f(self, &rhs) }
        }
        impl std::ops::$trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: &Tensor) -> Tensor { std::ops::$trait::$f(&self, rhs) }
        }
        impl std::ops::$trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: Tensor) -> Tensor { std::ops::$trait::$f(&self, &rhs) }
        }
        // A number is a 0-dim operand that is weak in type promotion, so `x * 2.0` records what `x * tensor` does.
        impl<T: NumberOperand> std::ops::$trait<T> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: T) -> Tensor { std::ops::$trait::$f(self, &expect_ok(rhs.operand())) }
        }
        impl<T: NumberOperand> std::ops::$trait<T> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: T) -> Tensor { std::ops::$trait::$f(&self, rhs) }
        }
        numbers!($trait $f f64 f32 i64 i32 usize);
    )*};
}

// Numbers on the left: the language wants one impl per type.
macro_rules! numbers {
    ($trait:ident $f:ident $($t:ty)*) => {$(
        impl std::ops::$trait<&Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: &Tensor) -> Tensor { std::ops::$trait::$f(&expect_ok(Tensor::try_wrapped_number(Scalar::from(self))), rhs) }
        }
        impl std::ops::$trait<Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, rhs: Tensor) -> Tensor { std::ops::$trait::$f(self, &rhs) }
        }
    )*};
}

/// `a - b`; a number minus a tensor is recorded as `rsub`, as in PyTorch.
fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.is_wrapped_number() && !a.is_meta() && !b.is_wrapped_number() {
        return ops::rsub_scalar(b, a.try_scalar_value()?, Scalar::Int(1));
    }
    ops::sub(a, b, Scalar::Int(1))
}

/// `a / b`; a number divided by a tensor is recorded as a reciprocal and a product, as in PyTorch.
fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.is_wrapped_number() && !b.is_wrapped_number() {
        return ops::mul(&ops::reciprocal(b)?, a);
    }
    ops::div(a, b)
}

binary! {
    Add add |a, b| ops::add(a, b, Scalar::Int(1));
    Sub sub |a, b| sub(a, b);
    Mul mul |a, b| ops::mul(a, b);
    Div div |a, b| div(a, b);
    Rem rem |a, b| ops::remainder(a, b);
}

impl std::ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        expect_ok(ops::neg(self))
    }
}
impl std::ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        -&self
    }
}

macro_rules! assigning {
    ($($trait:ident $f:ident $method:ident;)*) => {$(
        impl<'a, T: Into<Operand<'a>>> std::ops::$trait<T> for Tensor {
            #[inline]
            #[track_caller]
            fn $f(&mut self, rhs: T) { self.$method(rhs); }
        }
    )*};
}
assigning! {
    AddAssign add_assign add_;
    SubAssign sub_assign sub_;
    MulAssign mul_assign mul_;
    DivAssign div_assign div_;
    RemAssign rem_assign remainder_;
}
