//! Eigenvalues and eigenvectors of small symmetric matrices: reflections make them tridiagonal, rotations diagonal.

use super::householder::{reflect, reflector};
use super::{add_scaled, dot, fill_identity, rotate, two_columns};
use crate::scratch::{collected, filled, room};

/// Steps of the iteration allowed for one eigenvalue; two or three are usual.
const MOST_STEPS: usize = 60;

/// Eigenvalues of `a` (n × n, lower triangle read, finite) in ascending order, and orthonormal eigenvectors as the columns
/// of `vectors` (n × n, or empty if not needed). Returns 0, or how many eigenvalues did not converge.
pub(super) fn eigh(a: &[f64], n: usize, values: &mut [f64], vectors: &mut [f64]) -> i32 {
    if n == 0 {
        return 0;
    }
    let (mut d, mut e, mut basis) = tridiagonal(a, n, !vectors.is_empty());
    let info = diagonalise(&mut d, &mut e, &mut basis, n);
    let mut order: Vec<usize> = collected(0..n);
    order.sort_by(|&i, &j| d[i].total_cmp(&d[j]));
    order.iter().zip(values).for_each(|(&from, value)| *value = d[from]);
    for (&from, vector) in order.iter().zip(vectors.chunks_exact_mut(n)) {
        vector.copy_from_slice(&basis[from * n..(from + 1) * n]);
    }
    info
}

/// Diagonal, off-diagonal and (if wanted) the orthogonal `Q` of `A = Q T Qᵀ`.
fn tridiagonal(a: &[f64], n: usize, with_basis: bool) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let at = |k: usize| (k / n, k % n);
    let mut a: Vec<f64> = collected((0..n * n).map(at).map(|(i, j)| a[i.min(j) * n + i.max(j)]));
    let mut e = filled(0.0, n);
    let mut reflections = room(n);
    for k in 0..n.saturating_sub(1) {
        let mut v: Vec<f64> = collected((k + 1..n).map(|i| a[i * n + k]));
        let tau = reflector(&mut v);
        e[k] = std::mem::replace(&mut v[0], 1.0);
        if tau != 0.0 {
            // H A H = A - v wᵀ - w vᵀ with w = p - (tau/2)(p·v) v, p = tau A v.
            let mut w: Vec<f64> = collected((k + 1..n).map(|i| tau * dot(&a[i * n + k + 1..(i + 1) * n], &v)));
            add_scaled(-0.5 * tau * dot(&w, &v), &v, &mut w);
            for i in k + 1..n {
                let row = &mut a[i * n + k + 1..(i + 1) * n];
                add_scaled(-v[i - k - 1], &w, row);
                add_scaled(-w[i - k - 1], &v, row);
            }
        }
        reflections.push((v, tau));
    }
    let mut q = filled(0.0, if with_basis { n * n } else { 0 });
    if with_basis {
        fill_identity(&mut q, n);
        for (k, (v, tau)) in reflections.iter().enumerate().rev() {
            reflect(&v[1..], *tau, &mut q[(k + 1) * n..], n, k + 1);
        }
    }
    (collected(a.iter().step_by(n + 1).copied()), e, q)
}

/// Implicitly shifted QL steps until the off-diagonal `e` (of `n - 1` numbers, one spare) vanishes. Rotations go to the
/// columns of `z`, if it has any.
fn diagonalise(d: &mut [f64], e: &mut [f64], z: &mut [f64], n: usize) -> i32 {
    for low in 0..n {
        for step in 0.. {
            let small = |k: &usize| e[*k].abs() <= f64::EPSILON * (d[*k].abs() + d[*k + 1].abs());
            let high = (low..n - 1).find(small).unwrap_or(n - 1);
            if high == low {
                break;
            }
            if step == MOST_STEPS {
                return (n - low) as i32;
            }
            ql_step(d, e, z, n, low, high);
        }
    }
    0
}

/// One step on the block `low..=high`, with Wilkinson's shift.
fn ql_step(d: &mut [f64], e: &mut [f64], z: &mut [f64], n: usize, low: usize, high: usize) {
    let half = (d[low + 1] - d[low]) / (2.0 * e[low]);
    let mut bulge = d[high] - d[low] + e[low] / (half + half.hypot(1.0).copysign(half));
    let (mut s, mut c, mut shift) = (1.0, 1.0, 0.0);
    for i in (low..high).rev() {
        let (f, b) = (s * e[i], c * e[i]);
        let r = f.hypot(bulge);
        e[i + 1] = r;
        if r == 0.0 {
            // The block falls apart here: what was done so far stands.
            d[i + 1] -= shift;
            e[high] = 0.0;
            return;
        }
        (s, c) = (f / r, bulge / r);
        let g = d[i + 1] - shift;
        let t = (d[i] - g) * s + 2.0 * c * b;
        shift = s * t;
        d[i + 1] = g + shift;
        bulge = c * t - b;
        if !z.is_empty() {
            let (x, y) = two_columns(z, n, i, i + 1);
            rotate(x, y, c, s);
        }
    }
    d[low] -= shift;
    e[low] = bulge;
    e[high] = 0.0;
}
