//! Saved tensors: what a node saves of the forward pass, checked when it is read.
//!
//! An input is kept as the tensor itself. An output is kept as an alias without history (the node must not own itself)
//! and gets its history back when it is read. Each remembers the version it had. With saved-tensor hooks active the
//! tensor passes through `pack` at once and through `unpack` at every read; then nothing is version-checked.

use super::forward;
use super::node::{Edge, Node};
use crate::state;
use crate::sym::SymInts;
use crate::tensor::{DETACHED, INFERENCE, REQUIRES_GRAD, TANGENT, WRAPPED_NUMBER};
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};
use firebrand_kernels::shared::Arc;
use std::any::Any;
use std::sync::{Mutex, MutexGuard};

/// What a pack hook returns.
pub type Packed = Box<dyn Any + Send + Sync>;
type PackFn = dyn Fn(&Tensor) -> Result<Packed> + Send + Sync;
type UnpackFn = dyn Fn(&(dyn Any + Send + Sync)) -> Result<Tensor> + Send + Sync;

/// A pair of hooks for saved tensors.
pub struct SavedHooks {
    pack: Box<PackFn>,
    unpack: Box<UnpackFn>,
    /// Whether `unpack` returns exactly the values that `pack` got, so that a compiler may omit both.
    pub(crate) faithful: bool,
}

impl SavedHooks {
    /// `pack` turns a tensor into anything; `unpack` turns that back into a tensor, at every read.
    pub fn new<P: Any + Send + Sync>(
        pack: impl Fn(&Tensor) -> Result<P> + Send + Sync + 'static,
        unpack: impl Fn(&P) -> Result<Tensor> + Send + Sync + 'static,
    ) -> SavedHooks {
        SavedHooks {
            pack: Box::new(move |t| Ok(Box::new(pack(t)?))),
            unpack: Box::new(move |p| unpack(p.downcast_ref::<P>().expect("unpack gets what pack returned"))),
            faithful: false,
        }
    }
}

struct PackedTensor {
    value: Packed,
    hooks: std::sync::Arc<SavedHooks>,
    /// Of an input: its edge and leaf flag. Of an output: none; the node supplies it.
    edge: Option<Edge>,
    leaf: bool,
    output_nr: Option<u32>,
    /// The properties of the tensor when it was packed.
    spec: Spec,
}

impl PackedTensor {
    /// The tensor with its history; `node` is the one that keeps it, where that is known.
    fn unpack(mut this: Arc<PackedTensor>, node: Option<&Node>) -> Result<Tensor> {
        let t = (this.hooks.unpack)(&*this.value)?;
        let edge = match (this.output_nr, node) {
            (Some(slot), Some(node)) => Some(Edge { node: node.clone(), slot }),
            // The last reader takes the edge along: a count less to change twice.
            _ => match Arc::get_mut(&mut this) {
                Some(sole) => sole.edge.take(),
                None => this.edge.clone(),
            },
        };
        if edge.is_none() && !t.requires_grad() {
            // No history to give it: it stays the tensor that the hook gave.
            return Ok(t);
        }
        Ok(reattach(&t, edge, this.leaf))
    }
}

#[derive(Clone)]
enum Kept {
    None,
    Input { tensor: Tensor, version: u32, computed: bool },
    Output { alias: Tensor, version: u32, output_nr: u32 },
    Packed(Arc<PackedTensor>),
}

/// Which of a node's saved tensors: by its name, and its place where several are saved under one name.
pub type SavedAt<'a> = (&'a str, Option<usize>);

