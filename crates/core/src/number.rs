//! Number: a host scalar that becomes an input of a compiled function once it has had two values.
//!
//! Plain `f64` and `i64` arguments are compiled into the graph, one graph per value. A `Number` is compiled in at first
//! and becomes an input of the graph when it changes. It is used like a tensor: `x * &k`. Reading its [`value`]
//! (Number::value) specializes the graph to that value again.

use crate::{Scalar, Tensor, capture};

/// A host scalar; weak in type promotion, as plain numbers are.
#[derive(Clone)]
pub struct Number {
    value: Scalar,
    tensor: Tensor,
}

impl Number {
    /// This number.
    pub fn new(value: impl Into<Scalar>) -> Number {
        let value = value.into();
        Number { value, tensor: Tensor::try_wrapped_number(value).expect("one number fits in memory") }
    }

    /// A number whose value is only known at run time, for a capture; `value` is that of the captured call.
    pub fn outline(value: Scalar) -> crate::Result<Number> {
        Ok(Number { value, tensor: Tensor::try_wrapped_number_outline(value)? })
    }

    /// The value. Inside a captured function, reading it specializes the graph to this value.
    pub fn value(&self) -> Scalar {
        if self.tensor.is_meta()
            && let Some(tracer) = capture::tracer()
        {
            tracer.observe_number(&self.tensor);
        }
        self.peek()
    }

    /// The value; nothing is recorded.
    pub fn peek(&self) -> Scalar {
        match self.tensor.here() {
            Some(real) => real.try_scalar_value().expect("a number stands for a number"),
            None => self.value,
        }
    }

    /// The number as it is here: in user code that a captured function left behind, that of the call it runs for.
    pub fn here(&self) -> Number {
        match self.tensor.here() {
            Some(_) => Number::new(self.peek()),
            None => self.clone(),
        }
    }

    /// The scalar as an operand.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

impl std::ops::Deref for Number {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl std::fmt::Debug for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

macro_rules! from {
    ($($t:ty),*) => {$(
        impl From<$t> for Number {
            fn from(v: $t) -> Number { Number::new(v) }
        }
    )*};
}
from!(f64, f32, i64, i32, usize);

macro_rules! operators {
    ($($trait:ident $f:ident),*) => {$(
        impl std::ops::$trait<&Number> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, n: &Number) -> Tensor { std::ops::$trait::$f(self, &n.tensor) }
        }
        impl std::ops::$trait<&Number> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, n: &Number) -> Tensor { std::ops::$trait::$f(&self, &n.tensor) }
        }
        impl std::ops::$trait<&Tensor> for &Number {
            type Output = Tensor;
            #[track_caller]
            fn $f(self, t: &Tensor) -> Tensor { std::ops::$trait::$f(&self.tensor, t) }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);
