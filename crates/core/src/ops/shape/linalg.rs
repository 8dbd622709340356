//! Shapes of linear algebra: batches of matrices in the last two dimensions, f32, f64 or complex.

use super::broadcast;
use crate::layout::Dims;
use crate::{DType, Error, ErrorKind, Result, Spec, Tensor};

/// Leading sizes, rows and columns of matrices of a dtype that can be decomposed.
fn matrices<'a>(op: &'static str, t: &'a Tensor) -> Result<(&'a [usize], usize, usize)> {
    if !matches!(t.dtype(), DType::F32 | DType::F64 | DType::C64 | DType::C128) {
        return Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected: "f32, f64 or complex" }.into());
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

/// The same, of real numbers.
fn each_real(like: &Tensor, batch: &[usize], sizes: &[usize]) -> Result<Spec> {
    Ok(Spec { dtype: like.dtype().to_real(), ..each(like, batch, sizes)? })
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
    let (sign, lu, pivots) = det(op, a)?;
    Ok((sign, each_real(a, square(op, a)?.0, &[])?, lu, pivots))
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
            return Err(Error::argument(op, "a vector can only be on the right-hand side: left=false needs matrices"));
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
        _ => return Err(Error::argument(op, format!("the mode must be 'reduced', 'complete' or 'r', found {mode:?}"))),
    };
    let q = if mode == "r" { Spec::new(&[0], a.dtype(), a.device())? } else { each(a, batch, &[m, k])? };
    Ok((q, each(a, batch, &[k, n])?))
}

/// `_linalg_eigh`.
pub(crate) fn eigh(op: &'static str, a: &Tensor, uplo: &str, compute_v: bool) -> Result<(Spec, Spec)> {
    let (batch, n) = square(op, a)?;
    if !matches!(uplo, "L" | "U" | "l" | "u") {
        return Err(Error::argument(op, format!("the triangle to read must be 'L' or 'U', found {uplo:?}")));
    }
    let vectors = if compute_v { each(a, batch, &[n, n])? } else { Spec::new(&[0], a.dtype(), a.device())? };
    Ok((each_real(a, batch, &[n])?, vectors))
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
    let values = each_real(a, batch, &[k])?;
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

/// LU without exchanges is for CUDA tensors only.
fn need_pivots(op: &'static str, pivot: bool) -> Result<()> {
    match pivot {
        true => Ok(()),
        false => {
            Err(Error::argument(op, "a decomposition without pivots is not implemented on the CPU; use pivot=true"))
        }
    }
}

/// `linalg_lu_factor_ex`.
pub(crate) fn lu_factor_ex(
    op: &'static str,
    a: &Tensor,
    pivot: bool,
    _check_errors: bool,
) -> Result<(Spec, Spec, Spec)> {
    need_pivots(op, pivot)?;
    let (batch, m, n) = matrices(op, a)?;
    Ok((each(a, batch, &[m, n])?, integers(a, batch, &[m.min(n)])?, integers(a, batch, &[])?))
}

/// `linalg_lu`.
pub(crate) fn lu(op: &'static str, a: &Tensor, pivot: bool) -> Result<(Spec, Spec, Spec)> {
    need_pivots(op, pivot)?;
    let (batch, m, n) = matrices(op, a)?;
    let k = m.min(n);
    Ok((each(a, batch, &[m, m])?, each(a, batch, &[m, k])?, each(a, batch, &[k, n])?))
}

/// Pivots are 32-bit integers.
fn need_i32(op: &'static str, pivots: &Tensor) -> Result<()> {
    match pivots.dtype() {
        DType::I32 => Ok(()),
        found => Err(Error::argument(op, format!("expected pivots of i32, found {found}"))),
    }
}

/// As many pivots as there are for each matrix.
fn check_pivots(op: &'static str, pivots: &Tensor, batch: &[usize], count: usize) -> Result<()> {
    let expected: Dims = batch.iter().copied().chain([count]).collect();
    if pivots.shape() != &expected[..] {
        let m = format!("expected pivots of shape {:?}, found {:?}", &expected[..], pivots.shape());
        return Err(Error::argument(op, m));
    }
    Ok(())
}

/// `lu_unpack`.
pub(crate) fn lu_unpack(
    op: &'static str,
    lu: &Tensor,
    pivots: &Tensor,
    unpack_data: bool,
    unpack_pivots: bool,
) -> Result<(Spec, Spec, Spec)> {
    let (batch, m, n) = matrices(op, lu)?;
    let k = m.min(n);
    if unpack_pivots {
        need_i32(op, pivots)?;
        check_pivots(op, pivots, batch, k)?;
    }
    let wanted = |yes: bool, rows: usize, columns: usize| {
        if yes { each(lu, batch, &[rows, columns]) } else { Spec::new(&[0], lu.dtype(), lu.device()) }
    };
    Ok((wanted(unpack_pivots, m, m)?, wanted(unpack_data, m, k)?, wanted(unpack_data, k, n)?))
}

/// `linalg_lu_solve`.
pub(crate) fn lu_solve(
    op: &'static str,
    lu: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
    left: bool,
    _adjoint: bool,
) -> Result<Spec> {
    need_i32(op, pivots)?;
    factored(op, lu, pivots, b, left)
}

/// The solution of systems whose matrices are given as factors.
fn factored(op: &'static str, factors: &Tensor, pivots: &Tensor, b: &Tensor, left: bool) -> Result<Spec> {
    let batch = systems(op, factors, b, left)?;
    let (own, n) = square(op, factors)?;
    check_pivots(op, pivots, own, n)?;
    each(factors, &batch, &b.shape()[b.ndim() - 2..])
}

/// `linalg_ldl_factor_ex`.
pub(crate) fn ldl_factor_ex(
    op: &'static str,
    a: &Tensor,
    _hermitian: bool,
    _check_errors: bool,
) -> Result<(Spec, Spec, Spec)> {
    let (batch, n) = square(op, a)?;
    Ok((each(a, batch, &[n, n])?, integers(a, batch, &[n])?, integers(a, batch, &[])?))
}

/// `linalg_ldl_solve`.
pub(crate) fn ldl_solve(op: &'static str, ld: &Tensor, pivots: &Tensor, b: &Tensor, _hermitian: bool) -> Result<Spec> {
    if !pivots.dtype().is_integer() {
        return Err(Error::argument(op, format!("expected pivots that are integers, found {}", pivots.dtype())));
    }
    factored(op, ld, pivots, b, true)
}

/// `linalg_eig`.
pub(crate) fn eig(op: &'static str, a: &Tensor) -> Result<(Spec, Spec)> {
    let (batch, n) = square(op, a)?;
    let complex = |spec: Spec| Spec { dtype: a.dtype().to_complex(), ..spec };
    Ok((complex(each(a, batch, &[n])?), complex(each(a, batch, &[n, n])?)))
}

/// `_linalg_eigvals`.
pub(crate) fn eigvals(op: &'static str, a: &Tensor) -> Result<Spec> {
    Ok(eig(op, a)?.0)
}

/// `linalg_matrix_exp`.
pub(crate) fn matrix_exp(op: &'static str, a: &Tensor) -> Result<Spec> {
    let (batch, n) = square(op, a)?;
    each(a, batch, &[n, n])
}

/// `geqrf`.
pub(crate) fn geqrf(op: &'static str, a: &Tensor) -> Result<(Spec, Spec)> {
    let (batch, m, n) = matrices(op, a)?;
    Ok((each(a, batch, &[m, n])?, each(a, batch, &[m.min(n)])?))
}

/// `linalg_pinv`.
pub(crate) fn pinv(
    op: &'static str,
    a: &Tensor,
    atol: Option<&Tensor>,
    rtol: Option<&Tensor>,
    hermitian: bool,
) -> Result<Spec> {
    let (batch, m, n) = matrices(op, a)?;
    if hermitian {
        square(op, a)?;
    }
    for t in [atol, rtol].into_iter().flatten() {
        if t.is_complex() {
            return Err(Error::argument(op, format!("tolerances are real, found {}", t.dtype())));
        }
        if broadcast(op, t.shape(), batch)?[..] != *batch {
            let m = format!("tolerances of shape {:?} are more than there are matrices: {batch:?}", t.shape());
            return Err(Error::argument(op, m));
        }
    }
    each(a, batch, &[n, m])
}

/// Reflections with their factors, of the same dtype and leading sizes.
fn reflections<'a>(op: &'static str, a: &'a Tensor, tau: &Tensor) -> Result<(&'a [usize], usize, usize)> {
    let (batch, m, n) = matrices(op, a)?;
    let [lead @ .., k] = tau.shape() else {
        return Err(Error::argument(op, "expected a factor for each reflection, found a single number"));
    };
    if lead != batch || *k > m.min(n) || tau.dtype() != a.dtype() {
        let found = format!("factors of {:?} and {}", tau.shape(), tau.dtype());
        let m = format!(
            "expected at most {} factors of {} for each of {batch:?} matrices, found {found}",
            m.min(n),
            a.dtype()
        );
        return Err(Error::argument(op, m));
    }
    Ok((batch, m, n))
}