/// What a [`SavedTensor`] holds.
#[derive(Debug)]
pub enum Look<'a> {
    /// Nothing.
    None,
    /// A tensor; that of an output is an alias.
    Tensor(&'a Tensor),
    /// The result of a pack hook for such a tensor.
    Packed(&'a Spec),
}

/// An optional tensor saved by a node.
#[derive(Clone)]
pub struct SavedTensor(Kept);

impl SavedTensor {
    /// Nothing.
    pub const NONE: SavedTensor = SavedTensor(Kept::None);

    /// Saves an input of the op.
    #[inline]
    pub fn input(t: &Tensor) -> Result<SavedTensor> {
        if t.flags() & INFERENCE != 0 {
            return Err(ErrorKind::InferenceSaved.into());
        }
        // Numbers that became tensors (`x * 2.0`) are the op's, not the user's: no hook sees them.
        if state::word() & state::SAVED_HOOKS != 0
            && t.flags() & WRAPPED_NUMBER == 0
            && let Some(h) = top_hooks()
        {
            return pack(t, h, None);
        }
        Ok(SavedTensor::unpacked(t))
    }

    /// Saves a tensor unchanged, regardless of active hooks.
    #[inline]
    pub fn unpacked(t: &Tensor) -> SavedTensor {
        let computed = t.has_history_to_lose();
        SavedTensor(Kept::Input { tensor: t.clone(), version: t.version_counter(), computed })
    }

    /// Represents a tensor like `t` that hooks packed: every read calls `read`, which returns it.
    pub fn read_by(t: &Tensor, read: impl Fn() -> Result<Tensor> + Send + Sync + 'static) -> SavedTensor {
        let hooks = std::sync::Arc::new(SavedHooks::new(|_| Ok(()), move |(): &()| read()));
        let (value, spec) = (Box::new(()), t.spec().clone());
        SavedTensor(Kept::Packed(Arc::new(PackedTensor {
            value,
            hooks,
            edge: None,
            leaf: false,
            output_nr: None,
            spec,
        })))
    }

    /// Saves an input if there is one.
    #[inline]
    pub fn optional(t: Option<&Tensor>) -> Result<SavedTensor> {
        t.map_or(Ok(SavedTensor::NONE), SavedTensor::input)
    }

    /// Saves output `output_nr` of the op that is being recorded.
    #[inline]
    pub fn output(t: &Tensor, output_nr: u32) -> Result<SavedTensor> {
        if t.flags() & INFERENCE != 0 {
            return Err(ErrorKind::InferenceSaved.into());
        }
        if state::word() & state::SAVED_HOOKS != 0
            && let Some(h) = top_hooks()
        {
            return pack(t, h, Some(output_nr));
        }
        let alias = t.alias_with(t.layout().clone());
        copy_tangent(t, &alias);
        if state::word() & state::DUAL != 0 {
            // The output gets its tangent later, and passes it on.
            let before = t.extras().saved_alias.lock().unwrap_or_else(|e| e.into_inner()).replace(alias.clone());
            drop(before);
        }
        Ok(SavedTensor(Kept::Output { version: t.version_counter(), alias, output_nr }))
    }

    /// What is saved (by this node), without running any hook; version-checked.
    #[inline]
    pub fn look(&self, node: &Node) -> Result<Look<'_>> {
        Ok(match &self.0 {
            Kept::None => Look::None,
            Kept::Input { tensor, version, computed } => {
                check_attached(tensor, *computed)?;
                check_version(tensor, *version, || producer_of(tensor))?;
                Look::Tensor(tensor)
            }
            Kept::Output { alias, version, output_nr } => {
                check_version(alias, *version, || Some((node.name().to_string(), *output_nr as usize)))?;
                Look::Tensor(alias)
            }
            Kept::Packed(p) => Look::Packed(&p.spec),
        })
    }

    /// Whether something was saved.
    pub fn is_some(&self) -> bool {
        !matches!(self.0, Kept::None)
    }

    /// The tensor, with its history; `None` if none was saved.
    #[inline]
    pub fn unpack(self, node: &Node) -> Result<Option<Tensor>> {
        match self.0 {
            Kept::None => Ok(None),
            Kept::Input { tensor, version, computed } => {
                check_attached(&tensor, computed)?;
                check_version(&tensor, version, || producer_of(&tensor))?;
                Ok(Some(tensor))
            }
            Kept::Output { alias, version, output_nr } => {
                check_version(&alias, version, || Some((node.name().to_string(), output_nr as usize)))?;
                Ok(Some(reattach(&alias, Some(Edge { node: node.clone(), slot: output_nr }), false)))
            }
            Kept::Packed(p) => {
                if is_peeking() {
                    return Ok(None);
                }
                PackedTensor::unpack(p, Some(node)).map(Some)
            }
        }
    }

    /// Like [`SavedTensor::unpack`], for a custom function: what was detached in place is refused only where its history
    /// would count.
    pub(crate) fn unpack_for_function(mut self, node: &Node) -> Result<Option<Tensor>> {
        if let Kept::Input { computed, .. } = &mut self.0
            && !state::is(state::GRAD)
        {
            *computed = false;
        }
        self.unpack(node)
    }

    /// The tensor, if it was saved as an input: needs no node.
    pub(crate) fn unpack_input(self) -> Result<Option<Tensor>> {
        match self.0 {
            Kept::None | Kept::Output { .. } => Ok(None),
            Kept::Input { tensor, version, computed } => {
                check_attached(&tensor, computed)?;
                check_version(&tensor, version, || producer_of(&tensor))?;
                Ok(Some(tensor))
            }
            Kept::Packed(p) => PackedTensor::unpack(p, None).map(Some),
        }
    }

    /// Like [`SavedTensor::unpack`], for values that are always present.
    #[inline]
    pub fn unpack_some(self, node: &Node) -> Result<Tensor> {
        self.unpack(node)?.ok_or_else(|| node.freed())
    }

    /// Replaces the saved tensor by what `pack` returns for it: reading it then runs `unpack`.
    fn packed(&self, hooks: std::sync::Arc<SavedHooks>) -> Result<SavedTensor> {
        match &self.0 {
            Kept::None => Err(ErrorKind::SavedHooksOnNone.into()),
            Kept::Packed(_) => Err(ErrorKind::SavedHooksTwice.into()),
            Kept::Input { tensor, .. } => pack(tensor, hooks, None),
            Kept::Output { alias, output_nr, .. } => pack(alias, hooks, Some(*output_nr)),
        }
    }
}

