//! The only interception point: every op can be called by id with boxed arguments, and layers can see the call.
//!
//! A generated function tests one thread-local word. With no layer active it takes the typed path; otherwise it boxes
//! its arguments and calls [`call`], which passes them to the topmost layer. A layer may do anything and may call
//! [`Next::call`] to go one layer down; below the last one the typed path runs. Two stacks exist, because capture for
//! export sits above autograd and capture of joint graphs below it. Layers do not see ops that they run themselves.
//! Autocast acts below the upper stack; the wrapping levels of `func` act below the inner one, and hide both stacks of
//! their caller until they descend to it.

mod lent;
mod typed;

use crate::autograd::autocast;
use crate::func::{functional_call, level};
use crate::library;
use crate::ops::{devices, forms};
use crate::state::{self, ModeGuard};
use crate::sym::{SymInt, SymInts};
use crate::{DType, Device, Error, ErrorKind, Result, Scalar, Tensor};
use std::sync::Arc;

pub(crate) use crate::record::Run;
pub use crate::record::{Autocast, Cost, Decomposition, Derivative, Kind, Op, OpInfo, Tags};
pub(crate) use lent::{Lent, apart, inner, layers, left_out, one_tensor, tensors, values};
pub(crate) use typed::{Boxed, Given, Unbox};

/// A boxed argument or result.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Value {
    /// Absent.
    #[default]
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A list of tensors.
    Tensors(Vec<Tensor>),
    /// A list of optional tensors.
    OptTensors(Vec<Option<Tensor>>),
    /// A scalar.
    Scalar(Scalar),
    /// Scalars.
    Scalars(Vec<Scalar>),
    /// An integer or size.
    Int(SymInt),
    /// Integers or sizes.
    Ints(SymInts),
    /// A float.
    Float(f64),
    /// Floats.
    Floats(Vec<f64>),
    /// A bool.
    Bool(bool),
    /// Bools.
    Bools(Vec<bool>),
    /// Text.
    Str(String),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A memory format.
    MemoryFormat(MemoryFormat),
}

/// How the elements of a result are ordered in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MemoryFormat {
    /// Row-major.
    Contiguous,
    /// Channels innermost, for images of four dimensions.
    ChannelsLast,
    /// As the input, if that is dense.
    #[default]
    Preserve,
}

impl Value {
    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "none",
            Value::Tensor(_) => "a tensor",
            Value::Tensors(_) => "a list of tensors",
            Value::OptTensors(_) => "a list of optional tensors",
            Value::Scalar(_) => "a number",
            Value::Scalars(_) => "a list of numbers",
            Value::Int(_) => "an integer",
            Value::Ints(_) => "a list of integers",
            Value::Float(_) => "a float",
            Value::Floats(_) => "a list of floats",
            Value::Bool(_) => "a bool",
            Value::Bools(_) => "a list of bools",
            Value::Str(_) => "a string",
            Value::DType(_) => "a dtype",
            Value::Device(_) => "a device",
            Value::MemoryFormat(_) => "a memory format",
        }
    }
}

