//! Replaying views: while it is on, a view remembers the op that made it, and after a write its history is rebuilt by that op instead
//! of as a strided slice of its base.
//!
//! - *Guarantee:* the gradients are the same; nodes have the names of the view ops, which a subclass or another backend may need.
//! - *Not here:* views made while it was off, or by custom functions; those stay strided slices.

use super::mode::EnableGrad;
use crate::capture;
use crate::dispatch::{Interpreter, Next, Op, Outputs, Value};
use crate::error::expect_ok;
use crate::state::{self, ModeGuard};
use crate::{Error, Result, Tensor};
use std::sync::{Arc, LazyLock};

/// The op that made a view, and those before it.
pub(crate) struct ViewStep {
    op: Op,
    /// All but the tensor that is viewed.
    args: Vec<Value>,
    /// Which argument is viewed.
    place: usize,
    /// Which result it is; of a list, which element.
    result: (usize, Option<usize>),
    before: Option<Arc<ViewStep>>,
}

impl ViewStep {
    /// The same view of another base.
    pub(crate) fn replay(&self, base: &Tensor) -> Result<Tensor> {
        let viewed = match &self.before {
            Some(step) => step.replay(base)?,
            None => base.clone(),
        };
        let mut args = self.args.clone();
        args[self.place] = Value::Tensor(viewed);
        let results = self.op.info().call(&args)?;
        let found = match (results.get(self.result.0), self.result.1) {
            (Some(Value::Tensor(t)), None) => Some(t.clone()),
            (Some(Value::Tensors(list)), Some(k)) => list.get(k).cloned(),
            _ => None,
        };
        found.ok_or_else(|| Error::argument("replay", format!("{} gives other results than before", self.op.name())))
    }
}

/// Below every other layer above autograd.
struct Watcher;

static WATCHER: LazyLock<Arc<dyn Interpreter>> = LazyLock::new(|| Arc::new(Watcher));

impl Interpreter for Watcher {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        let results = next.call(op, args)?;
        if op.schema().mutates() {
            return Ok(results);
        }
        for (k, value) in results.iter().enumerate() {
            match value {
                Value::Tensor(t) => remember(op, args, t, (k, None)),
                Value::Tensors(list) => {
                    list.iter().enumerate().for_each(|(j, t)| remember(op, args, t, (k, Some(j))));
                }
                _ => {}
            }
        }
        Ok(results)
    }
}

/// Keeps with a view what made it.
fn remember(op: Op, args: &[Value], view: &Tensor, result: (usize, Option<usize>)) {
    let Some(info) = view.view_info() else { return };
    let viewed = |v: &Value| matches!(v, Value::Tensor(t) if t.is_beside(view) && !t.is_same(view));
    let Some(place) = args.iter().position(viewed) else { return };
    let Value::Tensor(parent) = &args[place] else { return };
    let before = match parent.view_info() {
        None => None,
        Some(of) => match of.replay.get() {
            Some(step) => Some(step.clone()),
            None => return, // made while this was off
        },
    };
    let mut args = args.to_vec();
    args[place] = Value::None;
    let _ = info.replay.set(Arc::new(ViewStep { op, args, place, result, before }));
}

/// Whether views made now remember the op that made them.
pub fn is_view_replay_enabled() -> bool {
    capture::observed("view replay", || i64::from(is_on())) != 0
}

fn is_on() -> bool {
    state::is(state::LAYERS) && state::stacks(|s| s.layers.iter().any(|l| Arc::ptr_eq(l, &WATCHER)))
}

/// Whether views made from now on, on this thread, remember the op that made them. Returns what held before.
#[track_caller]
pub fn set_view_replay(on: bool) -> bool {
    let before = is_on();
    if on != before {
        expect_ok(capture::leave("view replay"));
    }
    if on && !before {
        // At the bottom, where guards of other layers do not find it when they end.
        state::stacks(|s| s.layers.insert(0, WATCHER.clone()));
        std::mem::forget(ModeGuard::new(state::LAYERS, 0));
    } else if before && !on {
        let needed = state::stacks(|s| {
            s.layers.retain(|l| !Arc::ptr_eq(l, &WATCHER));
            !s.layers.is_empty() || s.autocast.enabled() || s.replacements.is_some() || s.tracer.is_some()
        });
        if !needed && !crate::capture::has_stand_ins() {
            std::mem::forget(ModeGuard::new(0, state::LAYERS));
        }
    }
    before
}

/// Views made while it lives remember the op that made them, or do not; restores what held before.
#[derive(Debug)]
#[must_use = "the mode lasts while the guard lives"]
pub struct ViewReplay {
    before: bool,
    _not_send: std::marker::PhantomData<*const ()>,
}

impl ViewReplay {
    /// Turns it on or off.
    pub fn new(on: bool) -> ViewReplay {
        ViewReplay { before: set_view_replay(on), _not_send: std::marker::PhantomData }
    }
}

impl Drop for ViewReplay {
    fn drop(&mut self) {
        set_view_replay(self.before);
    }
}

/// The history of a view of a base that was written, from the ops that made it.
pub(super) fn history(step: &ViewStep, base: &Tensor) -> Result<Option<super::Edge>> {
    let _recorded = EnableGrad::new();
    let _here = ModeGuard::new(0, state::LAYERS);
    step.replay(base)?.try_grad_fn_edge()
}

impl Tensor {
    /// The same view of another base; `None` if this is no view, or does not know the ops that made it.
    pub fn view_of(&self, base: &Tensor) -> Result<Option<Tensor>> {
        let step = self.view_info().and_then(|v| v.replay.get().cloned());
        step.map(|step| step.replay(base)).transpose()
    }
}
