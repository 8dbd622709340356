//! LU factors with partial pivoting: `P A = L U`, and systems, inverses and determinants from them.

use super::two_rows;
use super::{add_scaled, triangular::Triangle, triangular::solve_triangular};
use crate::scratch::{collected, filled};

/// Replaces `a` (n × n) by its factors: `U` on and above the diagonal, `L` without its unit diagonal below.
/// Step k exchanged rows `k` and `pivots[k] - 1`. Returns the first k (from 1) with `U[k, k] = 0`, else 0.
pub fn factor(a: &mut [f64], n: usize, pivots: &mut [f64]) -> i32 {
    let mut info = 0;
    for k in 0..n {
        let mut p = k;
        for i in k + 1..n {
            if a[i * n + k].abs() > a[p * n + k].abs() {
                p = i;
            }
        }
        pivots[k] = (p + 1) as f64;
        if p != k {
            let (x, y) = two_rows(a, n, k, p);
            x.swap_with_slice(y);
        }
        let pivot = a[k * n + k];
        if pivot == 0.0 {
            if info == 0 {
                info = (k + 1) as i32;
            }
            continue;
        }
        for i in k + 1..n {
            let (from, row) = two_rows(a, n, k, i);
            let l = row[k] / pivot;
            row[k] = l;
            add_scaled(-l, &from[k + 1..], &mut row[k + 1..]);
        }
    }
    info
}

/// Replaces `b` (n × k) by the solution of `A X = B`, given the factors of `A`.
pub fn solve_factored(lu: &[f64], pivots: &[f64], n: usize, b: &mut [f64], k: usize) {
    for (i, p) in pivots.iter().enumerate() {
        let p = *p as usize - 1;
        if p != i {
            let (x, y) = two_rows(b, k, i, p);
            x.swap_with_slice(y);
        }
    }
    solve_triangular(lu, n, Triangle { upper: false, unit: true }, b, k);
    solve_triangular(lu, n, Triangle { upper: true, unit: false }, b, k);
}

/// The inverse of `a`; its elements are not finite where `a` is singular.
pub fn inverse(a: &[f64], n: usize, out: &mut [f64]) -> i32 {
    let (mut lu, mut pivots) = (collected(a.iter().copied()), filled(0.0, n));
    let info = factor(&mut lu, n, &mut pivots);
    out.copy_from_slice(&super::identity(n));
    solve_factored(&lu, &pivots, n, out, n);
    info
}

/// Sign and logarithm of the absolute value of the determinant, and the determinant itself, from the factors.
pub fn log_abs_determinant(lu: &[f64], pivots: &[f64], n: usize) -> (f64, f64, f64) {
    let swaps = pivots.iter().enumerate().filter(|(i, p)| **p as usize - 1 != *i).count();
    let (mut sign, mut log, mut product) = (1.0, 0.0, 1.0);
    if swaps % 2 == 1 {
        (sign, product) = (-1.0, -1.0);
    }
    for d in lu.iter().step_by(n + 1) {
        sign *= if *d == 0.0 { 0.0 } else { d.signum() };
        log += d.abs().ln();
        product *= d;
    }
    (sign, log, product)
}