macro_rules! boxes {
    ($($t:ty => |$v:ident| $e:expr),* $(,)?) => {$(
        impl From<$t> for Value {
            #[inline]
            fn from($v: $t) -> Value { $e }
        }
    )*};
}
boxes! {
    Tensor => |v| Value::Tensor(v),
    &Tensor => |v| Value::Tensor(v.clone()),
    Option<&Tensor> => |v| v.map_or(Value::None, |t| Value::Tensor(t.clone())),
    Option<Tensor> => |v| v.map_or(Value::None, Value::Tensor),
    &[Tensor] => |v| Value::Tensors(v.to_vec()),
    Vec<Tensor> => |v| Value::Tensors(v),
    &[Option<Tensor>] => |v| Value::OptTensors(v.to_vec()),
    Scalar => |v| Value::Scalar(v),
    Option<Scalar> => |v| v.map_or(Value::None, Value::Scalar),
    &[Scalar] => |v| Value::Scalars(v.to_vec()),
    i64 => |v| Value::Int(v.into()),
    Option<i64> => |v| v.map_or(Value::None, |i| Value::Int(i.into())),
    SymInt => |v| Value::Int(v),
    Option<SymInt> => |v| v.map_or(Value::None, Value::Int),
    &[i64] => |v| Value::Ints(v.iter().map(|&i| i.into()).collect()),
    Option<&[i64]> => |v| v.map_or(Value::None, Value::from),
    &[SymInt] => |v| Value::Ints(v.iter().copied().collect()),
    Option<&[SymInt]> => |v| v.map_or(Value::None, Value::from),
    f64 => |v| Value::Float(v),
    Option<f64> => |v| v.map_or(Value::None, Value::Float),
    &[f64] => |v| Value::Floats(v.to_vec()),
    Option<&[f64]> => |v| v.map_or(Value::None, Value::from),
    bool => |v| Value::Bool(v),
    Option<bool> => |v| v.map_or(Value::None, Value::Bool),
    &[bool] => |v| Value::Bools(v.to_vec()),
    &str => |v| Value::Str(v.to_string()),
    Option<&str> => |v| v.map_or(Value::None, Value::from),
    DType => |v| Value::DType(v),
    Option<DType> => |v| v.map_or(Value::None, Value::DType),
    Device => |v| Value::Device(v),
    Option<Device> => |v| v.map_or(Value::None, Value::Device),
    MemoryFormat => |v| Value::MemoryFormat(v),
    Option<MemoryFormat> => |v| v.map_or(Value::None, Value::MemoryFormat),
}

/// Results of a boxed call: one value per return of the schema.
pub type Outputs = smallvec::SmallVec<[Value; 1]>;

/// The arguments of a boxed call, one per argument of the schema; omitted trailing ones take their defaults.
#[derive(Debug)]
pub struct Args<'a> {
    op: &'static str,
    values: &'a [Value],
    defaults: &'static [(u8, Given)],
}

