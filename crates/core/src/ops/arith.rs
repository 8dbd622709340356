//! Arithmetic of derivative formulas: `a * b` between tensors and numbers, as results.

use crate::{Result, Scalar, Tensor, ops};

/// A tensor or a number in a formula.
pub(crate) enum Arg<'a> {
    T(&'a Tensor),
    S(Scalar),
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(t: &'a Tensor) -> Self {
        Arg::T(t)
    }
}
impl<'a> From<&'a &Tensor> for Arg<'a> {
    fn from(t: &'a &Tensor) -> Self {
        Arg::T(t)
    }
}
macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl<'a> From<&'a $t> for Arg<'a> {
            fn from(v: &'a $t) -> Self { Arg::S((*v).into()) }
        }
    )*};
}
numbers!(Scalar, f64, i64, i32, usize, crate::SymInt);

fn pure(s: Scalar) -> Result<Tensor> {
    Tensor::try_scalar(s)
}

pub(crate) fn add<'a>(a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>) -> Result<Tensor> {
    match (a.into(), b.into()) {
        (Arg::T(a), Arg::T(b)) => ops::add(a, b, Scalar::Int(1)),
        (Arg::T(t), Arg::S(s)) | (Arg::S(s), Arg::T(t)) => ops::add_scalar(t, s, Scalar::Int(1)),
        (Arg::S(a), Arg::S(b)) => ops::add_scalar(&pure(a)?, b, Scalar::Int(1)),
    }
}

pub(crate) fn sub<'a>(a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>) -> Result<Tensor> {
    match (a.into(), b.into()) {
        (Arg::T(a), Arg::T(b)) => ops::sub(a, b, Scalar::Int(1)),
        (Arg::T(t), Arg::S(s)) => ops::add_scalar(t, s.negated(), Scalar::Int(1)),
        (Arg::S(s), Arg::T(t)) => ops::rsub_scalar(t, s, Scalar::Int(1)),
        (Arg::S(a), Arg::S(b)) => ops::add_scalar(&pure(a)?, b.negated(), Scalar::Int(1)),
    }
}

pub(crate) fn mul<'a>(a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>) -> Result<Tensor> {
    match (a.into(), b.into()) {
        (Arg::T(a), Arg::T(b)) => ops::mul(a, b),
        (Arg::T(t), Arg::S(s)) | (Arg::S(s), Arg::T(t)) => ops::mul_scalar(t, s),
        (Arg::S(a), Arg::S(b)) => ops::mul_scalar(&pure(a)?, b),
    }
}

/// `a` times the conjugate of `b`: how gradients of products are made. Real numbers pay one look at a dtype for it.
pub(crate) fn mul_conj<'a>(a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>) -> Result<Tensor> {
    match (a.into(), b.into()) {
        (Arg::T(a), Arg::T(b)) if !b.is_complex() => ops::mul(a, b),
        (Arg::T(a), Arg::T(b)) => ops::mul(a, &ops::conj_physical(b)?),
        (Arg::S(a), Arg::T(b)) => ops::mul_scalar(&ops::formulas::conj(b)?, a),
        (Arg::T(a), Arg::S(b)) => ops::mul_scalar(a, b.conj()),
        (Arg::S(a), Arg::S(b)) => ops::mul_scalar(&pure(a)?, b.conj()),
    }
}

pub(crate) fn div<'a>(a: impl Into<Arg<'a>>, b: impl Into<Arg<'a>>) -> Result<Tensor> {
    match (a.into(), b.into()) {
        (Arg::T(a), Arg::T(b)) => ops::div(a, b),
        (Arg::T(t), Arg::S(s)) => ops::div(t, &Tensor::try_wrapped_number(s)?),
        (Arg::S(s), Arg::T(t)) => ops::mul_scalar(&ops::reciprocal(t)?, s),
        (Arg::S(a), Arg::S(b)) => ops::div(&pure(a)?, &pure(b)?),
    }
}

pub(crate) fn neg<'a>(a: impl Into<Arg<'a>>) -> Result<Tensor> {
    match a.into() {
        Arg::T(t) => ops::neg(t),
        Arg::S(s) => pure(s.negated()),
    }
}
