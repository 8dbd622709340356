//! Singular values and eigenvalues, with their vectors.

use crate::{OutOfMemory, PAR, Real, Scalar, Wanted, Workspace, filled};
use faer::diag::DiagMut;
use faer::linalg::evd::{self, ComputeEigenvectors};
use faer::linalg::svd::{self as singular, ComputeSvdVectors};
use faer::{Auto, ColMut, MatMut, MatRef, Spec};
use num_complex::Complex;

/// Below this size, quotients are found by rotations instead of by halves: of `faer`'s own 128, the vectors of matrices of some
/// hundred rows are several times less accurate, and nothing is gained.
const HALVES: usize = 32;

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
    let params: Spec<singular::SvdParams, T> =
        singular::SvdParams { recursion_threshold: HALVES, ..<singular::SvdParams as Auto<T>>::auto() }.into();
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
    let params: Spec<evd::SelfAdjointEvdParams, T> =
        evd::SelfAdjointEvdParams { recursion_threshold: HALVES, ..<evd::SelfAdjointEvdParams as Auto<T>>::auto() }
            .into();
    let mut work = Workspace::new(evd::self_adjoint_evd_scratch::<T>(n, kind, PAR, params))?;
    let vectors = vectors.map(|v| MatMut::from_column_major_slice_mut(v, n, n));
    let matrix = MatRef::from_column_major_slice(a, n, n);
    Ok(evd::self_adjoint_evd(matrix, diagonal(values), vectors, PAR, work.stack(), params).is_ok())
}

/// How the iteration for eigenvalues proceeds. `faer` looks for converged values in windows that are too wide for matrices of
/// 150 to 600 rows: narrower ones take a sixth of the time at 256, and are as accurate.
fn eig_params<T: Scalar>() -> Spec<evd::EvdParams, T> {
    extern "C" fn shifts(n: usize, _: usize) -> usize {
        match n {
            0..30 => 2,
            30..60 => 4,
            60..150 => 12,
            150..600 => 16,
            600..3000 => 32,
            _ => 128,
        }
    }
    extern "C" fn window(n: usize, _: usize) -> usize {
        match n {
            0..30 => 2,
            30..60 => 4,
            60..150 => 10,
            150..300 => 16,
            300..600 => 24,
            600..3000 => 48,
            _ => 192,
        }
    }
    let mut params = <evd::EvdParams as Auto<T>>::auto();
    params.schur.recommended_shift_count = shifts;
    params.schur.recommended_deflation_window = window;
    params.into()
}

fn eig_workspace<T: Scalar>(n: usize, vectors: bool) -> Result<Workspace, OutOfMemory> {
    let kind = if vectors { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No };
    Workspace::new(evd::evd_scratch::<T>(n, ComputeEigenvectors::No, kind, PAR, eig_params::<T>()))
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
    let params = eig_params::<Complex<R>>();
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
    let params = eig_params::<R>();
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