impl<'a> Args<'a> {
    /// Arguments for the op of this name.
    pub fn new(op: &'static str, values: &'a [Value]) -> Args<'a> {
        Args { op, values, defaults: &[] }
    }

    /// The default of argument `k`, if it was omitted.
    fn default(&self, k: usize) -> Option<Given> {
        if !self.is_none(k) {
            return None;
        }
        self.defaults.iter().find(|(at, _)| *at as usize == k).map(|(_, given)| *given)
    }

    /// Argument `k` as a typed function takes it.
    pub(crate) fn get<T: Unbox<'a>>(&self, k: usize) -> Result<T> {
        T::unbox(self, k)
    }

    /// The name of the op called.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The arguments as they were given.
    pub fn values(&self) -> &'a [Value] {
        self.values
    }

    pub(crate) fn wrong<T>(&self, k: usize, name: &str, expected: &str) -> Result<T> {
        Err(self.wrong_type(k, name, expected))
    }

    #[cold]
    #[inline(never)]
    fn wrong_type(&self, k: usize, name: &str, expected: &str) -> Error {
        let found = self.values.get(k).map_or("nothing", Value::kind);
        // Generated calls leave the name to the schema.
        let of_schema = || Some(Op::from_name(self.op)?.info().schema.args.get(k)?.name);
        let name = if name.is_empty() { of_schema().unwrap_or(name) } else { name };
        Error::from(ErrorKind::ArgumentType {
            op: self.op.to_string(),
            position: k,
            name: name.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }

    fn at(&self, k: usize) -> &'a Value {
        const NONE: &Value = &Value::None;
        self.values.get(k).unwrap_or(NONE)
    }

    /// Whether argument `k` was omitted.
    pub fn is_none(&self, k: usize) -> bool {
        matches!(self.at(k), Value::None)
    }

    /// A tensor.
    pub fn tensor(&self, k: usize, name: &str) -> Result<&'a Tensor> {
        match self.at(k) {
            Value::Tensor(t) => Ok(t),
            _ => self.wrong(k, name, "a tensor"),
        }
    }
    /// An optional tensor.
    pub fn opt_tensor(&self, k: usize, name: &str) -> Result<Option<&'a Tensor>> {
        if self.is_none(k) { Ok(None) } else { self.tensor(k, name).map(Some) }
    }
    /// A list of tensors.
    pub fn tensors(&self, k: usize, name: &str) -> Result<Vec<Tensor>> {
        match self.at(k) {
            Value::Tensors(t) => Ok(t.clone()),
            Value::OptTensors(t) if t.iter().all(Option::is_some) => Ok(t.iter().flatten().cloned().collect()),
            Value::Tensor(t) => Ok(vec![t.clone()]),
            Value::Ints(v) if v.is_empty() => Ok(Vec::new()),
            _ => self.wrong(k, name, "a list of tensors"),
        }
    }
    /// A list of optional tensors.
    pub fn opt_tensors(&self, k: usize, name: &str) -> Result<Vec<Option<Tensor>>> {
        match self.at(k) {
            Value::OptTensors(t) => Ok(t.clone()),
            Value::Tensors(t) => Ok(t.iter().cloned().map(Some).collect()),
            _ => self.wrong(k, name, "a list of optional tensors"),
        }
    }
    /// A scalar.
    pub fn scalar(&self, k: usize, name: &str) -> Result<Scalar> {
        match self.at(k) {
            Value::Scalar(s) => Ok(*s),
            Value::Int(i) => Ok(Scalar::Int(i.int())),
            Value::Float(f) => Ok(Scalar::Float(*f)),
            Value::Bool(b) => Ok(Scalar::Bool(*b)),
            _ => self.wrong(k, name, "a number"),
        }
    }
    /// An optional scalar.
    pub fn opt_scalar(&self, k: usize, name: &str) -> Result<Option<Scalar>> {
        if self.is_none(k) { Ok(None) } else { self.scalar(k, name).map(Some) }
    }
    /// A size.
    pub fn sym_int(&self, k: usize, name: &str) -> Result<SymInt> {
        match self.at(k) {
            Value::Int(i) => Ok(*i),
            Value::Scalar(Scalar::Int(i)) => Ok((*i).into()),
            Value::Scalar(Scalar::Bool(b)) | Value::Bool(b) => Ok(i64::from(*b).into()),
            _ => self.wrong(k, name, "an integer"),
        }
    }
    /// An optional size.
    pub fn opt_sym_int(&self, k: usize, name: &str) -> Result<Option<SymInt>> {
        if self.is_none(k) { Ok(None) } else { self.sym_int(k, name).map(Some) }
    }
    /// An integer.
    pub fn int(&self, k: usize, name: &str) -> Result<i64> {
        self.sym_int(k, name).map(SymInt::int)
    }
    /// An optional integer.
    pub fn opt_int(&self, k: usize, name: &str) -> Result<Option<i64>> {
        Ok(self.opt_sym_int(k, name)?.map(SymInt::int))
    }
    /// Sizes. A single size is a list of one.
    pub fn sym_ints(&self, k: usize, name: &str) -> Result<SymInts> {
        match self.at(k) {
            Value::Ints(v) => Ok(v.clone()),
            Value::Int(i) => Ok(smallvec::smallvec![*i]),
            Value::Scalar(Scalar::Int(i)) => Ok(smallvec::smallvec![(*i).into()]),
            Value::Tensors(v) if v.is_empty() => Ok(SymInts::new()),
            _ => self.wrong(k, name, "a list of integers"),
        }
    }
    /// Optional sizes.
    pub fn opt_sym_ints(&self, k: usize, name: &str) -> Result<Option<SymInts>> {
        if self.is_none(k) { Ok(None) } else { self.sym_ints(k, name).map(Some) }
    }
    /// Integers. A single integer is a list of one.
    pub fn ints(&self, k: usize, name: &str) -> Result<Vec<i64>> {
        Ok(self.sym_ints(k, name)?.iter().map(|i| i.int()).collect())
    }
    /// Optional integers.
    pub fn opt_ints(&self, k: usize, name: &str) -> Result<Option<Vec<i64>>> {
        if self.is_none(k) { Ok(None) } else { self.ints(k, name).map(Some) }
    }
    /// A float.
    pub fn float(&self, k: usize, name: &str) -> Result<f64> {
        match self.at(k) {
            Value::Float(f) => Ok(*f),
            Value::Scalar(s) => Ok(s.to_f64()),
            Value::Int(i) => Ok(i.int() as f64),
            _ => self.wrong(k, name, "a float"),
        }
    }
    /// An optional float.
    pub fn opt_float(&self, k: usize, name: &str) -> Result<Option<f64>> {
        if self.is_none(k) { Ok(None) } else { self.float(k, name).map(Some) }
    }
    /// Floats.
    pub fn floats(&self, k: usize, name: &str) -> Result<Vec<f64>> {
        match self.at(k) {
            Value::Floats(v) => Ok(v.clone()),
            Value::Ints(v) => Ok(v.iter().map(|i| i.int() as f64).collect()),
            _ => self.wrong(k, name, "a list of floats"),
        }
    }
    /// Optional floats.
    pub fn opt_floats(&self, k: usize, name: &str) -> Result<Option<Vec<f64>>> {
        if self.is_none(k) { Ok(None) } else { self.floats(k, name).map(Some) }
    }
    /// Scalars.
    pub fn scalars(&self, k: usize, name: &str) -> Result<Vec<Scalar>> {
        match self.at(k) {
            Value::Scalars(v) => Ok(v.clone()),
            Value::Floats(v) => Ok(v.iter().map(|f| Scalar::Float(*f)).collect()),
            Value::Ints(v) => Ok(v.iter().map(|i| Scalar::Int(i.int())).collect()),
            _ => self.wrong(k, name, "a list of numbers"),
        }
    }
    /// A bool.
    pub fn bool(&self, k: usize, name: &str) -> Result<bool> {
        match self.at(k) {
            Value::Bool(b) => Ok(*b),
            Value::Scalar(Scalar::Bool(b)) => Ok(*b),
            Value::Int(i) => Ok(i.int() != 0),
            _ => self.wrong(k, name, "a bool"),
        }
    }
    /// An optional bool.
    pub fn opt_bool(&self, k: usize, name: &str) -> Result<Option<bool>> {
        if self.is_none(k) { Ok(None) } else { self.bool(k, name).map(Some) }
    }
    /// A fixed number of bools.
    pub fn bools<const N: usize>(&self, k: usize, name: &str) -> Result<[bool; N]> {
        match self.at(k) {
            Value::Bools(v) if v.len() == N => Ok(std::array::from_fn(|i| v[i])),
            _ => self.wrong(k, name, "a list of bools of the declared length"),
        }
    }
    /// Text.
    pub fn str(&self, k: usize, name: &str) -> Result<&'a str> {
        match self.at(k) {
            Value::Str(s) => Ok(s),
            _ => self.wrong(k, name, "a string"),
        }
    }
    /// Optional text.
    pub fn opt_str(&self, k: usize, name: &str) -> Result<Option<&'a str>> {
        if self.is_none(k) { Ok(None) } else { self.str(k, name).map(Some) }
    }
    /// An optional dtype.
    pub fn opt_dtype(&self, k: usize, name: &str) -> Result<Option<DType>> {
        match self.at(k) {
            Value::None => Ok(None),
            Value::DType(d) => Ok(Some(*d)),
            _ => self.wrong(k, name, "a dtype"),
        }
    }
    /// A dtype.
    pub fn dtype(&self, k: usize, name: &str) -> Result<DType> {
        self.opt_dtype(k, name)?.map_or_else(|| self.wrong(k, name, "a dtype"), Ok)
    }
    /// An optional device.
    pub fn opt_device(&self, k: usize, name: &str) -> Result<Option<Device>> {
        match self.at(k) {
            Value::None => Ok(None),
            Value::Device(d) => Ok(Some(*d)),
            _ => self.wrong(k, name, "a device"),
        }
    }
    /// A device.
    pub fn device(&self, k: usize, name: &str) -> Result<Device> {
        self.opt_device(k, name)?.map_or_else(|| self.wrong(k, name, "a device"), Ok)
    }
    /// A memory format.
    pub fn memory_format(&self, k: usize, name: &str) -> Result<MemoryFormat> {
        self.opt_memory_format(k, name)?.map_or_else(|| self.wrong(k, name, "a memory format"), Ok)
    }
    /// An optional memory format.
    pub fn opt_memory_format(&self, k: usize, name: &str) -> Result<Option<MemoryFormat>> {
        match self.at(k) {
            Value::None => Ok(None),
            Value::MemoryFormat(m) => Ok(Some(*m)),
            _ => self.wrong(k, name, "a memory format"),
        }
    }
}

