//! Conversions between slices of Rust values and strided memory, with a cast.
#![allow(unsafe_code)]

use crate::{Element, View, ViewMut, copy};

/// Fills `dst`, row by row, with the values of a slice.
///
/// # Panics
/// If the number of elements differs.
pub fn write_slice<T: Element>(src: &[T], dst: ViewMut) {
    assert_eq!(src.len(), dst.numel(), "as many numbers as elements");
    let strides = row_major(dst.sizes());
    // SAFETY: row-major strides over a slice with as many elements.
    copy(unsafe { View::new(src.as_ptr().cast(), T::DTYPE, dst.sizes(), &strides) }, dst)
}

/// Fills a slice with the elements of `src`, row by row.
///
/// # Panics
/// If the number of elements differs.
pub fn read_slice<T: Element>(src: View, dst: &mut [T]) {
    assert_eq!(dst.len(), src.numel(), "as many numbers as elements");
    let strides = row_major(src.sizes());
    // SAFETY: row-major strides over a slice with as many elements, borrowed exclusively; every cast writes valid values,
    // and a copy of truth values, which moves bytes, is made one below.
    copy(src, unsafe { ViewMut::new(dst.as_mut_ptr().cast(), T::DTYPE, src.sizes(), &strides) });
    if !T::ANY_BYTES {
        let bytes = dst.as_mut_ptr().cast::<u8>();
        for i in 0..size_of_val(dst) {
            // SAFETY: inside the slice, which is reached through this pointer alone until every byte is 0 or 1.
            unsafe { bytes.add(i).write(u8::from(bytes.add(i).read() != 0)) }
        }
    }
}

fn row_major(sizes: &[usize]) -> smallvec::SmallVec<[usize; 8]> {
    let mut strides: smallvec::SmallVec<[usize; 8]> = smallvec::smallvec![0; sizes.len()];
    let mut step = 1;
    for k in (0..sizes.len()).rev() {
        strides[k] = step;
        step *= sizes[k].max(1);
    }
    strides
}
