//! Matrix decompositions, and what is computed from them.
//!
//! One function handles one column-major matrix; [`batched`] runs one over many, in parallel by matrix. LU is computed here; else large matrices go
//! to `firebrand-linalg` (if the build has it); small ones, those of LAPACK's special cases (singular, not definite, without full rank) and
//! Householder reflections of complex numbers are computed by the plain loops here. A matrix's results never depend on
//! its neighbors in the batch nor on the number of threads.
//!
//! Signs and pivots are LAPACK's where those are determined (LU, Cholesky, QR, LDL); eigenvectors and singular vectors
//! have the sign the algorithm leaves them with. Failures are LAPACK's `info`: 0, or where it stopped.
//! Three types compute: f32, f64 and complex f64; complex f32 is widened before and rounded once after.

mod batch;
mod cholesky;
mod exp;
mod householder;
mod ldl;
mod library;
mod lstsq;
mod lu;
mod number;
mod pinv;
mod product;
mod small_eig;
mod small_eigh;
mod small_svd;
mod spectral;
#[cfg(test)]
mod tests;
mod triangular;

pub use batch::batched;
pub use cholesky::cholesky;
pub use exp::matrix_exp;
pub use householder::{multiply_by_q, orthogonal, qr, reflections};
pub use ldl::{ldl, solve_ldl};
pub use library::{Field, LIBRARY, Triangle};
pub use lstsq::least_squares;
pub use lu::{factor, inverse, log_abs_determinant, solve_factored};
pub use number::Number;
pub use pinv::{Cutoff, pseudo_inverse};
pub use spectral::{eig, eigh, svd};
pub use triangular::solve_triangular;

use crate::scratch;

/// What a decomposition answered; running out of memory leaves the kernel.
fn done<R>(answer: Result<R, library::OutOfMemory>) -> R {
    answer.unwrap_or_else(|e| scratch::raise(crate::OutOfMemory { bytes: e.bytes }))
}

/// `y += a x`.
#[inline(always)]
fn add_scaled<T: Number>(a: T, x: &[T], y: &mut [T]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = *y + a * *x;
    }
}

/// `Σ conj(x) y`, in four running sums so that it vectorises.
#[inline(always)]
fn dot<T: Number>(x: &[T], y: &[T]) -> T {
    let mut sums = [T::ZERO; 4];
    let (xs, ys) = (x.chunks_exact(4), y.chunks_exact(4));
    let rest = xs.remainder().iter().zip(ys.remainder()).fold(T::ZERO, |s, (a, b)| s + a.conj() * *b);
    for (a, b) in xs.zip(ys) {
        for k in 0..4 {
            sums[k] = sums[k] + a[k].conj() * b[k];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// Columns `i < j` of a matrix of `m` rows.
#[inline(always)]
fn two_columns<T>(a: &mut [T], m: usize, i: usize, j: usize) -> (&mut [T], &mut [T]) {
    debug_assert!(i < j);
    let (head, tail) = a.split_at_mut(j * m);
    (&mut head[i * m..(i + 1) * m], &mut tail[..m])
}

/// Two vectors turned by an angle: `x, y = c x - s y, s x + c y`.
#[inline(always)]
fn rotate(x: &mut [f64], y: &mut [f64], c: f64, s: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

/// Ones on the diagonal of a matrix of `m` rows, zeros elsewhere.
fn fill_identity<T: Number>(a: &mut [T], m: usize) {
    a.fill(T::ZERO);
    a.iter_mut().step_by(m + 1).for_each(|d| *d = T::ONE);
}
