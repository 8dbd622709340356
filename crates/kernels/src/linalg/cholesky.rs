//! The Cholesky factor of a symmetric positive-definite matrix.

use super::dot;

/// The lower triangular `L` with `A = L Lᵀ`, from the lower triangle of `a` (n × n). Returns the order of the first
/// leading minor that is not positive, else 0; rows from there on are zero.
pub fn cholesky(a: &[f64], n: usize, l: &mut [f64]) -> i32 {
    l.fill(0.0);
    for i in 0..n {
        let (done, rest) = l.split_at_mut(i * n);
        let row = &mut rest[..n];
        for j in 0..i {
            let other = &done[j * n..(j + 1) * n];
            row[j] = (a[i * n + j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let square = a[i * n + i] - dot(&row[..i], &row[..i]);
        if square.is_nan() || square <= 0.0 {
            row.fill(0.0);
            return (i + 1) as i32;
        }
        row[i] = square.sqrt();
    }
    0
}
