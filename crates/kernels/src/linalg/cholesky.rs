//! The Cholesky factor of a self-adjoint positive-definite matrix, row by row.
//!
//! Large matrices by blocks of columns: what is known is taken off a block by one product, which uses all threads; the square on its
//! diagonal is the library's, and the rest of it a triangular system.

use super::product::{Part, add_product};
use super::triangular::solve_columns;
use super::{LIBRARY, Number, Triangle, done, dot};
use crate::scratch::Scratch;

/// Up to this size the plain loops are faster.
const SMALL: usize = 32;
/// Columns of a block.
const BLOCK: usize = 64;

/// Replaces `a` (n × n, row-major, lower triangle read) by the lower triangular `L` with `A = L Lᴴ`. Returns the order of the
/// first leading minor that is not positive, else 0; rows and columns from there on are zero.
pub fn cholesky<T: Number>(a: &mut [T], n: usize) -> i32 {
    let mut info = 0;
    if n <= SMALL || !LIBRARY {
        info = plain(a, n);
    } else {
        let before = Scratch::copy_of(a);
        if !blocked(a, n) || !a.iter().step_by(n + 1).all(|d| d.finite()) {
            // Where it stops is LAPACK's to say.
            a.copy_from_slice(&before);
            info = plain(a, n);
        }
    }
    (0..n).for_each(|i| a[i * n + i + 1..(i + 1) * n].fill(T::ZERO));
    info
}

fn plain<T: Number>(a: &mut [T], n: usize) -> i32 {
    for i in 0..n {
        let (known, row) = a.split_at_mut(i * n);
        let row = &mut row[..n];
        for (j, other) in known.chunks_exact(n).enumerate() {
            row[j] = (row[j] - dot(&other[..j], &row[..j])) / other[j];
        }
        let pivot = row[i].re() - dot(&row[..i], &row[..i]).re();
        if pivot.is_nan() || pivot <= 0.0 {
            a[i * n..].fill(T::ZERO);
            return (i + 1) as i32;
        }
        row[i] = T::real(pivot.sqrt());
    }
    0
}

/// False if the matrix is not positive-definite.
fn blocked<T: Number>(a: &mut [T], n: usize) -> bool {
    let mut panel = Scratch::<T>::new(n * BLOCK);
    let mut square = Scratch::<T>::new(BLOCK * BLOCK);
    let mut adjoint = Scratch::<T>::new(if T::COMPLEX { n * BLOCK } else { 0 });
    for first in (0..n).step_by(BLOCK) {
        let (size, rows) = (BLOCK.min(n - first), n - first);
        // The block's columns from the diagonal down, without gaps.
        let (panel, square) = (&mut panel[..rows * size], &mut square[..size * size]);
        for (to, from) in panel.chunks_exact_mut(size).zip(a[first * n..].chunks_exact(n)) {
            to.copy_from_slice(&from[first..first + size]);
        }
        if first > 0 {
            let left = Part { data: &a[first * n..], sizes: [rows, first], strides: [n, 1] };
            let mut right = Part { data: &a[first * n..], sizes: [first, size], strides: [1, n] };
            if T::COMPLEX {
                let to = &mut adjoint[..first * size];
                for (to, from) in to.chunks_exact_mut(first).zip(a[first * n..].chunks_exact(n)) {
                    to.iter_mut().zip(from).for_each(|(to, x)| *to = x.conj());
                }
                right = Part { data: to, sizes: [first, size], strides: [1, first] };
            }
            add_product(-1.0, left, right, panel, size);
        }
        transpose(&panel[..size * size], square, size);
        if !done(T::cholesky(square, size)) {
            return false;
        }
        let (top, rest) = panel.split_at_mut(size * size);
        // Only the lower triangle is read from now on.
        transpose(square, top, size);
        let triangle = Triangle { upper: false, unit: false, transposed: false, conjugated: T::COMPLEX };
        solve_columns(square, size, triangle, rest, rows - size);
        for (from, to) in panel.chunks_exact(size).zip(a[first * n..].chunks_exact_mut(n)) {
            to[first..first + size].copy_from_slice(from);
        }
    }
    true
}

fn transpose<T: Number>(from: &[T], to: &mut [T], n: usize) {
    for (i, row) in to.chunks_exact_mut(n).enumerate() {
        row.iter_mut().zip(from[i..].iter().step_by(n)).for_each(|(to, x)| *to = *x);
    }
}
