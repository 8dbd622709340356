//! Tensor: a reference-counted pointer to a description, plus lazily created extras.
//!
//! What every op reads (storage, layout, dtype, first history) is immutable and stored in the tensor itself; what few
//! tensors need (gradient, hooks, view information, history after an in-place op, replaced data) is in [`Extras`], and
//! a flag bit says which of them to look at. So reading a plain tensor takes no lock.
//! This folder knows storage and identity; history is in `autograd`, arithmetic in `ops`.

mod access;
mod description;
mod extras;
mod foreign;
mod map;
mod replaced;
pub(crate) mod sparse;
mod spec;
mod versions;

pub(crate) use access::{Access, AccessMut};
pub(crate) use extras::{Extras, Wrapped};
pub use map::TensorMap;
pub(crate) use spec::Shape;
pub use spec::Spec;

use crate::autograd::node::{Edge, defer};
use crate::layout::{Dims, Layout};
use crate::state;
use crate::{DType, Device, Error, ErrorKind, Result};
use firebrand_kernels::Storage;
use firebrand_kernels::shared::{Arc, Weak};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// The leaf flag: requires grad.
pub(crate) const REQUIRES_GRAD: u32 = 1;
/// A tracked view: `extras.view` is set.
pub(crate) const VIEW: u32 = 1 << 1;
/// History was replaced: `extras.history` applies, not `grad_fn`.
pub(crate) const REBASED: u32 = 1 << 2;
/// Data was replaced: `extras.replaced` applies.
pub(crate) const REPLACED: u32 = 1 << 3;
/// Made in inference mode.
pub(crate) const INFERENCE: u32 = 1 << 4;
/// A scalar wrapped as a tensor; weak in type promotion.
pub(crate) const WRAPPED_NUMBER: u32 = 1 << 5;
/// Carries a tangent.
pub(crate) const TANGENT: u32 = 1 << 6;
/// Counts versions on its own (`data()`).
pub(crate) const OWN_VERSION: u32 = 1 << 7;
/// Retains its gradient although it is not a leaf.
pub(crate) const RETAINS_GRAD: u32 = 1 << 8;
/// Stands for a tensor one level down: `extras.wrapped` is set, and its own memory must not be read.
pub(crate) const WRAPPED: u32 = 1 << 9;
/// Its sizes are dynamic in the function that is being captured.
pub(crate) const SYMBOLIC: u32 = 1 << 10;
/// Its history was detached in place, and it has no new one.
pub(crate) const DETACHED: u32 = 1 << 11;
/// On which device it is, one bit each, at the place of the device's number: ops compare these (`ops::devices`). A sparse tensor
/// has all of them, so that it differs from every dense one (`sparse`).
pub(crate) const DEVICES: u32 = 3 << 12;
/// The bit of a device in [`DEVICES`].
const fn device_bit(device: Device) -> u32 {
    1 << (12 + device as u32)
}
/// A captured function has held it in place of another tensor: in a `StandInScope`, methods are about that one.
pub(crate) const STAND_IN: u32 = 1 << 14;
/// The transforms a tensor was born under, at the bits of the mode word (`state::DEPTH`, `state::LEVEL`).
const BIRTH: u32 = state::DEPTH | state::LEVEL;

pub(crate) struct Inner {
    storage: Storage,
    spec: Spec,
    flags: AtomicU32,
    /// History at birth. Immutable, so reading it takes no lock.
    grad_fn: Option<Edge>,
    extras: OnceLock<Box<Extras>>,
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        if let Some(e) = self.grad_fn.take() {
            defer(e.node)
        }
        if let Some(extras) = self.extras.get_mut()
            && let Ok(h) = extras.history.get_mut()
            && let Some(e) = h.take()
        {
            defer(e.node)
        }
    }
}

/// A multi-dimensional array with autograd history. `clone` gives another handle to the same tensor; `clone_tensor` copies the data.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::{DType, Tensor};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]).requires_grad_();
/// let y = (&x * 2.0 + 1.0).matmul(&Tensor::ones([2, 1], DType::F32));
/// assert_eq!(y.shape(), [2, 1]);
/// assert_eq!(y.to_vec::<f32>(), [8.0, 16.0]);
/// y.sum().backward();
/// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [2.0; 4]);
/// assert_eq!(x.i((.., 0)).to_vec::<f32>(), [1.0, 3.0]);
/// ```
///
/// # Names
/// Methods have PyTorch's names. Where PyTorch overloads a name, each overload has its own method, with the overload's name as
/// a suffix: `sum` and `sum_dim`, `max` and `max_dim`. The other operand may be a tensor or a number. A trailing underscore means
/// in place. A method takes the positional arguments of PyTorch's op, without defaults, and omits the keyword-only arguments;
/// the functions of [`ops`](crate::ops) take all of them.
///
/// Every fallible method comes in two variants: `matmul` panics with the message of the error, `try_matmul` returns it.
///
/// # Threads
/// Tensors are `Send` and `Sync`, and reading one from many threads at once is fine. In-place
/// ops take `&self`, as in PyTorch, so the type system does not order them: **the caller orders every write of a storage
/// against all other reads and writes of it**, through whichever tensor or view they happen. In debug builds, and in release builds
/// with the feature `race-checks`, an op that collides with another one on the same elements is an error ([`ErrorKind::DataRace`]); in other builds
/// racing threads get unspecified values (never an access outside the storage). `.grad` accumulation, hooks and
/// version counters are synchronized.
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Inner>);

