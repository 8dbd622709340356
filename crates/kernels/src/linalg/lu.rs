//! LU factors with partial pivoting: `P A = L U`, and systems, inverses and determinants from them.

use super::{Number, Triangle, add_scaled, done, solve_triangular, two_columns};
use crate::scratch::{collected, filled};

/// Up to this size the plain loops are faster.
const SMALL: usize = 32;

/// Replaces `a` (m × n) by its factors: `U` on and above the diagonal, `L` without its unit diagonal below.
/// Step k exchanged rows `k` and `pivots[k] - 1`. Returns the first k (from 1) with `U[k, k] = 0`, else 0.
pub fn factor<T: Number>(a: &mut [T], m: usize, n: usize, pivots: &mut [i32]) -> i32 {
    if m.min(n) <= SMALL {
        return plain(a, m, n, pivots);
    }
    let before: Vec<T> = collected(a.iter().copied());
    if whole(a, m, n, pivots) {
        return 0;
    }
    a.copy_from_slice(&before);
    plain(a, m, n, pivots)
}

/// By the library at once. False if a pivot is zero or not finite.
fn whole<T: Number>(a: &mut [T], m: usize, n: usize, pivots: &mut [i32]) -> bool {
    let mut rows = filled(0, m);
    if !done(T::lu(a, m, n, &mut rows)) {
        return false;
    }
    // Which exchanges lead to this order of the rows: step k fetched row `rows[k]` from where it was by then.
    let (mut holds, mut place): (Vec<usize>, Vec<usize>) = (collected(0..m), collected(0..m));
    for (k, pivot) in pivots.iter_mut().enumerate() {
        let (from, displaced) = (place[rows[k]], holds[k]);
        *pivot = (from + 1) as i32;
        (holds[from], place[displaced]) = (displaced, from);
        (holds[k], place[rows[k]]) = (rows[k], k);
    }
    true
}

fn plain<T: Number>(a: &mut [T], m: usize, n: usize, pivots: &mut [i32]) -> i32 {
    let mut info = 0;
    for k in 0..m.min(n) {
        let column = &a[k * m..(k + 1) * m];
        let mut p = k;
        for i in k + 1..m {
            if column[i].weight() > column[p].weight() {
                p = i;
            }
        }
        pivots[k] = (p + 1) as i32;
        if p != k {
            (0..n).for_each(|j| a.swap(j * m + k, j * m + p));
        }
        let pivot = a[k * m + k];
        if pivot == T::ZERO {
            if info == 0 {
                info = (k + 1) as i32;
            }
        } else {
            let (inverse, below) = (T::ONE / pivot, &mut a[k * m + k + 1..(k + 1) * m]);
            // As in LAPACK: by the reciprocal, unless it overflows.
            match inverse.finite() {
                true => below.iter_mut().for_each(|x| *x = *x * inverse),
                false => below.iter_mut().for_each(|x| *x = *x / pivot),
            }
        }
        for j in k + 1..n {
            let (l, column) = two_columns(a, m, k, j);
            add_scaled(-column[k], &l[k + 1..], &mut column[k + 1..]);
        }
    }
    info
}

/// Exchanges the rows of `b` (n rows) as the factorisation did, or undoes that.
fn exchange<T>(pivots: &[i32], n: usize, b: &mut [T], back: bool) {
    for x in b.chunks_exact_mut(n.max(1)) {
        let mut swap = |i: usize| {
            // Pivots may be a caller's own: what lies outside moves nothing.
            let p = (pivots[i].max(1) - 1) as usize;
            if p != i && p < n {
                x.swap(i, p);
            }
        };
        if back { (0..pivots.len()).rev().for_each(&mut swap) } else { (0..pivots.len()).for_each(&mut swap) }
    }
}

/// Replaces `b` (n × k) by the solution of `A X = B`, or of `Aᴴ X = B`, given the factors of `A`.
pub fn solve_factored<T: Number>(lu: &[T], pivots: &[i32], n: usize, adjoint: bool, b: &mut [T], k: usize) {
    let lower = Triangle { upper: false, unit: true, transposed: false, conjugated: false };
    let upper = Triangle { upper: true, unit: false, ..lower };
    let turned = |t: Triangle| Triangle { upper: !t.upper, transposed: true, conjugated: true, ..t };
    if adjoint {
        solve_triangular(lu, n, turned(upper), b, k);
        solve_triangular(lu, n, turned(lower), b, k);
        exchange(pivots, n, b, true);
    } else {
        exchange(pivots, n, b, false);
        solve_triangular(lu, n, lower, b, k);
        solve_triangular(lu, n, upper, b, k);
    }
}

/// The inverse of `a`; its elements are not finite where `a` is singular.
pub fn inverse<T: Number>(a: &[T], n: usize, out: &mut [T]) -> i32 {
    let (mut lu, mut pivots): (Vec<T>, Vec<i32>) = (collected(a.iter().copied()), filled(0, n));
    let info = factor(&mut lu, n, n, &mut pivots);
    super::fill_identity(out, n);
    solve_factored(&lu, &pivots, n, false, out, n);
    info
}

/// Sign and logarithm of the absolute value of the determinant, and the determinant itself, from the factors.
pub fn log_abs_determinant<T: Number>(lu: &[T], pivots: &[i32], n: usize) -> (T, f64, T) {
    let swaps = pivots.iter().enumerate().filter(|(i, p)| **p != *i as i32 + 1).count();
    let odd = if swaps % 2 == 1 { -T::ONE } else { T::ONE };
    let (mut sign, mut log, mut product) = (odd, 0.0, odd);
    for d in lu.iter().step_by(n + 1) {
        let size = d.size();
        sign = sign * if size == 0.0 { T::ZERO } else { *d / T::real(size) };
        log += size.ln();
        product = product * *d;
    }
    (sign, log, product)
}
