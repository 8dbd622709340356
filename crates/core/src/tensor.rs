//! Tensor: one counted pointer to a description, plus lazily made extras.
//!
//! What every op reads (storage, layout, dtype, first history) is immutable and stored in the tensor itself; what few
//! tensors need (gradient, hooks, view information, history after an in-place op, replaced data) is in [`Extras`], and
//! a flag bit says which of them to look at. So reading a plain tensor takes no lock.
//! This file knows storage and identity; history is in `autograd`, arithmetic in `ops`.

use crate::autograd::grad_slot::GradSlot;
use crate::autograd::hook_table::HookTable;
use crate::autograd::hooks::{PostAccumulateHook, TensorHook};
use crate::autograd::node::{Edge, WeakNode, defer};
use crate::autograd::view::ViewInfo;
use crate::layout::{Dims, Layout};
use crate::races::{self, Hold, Role};
use crate::state;
use crate::sym::{SymInt, SymInts};
use crate::{DType, Device, Error, ErrorKind, Result};
use firebrand_kernels::shared::{Arc, Weak};
use firebrand_kernels::{Flat, Storage, View, ViewMut};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, RwLock};

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
/// On which device it is, one bit each, at the place of the device's number: ops compare these (`ops::devices`).
pub(crate) const DEVICES: u32 = 3 << 12;
/// The bit of a device in [`DEVICES`].
const fn device_bit(device: Device) -> u32 {
    1 << (12 + device as u32)
}
/// The transforms a tensor was born under, at the bits of the mode word (`state::DEPTH`, `state::LEVEL`).
const BIRTH: u32 = state::DEPTH | state::LEVEL;

/// Shape, memory order, dtype and device: everything about a tensor but its values.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Sizes and strides.
    pub layout: Layout,
    /// Element type.
    pub dtype: DType,
    /// Its device.
    pub device: Device,
}

impl Spec {
    /// A row-major tensor; an error for sizes that no tensor can have.
    #[inline]
    pub fn new(sizes: &[usize], dtype: DType, device: Device) -> Result<Spec> {
        Ok(Spec { layout: Layout::contiguous(sizes)?, dtype, device })
    }

    /// A tensor without dimensions.
    #[inline]
    pub fn scalar(dtype: DType, device: Device) -> Spec {
        Spec { layout: Layout::scalar(), dtype, device }
    }
}

/// What a shape function returns for a result. Naming an operand that it equals avoids copying the spec through the stack,
/// which would slow down small ops.
pub enum Shape<'a> {
    /// A new row-major tensor of these sizes, dtype and device.
    Like(&'a Spec),
    /// This spec.
    New(Spec),
}

impl std::ops::Deref for Shape<'_> {
    type Target = Spec;
    #[inline]
    fn deref(&self) -> &Spec {
        match self {
            Shape::Like(spec) => spec,
            Shape::New(spec) => spec,
        }
    }
}

impl From<Spec> for Shape<'_> {
    #[inline]
    fn from(spec: Spec) -> Self {
        Shape::New(spec)
    }
}

impl Shape<'_> {
    /// The description itself.
    #[inline]
    pub(crate) fn into_spec(self) -> Spec {
        match self {
            Shape::Like(spec) => Spec { layout: spec.layout.from_start(), ..*spec },
            Shape::New(spec) => spec,
        }
    }
}

/// What `set_data`, `t_` and their kind put in the place of the first data.
///
/// Readers borrow a description for as long as they hold the tensor, so one is never moved or dropped before the tensor
/// is. But each is kept once, however often it comes back, and the memory of what was replaced is let go.
pub(crate) struct Replaced {
    now: RwLock<Now>,
    /// The index of the current description.
    at: AtomicUsize,
    specs: Descriptions,
}

/// The current memory and the index of its description.
struct Now {
    storage: Storage,
    at: usize,
    numbers: HashMap<Box<[usize]>, usize>,
}

impl Replaced {
    fn new(storage: Storage) -> Replaced {
        let now = Now { storage, at: 0, numbers: HashMap::new() };
        Replaced { now: RwLock::new(now), at: AtomicUsize::new(0), specs: Descriptions::default() }
    }

    fn set(&self, storage: Storage, spec: Spec) {
        let mut now = self.now.write().unwrap_or_else(|e| e.into_inner());
        let l = &spec.layout;
        let head = [spec.dtype as usize, spec.device as usize, l.offset()];
        let key: Box<[usize]> = head.iter().chain(l.sizes()).chain(l.strides()).copied().collect();
        let next = now.numbers.len();
        let at = *now.numbers.entry(key).or_insert(next);
        if at == next {
            self.specs.put(at, spec);
        }
        let before = std::mem::replace(&mut now.storage, storage);
        now.at = at;
        self.at.store(at, Release);
        drop(now);
        drop(before);
    }