/// A layer that sees every op.
pub trait Interpreter: Send + Sync {
    /// Handles one call; `next.call(..)` goes one layer down.
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs>;

    /// Handles a conditional, the only call that takes functions. A layer that records it runs both branches; one that does
    /// not (`None`) leaves it to those below, and finally one branch runs.
    fn cond(&self, _: &Cond<'_>) -> Option<Result<Vec<Tensor>>> {
        None
    }
}

/// One branch of a conditional.
pub type Branch<'a> = &'a dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// A call of a conditional.
#[derive(Clone, Copy)]
pub struct Cond<'a> {
    /// One element.
    pub pred: &'a Tensor,
    /// The branches for true and false.
    pub sides: [Branch<'a>; 2],
    /// The arguments of the branches.
    pub operands: &'a [&'a Tensor],
}

/// Offers a conditional to the layers above autograd, topmost first; `None` if none of them records it.
pub fn cond(call: &Cond<'_>) -> Option<Result<Vec<Tensor>>> {
    if !state::is(state::LAYERS) {
        return None;
    }
    let layers = state::stacks(|s| s.layers.clone());
    layers.iter().rev().find_map(|layer| layer.cond(call))
}

/// The rest of the stack below a layer.
pub struct Next<'a> {
    below: &'a [Arc<dyn Interpreter>],
    inner: bool,
}

