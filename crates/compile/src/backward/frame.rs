//! Frames: compiled graphs of one structure, and which of them a run uses.
//!
//! A run whose structure and numbers were seen before finds its frame by one comparison. Otherwise the pass is traced at its
//! numbers. The trace may turn out to be a graph that is there already, for other numbers; else it becomes a frame: one for
//! these numbers, or, if an earlier trace differs from it only by what varies, one that takes that as inputs.

use super::fit::{Flat, Numbers, Template};
use super::host::{HostOp, RunHost};
use super::key::{Class, Key};
use super::walk::WalkTrace;
use crate::backend::{Backend, Call, ExampleInput, ExampleValue, Executable, Value};
use crate::error::{Error, Result};
use firebrand_core::Tensor;
use firebrand_core::autograd::runner::{Defined, GraphTask, without_history};
use firebrand_core::capture::TensorHookFn;
use firebrand_graph::ir::{GraphModule, TensorMeta};
use std::sync::Arc;

/// A compiled graph.
pub(crate) struct Frame {
    run: Arc<dyn Executable>,
    ops: Arc<[HostOp]>,
    template: Template,
    /// The numbers it was traced at.
    pub(crate) numbers: Vec<u64>,
    /// What they are.
    classes: Vec<Class>,
    /// Whether other sizes than those may come.
    any_size: bool,
    /// The places of numbers that are inputs.
    inputs: Vec<usize>,
    /// While these live, what identifies them identifies nothing else.
    _hooks: Vec<TensorHookFn>,
}

impl Frame {
    /// Runs the pass.
    pub(crate) fn run(&self, task: &GraphTask<'_>, mut key: Key) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        let host = RunHost::new(task, &self.ops, &key);
        let bare = !self.run.ignores_history();
        let tensors = std::mem::take(&mut key.tensors).into_iter();
        let tensors = tensors.map(|t| Value::Tensor(if bare { without_history(&t) } else { t }));
        let numbers = Numbers { words: &key.numbers, classes: &self.classes };
        let inputs: Vec<Value> = tensors.chain(self.inputs.iter().map(|&i| numbers.scalar(i).into())).collect();
        let results = self.run.run_owned(inputs, &Call::with_host(host.clone()));
        if let Some(e) = host.failure() {
            return Err(e);
        }
        let one = |v: &Value| Ok(if v.is_none() { None } else { Some(v.tensor().map_err(Error::from)?.clone()) });
        results?.iter().map(one).collect()
    }

    /// Whether a trace at these numbers is this graph.
    fn fits(&self, flat: &Flat, ops: &[HostOp], numbers: Numbers<'_>) -> bool {
        ops == &*self.ops && self.takes(numbers) && self.template.predicts(flat, numbers)
    }

    /// Whether numbers like these may come: sizes as they were, or any but 0 and 1 in the place of any but these.
    fn takes(&self, numbers: Numbers<'_>) -> bool {
        let mut each = self.numbers.iter().zip(numbers.words).zip(numbers.classes);
        each.all(|((&known, &found), class)| known == found || may_differ(*class, known, found, self.any_size))
    }
}

fn may_differ(class: Class, known: u64, found: u64, any_size: bool) -> bool {
    match class {
        Class::Identity => false,
        Class::Size => any_size && known > 1 && found > 1,
        Class::Stride => any_size,
        Class::Int | Class::Float => true,
    }
}

/// All frames of one structure.
pub(crate) struct Structure {
    pub(crate) structure: Vec<u64>,
    /// If sizes do not vary, what they are.
    pub(crate) sizes: Option<Vec<u64>>,
    /// What was seen of gradients, if formulas are called.
    pub(crate) defined: Option<Vec<Defined>>,
    /// Whether pure hooks are called: they have been others at every run.
    pub(crate) calls_hooks: bool,
    pub(crate) frames: Vec<Arc<Frame>>,
}

impl Structure {
    /// Whether it is for runs like this.
    pub(crate) fn is_for(&self, key: &Key) -> bool {
        self.structure == key.structure && self.sizes.as_ref().is_none_or(|s| *s == key.sizes())
    }
}

/// The frame of a trace among these; none if there is none yet.
pub(crate) fn find(frames: &[Arc<Frame>], traced: &WalkTrace, flat: &Flat, key: &Key) -> Option<Arc<Frame>> {
    frames.iter().find(|f| f.fits(flat, &traced.ops, key.view())).cloned()
}

/// Compiles a new frame for a trace, which may be for more than its numbers if one of these is much like it.
pub(crate) fn compile(
    frames: &[Arc<Frame>],
    traced: WalkTrace,
    flat: Flat,
    key: &Key,
    backend: &dyn Backend,
) -> Result<Frame> {
    let numbers = key.view();
    let WalkTrace { mut graph, ops, hooks } = traced;
    let similar = |f: &&Arc<Frame>| {
        let mut each = f.numbers.iter().zip(numbers.words).zip(numbers.classes);
        *f.ops == ops[..] && each.all(|((&a, &b), class)| a == b || may_differ(*class, a, b, true))
    };
    let (template, any_size) = match frames.iter().rev().find(similar) {
        Some(old) => {
            let before = Numbers { words: &old.numbers, classes: &key.classes };
            match Template::of(old.template.flat(), before, flat, numbers) {
                Ok(varying) => (varying, true),
                Err(flat) => (Template::fixed(flat), false),
            }
        }
        None => (Template::fixed(flat), false),
    };
    let inputs = template.lift(&mut graph, numbers);
    let run = build(&graph, key, &inputs, backend)?;
    let (numbers, classes) = (key.numbers.clone(), key.classes.clone());
    Ok(Frame { run, ops: ops.into(), template, numbers, classes, any_size, inputs, _hooks: hooks })
}

fn build(graph: &GraphModule, key: &Key, inputs: &[usize], backend: &dyn Backend) -> Result<Arc<dyn Executable>> {
    let numbers = key.view();
    let tensor = |t: &Tensor| {
        let value = ExampleValue::Tensor(TensorMeta::of(&without_history(t)));
        ExampleInput { value, is_static: false }
    };
    let number = |&i: &usize| ExampleInput {
        value: match numbers.scalar(i) {
            firebrand_core::Scalar::Float(v) => ExampleValue::Float(v),
            other => ExampleValue::Int(other.to_i64()),
        },
        is_static: false,
    };
    let examples: Vec<ExampleInput> = key.tensors.iter().map(tensor).chain(inputs.iter().map(number)).collect();
    backend.compile(graph, &examples).map_err(|source| Error::Backend {
        backend: backend.name().to_string(),
        stage: "compile",
        function: "a backward pass".to_string(),
        source: Box::new(source),
    })
}