    fn spec(&self) -> &Spec {
        self.specs.get(self.at.load(Acquire))
    }

    /// The memory and its description, which belong together.
    fn both(&self) -> (Storage, &Spec) {
        let now = self.now.read().unwrap_or_else(|e| e.into_inner());
        (now.storage.clone(), self.specs.get(now.at))
    }
}

/// A list that grows while parts of it are borrowed: piece `k` has room for `2^k` more.
#[derive(Default)]
struct Descriptions([OnceLock<Box<[OnceLock<Spec>]>>; 32]);

impl Descriptions {
    fn slot(&self, n: usize) -> &OnceLock<Spec> {
        let piece = (n + 1).ilog2();
        let all = self.0[piece as usize].get_or_init(|| (0..1usize << piece).map(|_| OnceLock::new()).collect());
        &all[n + 1 - (1 << piece)]
    }

    fn put(&self, n: usize, spec: Spec) {
        self.slot(n).get_or_init(|| spec);
    }

    fn get(&self, n: usize) -> &Spec {
        self.slot(n).get().expect("a description has a number once it is in the list")
    }
}

/// What few tensors need.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) grad: GradSlot<Tensor>,
    /// `None`: the tensor's own; `Some(None)`: any.
    pub(crate) grad_dtype: Mutex<Option<Option<DType>>>,
    pub(crate) accumulator: Mutex<Option<WeakNode>>,
    /// Hooks of the leaf; those of a computed tensor live on its node.
    pub(crate) hooks: OnceLock<HookTable<TensorHook>>,
    pub(crate) post_accumulate_hooks: OnceLock<HookTable<PostAccumulateHook>>,
    pub(crate) history: Mutex<Option<Edge>>,
    pub(crate) view: OnceLock<ViewInfo>,
    pub(crate) own_version: OnceLock<VersionCounter>,
    pub(crate) replaced: OnceLock<Box<Replaced>>,
    pub(crate) tangent: Mutex<Option<Tensor>>,
    /// What a node saved of this output before the output got its tangent.
    pub(crate) saved_alias: Mutex<Option<Tensor>>,
    pub(crate) wrapped: OnceLock<Wrapped>,
}

/// What counts the writes to a tensor that does not share its memory's version counter.
#[derive(Clone)]
pub(crate) enum VersionCounter {
    /// A counter of its own (`data()`), shared with aliases made of it.
    Own(std::sync::Arc<AtomicU32>),
    /// The memory it had before its data was replaced; earlier views keep counting with it.
    Memory(Storage),
}

impl VersionCounter {
    fn get(&self) -> u32 {
        match self {
            VersionCounter::Own(v) => v.load(Relaxed),
            VersionCounter::Memory(s) => s.version(),
        }
    }

    fn bump(&self) {
        match self {
            VersionCounter::Own(v) => {
                v.fetch_add(1, Relaxed);
            }
            VersionCounter::Memory(s) => s.bump_version(),
        }
    }

    fn set(&self, to: u32) {
        match self {
            VersionCounter::Own(v) => v.store(to, Relaxed),
            VersionCounter::Memory(s) => s.set_version(to),
        }
    }
}

/// What a wrapper wraps: a tensor one level down, and which of its dimensions is the batch (`None`: unbatched).
#[derive(Clone)]
pub(crate) struct Wrapped {
    pub(crate) value: Tensor,
    pub(crate) bdim: Option<usize>,
}

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
/// use firebrand_core::{DType, Tensor};
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
/// in place. A method takes the positional arguments of PyTorch's op, without defaults, and leaves out the keyword arguments;
/// the functions of [`ops`](crate::ops) take all of them.
///
/// Every method that can fail has two forms: `matmul` panics with the message of the error, `try_matmul` returns it.
///
/// # Threads
/// Handles may be sent to and shared with other threads, and reading a tensor from many of them at once is fine. In-place
/// ops take `&self`, as in PyTorch, so the type system does not order them: **the caller orders every write of a storage
/// against all other reads and writes of it**, through whichever tensor or view they come. Debug builds, and release builds
/// with the feature `race-checks`, refuse an op that meets another one on the same elements ([`ErrorKind::DataRace`]); elsewhere
/// two threads that race get unspecified values (never an access outside the storage). `.grad` accumulation, hooks and
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

/// The storage of a tensor: borrowed, or a handle of its own if the data was replaced.
pub(crate) enum StorageRef<'a> {
    Borrowed(&'a Storage),
    Owned(Storage),
}