impl Next<'_> {
    /// Runs the op on the layers below, and finally the kernel.
    pub fn call(&self, op: Op, args: &[Value]) -> Result<Outputs> {
        match self.below.split_last() {
            Some((top, rest)) => top.call(op, args, Next { below: rest, inner: self.inner }),
            None if self.inner && state::is(state::LEVEL) => level::call(op, args),
            None if !self.inner && autocast::is_autocast_enabled() => autocast::call(op, args),
            None => {
                let info = op.info();
                if self.inner { info.below(args) } else { info.call(args) }
            }
        }
    }
}

impl Next<'_> {
    /// Makes the layers below the current ones while `f` runs, so that what it calls with [`call_below`] goes one layer down. For
    /// layers that cannot pass `next` on: those of another language.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        if !self.inner || self.below.is_empty() {
            return f();
        }
        struct Restore(Vec<Arc<dyn Interpreter>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                state::stacks(|s| std::mem::swap(&mut s.inner, &mut self.0));
            }
        }
        let _restore = Restore(state::stacks(|s| std::mem::replace(&mut s.inner, self.below.to_vec())));
        let _on = ModeGuard::new(state::INNER, 0);
        f()
    }
}

/// Calls an op below autograd: through the inner layers that are active, then the level of a transform, then the kernel.
pub fn call_below(op: Op, args: &[Value]) -> Result<Outputs> {
    if state::is(state::INNER) {
        return call_inner(op, args);
    }
    Next { below: &[], inner: true }.call(op, args)
}