/// `linalg_householder_product`.
pub(crate) fn householder_product(op: &'static str, a: &Tensor, tau: &Tensor) -> Result<Spec> {
    let (batch, m, n) = reflections(op, a, tau)?;
    if m < n {
        return Err(Error::argument(op, format!("expected at least as many rows as columns, found {m} by {n}")));
    }
    each(a, batch, &[m, n])
}

/// `ormqr`.
pub(crate) fn ormqr(
    op: &'static str,
    a: &Tensor,
    tau: &Tensor,
    other: &Tensor,
    left: bool,
    _transpose: bool,
) -> Result<Spec> {
    let (batch, m, _) = reflections(op, a, tau)?;
    let (lead, rows, columns) = matrices(op, other)?;
    if lead != batch || other.dtype() != a.dtype() || m != if left { rows } else { columns } {
        let found = format!("{:?} of {}", other.shape(), other.dtype());
        let m = format!("reflections of {m} rows of {} do not fit matrices {found}", a.dtype());
        return Err(Error::argument(op, m));
    }
    each(other, lead, &[rows, columns])
}

/// Common leading sizes of `linalg_lstsq`, and whether the right-hand sides are vectors.
pub(crate) fn least_squares(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Dims, bool)> {
    let (batch, m, _) = matrices(op, a)?;
    let vector = b.ndim() + 1 == a.ndim();
    if !vector && b.ndim() != a.ndim() || b.ndim() == 0 {
        let m = format!("expected right-hand sides of {} or {} dimensions, found {}", a.ndim() - 1, a.ndim(), b.ndim());
        return Err(Error::argument(op, m));
    }
    let (lead, rows) = if vector {
        let (rows, lead) = b.shape().split_last().expect("at least one dimension");
        (lead, *rows)
    } else {
        let (lead, rows, _) = matrices(op, b)?;
        (lead, rows)
    };
    if rows != m || a.dtype() != b.dtype() {
        let found = format!("{rows} rows of {}", b.dtype());
        return Err(Error::argument(
            op,
            format!("expected right-hand sides of {m} rows of {}, found {found}", a.dtype()),
        ));
    }
    Ok((broadcast(op, batch, lead)?, vector))
}