fn producer_of(t: &Tensor) -> Option<(String, usize)> {
    let e = t.try_grad_fn_edge().ok().flatten()?;
    Some((e.node.name().to_string(), e.slot as usize))
}

thread_local! {
    /// Packed tensors met by [`peek`] so far; none outside it.
    static PEEKED: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

#[cold]
fn is_peeking() -> bool {
    let count = PEEKED.get();
    PEEKED.set(count.map(|n| n + 1));
    count.is_some()
}

/// Runs `f`, which reads saved values, without running any unpack hook: packed tensors are absent, and counted.
pub(crate) fn peek<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = PEEKED.replace(Some(0));
    let result = f();
    (result, PEEKED.replace(before).unwrap_or(0))
}

/// A tensor that had a history when it was saved must not have lost it since: gradients of gradients would be lost.
#[inline]
fn check_attached(t: &Tensor, computed: bool) -> Result<()> {
    if computed && t.flags() & DETACHED != 0 { Err(ErrorKind::SavedDetached.into()) } else { Ok(()) }
}

#[inline]
pub(super) fn check_version(
    t: &Tensor,
    expected: u32,
    producer: impl FnOnce() -> Option<(String, usize)>,
) -> Result<()> {
    let found = t.version_counter();
    if found == expected {
        return Ok(());
    }
    let (dtype, shape) = (t.dtype(), t.shape().to_vec());
    Err(ErrorKind::SavedVersionMismatch { dtype, shape, producer: producer(), expected, found }.into())
}

fn top_hooks() -> Option<std::sync::Arc<SavedHooks>> {
    state::stacks(|s| s.saved_hooks.last().cloned())
}

