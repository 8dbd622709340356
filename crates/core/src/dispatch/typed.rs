//! Boxed calls of typed functions: the building blocks of the generated `boxed.rs`.
//!
//! `boxed.rs` has one function per signature, which takes its arguments out of the boxes and calls the typed function it
//! was given. What differs between ops of one signature is data: two function pointers and the defaults.

use super::{Args, MemoryFormat, Outputs, Value};
use crate::sym::{SymInt, SymInts};
use crate::{DType, Device, Result, Scalar, Tensor};
use smallvec::smallvec;

/// A default of a schema, as data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    Int(i64),
    Ints(&'static [i64]),
    Float(f64),
    #[expect(dead_code, reason = "no op has such a default yet")]
    Floats(&'static [f64]),
    Bool(bool),
    Str(&'static str),
    DType(DType),
    MemoryFormat(MemoryFormat),
}

impl From<Given> for Value {
    fn from(given: Given) -> Value {
        match given {
            Given::Int(v) => v.into(),
            Given::Ints(v) => v.into(),
            Given::Float(v) => v.into(),
            Given::Floats(v) => v.into(),
            Given::Bool(v) => v.into(),
            Given::Str(v) => v.into(),
            Given::DType(v) => v.into(),
            Given::MemoryFormat(v) => v.into(),
        }
    }
}

/// What a typed function takes, taken out of a box; owned where the function borrows a list.
pub(crate) trait Unbox<'a>: Sized {
    fn unbox(args: &Args<'a>, k: usize) -> Result<Self>;
}

macro_rules! unboxes {
    ($($t:ty => $getter:ident),* $(,)?) => {$(
        impl<'a> Unbox<'a> for $t {
            fn unbox(args: &Args<'a>, k: usize) -> Result<$t> {
                match args.default(k) {
                    None => args.$getter(k, ""),
                    Some(given) => Args::new(args.op(), &[given.into()]).$getter(0, ""),
                }
            }
        }
    )*};
}
unboxes! {
    Vec<Tensor> => tensors,
    Vec<Option<Tensor>> => opt_tensors,
    Scalar => scalar,
    Option<Scalar> => opt_scalar,
    Vec<Scalar> => scalars,
    SymInt => sym_int,
    Option<SymInt> => opt_sym_int,
    SymInts => sym_ints,
    Option<SymInts> => opt_sym_ints,
    i64 => int,
    Option<i64> => opt_int,
    Vec<i64> => ints,
    Option<Vec<i64>> => opt_ints,
    f64 => float,
    Option<f64> => opt_float,
    Vec<f64> => floats,
    Option<Vec<f64>> => opt_floats,
    bool => bool,
    Option<bool> => opt_bool,
    DType => dtype,
    Option<DType> => opt_dtype,
    Device => device,
    Option<Device> => opt_device,
    MemoryFormat => memory_format,
    Option<MemoryFormat> => opt_memory_format,
}

impl<'a> Unbox<'a> for &'a Tensor {
    fn unbox(args: &Args<'a>, k: usize) -> Result<&'a Tensor> {
        args.tensor(k, "")
    }
}

impl<'a> Unbox<'a> for Option<&'a Tensor> {
    fn unbox(args: &Args<'a>, k: usize) -> Result<Option<&'a Tensor>> {
        args.opt_tensor(k, "")
    }
}

impl<'a> Unbox<'a> for &'a str {
    fn unbox(args: &Args<'a>, k: usize) -> Result<&'a str> {
        match args.default(k) {
            Some(Given::Str(text)) => Ok(text),
            _ => args.str(k, ""),
        }
    }
}

impl<'a> Unbox<'a> for Option<&'a str> {
    fn unbox(args: &Args<'a>, k: usize) -> Result<Option<&'a str>> {
        match args.default(k) {
            Some(Given::Str(text)) => Ok(Some(text)),
            _ => args.opt_str(k, ""),
        }
    }
}

impl<'a, const N: usize> Unbox<'a> for [bool; N] {
    fn unbox(args: &Args<'a>, k: usize) -> Result<[bool; N]> {
        args.bools(k, "")
    }
}

/// What a typed function returns, boxed.
pub(crate) trait Boxed {
    fn boxed(self) -> Outputs;
}

impl Boxed for () {
    fn boxed(self) -> Outputs {
        Outputs::new()
    }
}

macro_rules! boxes_one {
    ($($t:ty),*) => {$(
        impl Boxed for $t {
            fn boxed(self) -> Outputs { smallvec![self.into()] }
        }
    )*};
}
boxes_one!(Tensor, &Tensor, Vec<Tensor>, Scalar, i64, SymInt, f64, bool, DType);

macro_rules! boxes_several {
    ($(($($t:ident $k:tt),*))*) => {$(
        impl<$($t: Into<Value>),*> Boxed for ($($t,)*) {
            fn boxed(self) -> Outputs { smallvec![$(self.$k.into()),*] }
        }
    )*};
}
boxes_several! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
