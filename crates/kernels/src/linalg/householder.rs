//! Reflections `H = I - tau v vᵀ`, and the QR decomposition made of them, with LAPACK's choice of signs.

use super::add_scaled;
use crate::scratch::{collected, filled, room};

/// The reflection that maps `x` to a multiple of the first unit vector. Replaces `x` by `v` with `v[0] = 1`;
/// returns tau and the multiple. `tau = 0`: `x` has that direction already, and keeps its sign.
pub(super) fn reflector(x: &mut [f64]) -> (f64, f64) {
    let first = x[0];
    let largest = x[1..].iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    x[0] = 1.0;
    if largest == 0.0 {
        return (0.0, first);
    }
    // Scaled, so that squares neither overflow nor vanish.
    let scale = largest.max(first.abs());
    let squares: f64 = x[1..].iter().map(|v| (v / scale) * (v / scale)).sum();
    let norm = scale * ((first / scale) * (first / scale) + squares).sqrt();
    let beta = if first.is_sign_negative() { norm } else { -norm };
    x[1..].iter_mut().for_each(|v| *v /= first - beta);
    ((beta - first) / beta, beta)
}

/// Applies a reflection to columns `columns..` of the rows of `a` (`n` columns) from row `top` on.
pub(super) fn reflect(v: &[f64], tau: f64, a: &mut [f64], n: usize, top: usize, columns: usize) {
    if tau == 0.0 || columns == n {
        return;
    }
    let mut w = filled(0.0, n - columns);
    for (v, row) in v.iter().zip(a[top * n..].chunks_exact(n)) {
        add_scaled(*v, &row[columns..], &mut w);
    }
    for (v, row) in v.iter().zip(a[top * n..].chunks_exact_mut(n)) {
        add_scaled(-tau * v, &w, &mut row[columns..]);
    }
}

/// `A = Q R` for `a` (m × n): `q` holds the first k columns of the orthogonal factor (m × k, `min(m, n) <= k <= m`;
/// empty for none), `r` the first rows (as many as its length gives) of the triangular one.
pub fn qr(a: &[f64], m: usize, n: usize, q: &mut [f64], r: &mut [f64]) {
    let mut work = collected(a.iter().copied());
    let steps = m.min(n);
    let mut reflections = room(steps);
    for k in 0..steps {
        let mut v: Vec<f64> = collected((k..m).map(|i| work[i * n + k]));
        let (tau, beta) = reflector(&mut v);
        work[k * n + k] = beta;
        (k + 1..m).for_each(|i| work[i * n + k] = 0.0);
        reflect(&v, tau, &mut work, n, k, k + 1);
        reflections.push((v, tau));
    }
    r.copy_from_slice(&work[..r.len()]);
    if m == 0 || q.is_empty() {
        return;
    }
    let k = q.len() / m;
    q.fill(0.0);
    q.iter_mut().step_by(k + 1).take(k).for_each(|d| *d = 1.0);
    for (top, (v, tau)) in reflections.iter().enumerate().rev() {
        reflect(v, *tau, q, k, top, top.min(k));
    }
}