impl std::ops::Deref for StorageRef<'_> {
    type Target = Storage;
    #[inline]
    fn deref(&self) -> &Storage {
        match self {
            StorageRef::Borrowed(s) => s,
            StorageRef::Owned(s) => s,
        }
    }
}

/// A tensor's memory, ready for kernels that read it. Held while this lives, where races are checked.
pub(crate) struct Access<'a> {
    storage: StorageRef<'a>,
    spec: &'a Spec,
    _hold: Hold,
}

/// A tensor's memory, ready for kernels that write it.
pub(crate) struct AccessMut<'a>(Access<'a>);

impl Access<'_> {
    /// The elements.
    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        let l = &self.spec.layout;
        self.storage.view(self.spec.dtype, l.offset(), l.sizes(), l.strides())
    }
    /// The same memory with other sizes and strides (of the same first element).
    #[inline]
    pub(crate) fn view_as<'b>(&'b self, sizes: &'b [usize], strides: &'b [usize]) -> View<'b> {
        self.storage.view(self.spec.dtype, self.spec.layout.offset(), sizes, strides)
    }
    /// Elements by a layout whose offset counts from this tensor's first.
    #[inline]
    pub(crate) fn part<'b>(&'b self, l: &'b Layout) -> View<'b> {
        self.storage.view(self.spec.dtype, self.spec.layout.offset() + l.offset(), l.sizes(), l.strides())
    }
}

impl AccessMut<'_> {
    /// The elements.
    #[inline]
    pub(crate) fn view_mut(&self) -> ViewMut<'_> {
        let l = &self.spec.layout;
        self.storage.view_mut(self.spec.dtype, l.offset(), l.sizes(), l.strides())
    }
    /// As [`Access::view_as`], for writing.
    #[inline]
    pub(crate) fn view_mut_as<'b>(&'b self, sizes: &'b [usize], strides: &'b [usize]) -> ViewMut<'b> {
        self.storage.view_mut(self.spec.dtype, self.spec.layout.offset(), sizes, strides)
    }
    /// As [`Access::part`], for writing.
    #[inline]
    pub(crate) fn part_mut<'b>(&'b self, l: &'b Layout) -> ViewMut<'b> {
        self.storage.view_mut(self.spec.dtype, self.spec.layout.offset() + l.offset(), l.sizes(), l.strides())
    }
}

/// What may be written may be read.
impl<'a> std::ops::Deref for AccessMut<'a> {
    type Target = Access<'a>;
    #[inline]
    fn deref(&self) -> &Access<'a> {
        &self.0
    }
}

impl Tensor {
    // ---- making

    /// A tensor over existing memory.
    #[inline]
    pub(crate) fn from_parts(storage: Storage, spec: Spec, flags: u32) -> Tensor {
        let word = state::word();
        let inference = if word & state::INFERENCE != 0 { INFERENCE } else { 0 };
        Tensor(Arc::new(Inner {
            storage,
            flags: AtomicU32::new(flags | device_bit(spec.device) | inference | word & BIRTH),
            spec,
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
                Ok(Tensor::from_parts(storage, Spec { layout: spec.layout.from_start(), ..*spec }, 0))
            }
            Shape::New(spec) => {
                let l = &spec.layout;
                let elements = if l.is_contiguous() { l.offset() + l.numel() } else { l.end() };
                Ok(Tensor::from_parts(Tensor::memory(elements * spec.dtype.size(), spec.device)?, spec, 0))
            }
        }
    }

    /// As [`Tensor::try_empty`], for a tensor that users see. Bools are false then: kernels accept any
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

    /// Layout, dtype and device.
    #[inline]
    pub fn spec(&self) -> &Spec {
        if self.flags() & REPLACED == 0 { &self.0.spec } else { self.replaced().spec() }
    }

    #[cold]
    fn replaced(&self) -> &Replaced {
        self.extras().replaced.get().expect("the flag says that data was replaced")
    }

    /// Sizes and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.spec().layout
    }

