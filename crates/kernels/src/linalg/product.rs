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

/// An operand of a product inside a slice.
#[derive(Clone, Copy)]
pub(super) struct Part<'a, T> {
    pub(super) data: &'a [T],
    /// Rows and columns.
    pub(super) sizes: [usize; 2],
    /// Elements from one row to the next, and from one column to the next.
    pub(super) strides: [usize; 2],
}

/// `out += alpha A B`, where the rows of `out` are `row` elements apart. On several threads, with results that do not depend on them.
///
/// # Panics
/// If an operand does not lie inside its slice, or rows of `out` overlap.
pub(super) fn add_product<T: Number>(alpha: f64, a: Part<'_, T>, b: Part<'_, T>, out: &mut [T], row: usize) {
    let ([m, k], [inner, n]) = (a.sizes, b.sizes);
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let inside = |p: &Part<'_, T>| (p.sizes[0] - 1) * p.strides[0] + (p.sizes[1] - 1) * p.strides[1] < p.data.len();
    assert!(k == inner && inside(&a) && inside(&b), "operands inside their slices");
    assert!(row >= n && (m - 1) * row + n <= out.len(), "rows of the result side by side inside its slice");
    let (sizes, strides) = ([m, n], [row, 1]);
    // SAFETY: the last element lies inside the slice, so all do.
    let left = unsafe { View::new(a.data.as_ptr().cast(), T::DTYPE, &a.sizes, &a.strides) };
    // SAFETY: as above.
    let right = unsafe { View::new(b.data.as_ptr().cast(), T::DTYPE, &b.sizes, &b.strides) };
    // SAFETY: all rows lie inside the slice, which is borrowed exclusively, and none reaches into the next.
    let out = unsafe { ViewMut::new(out.as_mut_ptr().cast(), T::DTYPE, &sizes, &strides) };
    crate::matmul(left, right, out, alpha, 1.0);
}
