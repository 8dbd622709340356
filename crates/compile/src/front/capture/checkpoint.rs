//! Checkpoints inside a captured function: a graph leaves them out.
//!
//! A checkpoint that is not reentrant runs its function again in the backward pass, and gets the same values, unless what
//! the function reads has been written since. A compiled graph keeps the values of the first run, or computes them from these.
//! So where something that a checkpoint has read is written later, or may be (behind a break), the capture starts over and ends where
//! the first checkpoint begins.

use super::{Plainly, Session, State};
use firebrand_core::capture::{self as core_capture, Caller};
use firebrand_core::dispatch::{Op, Outputs, Value};
use firebrand_core::{Result, Storage, Tensor};
use firebrand_graph::schema::Schema;
use std::collections::HashMap;

/// The memory that checkpoints of a capture have to do with; holding it keeps its address from being used again.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// What they read.
    read: HashMap<usize, Storage>,
    /// Values that they computed, and recompute when they run again.
    made: HashMap<usize, Storage>,
    /// Whether there has been one.
    any: bool,
}

impl Checkpoints {
    /// Whether there has been one.
    pub(super) fn any(&self) -> bool {
        self.any
    }
}

fn each_tensor(values: &[Value], mut f: impl FnMut(&Tensor)) {
    for value in values {
        match value {
            Value::Tensor(t) => f(t),
            Value::Tensors(list) => list.iter().for_each(&mut f),
            Value::OptTensors(list) => list.iter().flatten().for_each(&mut f),
            _ => {}
        }
    }
}

impl Session {
    pub(super) fn checkpoint(&self, at: Caller) -> Result<()> {
        let leaves = self.plainly.checkpoints || self.lock().flushed;
        if leaves {
            return self.go_on_plainly("a checkpoint", at);
        }
        self.lock().checkpoints.any = true;
        Ok(())
    }

    /// The capture begins anew, and ends at the first checkpoint then.
    pub(super) fn begins_anew_at_checkpoints(&self, what: &str) -> Result<()> {
        self.begin_anew(what, None, Plainly { checkpoints: true, ..self.plainly })
    }

    /// Whether a checkpoint runs, and this is none of its own values.
    pub(super) fn is_from_outside_of_its_checkpoint(&self, t: &Tensor) -> Result<bool> {
        if !core_capture::in_checkpoint() {
            return Ok(false);
        }
        let mut state = self.lock();
        let at = state.trace.outline(t)?.untyped_storage().addr();
        Ok(!state.checkpoints.made.contains_key(&at))
    }

    /// Takes note of an op: what a checkpoint reads must not be written behind it.
    pub(super) fn note_memory(&self, state: &mut State, args: &[Value], results: &Outputs) {
        if !core_capture::in_checkpoint() {
            return;
        }
        let memory = |state: &mut State, values: &[Value]| {
            let mut found = Vec::new();
            // What the caller owns is known by its outline, here and where it is written.
            each_tensor(values, |t| found.extend(state.trace.outline(t).map(|t| t.untyped_storage())));
            found
        };
        for storage in memory(state, args) {
            if !state.checkpoints.made.contains_key(&storage.addr()) {
                state.checkpoints.read.insert(storage.addr(), storage);
            }
        }
        for storage in memory(state, results) {
            if !state.checkpoints.read.contains_key(&storage.addr()) {
                state.checkpoints.made.insert(storage.addr(), storage);
            }
        }
    }

    /// The capture starts over if an op writes what a checkpoint has read, or, inside a checkpoint, something that the
    /// checkpoint does not own and would write again when it runs again, or memory with an alias whose writes are unseen.
    pub(super) fn check_written(&self, op: Op, args: &[Value]) -> Result<()> {
        let schema = Schema::of_op(op);
        if !schema.mutates() {
            return Ok(());
        }
        let (mut reread, mut rewritten, mut unseen) = (false, false, false);
        {
            let mut state = self.lock();
            let inside = core_capture::in_checkpoint();
            if !state.checkpoints.any() && state.unseen.is_empty() {
                return Ok(());
            }
            for (_, value) in schema.args.iter().zip(args).filter(|(a, _)| a.written) {
                let mut written = Vec::new();
                each_tensor(std::slice::from_ref(value), |t| written.push(t.clone()));
                for t in written {
                    let at = state.trace.outline(&t)?.untyped_storage().addr();
                    reread |= state.checkpoints.read.contains_key(&at);
                    rewritten |= inside && !state.checkpoints.made.contains_key(&at);
                    unseen |= state.unseen.contains_key(&at);
                }
            }
        }
        if reread {
            self.begins_anew_at_checkpoints("a write of what a checkpoint reads")?;
        }
        if rewritten {
            self.begins_anew_at_checkpoints("a write in a checkpoint")?;
        }
        if unseen {
            self.begin_anew("a write behind data()", None, Plainly { aliases: true, ..self.plainly })?;
        }
        Ok(())
    }
}
