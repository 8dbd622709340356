//! Decompositions of real matrices, and what is computed from them.
//!
//! One function handles one row-major matrix in f64; [`batched`] runs one over many, in parallel by matrix only, so that
//! results do not depend on the number of threads. Narrower types are widened before and rounded once after.
//! Signs and pivots follow LAPACK's conventions where those are determined (LU, Cholesky, QR); eigenvectors and singular
//! vectors have the sign the algorithm leaves them with. Failures are LAPACK's `info`: 0, or where it stopped.
//! The algorithms are the plain unblocked ones: exact to rounding, meant for matrices of up to some hundreds of rows.

mod batch;
mod cholesky;
mod eigh;
mod householder;
mod lu;
mod svd;
#[cfg(test)]
mod tests;
mod triangular;

pub use batch::batched;
pub use cholesky::cholesky;
pub use eigh::eigh;
pub use householder::qr;
pub use lu::{factor, inverse, log_abs_determinant, solve_factored};
pub use svd::svd;
pub use triangular::{Triangle, solve_triangular};

/// `y += a x`.
#[inline]
fn add_scaled(a: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// The inner product, in eight running sums so that it vectorises.
#[inline]
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (xs, ys) = (x.chunks_exact(8), y.chunks_exact(8));
    let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in xs.zip(ys) {
        for k in 0..8 {
            sums[k] += a[k] * b[k];
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Rows `i < j` of a matrix of `n` columns.
#[inline]
fn two_rows(a: &mut [f64], n: usize, i: usize, j: usize) -> (&mut [f64], &mut [f64]) {
    debug_assert!(i < j);
    let (head, tail) = a.split_at_mut(j * n);
    (&mut head[i * n..(i + 1) * n], &mut tail[..n])
}

/// Two vectors turned by an angle: `x, y = c x - s y, s x + c y`.
#[inline]
fn rotate(x: &mut [f64], y: &mut [f64], c: f64, s: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

/// The identity.
fn identity(n: usize) -> Vec<f64> {
    let mut a = crate::scratch::filled(0.0, n * n);
    a.iter_mut().step_by(n + 1).for_each(|d| *d = 1.0);
    a
}
