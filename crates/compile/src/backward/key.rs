//! The key of a backward pass: its structure, the values that vary within one structure, and its tensors.
//!
//! The structure is a flat list of words: kinds of nodes, edges, dtypes, numbers of hooks, everything that a node keeps and
//! that is not a tensor, a size or a number. Two runs with the same structure show the same things at the same places. Reading all
//! of it runs no hook and computes nothing.

use super::fit::Numbers;
use firebrand_core::autograd::runner::{self, GraphTask, HookCounts, hook_counts};
use firebrand_core::autograd::{Look, Node, SavedTensor, SavedVisitor};
use firebrand_core::{DType, Layout, Result, Scalar, Tensor};

/// What a number that varies stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A size; 0 and 1 are never like others.
    Size,
    /// A stride or offset.
    Stride,
    /// A number that a formula computes with.
    Int,
    /// Likewise; the word holds its bits.
    Float,
    /// Which pure hook is called.
    Identity,
}

/// One run, read.
#[derive(Default)]
pub(crate) struct Key {
    pub(crate) structure: Vec<u64>,
    pub(crate) numbers: Vec<u64>,
    /// What the numbers are, if that was asked for: the structure decides it, so a run that was seen need not say it.
    pub(crate) classes: Vec<Class>,
    with_classes: bool,
    /// Whether there are pure hooks among the steps.
    pub(crate) has_pure_hooks: bool,
    /// Seeds, then what nodes keep, with their histories. One that is kept again soon is listed once.
    pub(crate) tensors: Vec<Tensor>,
    /// For each of them, the last step that reads it.
    pub(crate) read_by: Vec<usize>,
    /// For each tensor that a node keeps, in order, its place among them.
    pub(crate) places: Vec<usize>,
    /// Which tensors they were, with their history.
    ids: Vec<usize>,
    /// Steps whose formula is called and not traced.
    pub(crate) opaque: Vec<usize>,
}

impl Key {
    /// The key of a run, without classes.
    pub(crate) fn of(task: &GraphTask<'_>) -> Result<Key> {
        Key::read(task, false)
    }

    /// The key of a run with everything.
    pub(crate) fn classified(task: &GraphTask<'_>) -> Result<Key> {
        Key::read(task, true)
    }

    fn read(task: &GraphTask<'_>, with_classes: bool) -> Result<Key> {
        let steps = task.len();
        let mut key = Key {
            with_classes,
            structure: Vec::with_capacity(steps * 16),
            numbers: Vec::with_capacity(steps * 8),
            tensors: Vec::with_capacity(steps),
            read_by: Vec::with_capacity(steps),
            places: Vec::with_capacity(steps),
            ids: Vec::with_capacity(steps),
            ..Key::default()
        };
        key.word(steps as u64);
        key.word(task.answers() as u64);
        for ((step, slot), seed) in task.seeds() {
            key.word((step as u64) << 16 | slot as u64);
            key.add_tensor(seed, step);
        }
        for step in 0..steps {
            key.step(task, step)?;
        }
        Ok(key)
    }

    fn step(&mut self, task: &GraphTask<'_>, step: usize) -> Result<()> {
        let node = task.node(step);
        self.word(runner::kind_of(node.formula()));
        for meta in node.input_metadata() {
            self.word((meta.dtype as u64) << 16 | (meta.shape.len() as u64) << 1 | u64::from(meta.any_dtype));
            meta.shape.iter().for_each(|n| self.number(*n as u64, Class::Size));
        }
        let counts = hook_counts(node, |id| {
            self.number(id, Class::Identity);
            self.has_pure_hooks = true;
        });
        let hooked = counts != HookCounts::default();
        self.word(u64::from(task.executes(step)) << 1 | u64::from(hooked));
        if hooked {
            let HookCounts { tensor, pure, retained, pre, post, post_accumulate } = counts;
            [tensor, pure, retained, pre, post, post_accumulate].iter().for_each(|n| self.word(*n as u64));
        }
        for (slot, k) in task.captures(step) {
            self.word((slot as u64) << 32 | k as u64);
        }
        if !task.executes(step) {
            return Ok(());
        }
        if node.variable().is_some() {
            self.word(u64::from(runner::has_grad(node)));
            return Ok(());
        }
        for k in 0..node.next_functions().len() {
            self.word(task.target(step, k).map_or(0, |(to, slot)| 1 + ((to as u64) << 16 | slot as u64)));
        }
        let traceable = node.formula().visit_saved(node, &mut Visitor { key: self, node, step })?;
        if !traceable {
            self.opaque.push(step);
        }
        Ok(())
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.structure.push(word)
    }

    #[inline]
    fn number(&mut self, value: u64, class: Class) {
        self.numbers.push(value);
        if self.with_classes {
            self.classes.push(class);
        }
    }

