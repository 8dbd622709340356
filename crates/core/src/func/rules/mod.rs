//! Batching rules: what each op does when some of its tensors have a batch dimension.
//!
//! A rule gets the tensors of the level below, each with the position of its batch dimension, and calls ops there. Which
//! op has which is a column of its record (`vmap:` in `schema/ops.yaml`): pointwise ops by their tag, most others by
//! naming the arguments that name dimensions, the rest by a function of their family. An op that says `loop` runs sample
//! by sample and warns once. Composite ops never come here, only the ops they are composed of.

mod along;
pub(crate) mod conv;
pub(crate) mod index;
pub(crate) mod loss;
pub(crate) mod matmul;
mod merge;
pub(crate) mod norm;
pub(crate) mod pointwise;
mod random;
pub(crate) mod reduce;
pub(crate) mod view;

use super::level::Batch;
use super::vmap::Randomness;
use crate::autograd::VmapInfo;
use crate::dispatch::{self, Kind, Op, Outputs, Tags, Value};
use crate::sym::{SymInt, SymInts};
use crate::warnings::warn;
use crate::{Error, ErrorKind, Result, Tensor, ops};
use smallvec::{SmallVec, smallvec};
use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};

/// A tensor one level down, and which of its dimensions is the batch (none: the same for every sample).
#[derive(Clone)]
pub(crate) struct Batched {
    pub(crate) value: Tensor,
    pub(crate) dim: Option<usize>,
}

impl Batched {
    /// Dimensions of one sample.
    pub(crate) fn ndim(&self) -> usize {
        self.value.ndim() - usize::from(self.dim.is_some())
    }

    /// Sizes of one sample.
    pub(crate) fn sizes(&self) -> SmallVec<[usize; 6]> {
        let all = self.value.shape().iter().enumerate();
        all.filter(|(k, _)| Some(*k) != self.dim).map(|(_, &n)| n).collect()
    }

    /// The tensor with the batch in front, if it has one.
    pub(crate) fn front(&self) -> Result<Tensor> {
        match self.dim {
            None | Some(0) => Ok(self.value.clone()),
            Some(d) => ops::movedim(&self.value, d as i64, 0),
        }
    }

    /// The tensor with the batch in front, repeated (without a copy) if it has none.
    pub(crate) fn full(&self, size: usize) -> Result<Tensor> {
        if self.dim.is_some() {
            return self.front();
        }
        let mut sizes: SymInts = smallvec![SymInt::from(size)];
        sizes.extend(self.value.sym_sizes());
        ops::expand(&self.value, &sizes, false)
    }
}

/// An argument of a call one level down.
#[derive(Clone)]
pub(crate) enum Arg {
    Plain(Value),
    Tensor(Batched),
    List(Vec<Batched>),
    OptList(Vec<Option<Batched>>),
}

impl Arg {
    fn is_batched(&self) -> bool {
        match self {
            Arg::Plain(_) => false,
            Arg::Tensor(b) => b.dim.is_some(),
            Arg::List(list) => list.iter().any(|b| b.dim.is_some()),
            Arg::OptList(list) => list.iter().flatten().any(|b| b.dim.is_some()),
        }
    }

    /// The argument with every tensor changed by `f`.
    fn map(&self, mut f: impl FnMut(&Batched) -> Result<Tensor>) -> Result<Value> {
        Ok(match self {
            Arg::Plain(v) => v.clone(),
            Arg::Tensor(b) => Value::Tensor(f(b)?),
            Arg::List(list) => Value::Tensors(list.iter().map(f).collect::<Result<_>>()?),
            Arg::OptList(list) => {
                Value::OptTensors(list.iter().map(|b| b.as_ref().map(&mut f).transpose()).collect::<Result<_>>()?)
            }
        })
    }
}

/// A result one level down, and its batch dimension.
pub(crate) struct Out {
    pub(crate) value: Value,
    pub(crate) dim: Option<usize>,
}

pub(crate) type Outs = SmallVec<[Out; 1]>;

