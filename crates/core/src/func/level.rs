//! Wrapping levels: what lets transforms nest without confusing each other.
//!
//! A level is a floor above the one where it was entered. Tensors made on it are wrappers: they look like one sample,
//! and stand for a tensor one floor down that has a batch dimension more (`vmap`), or none more (a `jvp` inside a `jvp`).
//! History and tangents belong to the tensor object, so every floor has its own graph and its own dual level, and a
//! tensor of a lower floor is a constant here: that is what prevents perturbation confusion. An op called here is recorded
//! on this floor and then *descends*: its batching rule runs on the floor below, where it may record again, and so on to
//! the kernels. `func::grad` needs no floor: reverse mode tells its levels apart by nodes.
//!
//! This file knows how to go down and up; which op does what with a batch is in [`super::rules`].

use super::rules::{self, Arg, Batched, Out};
use super::vmap::Randomness;
use crate::autograd::view::CreationKind;
use crate::dispatch::{self, Op, Outputs, Value};
use crate::layout::{Dims, Layout};
use crate::state::{self, LevelGuard};
use crate::tensor::Wrapped;
use crate::{ErrorKind, Result, Spec, Tensor, ops};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a level is for.
pub(crate) struct Level {
    /// The batch, for `vmap`; none for a level that only keeps tangents apart.
    batch: Option<Batch>,
    id: u64,
}

impl Level {
    fn new(batch: Option<Batch>) -> Arc<Level> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Level { batch, id: NEXT.fetch_add(1, Relaxed) })
    }
}

/// A batch: how many samples, and what random ops do.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) size: usize,
    pub(crate) randomness: Randomness,
}

/// Enters a level that maps over a batch.
pub(crate) fn enter_batch(batch: Batch) -> Result<LevelGuard> {
    enter("vmap", Some(batch))
}

/// Enters a level that only separates.
pub(crate) fn enter_plain() -> Result<LevelGuard> {
    enter("jvp", None)
}

/// Without the feature there is no level, and neither rules of batching nor tangents are compiled.
fn enter(what: &'static str, batch: Option<Batch>) -> Result<LevelGuard> {
    if !cfg!(feature = "transforms") {
        return dispatch::left_out(what, "transforms");
    }
    Ok(LevelGuard::new(Level::new(batch)))
}

/// The batch of the active level.
pub(crate) fn batch() -> Option<Batch> {
    state::level().and_then(|l| l.batch)
}

/// Which level is active; levels are told apart by this.
fn here() -> u64 {
    state::level().map_or(u64::MAX, |l| l.id)
}

/// A tensor of this level that stands for `value`, a tensor one level down.
pub(crate) fn wrap(value: Tensor, bdim: Option<usize>) -> Tensor {
    let layout = match bdim {
        None => value.layout().clone(),
        Some(d) => {
            let without =
                |v: &[usize]| -> Dims { v.iter().enumerate().filter(|(k, _)| *k != d).map(|(_, &n)| n).collect() };
            let l = value.layout();
            Layout::derived(&without(l.sizes()), &without(l.strides()), l.offset())
        }
    };
    Tensor::wrapper(Wrapped { value, bdim, level: here() }, layout)
}

/// What a tensor stands for one level down, and its batch dimension there. An error for one that escaped from an earlier level.
pub(crate) fn unwrap(t: &Tensor) -> Result<Batched> {
    if !t.is_of_this_level() {
        return Ok(Batched { value: t.clone(), dim: None });
    }
    if t.wrapped().is_none() {
        // Made here by a factory, without passing an op: the same for every sample.
        let value = t.alias_born_under(state::word_below());
        t.set_wrapped(Wrapped { value, bdim: None, level: here() });
    }
    match t.wrapped() {
        Some(w) if w.bdim.is_some() && w.level != here() => Err(ErrorKind::EscapedTensor.into()),
        Some(w) => Ok(Batched { value: w.value.clone(), dim: w.bdim }),
        None => Ok(Batched { value: t.clone(), dim: None }),
    }
}

fn unwrap_value(v: &Value) -> Result<Arg> {
    Ok(match v {
        Value::Tensor(t) => Arg::Tensor(unwrap(t)?),
        Value::Tensors(list) => Arg::List(list.iter().map(unwrap).collect::<Result<_>>()?),
        Value::OptTensors(list) => {
            Arg::OptList(list.iter().map(|t| t.as_ref().map(unwrap).transpose()).collect::<Result<_>>()?)
        }
        other => Arg::Plain(other.clone()),
    })
}

/// Runs an op of this level below its autograd: one level down, by its batching rule.
pub(crate) fn call(op: Op, values: &[Value]) -> Result<Outputs> {
    if !cfg!(feature = "transforms") {
        return dispatch::left_out(op.name(), "transforms");
    }
    let args = values.iter().map(unwrap_value).collect::<Result<SmallVec<[Arg; 6]>>>()?;
    let batch = batch();
    let outs = rules::run(op, &args, batch)?;
    if rules::is_inplace(op) {
        return Ok(values.first().cloned().into_iter().collect());
    }
    let source = match values.first() {
        Some(Value::Tensor(t)) if rules::is_view(op) && t.is_of_this_level() => Some(t),
        _ => None,
    };
    let up = |t: Tensor, dim: Option<usize>, kind: CreationKind| {
        let out = wrap(t, dim);
        if let Some(source) = source {
            source.track_view(&out, kind);
        }
        out
    };
    Ok(outs
        .into_iter()
        .map(|Out { value, dim }| match value {
            Value::Tensor(t) => Value::Tensor(up(t, dim, CreationKind::Default)),
            Value::Tensors(list) => {
                Value::Tensors(list.into_iter().map(|t| up(t, dim, CreationKind::MultiOutput)).collect())
            }
            other => other,
        })
        .collect())
}