fn call_stack(inner: bool, op: Op, args: &[Value]) -> Result<Outputs> {
    let (bit, stack) = if inner {
        (state::INNER, state::stacks(|s| s.inner.clone()))
    } else {
        (state::LAYERS, state::stacks(|s| s.layers.clone()))
    };
    // Ops that a layer runs on its own account must not come back to it.
    let _off = ModeGuard::new(0, bit);
    Next { below: &stack, inner }.call(op, args)
}

/// Runs an op through the layers above autograd.
#[cold]
pub(crate) fn call_layers(op: Op, args: &[Value]) -> Result<Outputs> {
    let replaced = functional_call::replaced(args);
    call_stack(false, op, replaced.as_deref().unwrap_or(args))
}

/// Runs an op through the layers below autograd.
#[cold]
pub(crate) fn call_inner(op: Op, args: &[Value]) -> Result<Outputs> {
    call_stack(true, op, args)
}

/// Calls an op with boxed arguments, through every layer, as a loaded program or an interpreter does.
pub fn call(op: Op, args: &[Value]) -> Result<Outputs> {
    let info = op.info();
    if state::is(state::LAYERS) {
        return call_layers(op, args);
    }
    info.call(args)
}

/// Calls an op by its ATen name, such as `aten::add.Tensor`.
pub fn call_by_name(name: &str, args: &[Value]) -> Result<Outputs> {
    let op = Op::from_name(name).ok_or_else(|| Error::from(ErrorKind::UnknownOp { op: name.to_string() }))?;
    call(op, args)
}

/// Adds a layer above autograd while the guard lives.
pub fn push_layer(layer: Arc<dyn Interpreter>) -> LayerGuard {
    let below = state::stacks(|s| {
        s.layers.push(layer);
        s.layers.len() - 1
    });
    LayerGuard { inner: false, below, mode: ModeGuard::new(state::LAYERS, 0) }
}

/// Adds a layer below autograd while the guard lives.
pub fn push_inner_layer(layer: Arc<dyn Interpreter>) -> LayerGuard {
    let below = state::stacks(|s| {
        s.inner.push(layer);
        s.inner.len() - 1
    });
    LayerGuard { inner: true, below, mode: ModeGuard::new(state::INNER, 0) }
}

/// Removes its layer when dropped.
#[derive(Debug)]
#[must_use = "the layer lasts while the guard lives"]
pub struct LayerGuard {
    inner: bool,
    /// How many layers there were before.
    below: usize,
    mode: ModeGuard,
}

impl Drop for LayerGuard {
    fn drop(&mut self) {
        let (ended, left) = state::stacks(|s| {
            let layers = if self.inner { &mut s.inner } else { &mut s.layers };
            (layers.pop(), layers.len())
        });
        drop(ended);
        if left > self.below {
            // One was put below it meanwhile, to stay.
            self.mode.leave_on(if self.inner { state::INNER } else { state::LAYERS });
        }
    }
}

impl OpInfo {
    /// Full call: autograd and everything below it.
    pub(crate) fn call(&'static self, values: &[Value]) -> Result<Outputs> {
        match &self.run {
            Run::Typed(typed, defaults) => typed.call(&Args { op: self.name, values, defaults }, false),
            Run::Boxed(typed, defaults) => {
                devices::check_boxed(self, values)?;
                typed.call(&Args { op: self.name, values, defaults }, false)
            }
            Run::Form(way, op) => forms::call(self, *way, *op, values),
            Run::Library => library::call(&Args::new(self.name, values)),
        }
    }

    /// Call below autograd.
    pub(crate) fn below(&'static self, values: &[Value]) -> Result<Outputs> {
        match &self.run {
            Run::Typed(typed, defaults) | Run::Boxed(typed, defaults) => {
                typed.call(&Args { op: self.name, values, defaults }, true)
            }
            Run::Form(way, op) => forms::call(self, *way, *op, values),
            Run::Library => library::below(&Args::new(self.name, values)),
        }
    }
}
