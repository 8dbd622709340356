//! Products of matrices in slices, by the kernel that serves tensors.
#![allow(unsafe_code)]

use super::Number;
use crate::{View, ViewMut};

/// `A B` for `a` (m × k, elements of a row `strides[1]` apart, rows `strides[0]`) and row-major `b` (k × n) and `out`.
///
/// # Panics
/// If a slice is not as long as its matrix.
pub(super) fn multiply<T: Number>(
    a: &[T],
    strides: [usize; 2],
    b: &[T],
    (m, k, n): (usize, usize, usize),
    out: &mut [T],
) {
    assert!(a.len() == m * k && b.len() == k * n && out.len() == m * n, "slices as long as their matrices");
    assert!(strides == [k, 1] || strides == [1, m], "without gaps");
    let (sizes_a, sizes_b, sizes, row_major) = ([m, k], [k, n], [m, n], [n, 1]);
    // SAFETY: m × k elements without gaps, in either order.
    let a = unsafe { View::new(a.as_ptr().cast(), T::DTYPE, &sizes_a, &strides) };
    // SAFETY: row-major strides over k × n elements.
    let b = unsafe { View::new(b.as_ptr().cast(), T::DTYPE, &sizes_b, &row_major) };
    // SAFETY: row-major strides over m × n elements, borrowed exclusively.
    let out = unsafe { ViewMut::new(out.as_mut_ptr().cast(), T::DTYPE, &sizes, &row_major) };
    crate::matmul(a, b, out, 1.0, 0.0);
}