/// A handle that does not keep the tensor alive.
#[derive(Clone)]
pub struct WeakTensor(Weak<Inner>);

impl WeakTensor {
    /// The tensor, if it is still alive.
    pub fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor)
    }

    /// Whether the tensor is still alive. Unlike [`WeakTensor::upgrade`] this never drops it, so it is safe under a lock.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Whether both handles refer to the same tensor.
    pub(crate) fn is_same(&self, other: &WeakTensor) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

impl Tensor {
    // ---- making

    /// A tensor over existing memory.
    #[inline]
    pub(crate) fn from_parts(storage: Storage, spec: Spec, flags: u32) -> Tensor {
        Tensor::built(storage, flags | device_bit(spec.device), || spec)
    }

    /// Like [`Tensor::from_parts`], with a description that is built where it stays and a device that is part of the flags.
    #[inline(always)]
    fn built(storage: Storage, flags: u32, spec: impl FnOnce() -> Spec) -> Tensor {
        let word = state::word();
        let inference = if word & state::INFERENCE != 0 { INFERENCE } else { 0 };
        Tensor(Arc::make(|| Inner {
            storage,
            flags: AtomicU32::new(flags | inference | word & BIRTH),
            spec: spec(),
            grad_fn: None,
            extras: OnceLock::new(),
        }))
    }

