//! Systems with a triangular matrix.

use super::{add_scaled, two_rows};

/// Which triangle of a matrix is read, and whether its diagonal is taken to be ones.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    /// The upper one.
    pub upper: bool,
    /// Ones on the diagonal, whatever is stored there.
    pub unit: bool,
}

/// Replaces `b` (n × k) by the solution of `A X = B`; only the named triangle of `a` (n × n) is read.
pub fn solve_triangular(a: &[f64], n: usize, triangle: Triangle, b: &mut [f64], k: usize) {
    for step in 0..n {
        let i = if triangle.upper { n - 1 - step } else { step };
        for j in if triangle.upper { i + 1..n } else { 0..i } {
            let (x, y) = two_rows(b, k, i.min(j), i.max(j));
            let (row, known) = if i < j { (x, y) } else { (y, x) };
            add_scaled(-a[i * n + j], known, row);
        }
        if !triangle.unit {
            b[i * k..(i + 1) * k].iter_mut().for_each(|x| *x /= a[i * n + i]);
        }
    }
}
