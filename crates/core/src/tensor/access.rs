//! A tensor's memory, for kernels.

use super::replaced::Replaced;
use super::versions::VersionCounter;
use super::{DEVICES, Inner, OWN_VERSION, REPLACED, STAND_IN, Spec, Tensor, WRAPPED, device_bit};
use crate::layout::Layout;
use crate::races::{self, Hold, Role};
use crate::{DType, Device, ErrorKind, Result};
use firebrand_kernels::{Flat, Storage, View, ViewMut};

/// A meta tensor, or a sparse one: memory that must not be accessed.
const META: u32 = device_bit(Device::Meta);

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
    /// Like [`Access::view_as`], for writing.
    #[inline]
    pub(crate) fn view_mut_as<'b>(&'b self, sizes: &'b [usize], strides: &'b [usize]) -> ViewMut<'b> {
        self.storage.view_mut(self.spec.dtype, self.spec.layout.offset(), sizes, strides)
    }
    /// Like [`Access::part`], for writing.
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
    #[inline]
    pub(crate) fn storage(&self) -> StorageRef<'_> {
        if self.flags() & (REPLACED | STAND_IN) == 0 {
            StorageRef::Borrowed(&self.0.storage)
        } else {
            self.other_storage()
        }
    }

    #[cold]
    fn other_storage(&self) -> StorageRef<'_> {
        if let Some(real) = self.here() {
            return StorageRef::Owned(real.storage().clone());
        }
        if self.flags() & REPLACED == 0 {
            return StorageRef::Borrowed(&self.0.storage);
        }
        StorageRef::Owned(self.replaced().both().0)
    }

    /// The elements, if they are of `dtype` in row-major order and the data was never replaced.
    #[inline]
    pub(crate) fn flat(&self, dtype: DType) -> Option<Flat<'_>> {
        let Inner { storage, spec, .. } = &*self.0;
        (self.flags() & (REPLACED | WRAPPED | META) == 0 && spec.layout.is_contiguous() && spec.dtype == dtype)
            .then(|| Flat { storage, offset: spec.layout.offset(), len: spec.layout.numel() })
    }

    /// The memory, for a kernel that reads it. An error if another thread is writing it, where that is checked ([`races`]), and
    /// for a sample of a batch that escaped its `vmap`: it has no data of its own.
    #[inline]
    pub(crate) fn read(&self) -> Result<Access<'_>> {
        self.access(races::hold(self, Role::Reads)?)
    }

    /// Like [`Tensor::read`], for a kernel that writes: nothing else may use the memory at the same time.
    #[inline]
    pub(crate) fn write(&self) -> Result<AccessMut<'_>> {
        self.access(races::hold(self, Role::Writes)?).map(AccessMut)
    }

    /// The memory, for code that uses parts of it (in the sense of [`Access::part`]).
    #[inline]
    pub(crate) fn read_part(&self, part: &Layout) -> Result<Access<'_>> {
        self.access(races::hold_part(self, part, Role::Reads)?)
    }

    /// Like [`Tensor::read_part`], for writing.
    #[inline]
    pub(crate) fn write_part(&self, part: &Layout) -> Result<AccessMut<'_>> {
        self.access(races::hold_part(self, part, Role::Writes)?).map(AccessMut)
    }

    #[inline]
    fn access(&self, hold: Hold) -> Result<Access<'_>> {
        if self.flags() & (WRAPPED | REPLACED | META) == 0 {
            return Ok(Access { storage: StorageRef::Borrowed(&self.0.storage), spec: &self.0.spec, _hold: hold });
        }
        self.access_with_care(hold)
    }

    #[cold]
    fn access_with_care(&self, hold: Hold) -> Result<Access<'_>> {
        if self.flags() & WRAPPED != 0 && !self.is_one_for_all() {
            return Err(ErrorKind::EscapedTensor.into());
        }
        if self.is_sparse() {
            return Err(ErrorKind::SparseData { shape: self.layout().sizes().to_vec() }.into());
        }
        if self.flags() & REPLACED == 0 {
            return Ok(Access { storage: StorageRef::Borrowed(&self.0.storage), spec: &self.0.spec, _hold: hold });
        }
        let (storage, spec) = self.replaced().both();
        Ok(Access { storage: StorageRef::Owned(storage), spec, _hold: hold })
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
}