/// One result with the batch at `dim`.
fn one(t: Tensor, dim: usize) -> Result<Outs> {
    Ok(smallvec![Out { value: Value::Tensor(t), dim: Some(dim) }])
}

/// Results of a call, all with the batch in the same place.
fn all(outs: Outputs, dim: Option<usize>) -> Outs {
    outs.into_iter().map(|value| Out { value, dim }).collect()
}

/// A call with a batch.
pub(crate) struct Call<'a> {
    pub(crate) op: Op,
    pub(crate) args: &'a [Arg],
    pub(crate) size: usize,
    pub(crate) randomness: Randomness,
}

impl Call<'_> {
    fn arg(&self, k: usize) -> &Arg {
        const NONE: &Arg = &Arg::Plain(Value::None);
        self.args.get(k).unwrap_or(NONE)
    }

    /// Plain arguments, read as the op's own code reads them.
    fn plain(&self, k: usize) -> Value {
        match self.arg(k) {
            Arg::Plain(v) => v.clone(),
            _ => Value::None,
        }
    }

    fn ints(&self, k: usize) -> Option<Vec<i64>> {
        let values = [self.plain(k)];
        dispatch::Args::new(self.op.name(), &values).opt_ints(0, "dim").ok().flatten()
    }

    fn int(&self, k: usize) -> Option<i64> {
        let values = [self.plain(k)];
        dispatch::Args::new(self.op.name(), &values).opt_int(0, "dim").ok().flatten()
    }

    fn bool(&self, k: usize) -> bool {
        matches!(self.plain(k), Value::Bool(true))
    }

    fn tensor(&self, k: usize) -> Result<&Batched> {
        match self.arg(k) {
            Arg::Tensor(b) => Ok(b),
            _ => Err(Error::argument("vmap", format!("argument {k} of {:?} should be a tensor", self.op))),
        }
    }

    fn opt_tensor(&self, k: usize) -> Option<&Batched> {
        match self.arg(k) {
            Arg::Tensor(b) => Some(b),
            _ => None,
        }
    }

    /// Every argument with `f` applied to its tensors.
    fn values(&self, mut f: impl FnMut(&Batched) -> Result<Tensor>) -> Result<SmallVec<[Value; 6]>> {
        self.args.iter().map(|a| a.map(&mut f)).collect()
    }

    /// Every tensor with the batch in front, repeated where it has none.
    fn full(&self) -> Result<SmallVec<[Value; 6]>> {
        self.values(|b| b.full(self.size))
    }

    /// The position of an argument of the op.
    fn position(&self, name: &str) -> Result<usize> {
        let missing = || Error::argument("vmap", format!("{:?} has no argument called '{name}'", self.op));
        self.op.schema().position(name).ok_or_else(missing)
    }

    fn need(&self, holds: bool, message: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(ErrorKind::Vmap { message: format!("{:?}: {}", self.op, message()) }.into()) }
    }
}

