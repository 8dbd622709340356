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
}

impl Checkpoints {
    /// Whether there has been one.
    pub(super) fn any(&self) -> bool {
        !self.read.is_empty()
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
        if leaves { self.go_on_plainly("a checkpoint", at) } else { Ok(()) }
    }

    /// Takes note of an op: what a checkpoint reads must not be written behind it.
    pub(super) fn note_memory(&self, state: &mut State, args: &[Value], results: &Outputs) {
        if !core_capture::in_checkpoint() {
            return;
        }
        let Checkpoints { read, made } = &mut state.checkpoints;
        each_tensor(args, |t| {
            let storage = t.untyped_storage();
            if !made.contains_key(&storage.addr()) {
                read.insert(storage.addr(), storage);
            }
        });
        each_tensor(results, |t| {
            let storage = t.untyped_storage();
            if !read.contains_key(&storage.addr()) {
                made.insert(storage.addr(), storage);
            }
        });
    }

    /// The capture starts over if an op writes what a checkpoint has read.
    pub(super) fn check_written(&self, op: Op, args: &[Value]) -> Result<()> {
        let schema = Schema::of_op(op);
        if !schema.mutates() || !self.lock().checkpoints.any() {
            return Ok(());
        }
        let mut hit = false;
        {
            let state = self.lock();
            for (_, value) in schema.args.iter().zip(args).filter(|(a, _)| a.written) {
                each_tensor(std::slice::from_ref(value), |t| {
                    hit |= state.checkpoints.read.contains_key(&t.untyped_storage().addr());
                });
            }
        }
        if hit {
            self.begin_anew("a write of what a checkpoint reads", None, Plainly { checkpoints: true, ..self.plainly })
        } else {
            Ok(())
        }
    }
}