    /// New memory with unspecified content (never uninitialized; a bool may be any byte, and all but 0 are true).
    #[inline]
    pub fn try_empty<'a>(shape: impl Into<Shape<'a>>) -> Result<Tensor> {
        match shape.into() {
            Shape::Like(spec) => {
                let storage = Tensor::memory(spec.layout.numel() * spec.dtype.size(), spec.device)?;
                let like = || Spec { layout: spec.layout.from_start(), ..*spec };
                Ok(Tensor::built(storage, device_bit(spec.device), like))
            }
            Shape::New(spec) => {
                let l = &spec.layout;
                let elements = if l.is_contiguous() { l.offset() + l.numel() } else { l.end() };
                Ok(Tensor::from_parts(Tensor::memory(elements * spec.dtype.size(), spec.device)?, spec, 0))
            }
        }
    }

    /// Like [`Tensor::try_empty`], for a tensor that users see. Bools are false then: kernels accept any
    /// byte, but what users see may also be saved.
    pub(crate) fn try_unwritten<'a>(shape: impl Into<Shape<'a>>) -> Result<Tensor> {
        let t = Tensor::try_empty(shape)?;
        if t.dtype() == DType::Bool && !t.is_meta() {
            let bytes = t.0.storage.nbytes();
            firebrand_kernels::fill(t.0.storage.view_mut(DType::U8, 0, &[bytes], &[1]), 0i64.into());
        }
        Ok(t)
    }

    #[inline]
    fn memory(bytes: usize, device: Device) -> Result<Storage> {
        match device {
            Device::Cpu => Ok(Storage::new(bytes)?),
            Device::Meta => Ok(Storage::meta(bytes)),
        }
    }

    // ---- flags

    // ---- description

    /// A reader that sees a flag also sees what was stored before it was set.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.0.flags.load(Acquire)
    }

    #[inline]
    pub(crate) fn set_flag(&self, bit: u32) {
        self.0.flags.fetch_or(bit, Release);
    }

    #[inline]
    pub(crate) fn clear_flag(&self, bit: u32) {
        self.0.flags.fetch_and(!bit, Release);
    }

    #[inline]
    pub(crate) fn extras(&self) -> &Extras {
        self.0.extras.get_or_init(Box::default)
    }

    #[inline]
    pub(crate) fn extras_if_any(&self) -> Option<&Extras> {
        self.0.extras.get().map(|b| &**b)
    }

    // ---- history at birth

    /// Gives a tensor that has not been shared yet its history.
    #[inline(always)]
    pub(crate) fn set_birth_history(&mut self, edge: Edge) {
        match Arc::get_mut(&mut self.0) {
            Some(inner) => inner.grad_fn = Some(edge),
            None => {
                *self.extras().history.lock().unwrap_or_else(|e| e.into_inner()) = Some(edge);
                self.set_flag(REBASED);
            }
        }
    }

    #[inline]
    pub(crate) fn birth_history(&self) -> Option<&Edge> {
        self.0.grad_fn.as_ref()
    }

    /// A new handle to the same memory with another layout: no history, not tracked as a view, same version counter.
    #[inline]
    pub(crate) fn alias_with(&self, layout: Layout) -> Tensor {
        self.alias_as(Spec { layout, dtype: self.dtype(), device: self.device() })
    }

    /// Like [`Tensor::alias_with`], with elements of another type over the same bytes.
    pub(crate) fn alias_as(&self, spec: Spec) -> Tensor {
        let kept = self.flags() & (INFERENCE | BIRTH | WRAPPED);
        let alias = Tensor(Arc::new(Inner {
            storage: self.storage().clone(),
            flags: AtomicU32::new(kept | if self.is_sparse() { DEVICES } else { device_bit(spec.device) }),
            spec,
            grad_fn: None,
            extras: OnceLock::new(),
        }));
        self.share_version_with(&alias);
        if self.is_sparse() {
            sparse::share(self, &alias);
        }
        if kept & WRAPPED != 0
            && let Some(w) = self.wrapped()
        {
            // One that escaped stays what it is: reading it is refused.
            let cut = alias.shape() != self.shape();
            debug_assert!(!cut || !self.is_of_this_level(), "a wrapper is cut by ops, one level down");
            let _ = alias.extras().wrapped.set(w.clone());
        }
        alias
    }

    // ---- levels (see `func::level`)

    /// Whether it was made at the wrapping level that is active.
    #[inline]
    pub(crate) fn is_of_this_level(&self) -> bool {
        (self.flags() ^ state::word()) & state::LEVEL == 0
    }

    /// The transforms it was born under, as bits of the mode word.
    #[inline]
    pub(crate) fn birth(&self) -> u32 {
        self.flags() & BIRTH
    }

    /// What it wraps, if it is a wrapper.
    #[inline]
    pub(crate) fn wrapped(&self) -> Option<&Wrapped> {
        if self.flags() & WRAPPED == 0 { None } else { self.extras().wrapped.get() }
    }

    /// Whether it stands for one sample of a `vmap`, so that its values differ between samples.
    pub fn is_batched(&self) -> bool {
        !self.is_one_for_all()
    }

    /// If it stands for one sample of a `vmap`: the tensor with all samples, which of its dimensions they are in, and how many mapped
    /// levels there are, this one included. It is meant for printing: nothing that is computed from it has to do with the sample.
    pub fn all_samples(&self) -> Option<(Tensor, usize, usize)> {
        let w = self.wrapped()?;
        match w.bdim {
            Some(dim) => {
                Some((w.value.clone(), dim, ((self.flags() & state::LEVEL) >> state::LEVEL.trailing_zeros()) as usize))
            }
            None => w.value.all_samples(),
        }
    }

    /// Whether it is unbatched at every level below, so that its memory is its own.
    #[cold]
    fn is_one_for_all(&self) -> bool {
        self.wrapped().is_none_or(|w| w.bdim.is_none() && w.value.is_one_for_all())
    }

    /// Makes it wrap another tensor from now on.
    pub(crate) fn set_wrapped(&self, wrapped: Wrapped) {
        let _ = self.extras().wrapped.set(wrapped);
        self.set_flag(WRAPPED);
    }

    /// A wrapper of `wrapped` at the active level, with this spec.
    pub(crate) fn wrapper(wrapped: Wrapped, layout: Layout) -> Tensor {
        let value = &wrapped.value;
        let spec = Spec { layout, dtype: value.dtype(), device: value.device() };
        let out =
            Tensor::from_parts(value.storage().clone(), spec, value.flags() & (INFERENCE | WRAPPED_NUMBER | DEVICES));
        value.share_version_with(&out);
        out.set_wrapped(wrapped);
        out
    }

    /// An alias without history that counts as born under the transforms of `birth`.
    pub(crate) fn alias_born_under(&self, birth: u32) -> Tensor {
        let alias = self.alias_with(self.layout().clone());
        let number = self.flags() & WRAPPED_NUMBER;
        alias.0.flags.store(alias.flags() & !BIRTH | birth & BIRTH | number, Release);
        alias
    }

    /// Sizes of the dimensions, owned.
    pub(crate) fn dims(&self) -> Dims {
        Dims::from_slice(self.shape())
    }

    /// Fails unless the tensor has data to read.
    #[inline]
    pub(crate) fn need_data(&self, op: &'static str) -> Result<()> {
        if self.flags() & WRAPPED != 0 {
            let escaped = !state::is(state::LEVEL);
            return Err(if escaped { ErrorKind::EscapedTensor } else { ErrorKind::BatchedData { op } }.into());
        }
        if self.is_sparse() {
            return Err(sparse::refused(op, "the operand"));
        }
        if self.is_meta() { Err(Error::from(ErrorKind::MetaData { op })) } else { Ok(()) }
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl crate::dtype::Operand for Tensor {
    #[inline]
    fn dtype(&self) -> DType {
        self.dtype()
    }
    #[inline]
    fn ndim(&self) -> usize {
        self.ndim()
    }
    #[inline]
    fn is_wrapped_number(&self) -> bool {
        self.is_wrapped_number()
    }
}
