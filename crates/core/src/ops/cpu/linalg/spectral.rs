//! Orthogonal factors, eigenvalues and singular values.

use super::*;
use firebrand_kernels::Complex;
use firebrand_kernels::linalg::{self as kernel, batched};

/// Elements of each of `count` matrices.
fn each(all: usize, count: usize) -> usize {
    all / count.max(1)
}

/// `linalg_qr`.
pub(crate) fn qr(a: &Tensor, _mode: &str, q: &Tensor, r: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let ((count, m, n), from) = (extents(a), columns::<T>(a)?);
        let (mut to_q, mut to_r) = (zeros::<T>(q.numel())?, zeros::<T>(r.numel())?);
        let (each_q, each_r, rows) = (each(to_q.len(), count), each(to_r.len(), count), extents(r).1);
        let targets = [(&mut to_q[..], each_q), (&mut to_r[..], each_r)];
        batched::<T, T, 1, 2, 0>(count, [(&from, m * n)], targets, [], |_, [a], [q, r], []| {
            kernel::qr(a, m, n, q, r, rows);
            0
        });
        // Mode "r" has no Q: it is a tensor of no elements, which is not a matrix.
        if q.numel() > 0 {
            write_columns(&to_q, q)?;
        }
        write_columns(&to_r, r)
    })
}

/// `geqrf`.
pub(crate) fn geqrf(t: &Tensor, a: &Tensor, tau: &Tensor) -> Result<()> {
    with_number!(t.dtype(), T => {
        let ((count, m, n), mut to) = (extents(t), columns::<T>(t)?);
        let mut factors = zeros::<T>(tau.numel())?;
        let targets = [(&mut to[..], m * n), (&mut factors[..], m.min(n))];
        batched::<T, T, 0, 2, 0>(count, [], targets, [], |_, [], [a, tau], []| {
            kernel::reflections(a, m, n, tau, None);
            0
        });
        write_columns(&to, a)?;
        write(&factors, tau)
    })
}

/// `linalg_householder_product`.
pub(crate) fn householder_product(a: &Tensor, tau: &Tensor, out: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let ((count, m, n), from, factors) = (extents(a), columns::<T>(a)?, rows::<T>(tau)?);
        let k = tau.shape().last().copied().unwrap_or(0);
        let mut q = zeros::<T>(out.numel())?;
        batched::<T, T, 2, 1, 0>(
            count,
            [(&from, m * n), (&factors, k)],
            [(&mut q, m * n)],
            [],
            |_, [a, tau], [q], []| {
                kernel::orthogonal(a, m, tau, q);
                0
            },
        );
        write_columns(&q, out)
    })
}

/// `ormqr`. What is multiplied from the right is turned: `C Q` is `(Qᴴ Cᴴ)ᴴ`.
pub(crate) fn ormqr(a: &Tensor, tau: &Tensor, other: &Tensor, left: bool, transpose: bool, out: &Tensor) -> Result<()> {
    with_number!(a.dtype(), T => {
        let ((count, m, n), from, factors) = (extents(a), columns::<T>(a)?, rows::<T>(tau)?);
        let k = tau.shape().last().copied().unwrap_or(0);
        let mut c = columns::<T>(&transposed_if(!left, other)?)?;
        let conjugate = |c: &mut [T]| if !left && T::COMPLEX { c.iter_mut().for_each(|x| *x = x.conj()) };
        conjugate(&mut c);
        let size = each(c.len(), count);
        batched::<T, T, 2, 1, 0>(
            count,
            [(&from, m * n), (&factors, k)],
            [(&mut c, size)],
            [],
            |_, [a, tau], [c], []| {
                kernel::multiply_by_q(a, m, tau, transpose == left, c);
                0
            },
        );
        conjugate(&mut c);
        write_columns(&c, &transposed_if(!left, out)?)
    })
}

