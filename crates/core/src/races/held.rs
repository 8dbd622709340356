//! The operands currently in use: one table for all threads, and for each thread the ops it is in.
//!
//! The table has a few entries for each thread that is inside a kernel, so it is searched from end to end; its lock is taken
//! for that alone.

use super::Role;
use super::region::Region;
use crate::fusion::{Input, Part};
use crate::layout::Layout;
use crate::{ErrorKind, Result, Tensor};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// An operand as the schema calls it; an element of a list has its position.
#[derive(Clone, Copy)]
struct Name(&'static str, Option<usize>);

impl Name {
    fn text(self) -> String {
        // Rust's own words carry an underscore in generated code.
        let name = self.0.trim_end_matches('_');
        self.1.map_or(name.to_owned(), |k| format!("{name}[{k}]"))
    }
}

struct Entry {
    id: u64,
    thread: u64,
    op: &'static str,
    operand: Name,
    role: Role,
    region: Region,
}

static TABLE: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static NUMBERS: AtomicU64 = AtomicU64::new(1);

fn table() -> MutexGuard<'static, Vec<Entry>> {
    TABLE.lock().unwrap_or_else(|e| e.into_inner())
}

fn number() -> u64 {
    NUMBERS.fetch_add(1, Relaxed)
}

/// An op that runs: its name, and where its operands are.
struct Running {
    op: &'static str,
    operands: SmallVec<[(Name, usize); 6]>,
}

thread_local! {
    static THREAD: u64 = number();
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// What an op may take: a tensor, or several.
pub(crate) trait Operand {
    /// Calls `f` for each tensor, with its position in a list.
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor));
}

impl Operand for &Tensor {
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor)) {
        f(None, self)
    }
}

impl Operand for Option<&Tensor> {
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor)) {
        self.iter().for_each(|t| f(None, t))
    }
}

impl Operand for &[Tensor] {
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor)) {
        self.iter().enumerate().for_each(|(k, t)| f(Some(k), t))
    }
}

impl Operand for &[Option<Tensor>] {
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor)) {
        self.iter().enumerate().for_each(|(k, t)| t.iter().for_each(|t| f(Some(k), t)))
    }
}

impl Operand for &[Input<'_>] {
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor)) {
        for (k, input) in self.iter().enumerate() {
            if let Input::Part(p) = input {
                f(Some(k), p.tensor)
            }
        }
    }
}

impl Operand for &[Part<'_>] {
    fn each(&self, f: &mut dyn FnMut(Option<usize>, &Tensor)) {
        self.iter().enumerate().for_each(|(k, p)| f(Some(k), p.tensor))
    }
}

/// Ends the op's name when dropped.
pub(crate) struct Named(());

/// Names the op that runs from now on, on this thread.
pub(crate) fn enter(op: &'static str, operands: &[(&'static str, &dyn Operand)]) -> Named {
    let mut running = Running { op, operands: SmallVec::new() };
    for (name, operand) in operands {
        operand.each(&mut |at, t| running.operands.push((Name(name, at), t.storage().addr())));
    }
    // A thread that ends has no list any more; its ops go without names.
    let _ = RUNNING.try_with(|list| list.borrow_mut().push(running));
    Named(())
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = RUNNING.try_with(|list| list.borrow_mut().pop());
    }
}

/// The running op and its name for the memory: the outermost one that knows it, since that is the one the user called.
fn names(t: &Tensor) -> (&'static str, Name) {
    let address = t.storage().addr();
    let find = |list: &RefCell<Vec<Running>>| {
        let list = list.borrow();
        let called = |r: &Running| Some((r.op, r.operands.iter().find(|(_, at)| *at == address)?.0));
        let op = list.first().map_or("a kernel", |r| r.op);
        list.iter().find_map(called).unwrap_or((op, Name("a tensor", None)))
    };
    RUNNING.try_with(find).unwrap_or(("a kernel", Name("a tensor", None)))
}

/// Memory that an op is using; let go when dropped.
pub(crate) struct Hold(Option<u64>);

/// Holds the elements of a tensor, or reports the conflicting op on another thread.
pub(crate) fn hold(t: &Tensor, role: Role) -> Result<Hold> {
    hold_from(t, t.layout(), 0, role)
}

/// Like [`hold`], for elements by a layout whose offset counts from the tensor's first.
pub(crate) fn hold_part(t: &Tensor, part: &Layout, role: Role) -> Result<Hold> {
    hold_from(t, part, t.layout().offset(), role)
}

fn hold_from(t: &Tensor, layout: &Layout, offset: usize, role: Role) -> Result<Hold> {
    if t.is_meta() || t.is_sparse() || layout.numel() == 0 {
        return Ok(Hold(None));
    }
    let region = Region::new(t.storage().addr(), layout, offset, t.dtype().size());
    let (thread, (op, operand)) = (THREAD.with(|t| *t), names(t));
    let excludes = |e: &&Entry| {
        e.thread != thread && (role == Role::Writes || e.role == Role::Writes) && e.region.overlaps(&region)
    };
    let mut table = table();
    if let Some(e) = table.iter().find(excludes) {
        return Err(ErrorKind::DataRace {
            op,
            operand: operand.text(),
            role,
            other: e.op,
            other_operand: e.operand.text(),
            other_role: e.role,
        }
        .into());
    }
    let id = number();
    table.push(Entry { id, thread, op, operand, role, region });
    Ok(Hold(Some(id)))
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(id) = self.0 else { return };
        let mut table = table();
        if let Some(k) = table.iter().position(|e| e.id == id) {
            table.swap_remove(k);
        }
    }
}