/// How an op is batched.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// Broadcasts: the batch goes in front of aligned dimensions.
    Pointwise,
    /// The batch goes in front; the arguments at these places name dimensions of one sample.
    Along(&'static [usize]),
    /// As `Along`, and the argument at the first place holds the sizes of one sample.
    Sized(usize, &'static [usize]),
    /// The batch is folded into the first dimension of inputs with this many dimensions or more; the argument at the
    /// place given holds sizes that begin with that dimension.
    Merge(usize, Option<usize>),
    /// A rule of its own.
    Own(fn(&Call<'_>) -> Result<Outs>),
    /// Random numbers.
    Random,
    /// Refused: results whose shape depends on values, and forms that write tensors given.
    Refuse,
    /// Nothing to do: the ops it consists of are batched, or it takes no tensors.
    Parts,
    /// Sample by sample.
    Loop,
}

impl Rule {
    /// A rule of its own. A build without transforms has no code of it, and never asks.
    pub(crate) const fn own(rule: fn(&Call<'_>) -> Result<Outs>) -> Rule {
        if cfg!(feature = "transforms") { Rule::Own(rule) } else { Rule::Loop }
    }
}

/// How an op comes through `vmap`, for `firebrand ops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// It has a batching rule.
    Rule,
    /// It consists of ops that are batched themselves.
    Decompose,
    /// It runs sample by sample, with a warning.
    Fallback,
    /// It is refused: its result's shape depends on data, or it reads numbers.
    Refused,
}

impl Op {
    /// How the op comes through `vmap`.
    pub fn batching(self) -> Batching {
        match self.info().vmap {
            Rule::Parts => Batching::Decompose,
            Rule::Refuse => Batching::Refused,
            Rule::Loop => Batching::Fallback,
            _ => Batching::Rule,
        }
    }
}

/// Whether the op writes its first argument.
pub(crate) fn is_inplace(op: Op) -> bool {
    op.info().kind == Kind::InPlace
}

/// Whether the op returns a view of its first argument.
pub(crate) fn is_view(op: Op) -> bool {
    op.has(Tags::VIEW) && op != Op::DETACH
}

/// Runs an op of the active level one level down.
pub(crate) fn run(op: Op, args: &[Arg], batch: Option<Batch>) -> Result<Outs> {
    let info = op.info();
    let random = matches!(info.vmap, Rule::Random) && info.kind == Kind::Functional;
    let batch = batch.filter(|_| random || args.iter().any(Arg::is_batched));
    let Some(batch) = batch else {
        let values: SmallVec<[Value; 6]> =
            args.iter().map(|a| a.map(|b| Ok(b.value.clone()))).collect::<Result<_>>()?;
        return crate::state::descend(|| Ok(all(dispatch::call(op, &values)?, None)));
    };
    let call = Call { op, args, size: batch.size, randomness: batch.randomness };
    crate::state::descend(|| apply(&call))
}

fn apply(call: &Call<'_>) -> Result<Outs> {
    let info = call.op.info();
    if info.kind == Kind::Out {
        let plain = call.op.name().split('.').next().and_then(Op::from_name);
        let draws = plain.is_some_and(|op| matches!(op.info().vmap, Rule::Random));
        let random = if draws || call.op.has(Tags::NONDETERMINISTIC_SEEDED) { " of random ops" } else { "" };
        return Err(ErrorKind::Vmap {
            message: format!("{:?}: out= variants{random} do not batch; use the functional variant", call.op),
        }
        .into());
    }
    if is_inplace(call.op) {
        return in_place(call);
    }
    match info.vmap {
        Rule::Pointwise => pointwise::run(call),
        Rule::Along(dims) => along::run(call, None, dims),
        Rule::Sized(sizes, dims) => along::run(call, Some(sizes), dims),
        Rule::Merge(ndim, sizes) => merge::run(call, ndim, sizes),
        Rule::Own(f) => f(call),
        Rule::Random => random::run(call),
        Rule::Refuse => dynamic(call),
        Rule::Parts | Rule::Loop => sample_by_sample(call),
    }
}

fn dynamic(call: &Call<'_>) -> Result<Outs> {
    Err(depends_on_values(call.op))
}

/// The refusal of a result whose shape or value depends on data.
pub(crate) fn depends_on_values(op: Op) -> Error {
    let message = format!(
        "{op:?}: its result depends on the values of each sample, which vmap cannot read; use where_self, masks of fixed \
         size, or loop over the samples"
    );
    ErrorKind::Vmap { message }.into()
}

/// An in-place op: the form without underscore, copied into the target. Pointwise ops write directly.
fn in_place(call: &Call<'_>) -> Result<Outs> {
    let target = call.tensor(0)?;
    if target.dim.is_none() {
        return Err(ErrorKind::UnbatchedWrite { op: call.op.name().to_string() }.into());
    }
    let plain = call.op.info().functional;
    if call.op == Op::COPY_ || plain.is_some_and(|p| matches!(p.info().vmap, Rule::Pointwise)) {
        return pointwise::run_in_place(call);
    }
    let Some(op) = plain else { return sample_by_sample(call) };
    let outs = apply(&Call { op, args: call.args, size: call.size, randomness: call.randomness })?;
    let Some(Out { value: Value::Tensor(result), dim }) = outs.into_iter().next() else {
        return Err(Error::argument("vmap", format!("{op:?} returned no tensor to write")));
    };
    let result = Batched { value: result, dim };
    let d = target.dim.unwrap_or(0) as i64;
    ops::copy_(&target.value, &ops::movedim(&result.full(call.size)?, 0, d)?, false)?;
    Ok(smallvec![])
}

/// The op for each sample on its own; results are stacked.
fn sample_by_sample(call: &Call<'_>) -> Result<Outs> {
    static SAID: OnceLock<Mutex<HashSet<u32>>> = OnceLock::new();
    let said = SAID.get_or_init(Default::default);
    if said.lock().unwrap_or_else(|e| e.into_inner()).insert(call.op.0) {
        warn(format!("vmap: {:?} has no batching rule and runs sample by sample, which is slow", call.op));
    }
    let mut rows = Vec::with_capacity(call.size);
    for k in 0..call.size {
        let values = call.values(|b| match b.dim {
            Some(d) => ops::select(&b.value, d as i64, k.into()),
            None => Ok(b.value.clone()),
        })?;
        rows.push(dispatch::call(call.op, &values)?);
    }
    if is_inplace(call.op) {
        return Ok(smallvec![]);
    }
    call.need(!rows.is_empty(), || "a batch of no samples cannot run sample by sample".to_string())?;
    let outputs = rows.first().map_or(0, |r| r.len());
    (0..outputs)
        .map(|i| {
            let column = rows.iter().map(|r| match &r[i] {
                Value::Tensor(t) => Ok(vec![t.clone()]),
                Value::Tensors(t) => Ok(t.clone()),
                other => Err(ErrorKind::Vmap { message: format!("{:?} returns {}", call.op, other.kind()) }.into()),
            });
            let column = column.collect::<Result<Vec<_>>>()?;
            let places = column.first().map_or(0, Vec::len);
            let stacked = (0..places)
                .map(|p| ops::stack(&column.iter().map(|row| row[p].clone()).collect::<Vec<_>>(), 0))
                .collect::<Result<Vec<_>>>()?;
            let list = matches!(rows[0][i], Value::Tensors(_));
            let value = if list { Value::Tensors(stacked) } else { Value::Tensor(stacked[0].clone()) };
            Ok(Out { value, dim: Some(0) })
        })
        .collect()
}

/// The results of a registered op that has no rule of its own, stacked along a new first dimension. Its tensors, lists
/// flattened, have their batch at `dims`.
pub(crate) fn loop_over_samples(
    op: Op,
    values: &[Value],
    dims: &[Option<usize>],
    info: VmapInfo,
) -> Result<Vec<Tensor>> {
    let mut dims = dims.iter().copied();
    let mut batched = |t: &Tensor| Batched { value: t.clone(), dim: dims.next().flatten() };
    let args: Vec<Arg> = values
        .iter()
        .map(|v| match v {
            Value::Tensor(t) => Arg::Tensor(batched(t)),
            Value::Tensors(list) => Arg::List(list.iter().map(&mut batched).collect()),
            Value::OptTensors(list) => Arg::OptList(list.iter().map(|t| t.as_ref().map(&mut batched)).collect()),
            other => Arg::Plain(other.clone()),
        })
        .collect();
    let call = Call { op, args: &args, size: info.batch_size, randomness: info.randomness };
    let tensor = |out: Out| if let Value::Tensor(t) = out.value { Some(t) } else { None };
    Ok(sample_by_sample(&call)?.into_iter().filter_map(tensor).collect())
}

/// Sizes with the batch in front.
fn with_batch(size: usize, rest: &[usize]) -> SymInts {
    std::iter::once(size).chain(rest.iter().copied()).map(SymInt::from).collect()
}
