//! Guards: when a compiled graph may be reused.
//!
//! Checked in order of cost: the state of the thread, tensors (kind, then sizes and strides), which arguments are one
//! object, host values, captured tensors and cells, modules, relations between sizes. A check allocates nothing and
//! stops at the first difference; only then is the message built.

mod ambient;
mod size;
mod tensor;

pub(crate) use ambient::Ambient;
pub(crate) use size::{SizeGuard, SymbolSource};
pub(crate) use tensor::{Dim, TensorGuard};

use crate::front::binding::Binding;
pub(crate) use crate::front::binding::Symbols;
use crate::front::leaves::Leaves;
use crate::front::source::Source;
use firebrand_core::Number;
use firebrand_core::module::ModuleWatch;
use firebrand_core::tree::{Host, SharedRef};
use firebrand_core::{Scalar, Tensor};
use std::sync::Arc;

/// A host value of the environment, read at every call.
pub(crate) struct EnvironmentGuard {
    pub(crate) what: String,
    pub(crate) read: Arc<dyn Fn() -> Host<'static> + Send + Sync>,
    pub(crate) expected: Host<'static>,
}

/// The state of a module that was called.
pub(crate) struct ModuleGuard {
    pub(crate) name: &'static str,
    pub(crate) watch: ModuleWatch,
    pub(crate) training: bool,
    pub(crate) hooks: Vec<u64>,
}

/// A flag of a tensor of the caller's that the function looked at.
pub(crate) struct LookGuard {
    pub(crate) what: &'static str,
    pub(crate) source: Source,
    pub(crate) read: fn(&Tensor) -> bool,
    pub(crate) expected: bool,
}

/// Everything a compiled graph depends on.
pub(crate) struct Guards {
    pub(crate) ambient: Ambient,
    pub(crate) tensors: Vec<TensorGuard>,
    /// For each tensor argument the first one that is the same object.
    pub(crate) same: Vec<usize>,
    /// The value a number must have; none if it is an input.
    pub(crate) numbers: Vec<Option<Scalar>>,
    pub(crate) sizes: Vec<Dim>,
    pub(crate) hosts: Vec<Host<'static>>,
    /// Cells among the arguments: those of the call that was captured.
    pub(crate) cells: Vec<SharedRef>,
    pub(crate) environment: Vec<EnvironmentGuard>,
    pub(crate) captured: Vec<(Source, TensorGuard)>,
    pub(crate) modules: Vec<ModuleGuard>,
    pub(crate) looked_at: Vec<LookGuard>,
    pub(crate) global_hooks: Vec<u64>,
    pub(crate) relations: Vec<SizeGuard>,
    pub(crate) symbols: usize,
}

/// For each tensor the first one that is the same object.
pub(crate) fn same_objects<'t>(tensors: &'t [&Tensor]) -> impl Iterator<Item = usize> + 't {
    let first = |t: &Tensor| tensors.iter().position(|o| o.is_same(t)).unwrap_or_default();
    tensors.iter().map(move |t| first(t))
}

/// The first tensor that is not the object it should be: `same` says for each which one is the first that is the same.
fn other_object(tensors: &[&Tensor], same: &[usize]) -> Option<usize> {
    const FEW: usize = 8;
    if tensors.len() <= FEW {
        return same_objects(tensors).zip(same).position(|(found, expected)| found != *expected);
    }
    match tensors.len() {
        ..=32 => other_of(tensors, same, &mut [0u8; 128]),
        33..=64 => other_of(tensors, same, &mut [0u8; 256]),
        n => other_of(tensors, same, &mut vec![0u32; (4 * n).next_power_of_two()]),
    }
}

