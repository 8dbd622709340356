//! Eigenvalues and singular values, with their vectors. Values that are not finite never reach an iteration.

use super::{LIBRARY, Number, done, small_eig, small_eigh, small_svd};
use crate::scratch::{Scratch, collected, filled};
use crate::{Complex, DType};

/// Up to this size the plain loops are faster, for real matrices.
const SMALL_EIGH: usize = 24;
const SMALL_SVD: usize = 12;
pub(super) const SMALL_EIG: usize = 80;
/// Up to this size the order of eigenvalues in f32 is worth more than speed.
const FEW_EIG: usize = 16;

/// The power of two next to the largest element, or `None` if there is one that is not finite: matrices are divided by it,
/// so that squares neither overflow nor vanish.
fn scale<T: Number>(a: impl Iterator<Item = T>) -> Option<f64> {
    let mut largest: f64 = 0.0;
    for x in a {
        if !x.finite() {
            return None;
        }
        largest = largest.max(x.weight());
    }
    // Numbers of an ordinary size stay as they are.
    let (low, high) = if T::EPSILON > 1e-10 { (1e-10, 1e10) } else { (1e-70, 1e70) };
    Some(if largest == 0.0 || (low..high).contains(&largest) { 1.0 } else { largest.log2().floor().exp2() })
}

/// The matrix divided by `scale`, if that is not 1.
fn scaled<T: Number>(a: &[T], scale: f64) -> Option<Scratch<T>> {
    (scale != 1.0).then(|| {
        let mut a = Scratch::copy_of(a);
        a.iter_mut().for_each(|x| *x = *x / T::real(scale));
        a
    })
}

/// Eigenvalues of the self-adjoint matrix of which `a` (n × n) holds the lower triangle in ascending order, and
/// orthonormal eigenvectors as the columns of `vectors` (n × n, or empty if not needed). Returns 0, or how many
/// eigenvalues did not converge.
pub fn eigh<T: Number>(a: &[T], n: usize, values: &mut [f64], vectors: &mut [T]) -> i32 {
    let lower = (0..n).flat_map(|j| a[j * n + j..(j + 1) * n].iter().copied());
    let Some(scale) = scale(lower) else {
        values.fill(f64::NAN);
        vectors.fill(T::real(f64::NAN));
        return 0;
    };
    let wanted = !vectors.is_empty();
    if (n <= SMALL_EIGH || !LIBRARY) && !T::COMPLEX {
        let wide: Vec<f64> = collected(a.iter().map(|x| x.re() / scale));
        let mut basis = filled(0.0, vectors.len());
        let info = small_eigh::eigh(&wide, n, values, &mut basis);
        values.iter_mut().for_each(|v| *v *= scale);
        vectors.iter_mut().zip(&basis).for_each(|(v, x)| *v = T::real(*x));
        return info;
    }
    let mut found = filled(T::ZERO, n);
    let scaled = scaled(a, scale);
    let converged = done(T::eigh(scaled.as_deref().unwrap_or(a), n, &mut found, wanted.then_some(vectors)));
    values.iter_mut().zip(&found).for_each(|(v, x)| *v = x.re() * scale);
    if converged { 0 } else { n as i32 }
}

/// `A = U diag(s) Vᴴ` for `a` (m × n), singular values descending. `u` is m × k and the conjugate of `V`, which `v`
/// gets, n × l with `min(m, n) <= k <= m` and `min(m, n) <= l <= n`; or both are empty. Returns 0, or 1 if the iteration
/// did not converge (as for numbers that are not finite).
pub fn svd<T: Number>(a: &[T], m: usize, n: usize, u: &mut [T], s: &mut [f64], v: &mut [T]) -> i32 {
    let Some(scale) = scale(a.iter().copied()) else { return 1 };
    if m.min(n) == 0 || (m.min(n) <= SMALL_SVD || !LIBRARY) && !T::COMPLEX {
        let wide: Vec<f64> = collected(a.iter().map(|x| x.re() / scale));
        let (mut left, mut right) = (filled(0.0, u.len()), filled(0.0, v.len()));
        let info = small_svd::svd(&wide, m, n, &mut left, s, &mut right);
        s.iter_mut().for_each(|s| *s *= scale);
        u.iter_mut().zip(&left).for_each(|(u, x)| *u = T::real(*x));
        v.iter_mut().zip(&right).for_each(|(v, x)| *v = T::real(*x));
        return info;
    }
    let wanted = !(u.is_empty() && v.is_empty());
    let (mut found, a_scaled) = (filled(T::ZERO, m.min(n)), scaled(a, scale));
    let a = a_scaled.as_deref().unwrap_or(a);
    let converged = done(T::svd(a, m, n, &mut found, wanted.then_some(&mut *u), wanted.then_some(&mut *v)));
    s.iter_mut().zip(&found).for_each(|(s, x)| *s = x.re() * scale);
    if T::COMPLEX {
        v.iter_mut().for_each(|v| *v = v.conj());
    }
    i32::from(!converged)
}

/// Eigenvalues of `a` (n × n) and its right eigenvectors as the columns of `vectors` (n × n, or empty if not needed),
/// of norm 1 and, those that are complex, with a real largest component. Returns 0, or `n` if nothing converged.
pub fn eig<T: Number>(a: &[T], n: usize, values: &mut [Complex<f64>], vectors: &mut [Complex<f64>]) -> i32 {
    let Some(scale) = scale(a.iter().copied()) else { return n as i32 };
    // In the precision of the matrix: in which order values converge depends on it. For small matrices of f32 the library's
    // order agrees with PyTorch's more often.
    let single = T::DTYPE == DType::F32;
    if n <= SMALL_EIG && !T::COMPLEX && !(single && n <= FEW_EIG && LIBRARY) {
        let info = if single {
            let a: Vec<f32> = collected(a.iter().map(|x| (x.re() / scale) as f32));
            small_eig::eig(&a, n, values, vectors)
        } else {
            let a: Vec<f64> = collected(a.iter().map(|x| x.re() / scale));
            small_eig::eig(&a, n, values, vectors)
        };
        if info != 0 {
            return info;
        }
        values.iter_mut().for_each(|v| *v *= scale);
    } else {
        let zero = T::narrow(Complex::ZERO);
        let (mut found, mut basis) = (filled(zero, n), filled(zero, vectors.len()));
        let wanted = !vectors.is_empty();
        let scaled = scaled(a, scale);
        if !done(T::eig(scaled.as_deref().unwrap_or(a), n, &mut found, wanted.then_some(&mut basis[..]))) {
            return n as i32;
        }
        values.iter_mut().zip(&found).for_each(|(v, x)| *v = T::widen(*x) * scale);
        vectors.iter_mut().zip(&basis).for_each(|(v, x)| *v = T::widen(*x));
        // Where many eigenvalues coincide the library's vectors overflow: no answer is better than one that is not finite.
        if vectors.iter().any(|v| !v.is_finite()) {
            return n as i32;
        }
    }
    for (k, vector) in vectors.chunks_exact_mut(n.max(1)).enumerate() {
        let norm = vector.iter().map(Complex::norm_sqr).sum::<f64>().sqrt();
        let mut by = Complex::new(1.0 / norm, 0.0);
        if T::COMPLEX || values[k].im != 0.0 {
            let largest = vector.iter().max_by(|a, b| a.norm_sqr().total_cmp(&b.norm_sqr())).copied();
            let largest = largest.unwrap_or(Complex::ONE);
            by *= largest.conj() / largest.norm();
        }
        vector.iter_mut().for_each(|v| *v *= by);
    }
    0
}