/// `_linalg_eigh`.
pub(crate) fn eigh(a: &Tensor, uplo: &str, _compute_v: bool, values: &Tensor, vectors: &Tensor) -> Result<()> {
    need_library("linalg_eigh", a.is_complex())?;
    with_number!(a.dtype(), T => {
        let upper = uplo.eq_ignore_ascii_case("u");
        let ((count, n, _), mut from) = (extents(a), columns::<T>(&transposed_if(upper, a)?)?);
        if upper && T::COMPLEX {
            from.iter_mut().for_each(|x| *x = x.conj());
        }
        real_diagonals(&mut from, n);
        let (mut to, mut turned) = (zeros::<f64>(values.numel())?, zeros::<T>(vectors.numel())?);
        let size = each(turned.len(), count);
        let info = batched(
            count,
            [(&from, n * n)],
            [(&mut turned, size)],
            [(&mut to, n)],
            |_, [a], [vectors], [values]| kernel::eigh(a, n, values, vectors),
        );
        check("linalg_eigh", &info, a.ndim() > 2, |left| {
            format!("the iteration did not converge: {left} eigenvalues are missing; is the matrix badly scaled?")
        })?;
        write(&to, values)?;
        if vectors.numel() > 0 {
            write_columns(&turned, vectors)?;
        }
        Ok(())
    })
}

/// `_linalg_svd`.
pub(crate) fn svd(
    a: &Tensor,
    _full_matrices: bool,
    _compute_uv: bool,
    _driver: Option<&str>,
    u: &Tensor,
    s: &Tensor,
    vh: &Tensor,
) -> Result<()> {
    need_library("linalg_svd", a.is_complex())?;
    with_number!(a.dtype(), T => {
        let ((count, m, n), from) = (extents(a), columns::<T>(a)?);
        let (mut to_u, mut to_s, mut to_v) = (zeros::<T>(u.numel())?, zeros::<f64>(s.numel())?, zeros::<T>(vh.numel())?);
        let (each_u, each_v) = (each(to_u.len(), count), each(to_v.len(), count));
        let info = batched(
            count,
            [(&from, m * n)],
            [(&mut to_u, each_u), (&mut to_v, each_v)],
            [(&mut to_s, m.min(n))],
            |_, [a], [u, v], [s]| kernel::svd(a, m, n, u, s, v),
        );
        check("linalg_svd", &info, a.ndim() > 2, |_| {
            "the iteration did not converge; does the matrix contain non-finite values?".to_string()
        })?;
        write(&to_s, s)?;
        if u.ndim() > 1 {
            write_columns(&to_u, u)?;
            // The columns of V's conjugate are the rows of Vᴴ.
            write(&to_v, vh)?;
        }
        Ok(())
    })
}

/// `linalg_eig`.
pub(crate) fn eig(a: &Tensor, values: &Tensor, vectors: &Tensor) -> Result<()> {
    decompose("linalg_eig", a, values, Some(vectors))
}

/// `_linalg_eigvals`.
pub(crate) fn eigvals(a: &Tensor, values: &Tensor) -> Result<()> {
    decompose("linalg_eigvals", a, values, None)
}

fn decompose(op: &'static str, a: &Tensor, values: &Tensor, vectors: Option<&Tensor>) -> Result<()> {
    need_library(op, true)?;
    with_number!(a.dtype(), T => {
        let ((count, n, _), from) = (extents(a), columns::<T>(a)?);
        let mut to = zeros::<Complex<f64>>(values.numel())?;
        let mut turned = zeros::<Complex<f64>>(vectors.map_or(0, Tensor::numel))?;
        let size = each(turned.len(), count);
        let info = batched(
            count,
            [(&from, n * n)],
            [],
            [(&mut to, n), (&mut turned, size)],
            |_, [a], [], [values, vectors]| kernel::eig(a, n, values, vectors),
        );
        check(op, &info, a.ndim() > 2, |_| {
            "the iteration did not converge; does the matrix contain non-finite values?".to_string()
        })?;
        write(&to, values)?;
        vectors.map_or(Ok(()), |v| write_columns(&turned, v))
    })
}