    fn add_tensor(&mut self, t: &Tensor, step: usize) {
        self.add_layout(t.layout(), t.dtype());
        self.tensors.push(t.clone());
        self.read_by.push(step);
        self.ids.push(t.id());
    }

    /// A tensor that a node keeps.
    fn add_kept(&mut self, t: &Tensor, step: usize) {
        let id = t.id();
        let known = self.ids.len();
        match self.ids[known.saturating_sub(RECENT)..].iter().rev().position(|i| *i == id) {
            Some(back) => {
                self.word(AGAIN + back as u64);
                self.places.push(known - 1 - back);
                self.read_by[known - 1 - back] = step;
            }
            None => {
                self.word(TENSOR);
                self.places.push(known);
                self.add_tensor(t, step);
            }
        }
    }

    fn add_layout(&mut self, layout: &Layout, dtype: DType) {
        self.word((dtype as u64) << 16 | layout.sizes().len() as u64);
        layout.sizes().iter().for_each(|n| self.number(*n as u64, Class::Size));
        layout.strides().iter().for_each(|n| self.number(*n as u64, Class::Stride));
    }

    /// Forgets which pure hooks there are: they are called.
    pub(crate) fn forget_hooks(&mut self) {
        let hooks = self.numbers.iter_mut().zip(&self.classes).filter(|(_, c)| **c == Class::Identity);
        hooks.for_each(|(id, _)| *id = 0);
    }

    /// Whether the pure hooks are others than at these numbers of the same structure.
    pub(crate) fn has_other_hooks(&self, numbers: &[u64]) -> bool {
        let mut each = self.numbers.iter().zip(numbers).zip(&self.classes);
        each.any(|((a, b), class)| *class == Class::Identity && a != b)
    }

    /// The numbers.
    pub(crate) fn view(&self) -> Numbers<'_> {
        Numbers { words: &self.numbers, classes: &self.classes }
    }

    /// A number that is the same for equal keys. It is computed at every run, so it is a cheap one.
    pub(crate) fn hash(&self) -> u64 {
        fold(fold(0, &self.structure), &self.numbers)
    }

    /// Words that decide whether two runs have the same sizes.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let sizes = self.numbers.iter().zip(&self.classes).filter(|(_, c)| **c == Class::Size);
        sizes.map(|(n, _)| *n).collect()
    }
}

/// Four sums side by side: one would wait for itself at every word.
fn fold(start: u64, words: &[u64]) -> u64 {
    let mut sums = [start, 1, 2, 3];
    for four in words.chunks(4) {
        sums.iter_mut().zip(four).for_each(|(sum, word)| *sum = mix(*sum, *word));
    }
    sums.into_iter().fold(words.len() as u64, mix)
}

#[inline]
fn mix(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct Visitor<'a> {
    key: &'a mut Key,
    node: &'a Node,
    step: usize,
}

/// Distinguishes what may be at the place of a saved tensor.
const ABSENT: u64 = 0;
const NUMBER: u64 = 1;
const TENSOR: u64 = 2;
const PACKED: u64 = 3;
/// One of the last tensors once more, and how far back it is.
const AGAIN: u64 = 4;
/// How far back is looked for a tensor that is kept once more.
const RECENT: usize = 8;

impl SavedVisitor for Visitor<'_> {
    fn tensor(&mut self, saved: &SavedTensor) -> Result<()> {
        match saved.look(self.node)? {
            Look::None => self.key.word(ABSENT),
            Look::Tensor(t) if is_number(t) => {
                self.key.word(NUMBER);
                self.number(t.try_scalar_value()?);
            }
            Look::Tensor(t) => self.key.add_kept(t, self.step),
            Look::Packed(spec) => {
                self.key.word(PACKED);
                self.key.add_layout(&spec.layout, spec.dtype);
            }
        }
        Ok(())
    }

    fn size(&mut self, value: i64) {
        self.key.number(value as u64, Class::Size)
    }

    fn number(&mut self, value: Scalar) {
        match value {
            Scalar::Float(v) => self.key.number(v.to_bits(), Class::Float),
            Scalar::Int(v) => self.key.number(v as u64, Class::Int),
            Scalar::Bool(b) => self.key.word(b.into()),
            Scalar::Complex(v) => [v.re, v.im].iter().for_each(|v| self.key.word(v.to_bits())),
        }
        self.key.word(match value {
            Scalar::Bool(_) => 0,
            Scalar::Int(_) => 1,
            Scalar::Float(_) => 2,
            Scalar::Complex(_) => 3,
        });
    }

    fn fixed(&mut self, value: u64) {
        self.key.word(value)
    }
}

/// Whether a saved tensor is a scalar wrapped as a tensor: it is recorded as a scalar.
pub(crate) fn is_number(t: &Tensor) -> bool {
    t.is_wrapped_number() && !t.is_meta()
}