    /// The size of every dimension.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        if self.flags() & SYMBOLIC != 0 {
            self.observe_sizes();
        }
        self.layout().sizes()
    }

    /// Tells a capture that code here depends on the sizes.
    #[cold]
    fn observe_sizes(&self) {
        if let Some(tracer) = crate::capture::tracer() {
            tracer.observe_sizes(self);
        }
    }

    /// Makes [`Tensor::size`] ask the tracer; for tensors with dynamic sizes in a capture.
    pub fn mark_symbolic(&self) {
        self.set_flag(SYMBOLIC)
    }

    /// The sizes as size arguments.
    #[inline]
    pub fn sym_sizes(&self) -> SymInts {
        if self.flags() & SYMBOLIC != 0 {
            return (0..self.ndim()).map(|d| self.sym_size(d)).collect();
        }
        self.layout().sizes().iter().map(|&n| n.into()).collect()
    }

    /// The size of one dimension (negative dims count from the end). Under capture it may be symbolic.
    ///
    /// # Panics
    /// If there is no such dimension.
    #[track_caller]
    pub fn size(&self, dim: i64) -> SymInt {
        match crate::layout::wrap_dim("size", dim, self.ndim()) {
            Ok(d) => self.sym_size(d),
            Err(e) => panic!("{e}"),
        }
    }

    fn sym_size(&self, d: usize) -> SymInt {
        if self.flags() & SYMBOLIC != 0
            && let Some(tracer) = crate::capture::tracer()
        {
            return tracer.size(self, d);
        }
        self.layout().sizes()[d].into()
    }

    /// Stride of each dimension, in elements.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        self.observe_strides();
        self.layout().strides()
    }

    /// Position of the first element in the storage, in elements.
    pub fn storage_offset(&self) -> usize {
        self.layout().offset()
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.layout().ndim()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.layout().numel()
    }

    /// Element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.spec().dtype
    }

    /// Its device.
    #[inline]
    pub fn device(&self) -> Device {
        self.spec().device
    }

    /// Whether it is a meta tensor, which has no data.
    #[inline]
    pub fn is_meta(&self) -> bool {
        self.flags() & device_bit(Device::Meta) != 0
    }

    /// Whether the elements lie in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.observe_strides();
        self.layout().is_contiguous()
    }

    #[inline]
    fn observe_strides(&self) {
        if self.flags() & SYMBOLIC != 0
            && let Some(tracer) = crate::capture::tracer()
        {
            tracer.observe_strides(self);
        }
    }

    /// Whether the elements are floating point numbers.
    #[inline]
    pub fn is_floating_point(&self) -> bool {
        self.dtype().is_floating_point()
    }

    /// Whether the elements are complex.
    #[inline]
    pub fn is_complex(&self) -> bool {
        self.dtype().is_complex()
    }

    /// Whether it was made in inference mode.
    #[inline]
    pub fn is_inference(&self) -> bool {
        self.flags() & INFERENCE != 0
    }

    /// Whether it is a wrapped scalar, which is weak in type promotion.
    #[inline]
    pub fn is_wrapped_number(&self) -> bool {
        self.flags() & WRAPPED_NUMBER != 0
    }

    /// Whether both handles refer to the same tensor.
    #[inline]
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that is unique among living tensors.
    pub fn id(&self) -> usize {
        Arc::addr(&self.0)
    }

    /// Whether both use the same memory.
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        self.storage().ptr_eq(&other.storage())
    }

    /// A handle that does not keep the tensor alive.
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.0))
    }

    /// How many handles there are.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether this is the only handle, and the only one to its memory.
    #[inline]
    pub(crate) fn is_sole_owner(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some_and(|i| i.storage.is_unique() && *i.flags.get_mut() & REPLACED == 0)
    }

    // ---- memory

    #[inline]
    pub(crate) fn storage(&self) -> StorageRef<'_> {
        if self.flags() & REPLACED == 0 {
            StorageRef::Borrowed(&self.0.storage)
        } else {
            StorageRef::Owned(self.replaced().both().0)
        }
    }

    /// The elements, if they are of `dtype` in row-major order and the data was never replaced.
    #[inline]
    pub(crate) fn flat(&self, dtype: DType) -> Option<Flat<'_>> {
        let Inner { storage, spec, .. } = &*self.0;
        (self.flags() & (REPLACED | WRAPPED) == 0 && spec.layout.is_contiguous() && spec.dtype == dtype).then(|| Flat {
            storage,
            offset: spec.layout.offset(),
            len: spec.layout.numel(),
        })
    }

    /// The memory, for a kernel that reads it. An error if another thread is writing it, where that is checked ([`races`]).
    ///
    /// # Panics
    /// For a transform's wrappers, which have no data of their own.
    #[inline]
    pub(crate) fn read(&self) -> Result<Access<'_>> {
        Ok(self.access(races::hold(self, Role::Reads)?))
    }

    /// As [`Tensor::read`], for a kernel that writes: nothing else may use the memory at the same time.
    #[inline]
    pub(crate) fn write(&self) -> Result<AccessMut<'_>> {
        Ok(AccessMut(self.access(races::hold(self, Role::Writes)?)))
    }

    /// The memory, for code that uses parts of it (in the sense of [`Access::part`]).
    #[inline]
    pub(crate) fn read_part(&self, part: &Layout) -> Result<Access<'_>> {
        Ok(self.access(races::hold_part(self, part, Role::Reads)?))
    }

    /// As [`Tensor::read_part`], for writing.
    #[inline]
    pub(crate) fn write_part(&self, part: &Layout) -> Result<AccessMut<'_>> {
        Ok(AccessMut(self.access(races::hold_part(self, part, Role::Writes)?)))
    }

    #[inline]
    fn access(&self, hold: Hold) -> Access<'_> {
        assert!(
            self.flags() & WRAPPED == 0 || self.is_one_for_all(),
            "the values of a tensor created inside vmap were read outside of it"
        );
        if self.flags() & REPLACED == 0 {
            return Access { storage: StorageRef::Borrowed(&self.0.storage), spec: &self.0.spec, _hold: hold };
        }
        let (storage, spec) = self.replaced().both();
        Access { storage: StorageRef::Owned(storage), spec, _hold: hold }
    }

    /// Replaces this tensor's storage, layout and dtype. Version, hooks and flags stay.
    pub(crate) fn replace_data(&self, storage: Storage, spec: Spec) {
        // The version belongs to the tensor and its views, not to the new storage.
        self.extras().own_version.get_or_init(|| VersionCounter::Memory(self.0.storage.clone()));
        let device = device_bit(spec.device);
        self.extras().replaced.get_or_init(|| Box::new(Replaced::new(storage.clone()))).set(storage, spec);
        self.set_flag(REPLACED | OWN_VERSION | device);
        self.clear_flag(DEVICES & !device);
    }

    // ---- versions

    #[inline]
    pub(crate) fn version_counter(&self) -> u32 {
        if self.flags() & OWN_VERSION != 0 {
            return self.extras().own_version.get().map_or(0, VersionCounter::get);
        }
        self.0.storage.version()
    }

    /// How often the memory was written in place; an error for inference tensors.
    #[track_caller]
    pub fn try_version(&self) -> Result<u32> {
        if let Some(real) = crate::capture::itself(self, "version")? {
            return real.try_version();
        }
        if self.is_inference() {
            return Err(ErrorKind::InferenceVersion.into());
        }
        Ok(self.version_counter())
    }

    /// How often the memory was written in place.
    ///
    /// # Panics
    /// For inference tensors, which do not track it.
    #[track_caller]
    pub fn version(&self) -> u32 {
        self.try_version().unwrap_or_else(|e| panic!("{e}"))
    }

    #[inline]
    pub(crate) fn bump_version(&self) {
        if self.flags() & (OWN_VERSION | INFERENCE) == 0 {
            return self.0.storage.bump_version();
        }
        if self.is_inference() {
            return;
        }
        if let Some(v) = self.extras().own_version.get() {
            v.bump();
        }
    }

    pub(crate) fn set_version_counter(&self, to: u32) {
        match self.extras_if_any().and_then(|e| e.own_version.get()) {
            Some(v) => v.set(to),
            None => self.0.storage.set_version(to),
        }
    }

    /// Makes `alias`, a new tensor over the same memory, count versions together with this one.
    #[inline]
    pub(crate) fn share_version_with(&self, alias: &Tensor) {
        if self.flags() & OWN_VERSION != 0
            && let Some(v) = self.extras().own_version.get()
        {
            let _ = alias.extras().own_version.set(v.clone());
            alias.set_flag(OWN_VERSION);
        }
    }

    /// Gives a tensor that has not been shared yet its own version counter.
    pub(crate) fn counting_alone(self) -> Tensor {
        let _ = self.extras().own_version.set(VersionCounter::Own(Default::default()));
        self.set_flag(OWN_VERSION);
        self
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

    /// As [`Tensor::alias_with`], with elements of another type over the same bytes.
    pub(crate) fn alias_as(&self, spec: Spec) -> Tensor {
        let kept = self.flags() & (INFERENCE | BIRTH | WRAPPED);
        let alias = Tensor(Arc::new(Inner {
            storage: self.storage().clone(),
            flags: AtomicU32::new(kept | device_bit(spec.device)),
            spec,
            grad_fn: None,
            extras: OnceLock::new(),
        }));
        self.share_version_with(&alias);
        if kept & WRAPPED != 0
            && let Some(w) = self.wrapped()
        {
            debug_assert!(alias.shape() == self.shape(), "a wrapper is cut by ops, one level down");
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
        let out = Tensor::from_parts(value.storage().clone(), spec, value.flags() & (INFERENCE | WRAPPED_NUMBER));
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
            return Err(ErrorKind::BatchedData { op }.into());
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
