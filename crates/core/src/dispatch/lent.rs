//! Typed calls that leave the typed path: to the layers above or below autograd, or to the rules for mixed devices.
//!
//! Every op has such a call and it is rarely taken, so the code for it in each op is kept small: arguments are lent
//! (copied words, nothing to drop), and boxing, the call and the unboxing of results happen here, once for all ops.

use super::{MemoryFormat, Op, Outputs, Value, call_inner, call_layers};
use crate::ops::devices;
use crate::sym::SymInt;
use crate::{DType, Device, Error, Result, Scalar, Tensor, profiler, state};
use smallvec::SmallVec;

/// An argument of a typed call, borrowed from the caller.
#[derive(Clone, Copy)]
pub(crate) enum Lent<'a> {
    None,
    Tensor(&'a Tensor),
    Tensors(&'a [Tensor]),
    OptTensors(&'a [Option<Tensor>]),
    Scalar(Scalar),
    Scalars(&'a [Scalar]),
    Int(i64),
    Ints(&'a [i64]),
    SymInt(SymInt),
    SymInts(&'a [SymInt]),
    Float(f64),
    Floats(&'a [f64]),
    Bool(bool),
    Bools(&'a [bool]),
    Str(&'a str),
    DType(DType),
    Device(Device),
    MemoryFormat(MemoryFormat),
}

macro_rules! lends {
    ($($t:ty => $variant:ident),* $(,)?) => {$(
        impl<'a> From<$t> for Lent<'a> {
            #[inline]
            fn from(v: $t) -> Lent<'a> { Lent::$variant(v) }
        }
        impl<'a> From<Option<$t>> for Lent<'a> {
            #[inline]
            fn from(v: Option<$t>) -> Lent<'a> { v.map_or(Lent::None, Lent::$variant) }
        }
    )*};
}
lends! {
    &'a Tensor => Tensor,
    &'a [Tensor] => Tensors,
    &'a [Option<Tensor>] => OptTensors,
    Scalar => Scalar,
    &'a [Scalar] => Scalars,
    i64 => Int,
    &'a [i64] => Ints,
    SymInt => SymInt,
    &'a [SymInt] => SymInts,
    f64 => Float,
    &'a [f64] => Floats,
    bool => Bool,
    &'a [bool] => Bools,
    &'a str => Str,
    DType => DType,
    Device => Device,
    MemoryFormat => MemoryFormat,
}

impl From<Lent<'_>> for Value {
    fn from(v: Lent<'_>) -> Value {
        match v {
            Lent::None => Value::None,
            Lent::Tensor(v) => v.into(),
            Lent::Tensors(v) => v.into(),
            Lent::OptTensors(v) => v.into(),
            Lent::Scalar(v) => v.into(),
            Lent::Scalars(v) => v.into(),
            Lent::Int(v) => v.into(),
            Lent::Ints(v) => v.into(),
            Lent::SymInt(v) => v.into(),
            Lent::SymInts(v) => v.into(),
            Lent::Float(v) => v.into(),
            Lent::Floats(v) => v.into(),
            Lent::Bool(v) => v.into(),
            Lent::Bools(v) => v.into(),
            Lent::Str(v) => v.into(),
            Lent::DType(v) => v.into(),
            Lent::Device(v) => v.into(),
            Lent::MemoryFormat(v) => v.into(),
        }
    }
}

/// Lent arguments as boxed ones.
pub(crate) fn values(args: &[Lent<'_>]) -> SmallVec<[Value; 8]> {
    args.iter().map(|&v| v.into()).collect()
}

/// What a typed function returns, taken out of the results of a boxed call: its schema says what they are.
pub(crate) trait Returned: Sized {
    fn returned(outputs: Outputs) -> Result<Self>;
}

/// Nothing is returned, or arguments are handed back.
impl Returned for () {
    fn returned(_: Outputs) -> Result<()> {
        Ok(())
    }
}

macro_rules! returns_one {
    ($($t:ty => $pattern:pat, $value:expr, $due:literal);* $(;)?) => {$(
        impl Returned for $t {
            fn returned(mut outputs: Outputs) -> Result<$t> {
                match outputs.pop() {
                    Some($pattern) if outputs.is_empty() => Ok($value),
                    other => {
                        let message = format!("a layer returned {other:?}; expected {}", $due);
                        Err(Error::argument("dispatch", message))
                    }
                }
            }
        }
    )*};
}
returns_one! {
    Tensor => Value::Tensor(t), t, "one tensor";
    Vec<Tensor> => Value::Tensors(t), t, "a list of tensors";
    bool => Value::Bool(b), b, "a bool";
}

macro_rules! returns_value {
    ($($t:ty => $getter:ident),* $(,)?) => {$(
        impl Returned for $t {
            fn returned(outputs: Outputs) -> Result<$t> {
                super::Args::new("dispatch", &outputs).$getter(0, "result")
            }
        }
    )*};
}
returns_value! { Scalar => scalar, i64 => int, SymInt => sym_int, f64 => float }

macro_rules! returns_several {
    ($($n:literal => ($($t:ident),*)),* $(,)?) => {$(
        impl Returned for ($($t,)*) {
            fn returned(outputs: Outputs) -> Result<Self> {
                tensors::<$n>(outputs).map(Self::from)
            }
        }
    )*};
}
returns_several! {
    2 => (Tensor, Tensor),
    3 => (Tensor, Tensor, Tensor),
    4 => (Tensor, Tensor, Tensor, Tensor),
    5 => (Tensor, Tensor, Tensor, Tensor, Tensor),
    6 => (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor),
}

/// The tensors among a boxed call's results.
pub(crate) fn tensors<const N: usize>(o: Outputs) -> Result<[Tensor; N]> {
    let list: Vec<Tensor> =
        o.into_iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect();
    let n = list.len();
    list.try_into().map_err(|_| Error::argument("dispatch", format!("a layer returned {n} tensors; expected {N}")))
}

/// Runs a typed call through the layers above autograd.
#[cold]
#[inline(never)]
pub(crate) fn layers<R: Returned>(op: Op, args: &[Lent<'_>]) -> Result<R> {
    R::returned(call_layers(op, &values(args))?)
}

/// Runs a typed call through the layers below autograd, or under the profiler.
#[cold]
#[inline(never)]
pub(crate) fn inner<R: Returned>(op: Op, args: &[Lent<'_>]) -> Result<R> {
    let args = values(args);
    R::returned(if state::is(state::INNER) { call_inner(op, &args) } else { profiler::call(op, &args) }?)
}

/// Below autograd, for a call that is not plain: to the layers, to the profiler, or to the rules for operands on different
/// devices.
#[cold]
#[inline(never)]
pub(crate) fn apart<R: Returned>(word: u32, op: Op, args: &[Lent<'_>]) -> Result<R> {
    let args = values(args);
    R::returned(match word & state::APART {
        0 => devices::settle(op, &args),
        state::PROFILE => profiler::call(op, &args),
        _ => call_inner(op, &args),
    }?)
}

/// The error of what this build was made without.
#[cold]
#[inline(never)]
pub(crate) fn left_out<R>(op: &'static str, feature: &'static str) -> Result<R> {
    Err(Error::argument(op, format!("this build does not have it; build with the feature `{feature}`")))
}

/// The one tensor of a boxed call's results.
pub(crate) fn one_tensor(outputs: Outputs) -> Result<Tensor> {
    Tensor::returned(outputs)
}
