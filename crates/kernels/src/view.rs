//! Strided memory as kernels see it: a pointer to the first element, a dtype, sizes and strides in elements.
//!
//! A view is only made over memory that was checked (by [`crate::Storage::view`]) or that a slice guarantees, so
//! every kernel may trust that each index within `sizes` lies inside. Strides are never negative; a stride of 0 repeats.
#![allow(unsafe_code)]

use crate::{DType, Element};
use std::marker::PhantomData;

/// Elements to read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    ptr: *const u8,
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [usize],
}

/// Elements to write (and read). May alias other views of the same storage: kernels use raw pointers.
#[derive(Clone, Copy, Debug)]
pub struct ViewMut<'a> {
    ptr: *mut u8,
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [usize],
    borrow: PhantomData<&'a u8>,
}

// SAFETY: a view is a pointer into storage that may be shared between threads (see memory.rs for the contract).
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: as above.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for ViewMut<'_> {}

macro_rules! questions {
    () => {
        /// The element type.
        #[inline]
        pub fn dtype(&self) -> DType {
            self.dtype
        }
        /// Sizes of the dimensions.
        #[inline]
        pub fn sizes(&self) -> &'a [usize] {
            self.sizes
        }
        /// Steps between neighbors along each dimension, in elements.
        #[inline]
        pub fn strides(&self) -> &'a [usize] {
            self.strides
        }
        /// Number of dimensions.
        #[inline]
        pub fn ndim(&self) -> usize {
            self.sizes.len()
        }
        /// Number of elements.
        #[inline]
        pub fn numel(&self) -> usize {
            self.sizes.iter().product()
        }
        /// Whether the elements are contiguous in row-major order.
        #[inline]
        pub fn is_contiguous(&self) -> bool {
            is_contiguous(self.sizes, self.strides)
        }
    };
}

/// Whether sizes and strides describe row-major memory without gaps.
#[inline]
pub fn is_contiguous(sizes: &[usize], strides: &[usize]) -> bool {
    let mut step = 1;
    for (&n, &s) in sizes.iter().zip(strides).rev() {
        if n == 0 {
            return true;
        }
        if n != 1 {
            if s != step {
                return false;
            }
            step *= n;
        }
    }
    true
}

impl<'a> View<'a> {
    /// # Safety
    /// Every element that an index within `sizes` reaches from `ptr` is readable as `dtype` for the lifetime.
    #[inline]
    pub unsafe fn new(ptr: *const u8, dtype: DType, sizes: &'a [usize], strides: &'a [usize]) -> View<'a> {
        debug_assert_eq!(sizes.len(), strides.len());
        View { ptr, dtype, sizes, strides }
    }

    questions!();

    /// The first element.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// The first element, typed.
    #[inline]
    pub fn ptr<T: Element>(&self) -> *const T {
        debug_assert_eq!(T::DTYPE, self.dtype);
        self.ptr.cast()
    }

    /// All elements as a slice, if they are contiguous and of this type; never of `bool`, which not every byte is.
    ///
    /// Not for other crates: a holder of the storage may write while the slice lives. A kernel holds it for one call.
    #[inline]
    pub(crate) fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        if T::DTYPE != self.dtype || !T::ANY_BYTES || !self.is_contiguous() {
            return None;
        }
        // SAFETY: contiguous elements of this type, readable by the view's contract. Concurrent writers are excluded
        // by the storage's contract.
        Some(unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.numel()) })
    }

    /// The same memory with other sizes and strides.
    ///
    /// # Safety
    /// As for [`View::new`].
    #[inline]
    pub unsafe fn with_geometry<'b>(&self, offset: usize, sizes: &'b [usize], strides: &'b [usize]) -> View<'b>
    where
        'a: 'b,
    {
        // SAFETY: the caller's promise.
        View { ptr: unsafe { self.ptr.add(offset * self.dtype.size()) }, dtype: self.dtype, sizes, strides }
    }
}

impl<'a> ViewMut<'a> {
    /// # Safety
    /// Every element that an index within `sizes` reaches from `ptr` is readable and writable as `dtype` for the lifetime.
    #[inline]
    pub unsafe fn new(ptr: *mut u8, dtype: DType, sizes: &'a [usize], strides: &'a [usize]) -> ViewMut<'a> {
        debug_assert_eq!(sizes.len(), strides.len());
        ViewMut { ptr, dtype, sizes, strides, borrow: PhantomData }
    }

    questions!();

    /// The first element.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The first element, typed.
    #[inline]
    pub fn ptr<T: Element>(&self) -> *mut T {
        debug_assert_eq!(T::DTYPE, self.dtype);
        self.ptr.cast()
    }

    /// For reading what is there.
    #[inline]
    pub fn as_view(&self) -> View<'a> {
        View { ptr: self.ptr, dtype: self.dtype, sizes: self.sizes, strides: self.strides }
    }

    /// The same memory with other sizes and strides.
    ///
    /// # Safety
    /// As for [`ViewMut::new`].
    #[inline]
    pub unsafe fn with_geometry<'b>(&self, offset: usize, sizes: &'b [usize], strides: &'b [usize]) -> ViewMut<'b>
    where
        'a: 'b,
    {
        ViewMut {
            // SAFETY: the caller's promise.
            ptr: unsafe { self.ptr.add(offset * self.dtype.size()) },
            dtype: self.dtype,
            sizes,
            strides,
            borrow: PhantomData,
        }
    }
}
