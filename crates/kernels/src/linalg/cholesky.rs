//! The Cholesky factor of a self-adjoint positive-definite matrix.

use super::{Number, add_scaled, done, two_columns};
use crate::scratch::collected;

/// Up to this size the plain loops are faster.
const SMALL: usize = 32;

/// Replaces `a` (n × n, lower triangle read) by the lower triangular `L` with `A = L Lᴴ`. Returns the order of the
/// first leading minor that is not positive, else 0; rows and columns from there on are zero.
pub fn cholesky<T: Number>(a: &mut [T], n: usize) -> i32 {
    let mut info = 0;
    if n <= SMALL {
        info = plain(a, n);
    } else {
        let before: Vec<T> = collected(a.iter().copied());
        if !done(T::cholesky(a, n)) || !a.iter().step_by(n + 1).all(|d| d.finite()) {
            // Where it stops is LAPACK's to say.
            a.copy_from_slice(&before);
            info = plain(a, n);
        }
    }
    (1..n).for_each(|j| a[j * n..j * n + j].fill(T::ZERO));
    info
}

fn plain<T: Number>(a: &mut [T], n: usize) -> i32 {
    for j in 0..n {
        for k in 0..j {
            let (from, to) = two_columns(a, n, k, j);
            add_scaled(-from[j].conj(), &from[j..], &mut to[j..]);
        }
        let pivot = a[j * n + j].re();
        if pivot.is_nan() || pivot <= 0.0 {
            (0..j).for_each(|k| a[k * n + j..(k + 1) * n].fill(T::ZERO));
            a[j * n..].fill(T::ZERO);
            return (j + 1) as i32;
        }
        let root = pivot.sqrt();
        let inverse = T::real(1.0) / T::real(root);
        a[j * n + j + 1..(j + 1) * n].iter_mut().for_each(|x| *x = *x * inverse);
        a[j * n + j] = T::real(root);
    }
    0
}
