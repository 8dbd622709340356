//! Singular values and eigenvalues, with their vectors.

use crate::{OutOfMemory, PAR, Real, Scalar, Wanted, Workspace, filled};
use faer::diag::DiagMut;
use faer::linalg::evd::{self, ComputeEigenvectors};
use faer::linalg::svd::{self as singular, ComputeSvdVectors};
use faer::{ColMut, MatMut, MatRef};
use num_complex::Complex;

fn diagonal<T>(values: &mut [T]) -> DiagMut<'_, T> {
    ColMut::from_slice_mut(values).as_diagonal_mut()
}

pub(crate) fn svd<T: Scalar>(
    a: &[T],
    m: usize,
    n: usize,
    s: &mut [T],
    u: Wanted<'_, T>,
    v: Wanted<'_, T>,
) -> Result<bool, OutOfMemory> {
    let full = |length: usize, rows: usize| {
        if length == rows * rows { ComputeSvdVectors::Full } else { ComputeSvdVectors::Thin }
    };
    let kind = |v: &Wanted<'_, T>, rows: usize| v.as_ref().map_or(ComputeSvdVectors::No, |v| full(v.len(), rows));
    let (kind_u, kind_v) = (kind(&u, m), kind(&v, n));
    let params = Default::default();
    let mut work = Workspace::new(singular::svd_scratch::<T>(m, n, kind_u, kind_v, PAR, params))?;
    let u = u.map(|u| {
        let k = u.len() / m.max(1);
        MatMut::from_column_major_slice_mut(u, m, k)
    });
    let v = v.map(|v| {
        let k = v.len() / n.max(1);
        MatMut::from_column_major_slice_mut(v, n, k)
    });
    let matrix = MatRef::from_column_major_slice(a, m, n);
    Ok(singular::svd(matrix, diagonal(s), u, v, PAR, work.stack(), params).is_ok())
}

pub(crate) fn eigh<T: Scalar>(
    a: &[T],
    n: usize,
    values: &mut [T],
    vectors: Wanted<'_, T>,
) -> Result<bool, OutOfMemory> {
    let kind = if vectors.is_some() { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    let params = Default::default();
    let mut work = Workspace::new(evd::self_adjoint_evd_scratch::<T>(n, kind, PAR, params))?;
    let vectors = vectors.map(|v| MatMut::from_column_major_slice_mut(v, n, n));
    let matrix = MatRef::from_column_major_slice(a, n, n);
    Ok(evd::self_adjoint_evd(matrix, diagonal(values), vectors, PAR, work.stack(), params).is_ok())
}

fn eig_workspace<T: Scalar>(n: usize, vectors: bool) -> Result<Workspace, OutOfMemory> {
    let kind = if vectors { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    Workspace::new(evd::evd_scratch::<T>(n, ComputeEigenvectors::No, kind, PAR, Default::default()))
}

pub(crate) fn eig_complex<R: Real>(
    a: &[Complex<R>],
    n: usize,
    values: &mut [Complex<R>],
    vectors: Wanted<'_, Complex<R>>,
) -> Result<bool, OutOfMemory> {
    let mut work = eig_workspace::<Complex<R>>(n, vectors.is_some())?;
    let vectors = vectors.map(|v| MatMut::from_column_major_slice_mut(v, n, n));
    let matrix = MatRef::from_column_major_slice(a, n, n);
    let params = Default::default();
    Ok(evd::evd_cplx(matrix, diagonal(values), None, vectors, PAR, work.stack(), params).is_ok())
}

pub(crate) fn eig_real<R: Real>(
    a: &[R],
    n: usize,
    values: &mut [Complex<R>],
    vectors: Wanted<'_, Complex<R>>,
) -> Result<bool, OutOfMemory> {
    let mut work = eig_workspace::<R>(n, vectors.is_some())?;
    let (mut re, mut im) = (filled(R::zero_impl(), n)?, filled(R::zero_impl(), n)?);
    let mut packed = filled(R::zero_impl(), if vectors.is_some() { n * n } else { 0 })?;
    let out = vectors.is_some().then(|| MatMut::from_column_major_slice_mut(&mut packed, n, n));
    let matrix = MatRef::from_column_major_slice(a, n, n);
    let params = Default::default();
    if evd::evd_real(matrix, diagonal(&mut re), diagonal(&mut im), None, out, PAR, work.stack(), params).is_err() {
        return Ok(false);
    }
    for ((value, re), im) in values.iter_mut().zip(&re).zip(&im) {
        *value = Complex::new(*re, *im);
    }
    // Two neighbors hold the real and imaginary parts of the vectors of a pair of conjugate values.
    if let Some(vectors) = vectors {
        let zero = R::zero_impl();
        let mut k = 0;
        while k < n {
            let real = im[k] == zero || k + 1 == n;
            for i in 0..n {
                let (x, y) = (packed[k * n + i], if real { zero } else { packed[(k + 1) * n + i] });
                vectors[k * n + i] = Complex::new(x, y);
                if !real {
                    vectors[(k + 1) * n + i] = Complex::new(x, -y);
                }
            }
            k += if real { 1 } else { 2 };
        }
    }
    Ok(true)
}
