//! Function transforms inside a captured function.
//!
//! A transform runs on stand-ins as it does plainly, with its levels, nodes and tangents; recorded is what it makes of the
//! function as that reaches the kernels of the level the capture began on, so the graph holds plain ops and knows no transform. What is
//! recorded outside the transform is recorded alike when the graph runs: each op has the grad mode it ran in.
//!
//! Nothing but ops can happen in there: stand-ins of levels, with their nodes and tangents, have no real counterpart. If something
//! does (a read, a hook, a custom function), the capture starts over, and that time it ends where the first transform begins.
//! Sizes are those of the call: rules and derivatives compute with integers.

use super::{Body, Plainly, Session};
use firebrand_core::capture::{Caller, is_recorded_outside};
use firebrand_core::dispatch::{Interpreter, Next, Op, Outputs, Value};
use firebrand_core::{ErrorKind, Result, SymInt, Tensor};
use firebrand_graph::trace::outline_like;
use std::any::Any;
use std::panic::Location;
use std::sync::{Arc, Weak};

/// The transforms of a capture.
#[derive(Default)]
pub(crate) struct Transforms {
    /// For each that runs, whether what it gives is recorded outside it and those around it.
    running: Vec<bool>,
    /// Held by those who keep nodes of a transform.
    keepers: Vec<Weak<()>>,
}

impl Session {
    /// Whether a transform runs.
    pub(crate) fn transforms(&self) -> bool {
        !self.lock().transforms.running.is_empty()
    }

    pub(super) fn begin(&self, records: bool) -> bool {
        let mut state = self.lock();
        if state.transforms.running.is_empty() {
            if self.plainly.transforms || state.flushed || state.body() != Body::Function {
                return false;
            }
            state.trace.know_by_memory();
        }
        let records = records && state.transforms.running.last().is_none_or(|r| *r);
        state.transforms.running.push(records);
        drop(state);
        for (k, symbol) in self.plan.symbols.iter().enumerate() {
            SymInt::symbol(k as u32, symbol.hint).int(); // the fact is what counts
        }
        true
    }

    pub(super) fn end(&self) {
        self.lock().transforms.running.pop();
    }

    /// The capture starts over if something happens that only ops with values could do while a transform runs, or nodes of one
    /// are kept: what they keep are stand-ins.
    pub(super) fn only_ops(&self, what: &str, at: Option<Caller>) -> Result<()> {
        let open = {
            let transforms = &self.lock().transforms;
            !transforms.running.is_empty() || transforms.keepers.iter().any(|k| k.strong_count() > 0)
        };
        if open {
            self.begin_anew(&format!("{what} in a function transform"), at, self.without_transforms())?;
        }
        Ok(())
    }

    /// At the end of a function: nodes of a transform that outlive it.
    pub(crate) fn check_keepers(&self) {
        if self.lock().transforms.keepers.iter().any(|k| k.strong_count() > 0) {
            self.lock_anew().get_or_insert(self.without_transforms());
        }
    }

    fn without_transforms(&self) -> Plainly {
        Plainly { transforms: true, ..self.plainly }
    }

    pub(super) fn keeper(&self) -> Arc<dyn Any + Send + Sync> {
        let keeper = Arc::new(());
        self.lock().transforms.keepers.push(Arc::downgrade(&keeper));
        keeper
    }

    pub(super) fn transformed(&self, t: &Tensor) -> Result<Tensor> {
        if self.is_source(t) {
            return Ok(t.clone());
        }
        self.known_or_restart(std::slice::from_ref(t))?;
        let node = self.lock().trace.node(t).map_err(firebrand_core::Error::user)?;
        // Without the history of the transform, which nobody outside it asks for.
        let result = outline_like(t)?;
        self.lock().trace.bind(&result, node);
        Ok(result)
    }

    fn known_or_restart(&self, tensors: &[Tensor]) -> Result<()> {
        let lost = {
            let mut state = self.lock();
            tensors.iter().any(|t| state.trace.is_lost(t))
        };
        if lost { self.only_ops("a tensor that no op gave", None) } else { Ok(()) }
    }

    /// An op of a transform, above autograd: it is recorded further down.
    pub(super) fn pass_on(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        let outlined = self.lock().trace.outlined(op, args)?;
        next.call(op, &outlined)
    }
}

/// The layer that records what reaches the kernels.
pub(super) struct Below(pub(super) Arc<Session>);

impl Interpreter for Below {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        let session = &self.0;
        if session.has_left() {
            return next.call(op, args);
        }
        for value in args {
            match value {
                Value::Tensor(t) => session.known_or_restart(std::slice::from_ref(t))?,
                Value::Tensors(list) => session.known_or_restart(list)?,
                Value::OptTensors(list) => {
                    list.iter().flatten().try_for_each(|t| session.known_or_restart(std::slice::from_ref(t)))?
                }
                _ => {}
            }
        }
        let (outlined, given) = {
            let mut state = session.lock();
            let outlined = state.trace.outlined(op, args)?;
            (outlined, state.trace.arguments(args).map_err(firebrand_core::Error::user)?)
        };
        match next.call(op, &outlined) {
            Ok(results) => {
                let mut state = session.lock();
                let mode = is_recorded_outside() && state.transforms.running.last().is_none_or(|r| *r);
                let node =
                    state.trace.record_in_mode(mode, op, given, &results).map_err(firebrand_core::Error::user)?;
                state.trace.note_history(node);
                Ok(results)
            }
            Err(e) if matches!(e.kind(), ErrorKind::MetaData { .. }) => {
                session.only_ops(op.name(), Some(Location::caller()))?;
                Err(e)
            }
            Err(e) => Err(e),
        }
    }
}
