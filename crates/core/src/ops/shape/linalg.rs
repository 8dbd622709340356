//! Shapes of linear algebra: batches of matrices in the last two dimensions, f32 or f64.

use super::broadcast;
use crate::layout::Dims;
use crate::{DType, Error, ErrorKind, Result, Spec, Tensor};

/// Leading sizes, rows and columns of matrices of a dtype that can be decomposed.
fn matrices<'a>(op: &'static str, t: &'a Tensor) -> Result<(&'a [usize], usize, usize)> {
    if !matches!(t.dtype(), DType::F32 | DType::F64) {
        return Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected: "f32 or f64" }.into());
    }
    match t.shape() {
        [batch @ .., rows, columns] => Ok((batch, *rows, *columns)),
        other => Err(Error::argument(op, format!("expected matrices (at least 2 dimensions), found shape {other:?}"))),
    }
}

fn square<'a>(op: &'static str, t: &'a Tensor) -> Result<(&'a [usize], usize)> {
    match matrices(op, t)? {
        (batch, rows, columns) if rows == columns => Ok((batch, rows)),
        (_, rows, columns) => {
            Err(Error::argument(op, format!("expected square matrices, found {rows} by {columns} ones")))
        }
    }
}

/// A result for each matrix, of these sizes.
fn each(like: &Tensor, batch: &[usize], sizes: &[usize]) -> Result<Spec> {
    let sizes: Dims = batch.iter().chain(sizes).copied().collect();
    Spec::new(&sizes, like.dtype(), like.device())
}

/// A 32-bit integer for each matrix, or several.
fn integers(like: &Tensor, batch: &[usize], sizes: &[usize]) -> Result<Spec> {
    Ok(Spec { dtype: DType::I32, ..each(like, batch, sizes)? })
}

/// `linalg_inv_ex`.
pub(crate) fn inv_ex(op: &'static str, a: &Tensor, _check_errors: bool) -> Result<(Spec, Spec)> {
    let (batch, n) = square(op, a)?;
    Ok((each(a, batch, &[n, n])?, integers(a, batch, &[])?))
}

/// `_linalg_det`.
pub(crate) fn det(op: &'static str, a: &Tensor) -> Result<(Spec, Spec, Spec)> {
    let (batch, n) = square(op, a)?;
    Ok((each(a, batch, &[])?, each(a, batch, &[n, n])?, integers(a, batch, &[n])?))
}

/// `_linalg_slogdet`.
pub(crate) fn slogdet(op: &'static str, a: &Tensor) -> Result<(Spec, Spec, Spec, Spec)> {
    let (det, lu, pivots) = det(op, a)?;
    Ok((det.clone(), det, lu, pivots))
}

/// Whether the right-hand sides of a system are vectors: one for each matrix.
pub(crate) fn is_vector(a: &[usize], b: &[usize]) -> bool {
    b.len() == 1 || (b.len() + 1 == a.len() && a.starts_with(b))
}

/// Matrices and right-hand sides with their common leading sizes.
pub(crate) fn systems(op: &'static str, a: &Tensor, b: &Tensor, left: bool) -> Result<Dims> {
    let (batch, n) = square(op, a)?;
    let (others, rows, columns) = matrices(op, b)?;
    if a.dtype() != b.dtype() {
        let m = format!("matrices of {} and right-hand sides of {}; convert one of them", a.dtype(), b.dtype());
        return Err(Error::argument(op, m));
    }
    if n != if left { rows } else { columns } {
        let equation = if left { "A X = B" } else { "X A = B" };
        let m = format!("{equation} cannot hold for A of {n} by {n} and B of {rows} by {columns}");
        return Err(Error::argument(op, m));
    }
    broadcast(op, batch, others)
}

/// `_linalg_solve_ex`.
pub(crate) fn solve_ex(
    op: &'static str,
    a: &Tensor,
    b: &Tensor,
    left: bool,
    _check_errors: bool,
) -> Result<(Spec, Spec, Spec, Spec)> {
    let (own, n) = square(op, a)?;
    let result = if is_vector(a.shape(), b.shape()) {
        if !left {
            return Err(Error::argument(op, "a vector stands on the right-hand side only: left=false needs matrices"));
        }
        let column = b.alias_with(super::view::unsqueeze(b, -1)?);
        let batch = systems(op, a, &column, left)?;
        each(a, &batch, &[n])?
    } else {
        let batch = systems(op, a, b, left)?;
        each(a, &batch, &b.shape()[b.ndim() - 2..])?
    };
    Ok((result, each(a, own, &[n, n])?, integers(a, own, &[n])?, integers(a, own, &[])?))
}

/// `linalg_cholesky_ex`.
pub(crate) fn cholesky_ex(op: &'static str, a: &Tensor, _upper: bool, check_errors: bool) -> Result<(Spec, Spec)> {
    inv_ex(op, a, check_errors)
}

/// `linalg_qr`.
pub(crate) fn qr(op: &'static str, a: &Tensor, mode: &str) -> Result<(Spec, Spec)> {
    let (batch, m, n) = matrices(op, a)?;
    let k = match mode {
        "reduced" | "r" => m.min(n),
        "complete" => m,
        _ => return Err(Error::argument(op, format!("the mode is 'reduced', 'complete' or 'r', found {mode:?}"))),
    };
    let q = if mode == "r" { Spec::new(&[0], a.dtype(), a.device())? } else { each(a, batch, &[m, k])? };
    Ok((q, each(a, batch, &[k, n])?))
}

/// `_linalg_eigh`.
pub(crate) fn eigh(op: &'static str, a: &Tensor, uplo: &str, compute_v: bool) -> Result<(Spec, Spec)> {
    let (batch, n) = square(op, a)?;
    if !matches!(uplo, "L" | "U" | "l" | "u") {
        return Err(Error::argument(op, format!("the triangle to read is 'L' or 'U', found {uplo:?}")));
    }
    let vectors = if compute_v { each(a, batch, &[n, n])? } else { Spec::new(&[0], a.dtype(), a.device())? };
    Ok((each(a, batch, &[n])?, vectors))
}

/// `_linalg_svd`.
pub(crate) fn svd(
    op: &'static str,
    a: &Tensor,
    full_matrices: bool,
    compute_uv: bool,
    driver: Option<&str>,
) -> Result<(Spec, Spec, Spec)> {
    let (batch, m, n) = matrices(op, a)?;
    if let Some(driver) = driver {
        return Err(Error::argument(op, format!("drivers are for CUDA tensors only, found {driver:?}; leave it out")));
    }
    let k = m.min(n);
    let values = each(a, batch, &[k])?;
    if !compute_uv {
        let none = Spec::new(&[0], a.dtype(), a.device())?;
        return Ok((none.clone(), values, none));
    }
    let (columns, rows) = if full_matrices { (m, n) } else { (k, k) };
    Ok((each(a, batch, &[m, columns])?, values, each(a, batch, &[rows, n])?))
}

/// `linalg_solve_triangular`.
pub(crate) fn solve_triangular(
    op: &'static str,
    a: &Tensor,
    b: &Tensor,
    _upper: bool,
    left: bool,
    _unitriangular: bool,
) -> Result<Spec> {
    let batch = systems(op, a, b, left)?;
    each(a, &batch, &b.shape()[b.ndim() - 2..])
}