/// The same by a table of the objects met so far, at most a quarter full; its length is a power of two. It holds one more than their places.
#[inline(always)]
fn other_of<N: Copy + TryFrom<usize> + Into<u64>>(tensors: &[&Tensor], same: &[usize], met: &mut [N]) -> Option<usize> {
    let mask = met.len() - 1;
    for (i, (t, expected)) in tensors.iter().zip(same).enumerate() {
        let mut at = ((t.id() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        let found = loop {
            let place: u64 = met[at].into();
            if place == 0 {
                met[at] = N::try_from(i + 1).ok().expect("the table is for so many");
                break i;
            }
            if tensors[place as usize - 1].is_same(t) {
                break place as usize - 1;
            }
            at = (at + 1) & mask;
        };
        if found != *expected {
            return Some(i);
        }
    }
    None
}

/// Whether there are as many cells, and which of them are one cell is as it was.
fn same_cells(captured: &[SharedRef], given: &[SharedRef]) -> bool {
    let first = |cells: &[SharedRef], k: usize| cells.iter().position(|c| c.address == cells[k].address);
    captured.len() == given.len() && (0..given.len()).all(|k| first(captured, k) == first(given, k))
}

/// Which guard did not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Ambient,
    Structure,
    Tensor(usize, tensor::Mismatch),
    Same(usize),
    Host(usize),
    Number(usize),
    Size(usize),
    Environment(usize),
    Captured(usize, tensor::Mismatch),
    Module(usize),
    GlobalHooks,
    Look(usize),
    Relation(usize),
}

impl Guards {
    /// The first guard that does not hold; `symbols` receives the sizes that vary.
    pub(crate) fn failure(&self, leaves: &Leaves<'_>, ambient: &Ambient, symbols: &mut Symbols) -> Option<Failure> {
        if self.ambient != *ambient {
            return Some(Failure::Ambient);
        }
        let counts = (leaves.tensors.len(), leaves.numbers.len(), leaves.sizes.len(), leaves.hosts.len());
        if counts != (self.tensors.len(), self.numbers.len(), self.sizes.len(), self.hosts.len()) {
            return Some(Failure::Structure);
        }
        symbols.clear();
        symbols.resize(self.symbols, UNSET);
        for (i, (guard, t)) in self.tensors.iter().zip(&leaves.tensors).enumerate() {
            if let Some(mismatch) = guard.mismatch(t, symbols) {
                return Some(Failure::Tensor(i, mismatch));
            }
        }
        if let Some(i) = other_object(&leaves.tensors, &self.same) {
            return Some(Failure::Same(i));
        }
        for (i, (guard, size)) in self.sizes.iter().zip(&leaves.sizes).enumerate() {
            if !guard.holds(size.hint(), symbols) {
                return Some(Failure::Size(i));
            }
        }
        if let Some(i) = self.hosts.iter().zip(&leaves.hosts).position(|(expected, found)| expected != found) {
            return Some(Failure::Host(i));
        }
        let differs =
            |(expected, found): (&Option<Scalar>, &&Number)| expected.is_some_and(|e| !same_number(e, found.peek()));
        if let Some(i) = self.numbers.iter().zip(&leaves.numbers).position(differs) {
            return Some(Failure::Number(i));
        }
        if !self.cells.is_empty() || !leaves.cells.is_empty() {
            if !same_cells(&self.cells, &leaves.cells) {
                return Some(Failure::Structure);
            }
            // What is read of cells is read of those of the call.
            return Arc::new(Binding::new(&self.cells, &leaves.cells)).enter(|| self.outside(leaves, symbols));
        }
        self.outside(leaves, symbols)
    }

    /// The first guard on what is not an argument that does not hold.
    fn outside(&self, leaves: &Leaves<'_>, symbols: &mut Symbols) -> Option<Failure> {
        if let Some(i) = self.environment.iter().position(|g| (g.read)() != g.expected) {
            return Some(Failure::Environment(i));
        }
        for (i, (source, guard)) in self.captured.iter().enumerate() {
            if let Some(mismatch) = source.with_tensor(leaves, |t| guard.mismatch(t, symbols)) {
                return Some(Failure::Captured(i, mismatch));
            }
        }
        let changed = |m: &ModuleGuard| m.watch.is_training() != m.training || m.watch.hook_ids() != m.hooks;
        if let Some(i) = self.modules.iter().position(changed) {
            return Some(Failure::Module(i));
        }
        if !self.modules.is_empty() && ModuleWatch::global_hook_ids() != self.global_hooks {
            return Some(Failure::GlobalHooks);
        }
        let differs = |g: &LookGuard| g.source.with_tensor(leaves, g.read) != g.expected;
        if let Some(i) = self.looked_at.iter().position(differs) {
            return Some(Failure::Look(i));
        }
        self.relations.iter().position(|r| !r.holds(symbols)).map(Failure::Relation)
    }

    /// A failure as text.
    pub(crate) fn describe(&self, failure: Failure, leaves: &Leaves<'_>, ambient: &Ambient) -> String {
        match failure {
            Failure::Ambient => self.ambient.difference(ambient),
            Failure::Structure => "the arguments have a different structure".to_string(),
            Failure::Tensor(i, m) => format!("argument {i}: {}", self.tensors[i].describe(m, leaves.tensors[i])),
            Failure::Same(i) => {
                let found = same_objects(&leaves.tensors).nth(i).unwrap_or(i);
                match self.same[i] == i {
                    true => format!("argument {i} is the same tensor as argument {found}, which it was not"),
                    false => format!("argument {i} is no longer the same tensor as argument {}", self.same[i]),
                }
            }
            Failure::Host(i) => format!("host value {i}: expected {}, actual {}", self.hosts[i], leaves.hosts[i]),
            Failure::Number(i) => {
                format!("number {i}: expected {:?}, actual {:?}", self.numbers[i], leaves.numbers[i].peek())
            }
            Failure::Size(i) => format!("size argument {i}: expected {}, actual {}", self.sizes[i], leaves.sizes[i]),
            Failure::Environment(i) => {
                let g = &self.environment[i];
                format!("{}: expected {}, actual {}", g.what, g.expected, (g.read)())
            }
            Failure::Captured(i, m) => {
                let (source, guard) = &self.captured[i];
                format!("captured tensor {i}: {}", source.with_tensor(leaves, |t| guard.describe(m, t)))
            }
            Failure::Module(i) => {
                let m = &self.modules[i];
                let mode = |on| if on { "training" } else { "evaluation" };
                match m.watch.is_training() == m.training {
                    true => format!("the hooks of module {} have changed", m.name),
                    false => {
                        format!("module {} is in {} mode, expected {}", m.name, mode(!m.training), mode(m.training))
                    }
                }
            }
            Failure::Look(i) => {
                let LookGuard { what, expected, .. } = &self.looked_at[i];
                format!("{what} of a tensor: expected {expected}, actual {}", !expected)
            }
            Failure::GlobalHooks => "the hooks of all modules have changed".to_string(),
            Failure::Relation(i) => format!("sizes: {}", self.relations[i]),
        }
    }

    /// Every guard as text.
    pub(crate) fn list(&self) -> Vec<String> {
        let mut list = vec![self.ambient.to_string()];
        list.extend(self.tensors.iter().enumerate().map(|(i, g)| format!("argument {i}: {g}")));
        list.extend(
            self.same.iter().enumerate().filter(|(i, s)| i != *s).map(|(i, s)| format!("argument {i} is argument {s}")),
        );
        list.extend(self.hosts.iter().enumerate().map(|(i, h)| format!("host value {i} is {h}")));
        list.extend(self.numbers.iter().enumerate().filter_map(|(i, n)| n.map(|n| format!("number {i} is {n:?}"))));
        list.extend(self.sizes.iter().enumerate().map(|(i, d)| format!("size argument {i}: {d}")));
        list.extend(self.environment.iter().map(|g| format!("{} is {}", g.what, g.expected)));
        list.extend(self.captured.iter().enumerate().map(|(i, (_, g))| format!("captured tensor {i}: {g}")));
        list.extend(self.modules.iter().map(|m| format!("module {}: mode and hooks", m.name)));
        list.extend(self.looked_at.iter().map(|g| format!("{} of a tensor is {}", g.what, g.expected)));
        list.extend(self.relations.iter().map(|r| format!("sizes: {r}")));
        list
    }
}

/// A symbol that has no value yet.
pub(crate) const UNSET: i64 = i64::MIN;

/// Whether two numbers are the same for a graph: of one kind, and equal bit for bit.
pub(crate) fn same_number(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}
