//! Singular values and vectors of small real matrices by one-sided Jacobi rotations: pairs of columns are turned until all are orthogonal.
//! Small singular values come out with high relative accuracy.

use super::householder::qr;
use super::{dot, fill_identity, rotate, two_columns};
use crate::scratch::{collected, filled, room};

/// Sweeps over all pairs; six to ten are usual.
const MOST_SWEEPS: usize = 60;

/// `A = U diag(s) Vᵀ` for `a` (m × n, finite), singular values descending. `u` is m × k and `v` n × l with
/// `min(m, n) <= k <= m` and `min(m, n) <= l <= n`, or both empty. Returns 0, or 1 if the iteration did not converge.
pub(super) fn svd(a: &[f64], m: usize, n: usize, u: &mut [f64], s: &mut [f64], v: &mut [f64]) -> i32 {
    // The columns (rows, for a wide matrix) as contiguous vectors.
    let wide = m < n;
    let (count, len) = (m.min(n), m.max(n));
    let mut left: Vec<f64> =
        if wide { collected((0..m * n).map(|k| a[(k % n) * m + k / n])) } else { collected(a.iter().copied()) };
    let mut right = filled(0.0, if u.is_empty() && v.is_empty() { 0 } else { count * count });
    fill_identity(&mut right, count);
    if !orthogonalise(&mut left, len, &mut right, count) {
        return 1;
    }
    let norms: Vec<f64> = collected(left.chunks_exact(len.max(1)).map(|x| dot(x, x).sqrt()));
    let mut order: Vec<usize> = collected(0..count);
    order.sort_by(|&i, &j| norms[j].total_cmp(&norms[i]));
    order.iter().zip(s).for_each(|(&i, s)| *s = norms[i]);
    if right.is_empty() {
        // No vectors wanted, or none there are but those that complete a basis.
        fill_identity(u, m);
        fill_identity(v, n);
        return 0;
    }
    let unit = order
        .iter()
        .map(|&i| (norms[i] > 0.0).then(|| collected(left[i * len..(i + 1) * len].iter().map(|x| x / norms[i]))));
    let unit: Vec<Option<Vec<f64>>> = collected(unit);
    let turned: Vec<Option<Vec<f64>>> =
        collected(order.iter().map(|&i| Some(collected(right[i * count..(i + 1) * count].iter().copied()))));
    let (of_u, of_v) = if wide { (turned, unit) } else { (unit, turned) };
    let (k, l) = (u.len() / m.max(1), v.len() / n.max(1));
    for (column, x) in u.chunks_exact_mut(m.max(1)).zip(completed(of_u, m, k)) {
        column.copy_from_slice(&x);
    }
    for (column, x) in v.chunks_exact_mut(n.max(1)).zip(completed(of_v, n, l)) {
        column.copy_from_slice(&x);
    }
    0
}

/// Turns pairs of the vectors of `left`, and those of `right` alike, until no two of `left` have an inner product.
fn orthogonalise(left: &mut [f64], len: usize, right: &mut [f64], count: usize) -> bool {
    let tolerance = f64::EPSILON * (len as f64).sqrt();
    for _ in 0..MOST_SWEEPS {
        let mut worst: f64 = 0.0;
        for p in 0..count {
            for q in p + 1..count {
                let (x, y) = two_columns(left, len, p, q);
                let (xx, yy, xy) = (dot(x, x), dot(y, y), dot(x, y));
                let size = (xx * yy).sqrt();
                if xy.abs() <= tolerance * size || size == 0.0 {
                    continue;
                }
                worst = worst.max(xy.abs() / size);
                let zeta = (yy - xx) / (2.0 * xy);
                let t = 1.0f64.copysign(zeta) / (zeta.abs() + zeta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                rotate(x, y, c, c * t);
                if !right.is_empty() {
                    let (x, y) = two_columns(right, count, p, q);
                    rotate(x, y, c, c * t);
                }
            }
        }
        if worst == 0.0 {
            return true;
        }
    }
    false
}

/// The `wanted` first orthonormal vectors of `len` numbers, where those missing are any that complete a basis.
fn completed(vectors: Vec<Option<Vec<f64>>>, len: usize, wanted: usize) -> Vec<Vec<f64>> {
    let known: Vec<&Vec<f64>> = vectors.iter().flatten().collect();
    let mut spare = Vec::new();
    if known.len() < wanted {
        let mut columns: Vec<f64> = room(len * known.len());
        known.iter().for_each(|v| columns.extend_from_slice(v));
        let mut q = filled(0.0, len * len);
        qr(&columns, len, known.len(), &mut q, &mut [], 0);
        spare = collected(q.chunks_exact(len.max(1)).skip(known.len()).map(|v| collected(v.iter().copied())));
    }
    let mut spare = spare.into_iter();
    let rest = std::iter::repeat(None);
    vectors.into_iter().chain(rest).take(wanted).filter_map(|v| v.or_else(|| spare.next())).collect()
}
