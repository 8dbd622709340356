//! Autocast on the CPU: inside a region, matrix products run in bf16 or f16, and ops that need the precision run in f32.
//!
//! It acts above autograd, so the casts are recorded and gradients come back in the dtype of the parameters. Which op
//! does what is a column of its record, which follows PyTorch's lists for the CPU (`golden/autocast.json` proves it). A
//! composite op that is on no list is decomposed, and the rules apply to its parts.
//! Casts of parameters are kept until the outermost region ends, so that a weight used ten times is cast once.

use crate::dispatch::{Autocast, Derivative, Op, OpInfo, Outputs, Tags, Value};
use crate::state::{self, ModeGuard};
use crate::tensor::WeakTensor;
use crate::warnings::warn;
use crate::{DType, Result, Tensor, ops};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

type Cache = Arc<Mutex<HashMap<usize, (WeakTensor, Tensor)>>>;

/// The autocast state of a thread.
#[derive(Clone)]
pub(crate) struct Region {
    enabled: bool,
    dtype: DType,
    /// Casts of parameters; `None` if they are not cached.
    cache: Option<Cache>,
}

impl Region {
    pub(crate) const OFF: Region = Region { enabled: false, dtype: DType::BF16, cache: None };

    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }
}

/// Options of a region.
#[derive(Clone, Copy, Debug)]
pub struct AutocastOptions {
    /// Whether autocast is on; false disables it within an outer region.
    pub enabled: bool,
    /// `BF16` or `F16`.
    pub dtype: DType,
    /// Whether casts of parameters are kept until the outermost region ends.
    pub cache_enabled: bool,
}

impl Default for AutocastOptions {
    fn default() -> Self {
        AutocastOptions { enabled: true, dtype: DType::BF16, cache_enabled: true }
    }
}

impl From<DType> for AutocastOptions {
    fn from(dtype: DType) -> Self {
        AutocastOptions { dtype, ..Default::default() }
    }
}

/// An autocast region; ends when dropped.
#[must_use = "the region lasts while the guard lives"]
pub struct AutocastGuard {
    before: Region,
    _mode: ModeGuard,
}

impl AutocastGuard {
    /// Enters a region. A dtype other than bf16 and f16 turns it off, with a warning.
    pub fn new(options: impl Into<AutocastOptions>) -> AutocastGuard {
        let AutocastOptions { mut enabled, dtype, cache_enabled } = options.into();
        if enabled && !matches!(dtype, DType::BF16 | DType::F16) {
            warn(format!("autocast: {dtype} is not supported on the CPU, only bf16 and f16 are; it is off"));
            enabled = false;
        }
        let (before, layers) = state::stacks(|s| {
            let cache = s.autocast.cache.clone().unwrap_or_default();
            let region = Region { enabled, dtype, cache: cache_enabled.then_some(cache) };
            (std::mem::replace(&mut s.autocast, region), !s.layers.is_empty() || s.replacements.is_some())
        });
        let on = if enabled || layers || crate::capture::has_stand_ins() { state::LAYERS } else { 0 };
        AutocastGuard { before, _mode: ModeGuard::new(on, state::LAYERS & !on) }
    }
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        let ended = state::stacks(|s| std::mem::replace(&mut s.autocast, self.before.clone()));
        drop(ended);
    }
}

/// Runs `f` in a region: `autocast(DType::BF16, || model(&x))`.
pub fn autocast<R>(options: impl Into<AutocastOptions>, f: impl FnOnce() -> R) -> R {
    let _region = AutocastGuard::new(options);
    f()
}

/// The options of the region this thread is in, or those that apply outside of one.
pub(crate) fn current() -> AutocastOptions {
    state::stacks(|s| {
        let Region { enabled, dtype, cache } = &s.autocast;
        AutocastOptions { enabled: *enabled, dtype: *dtype, cache_enabled: !enabled || cache.is_some() }
    })
}

/// Whether this thread is in a region.
pub fn is_autocast_enabled() -> bool {
    state::stacks(|s| s.autocast.enabled)
}

/// The dtype of matrix products inside a region.
pub fn autocast_dtype() -> DType {
    state::stacks(|s| s.autocast.dtype)
}

/// Floats up to f32; f64 is never cast.
fn is_eligible(t: &Tensor) -> bool {
    t.is_floating_point() && t.dtype() != DType::F64
}

/// Runs the op in the dtype its record specifies. The caller has hidden the upper layers.
pub(crate) fn call(op: Op, args: &[Value]) -> Result<Outputs> {
    let region = state::stacks(|s| s.autocast.clone());
    let info = op.info();
    match target(op, args, region.dtype) {
        Some(to) => info.call(&casts(args, |t| cast(t, to, &region))?),
        None if opens(info) => open(op, args),
        None => info.call(args),
    }
}

/// The casts of a region, which a capture keeps apart: parameters are cast once in it.
#[derive(Clone, Debug)]
pub struct RegionCasts(Cache);