#[cold]
fn pack(t: &Tensor, hooks: std::sync::Arc<SavedHooks>, output_nr: Option<u32>) -> Result<SavedTensor> {
    let (before, edge) = (t.version_counter(), if output_nr.is_some() { None } else { t.gradient_edge()? });
    let leaf = output_nr.is_none() && t.is_leaf_here();
    let value = {
        let _no_grad = state::ModeGuard::new(0, state::GRAD);
        (hooks.pack)(t)?
    };
    if t.version_counter() != before {
        return Err(ErrorKind::PackMutatesInput.into());
    }
    Ok(SavedTensor(Kept::Packed(Arc::new(PackedTensor {
        value,
        hooks,
        edge,
        leaf,
        output_nr,
        spec: t.spec().clone(),
    }))))
}

/// An alias of `t` with the given history.
fn reattach(t: &Tensor, edge: Option<Edge>, leaf: bool) -> Tensor {
    let mut alias = t.alias_with(t.layout().clone());
    copy_tangent(t, &alias);
    match edge {
        Some(e) if leaf => {
            // Gradients of the alias must reach the leaf: it shares the leaf's accumulate node.
            *alias.extras().accumulator.lock().unwrap_or_else(|e| e.into_inner()) = Some(e.node.downgrade());
            alias.set_flag(REQUIRES_GRAD);
        }
        Some(e) => alias.set_birth_history(e),
        None => {}
    }
    alias
}

fn copy_tangent(from: &Tensor, to: &Tensor) {
    if from.flags() & TANGENT != 0
        && let Some(t) = forward::stored(from)
    {
        forward::attach(to, t);
    }
}

/// The saved values of one node: present until released. No hook runs under the lock, and no value is dropped under it.
pub(crate) struct SavedSlot<T>(Mutex<Option<T>>);

impl<T> SavedSlot<T> {
    /// Newly saved values.
    #[inline]
    pub(crate) fn new(values: T) -> SavedSlot<T> {
        SavedSlot(Mutex::new(Some(values)))
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The values for one run of the node: moved out if it is the last, copied if more may follow.
    #[inline]
    pub(crate) fn take_or_clone(&self, node: &Node, needs: &super::node::Needs<'_>) -> Result<T>
    where
        T: Clone,
    {
        if needs.is_last_run() { self.lock().take() } else { self.copied() }.ok_or_else(|| node.freed())
    }

    /// A copy of the values, to be unpacked or shown outside the lock; an error after release.
    pub(crate) fn copy(&self, node: &Node) -> Result<T>
    where
        T: Clone,
    {
        self.copied().ok_or_else(|| node.freed())
    }

    #[inline(never)]
    fn copied(&self) -> Option<T>
    where
        T: Clone,
    {
        self.lock().clone()
    }

    /// Moves the values out; an error after release.
    pub(crate) fn take(&self, node: &Node) -> Result<T> {
        self.lock().take().ok_or_else(|| node.freed())
    }

    /// Shows the values to `f` under the lock; nothing after release.
    pub(crate) fn with(&self, f: &mut dyn FnMut(Option<&mut T>)) {
        f(self.lock().as_mut())
    }

    /// Drops the values, outside the lock.
    #[inline]
    pub(crate) fn release(&self) {
        let old = self.lock().take();
        drop(old);
    }
}

/// Shows one saved tensor of a slot to a function, under the slot's lock: none if the slot has no such tensor, nothing at
/// all after release.
pub(crate) type SavedPlace<'a> = dyn Fn(&mut dyn FnMut(Option<Option<&mut SavedTensor>>)) + 'a;

/// Passes the saved tensor at `place` through hooks from now on; `Ok(false)` if there is none, an error after release.
/// `pack` runs outside the lock: it may read the node, and hook or release its other saved tensors.
pub(crate) fn hook_slot(hooks: std::sync::Arc<SavedHooks>, place: &SavedPlace<'_>) -> Result<bool> {
    let released = || Error::from(ErrorKind::SavedHooksAfterFree);
    let mut kept = None;
    place(&mut |found| kept = found.map(|tensor| tensor.cloned()));
    let Some(kept) = kept.ok_or_else(released)? else { return Ok(false) };
    let mut packed = kept.packed(hooks)?;
    let mut stored = Err(released());
    place(&mut |found| {
        stored = match found.flatten() {
            None => Err(released()),
            Some(tensor) if matches!(tensor.0, Kept::Packed(_)) => Err(ErrorKind::SavedHooksTwice.into()),
            // What was there is dropped outside the lock.
            Some(tensor) => {
                std::mem::swap(tensor, &mut packed);
                Ok(())
            }
        }
    });
    stored.map(|()| true)
}

/// Saved values without tensors: never released, so the node can run any number of times.
pub(crate) struct PlainSlot<T>(T);

impl<T> PlainSlot<T> {
    /// Newly saved values.
    #[inline]
    pub(crate) fn new(values: T) -> PlainSlot<T> {
        PlainSlot(values)
    }

    /// The values.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        &self.0
    }
}

/// A saved value as users see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SavedValue {
    /// Not saved.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// Several tensors.
    Tensors(Vec<Option<Tensor>>),
    /// A scalar.
    Scalar(Scalar),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
    /// Bools.
    Bools(Vec<bool>),
    /// Text.
    Str(String),
    /// A dtype.
    DType(DType),
}

