//! Pseudo-inverses.

use super::product::multiply;
use super::{Number, eigh, svd};
use crate::scratch::{Scratch, filled};

/// What of the spectrum counts as zero: up to `absolute`, or up to `relative` times the largest.
#[derive(Clone, Copy, Debug)]
pub struct Cutoff {
    /// In the matrix's own units.
    pub absolute: f64,
    /// Of the largest singular value.
    pub relative: f64,
}

impl Cutoff {
    fn inverses(self, values: &mut [f64]) {
        let largest = values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let limit = self.absolute.max(self.relative * largest);
        values.iter_mut().for_each(|v| *v = if v.abs() > limit { 1.0 / *v } else { 0.0 });
    }
}

/// The pseudo-inverse of `a` (m × n), as a column-major n × m matrix. `hermitian`: only the lower triangle is read.
/// Returns 0, or 1 if singular values did not converge (as for numbers that are not finite).
pub fn pseudo_inverse<T: Number>(
    a: &[T],
    (m, n): (usize, usize),
    cutoff: Cutoff,
    hermitian: bool,
    out: &mut [T],
) -> i32 {
    let k = m.min(n);
    if k == 0 {
        return 0;
    }
    let (mut left, mut values, mut right) = (Scratch::<T>::new(m * k), filled(0.0, k), Scratch::<T>::new(n * k));
    if hermitian {
        if eigh(a, n, &mut values, &mut left) != 0 || values.iter().any(|v| v.is_nan()) {
            return 1;
        }
        right.iter_mut().zip(&*left).for_each(|(r, l)| *r = l.conj());
    } else if svd(a, m, n, &mut left, &mut values, &mut right) != 0 {
        return 1;
    }
    cutoff.inverses(&mut values);
    // The transpose of V S⁺ Uᴴ is conj(U) S⁺ Vᵀ, and row-major as the result is column-major.
    for (column, value) in left.chunks_exact_mut(m).zip(&values) {
        column.iter_mut().for_each(|x| *x = x.conj() * T::real(*value));
    }
    right.iter_mut().for_each(|x| *x = x.conj());
    multiply(&left, [1, m], &right, (m, k, n), out);
    0
}