impl RegionCasts {
    /// Whether both are those of one region.
    pub fn is_same(&self, other: &RegionCasts) -> bool {
        std::sync::Arc::ptr_eq(&self.0, &other.0)
    }

    /// From now on the region knows this cast.
    pub fn keep(&self, of: &Tensor, cast: Tensor) {
        let before = self.0.lock().unwrap_or_else(|e| e.into_inner()).insert(of.id(), (of.downgrade(), cast));
        drop(before);
    }
}

/// Runs the op in the dtype its record specifies, for a capture: every cast is a separate op that the layers see.
/// The caller has hidden the upper layers.
pub fn call_with_autocast(op: Op, args: &[Value]) -> Result<Outputs> {
    call_with_casts(op, args, &|_, _, cast| cast())
}

/// Casts a parameter of a region with the function it gets, or knows the cast already.
pub type CastOnce<'a> = dyn Fn(&RegionCasts, &Tensor, &dyn Fn() -> Result<Tensor>) -> Result<Tensor> + 'a;

/// Like [`call_with_autocast`]; `once` casts what the region casts once, or knows the cast already.
pub fn call_with_casts(op: Op, args: &[Value], once: &CastOnce<'_>) -> Result<Outputs> {
    let region = state::stacks(|s| s.autocast.clone());
    let to = target(op, args, region.dtype);
    if to.is_none() && opens(op.info()) {
        return open(op, args);
    }
    let _off = AutocastGuard::new(AutocastOptions { enabled: false, ..AutocastOptions::default() });
    let _on = ModeGuard::new(state::LAYERS, 0);
    match to {
        Some(to) => {
            let cast = |t: &Tensor| match (is_eligible(t) && t.dtype() != to, &region.cache) {
                (false, _) => Ok(t.clone()),
                (true, Some(cache)) if is_cast_once(t, to, &region) => once(&RegionCasts(cache.clone()), t, &|| {
                    let _on = crate::autograd::EnableGrad::new();
                    t.try_to_dtype(to)
                }),
                (true, _) => t.try_to_dtype(to),
            };
            crate::dispatch::call(op, &casts(args, cast)?)
        }
        None => crate::dispatch::call(op, args),
    }
}

/// Whether it is a parameter.
fn is_cast_once(t: &Tensor, to: DType, region: &Region) -> bool {
    to == region.dtype && t.dtype() == DType::F32 && t.requires_grad() && t.is_leaf_here() && !t.is_view_here()
}

/// What the floats among the arguments are cast to.
fn target(op: Op, args: &[Value], lower: DType) -> Option<DType> {
    let is_f32 = |t: &Tensor| t.dtype() == DType::F32;
    op.info().autocast.dtype(lower, || {
        args.iter().any(|v| match v {
            Value::Tensor(t) => is_f32(t),
            Value::Tensors(list) => list.iter().any(is_f32),
            _ => false,
        })
    })
}

/// Whether an op is decomposed. Ops on lists are not: none of the ops they run is on a list of autocast.
fn opens(info: &OpInfo) -> bool {
    info.autocast == Autocast::AsIs && info.derivative == Derivative::Composite && !info.tags.has(Tags::FOREACH)
}

/// Decomposes a composite op: its parts come back here.
fn open(op: Op, args: &[Value]) -> Result<Outputs> {
    let _on = ModeGuard::new(state::LAYERS, 0);
    op.info().below(args)
}

fn casts(args: &[Value], cast: impl Fn(&Tensor) -> Result<Tensor>) -> Result<SmallVec<[Value; 8]>> {
    let one = |v: &Value| {
        Ok(match v {
            Value::Tensor(t) => Value::Tensor(cast(t)?),
            Value::Tensors(list) => Value::Tensors(list.iter().map(&cast).collect::<Result<_>>()?),
            other => other.clone(),
        })
    };
    args.iter().map(one).collect()
}

fn cast(t: &Tensor, to: DType, region: &Region) -> Result<Tensor> {
    if !is_eligible(t) || t.dtype() == to {
        return Ok(t.clone());
    }
    let parameter = is_cast_once(t, to, region);
    let Some(cache) = region.cache.as_ref().filter(|_| parameter && t.is_of_this_level()) else {
        return ops::formulas::cast(t, to);
    };
    let key = t.id();
    let lock = || cache.lock().unwrap_or_else(|e| e.into_inner());
    let this = t.downgrade();
    let found =
        lock().get(&key).filter(|(weak, kept)| kept.dtype() == to && weak.is_same(&this)).map(|(_, k)| k.clone());
    if let Some(kept) = found {
        return Ok(kept);
    }
    // Recorded even under no_grad: a later use in the region may require grad.
    let made = {
        let _on = crate::autograd::EnableGrad::new();
        ops::formulas::cast(t, to)?
    };
    let before = lock().insert(key, (this, made.clone()));
    drop(before);
    Ok(made)
}
