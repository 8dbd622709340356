//! Properties of a tensor other than its values: sizes, dtype, device, identity.

use super::replaced::Replaced;
use super::{DEVICES, INFERENCE, REPLACED, STAND_IN, SYMBOLIC, Spec, Tensor, WRAPPED_NUMBER, WeakTensor, device_bit};
use crate::layout::Layout;
use crate::sym::{SymInt, SymInts};
use crate::{DType, Device};
use firebrand_kernels::shared::Arc;

impl Tensor {
    /// Layout, dtype and device.
    #[inline]
    pub fn spec(&self) -> &Spec {
        if self.flags() & (REPLACED | STAND_IN) == 0 { &self.0.spec } else { self.other_spec() }
    }

    /// The description of replaced data, or of the tensor that this one stands for.
    #[cold]
    fn other_spec(&self) -> &Spec {
        if let Some(real) = self.here() {
            return self.extras().stood_for.get_or_init(Default::default).kept(real.spec());
        }
        if self.flags() & REPLACED == 0 { &self.0.spec } else { self.replaced().spec() }
    }

    /// The tensor that this one stands for here, if it stands for one: what methods ask first.
    #[inline]
    pub(crate) fn here(&self) -> Option<Tensor> {
        if self.flags() & STAND_IN == 0 { None } else { self.stood_for_here() }
    }

    #[cold]
    fn stood_for_here(&self) -> Option<Tensor> {
        crate::capture::stands_for(self)
    }

    /// Whether it stands, or stood, for a tensor of a captured function.
    pub fn is_stand_in(&self) -> bool {
        self.flags() & STAND_IN != 0
    }

    /// From now on, methods ask in every `StandInScope` whether this tensor stands for another.
    pub fn mark_stand_in(&self) {
        self.set_flag(STAND_IN)
    }

    #[cold]
    pub(super) fn replaced(&self) -> &Replaced {
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
    #[track_caller]
    pub fn strides(&self) -> &[usize] {
        self.observe_strides(true);
        self.layout().strides()
    }

    /// Position of the first element in the storage, in elements.
    #[track_caller]
    pub fn storage_offset(&self) -> usize {
        let real = crate::capture::expect_itself(self, "storage_offset");
        real.as_ref().unwrap_or(self).layout().offset()
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.layout().ndim()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        if self.flags() & SYMBOLIC != 0 {
            self.observe_sizes();
        }
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
        let flags = self.flags();
        flags & DEVICES == device_bit(Device::Meta)
            && (flags & STAND_IN == 0 || self.here().is_none_or(|real| real.is_meta()))
    }

    /// Whether the elements are contiguous in row-major order.
    #[inline]
    #[track_caller]
    pub fn is_contiguous(&self) -> bool {
        self.observe_strides(false);
        self.layout().is_contiguous()
    }

    #[inline]
    #[track_caller]
    fn observe_strides(&self, exactly: bool) {
        if self.flags() & SYMBOLIC != 0
            && let Some(tracer) = crate::capture::tracer()
        {
            crate::error::expect_ok(tracer.observe_strides(exactly, std::panic::Location::caller()));
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
    #[track_caller]
    pub fn is_inference(&self) -> bool {
        let real = crate::capture::expect_itself(self, "is_inference");
        real.as_ref().unwrap_or(self).is_inference_here()
    }

    /// The same of the tensor itself, for the library's own use: no end of a capture.
    #[inline]
    pub fn is_inference_here(&self) -> bool {
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
        Arc::ptr_eq(&self.0, &other.0) || ((self.flags() | other.flags()) & STAND_IN != 0 && self.is_same_here(other))
    }

    /// Whether both are, or stand for, the same tensor here.
    #[cold]
    fn is_same_here(&self, other: &Tensor) -> bool {
        let (a, b) = (self.here(), other.here());
        Arc::ptr_eq(&a.as_ref().unwrap_or(self).0, &b.as_ref().unwrap_or(other).0)
    }

    /// An id that is unique among living tensors.
    pub fn id(&self) -> usize {
        Arc::addr(&self.0)
    }

    /// Whether both share memory.
    #[track_caller]
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        let real = crate::capture::expect_itself(self, "shares_storage");
        real.as_ref().unwrap_or(self).is_beside(&crate::capture::real(other))
    }

    /// The same of the tensors themselves, for the library's own use: no end of a capture.
    pub(crate) fn is_beside(&self, other: &Tensor) -> bool {
        self.storage().ptr_eq(&other.storage())
    }

    /// How many bytes its memory has, whether this tensor shows them or not.
    #[track_caller]
    pub fn storage_bytes(&self) -> usize {
        let real = crate::capture::expect_itself(self, "storage_bytes");
        real.as_ref().unwrap_or(self).storage().nbytes()
    }

    /// A handle that does not keep the tensor alive.
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.0))
    }

    /// The number of handles.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether this is the only handle, and the only one to its memory.
    #[inline]
    pub(crate) fn is_sole_owner(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some_and(|i| i.storage.is_unique() && *i.flags.get_mut() & REPLACED == 0)
    }
}