impl SavedValue {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            SavedValue::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

macro_rules! saved_value {
    ($($t:ty => |$v:ident| $e:expr),* $(,)?) => {$(
        impl From<$t> for SavedValue {
            fn from($v: $t) -> SavedValue { $e }
        }
    )*};
}
saved_value! {
    Option<Tensor> => |v| v.map_or(SavedValue::None, SavedValue::Tensor),
    Vec<Option<Tensor>> => |v| SavedValue::Tensors(v),
    Scalar => |v| SavedValue::Scalar(v),
    Option<Scalar> => |v| v.map_or(SavedValue::None, SavedValue::Scalar),
    i64 => |v| SavedValue::Int(v),
    Option<i64> => |v| v.map_or(SavedValue::None, SavedValue::Int),
    usize => |v| SavedValue::Int(v as i64),
    crate::SymInt => |v| SavedValue::Int(v.int()),
    Option<crate::SymInt> => |v| v.map_or(SavedValue::None, |v| SavedValue::Int(v.int())),
    f64 => |v| SavedValue::Float(v),
    Option<f64> => |v| v.map_or(SavedValue::None, SavedValue::Float),
    bool => |v| SavedValue::Bool(v),
    Option<bool> => |v| v.map_or(SavedValue::None, SavedValue::Bool),
    SymInts => |v| SavedValue::Ints(v.iter().map(|s| s.int()).collect()),
    Option<SymInts> => |v| v.map_or(SavedValue::None, SavedValue::from),
    Vec<SymInts> => |v| SavedValue::Ints(v.iter().flatten().map(|s| s.int()).collect()),
    Vec<i64> => |v| SavedValue::Ints(v),
    Option<Vec<i64>> => |v| v.map_or(SavedValue::None, SavedValue::Ints),
    Vec<f64> => |v| SavedValue::Floats(v),
    Option<Vec<f64>> => |v| v.map_or(SavedValue::None, SavedValue::Floats),
    Vec<bool> => |v| SavedValue::Bools(v),
    String => |v| SavedValue::Str(v),
    Option<String> => |v| v.map_or(SavedValue::None, SavedValue::Str),
    DType => |v| SavedValue::DType(v),
    Option<DType> => |v| v.map_or(SavedValue::None, SavedValue::DType),
    Vec<DType> => |v| SavedValue::Ints(v.iter().map(|d| *d as i64).collect()),
}