/// Whether `value` can be written into `target`: not if it has a batch, at some level, that the target has not.
pub(crate) fn holds(target: &Tensor, value: &Tensor) -> bool {
    if !state::is(state::LEVEL) {
        return true;
    }
    let (Ok(target), Ok(value)) = (unwrap(target), unwrap(value)) else { return false };
    (target.dim.is_some() || value.dim.is_none()) && state::descend(|| holds(&target.value, &value.value))
}

/// Zeros with the given strides that all of `likes` can be written into: batched if one is, at every level.
pub(crate) fn zeros_for(layout: &Layout, likes: &[&Tensor]) -> Result<Tensor> {
    if !state::is(state::LEVEL) {
        return ops::formulas::zeros_plain(layout, likes[0].dtype(), likes[0].device());
    }
    let below = likes.iter().map(|t| unwrap(t)).collect::<Result<SmallVec<[Batched; 2]>>>()?;
    let batched = below.iter().any(|b| b.dim.is_some());
    let (layout, dim) = match batch().filter(|_| batched) {
        Some(b) => {
            let span = layout.from_start().end();
            let mut sizes: Dims = smallvec::smallvec![b.size];
            let mut strides: Dims = smallvec::smallvec![span];
            sizes.extend_from_slice(layout.sizes());
            strides.extend_from_slice(layout.strides());
            (Layout::strided(&sizes, &strides, 0)?, Some(0))
        }
        None => (layout.clone(), None),
    };
    let values: SmallVec<[&Tensor; 2]> = below.iter().map(|b| &b.value).collect();
    let value = state::descend(|| zeros_for(&layout, &values))?;
    Ok(wrap(value, dim))
}

/// Refuses to draw where randomness is an error, and to draw the same values for all samples from a distribution that is another
/// one for each.
pub(crate) fn need_different(op: &'static str, batched: bool) -> Result<()> {
    let randomness = batch().map(|b| b.randomness);
    if randomness == Some(Randomness::Error) {
        return Err(ErrorKind::VmapRandomness { op: op.to_string() }.into());
    }
    if batched && randomness == Some(Randomness::Same) {
        let message = format!("{op} of batched parameters cannot draw the same for all; use Randomness::Different");
        return Err(ErrorKind::Vmap { message }.into());
    }
    Ok(())
}

/// A tensor without a batch and without history of this level as the one that it stands for, which may have some.
pub(crate) fn lowered(t: &Tensor) -> Tensor {
    if !state::is(state::LEVEL) || !t.is_of_this_level() || t.requires_grad() {
        return t.clone();
    }
    match unwrap(t) {
        Ok(Batched { value, dim: None }) => state::descend(|| lowered(&value)),
        _ => t.clone(),
    }
}

/// Overwrites a tensor with random values: `write` does it one level down.
pub(crate) fn draw_in_place(op: &'static str, t: &Tensor, write: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    let Batched { value, dim } = unwrap(t)?;
    let randomness = batch().map(|b| b.randomness);
    if randomness == Some(Randomness::Error) {
        return Err(ErrorKind::VmapRandomness { op: op.to_string() }.into());
    }
    if dim.is_none() && randomness == Some(Randomness::Different) {
        return Err(ErrorKind::UnbatchedDraw { op }.into());
    }
    state::descend(|| match dim {
        Some(d) if randomness == Some(Randomness::Same) => {
            let sizes: Dims = t.shape().into();
            let one = Tensor::try_empty(Spec::new(&sizes, value.dtype(), value.device())?)?;
            write(&one)?;
            ops::copy_(&value, &ops::unsqueeze(&one, d as i64)?, false)?;
            Ok(())
        }
        // Sample by sample, wherever the batch is.
        Some(d) if d > 0 => write(&ops::movedim(&value, d as i64, 0)?),
        _ => write(&value),
    })
}

/// Refuses to write a tensor that a function under a grad, vjp or jvp transform has captured from outside.
#[cold]
pub(crate) fn check_captured(t: &Tensor, op: &'static str) -> Result<()> {
    let root = t.base_here().unwrap_or(t);
    if root.birth() & state::DEPTH < state::stacks(|s| s.frozen_below) {
        return Err(ErrorKind::CapturedMutation { op }.into());
    }
    Ok(())
}

/// A transform that needs no level of its own but is one: writes to what was born outside are refused, saved-tensor
/// hooks too where gradients are made by the transform.
pub(crate) struct TransformGuard {
    before: u32,
    hooks: Option<Option<String>>,
    _mode: state::ModeGuard,
}

impl TransformGuard {
    /// Enters a transform. `hooks` says why saved-tensor hooks are refused in it, if they are.
    pub(crate) fn new(hooks: Option<&str>) -> TransformGuard {
        let word = state::word();
        assert!(word & state::DEPTH != state::DEPTH, "function transforms nest 255 deep at most");
        let depth = (word & state::DEPTH) + state::DEPTH_ONE;
        let mode = state::ModeGuard::new(depth, state::DEPTH & !depth);
        state::stacks(|s| {
            let before = std::mem::replace(&mut s.frozen_below, depth);
            let hooks = hooks.map(|why| s.saved_hooks_disabled.replace(why.to_string()));
            TransformGuard { before, hooks, _mode: mode }
        })
    }
}

impl Drop for TransformGuard {
    fn drop(&mut self) {
        state::stacks(|s| {
            s.frozen_below = self.before;
            if let Some(hooks) = self.hooks.take() {
                s.saved_hooks_disabled = hooks;
            }
        })
    }
}
