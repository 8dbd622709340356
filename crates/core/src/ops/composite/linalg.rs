//! Linear algebra built of the decompositions: what refuses singular input, norms of matrices, powers.

use crate::ops::formulas::sym;
use crate::ops::shape::wrap_dims;
use crate::{DType, Error, Result, Scalar, Tensor, ops, state};

/// `linalg_inv`, `inverse`.
pub(crate) fn inv(a: &Tensor) -> Result<Tensor> {
    Ok(ops::linalg_inv_ex(a, true)?.0)
}

pub(crate) fn solve_ex(a: &Tensor, b: &Tensor, left: bool, check_errors: bool) -> Result<(Tensor, Tensor)> {
    let (result, _, _, info) = ops::_linalg_solve_ex(a, b, left, check_errors)?;
    Ok((result, info))
}

pub(crate) fn solve(a: &Tensor, b: &Tensor, left: bool) -> Result<Tensor> {
    Ok(solve_ex(a, b, left, true)?.0)
}

/// `linalg_det`, `det`.
pub(crate) fn det(a: &Tensor) -> Result<Tensor> {
    Ok(ops::_linalg_det(a)?.0)
}

/// `linalg_slogdet`, `slogdet`.
pub(crate) fn slogdet(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (sign, log, _, _) = ops::_linalg_slogdet(a)?;
    Ok((sign, log))
}

/// NaN for a negative determinant, minus infinity for zero.
pub(crate) fn logdet(a: &Tensor) -> Result<Tensor> {
    let (sign, log) = slogdet(a)?;
    ops::masked_fill(&log, &ops::lt_scalar(&sign, Scalar::Int(0))?, Scalar::Float(f64::NAN))
}

pub(crate) fn cholesky(a: &Tensor, upper: bool) -> Result<Tensor> {
    Ok(ops::linalg_cholesky_ex(a, upper, true)?.0)
}

/// Solves `A X = B` given the Cholesky factor of `A`.
pub(crate) fn cholesky_solve(b: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    if factor.ndim() < 2 {
        return Err(Error::argument("cholesky_solve", format!("expected matrices, found shape {:?}", factor.shape())));
    }
    let turned = ops::transpose(factor, -2, -1)?;
    let (lower, above) = if upper { (&turned, factor) } else { (factor, &turned) };
    let half = ops::linalg_solve_triangular(lower, b, false, true, false)?;
    ops::linalg_solve_triangular(above, &half, true, true, false)
}

/// Whether derivatives may be asked for: they need the vectors, not only the values. The mode decides, as a tensor
/// inside a transform does not show whether it is differentiated further out.
fn needs_vectors() -> bool {
    state::word() & (state::GRAD | state::DUAL) != 0
}

pub(crate) fn eigh(a: &Tensor, uplo: &str) -> Result<(Tensor, Tensor)> {
    ops::_linalg_eigh(a, uplo, true)
}

pub(crate) fn eigvalsh(a: &Tensor, uplo: &str) -> Result<Tensor> {
    Ok(ops::_linalg_eigh(a, uplo, needs_vectors())?.0)
}

pub(crate) fn svd(a: &Tensor, full_matrices: bool, driver: Option<&str>) -> Result<(Tensor, Tensor, Tensor)> {
    ops::_linalg_svd(a, full_matrices, true, driver)
}

pub(crate) fn svdvals(a: &Tensor, driver: Option<&str>) -> Result<Tensor> {
    Ok(ops::_linalg_svd(a, false, needs_vectors(), driver)?.1)
}

/// The tensor with the two dimensions of its matrices last, in the dtype to compute in; and those dimensions in order.
fn matrices(op: &'static str, t: &Tensor, dim: &[i64], dtype: Option<DType>) -> Result<(Tensor, Vec<i64>)> {
    if dim.len() != 2 || t.ndim() < 2 {
        let m = format!("expected two dimensions of matrices, found {dim:?} of shape {:?}", t.shape());
        return Err(Error::argument(op, m));
    }
    if !t.is_floating_point() || dtype.is_some_and(|d| !d.is_floating_point()) {
        return Err(Error::argument(op, format!("expected floating point numbers, found {}", t.dtype())));
    }
    let dims: Vec<i64> = wrap_dims(op, dim, t.ndim())?.iter().map(|d| *d as i64).collect();
    let t = dtype.map_or_else(|| Ok(t.clone()), |d| ops::formulas::cast(t, d))?;
    let last = ops::movedim_intlist(&t, &dims, &[-2, -1])?;
    let mut dims = dims;
    dims.sort_unstable();
    Ok((last, dims))
}

/// Puts the dimensions back, of size 1.
fn kept(t: Tensor, dims: &[i64], keepdim: bool) -> Result<Tensor> {
    dims.iter().filter(|_| keepdim).try_fold(t, |t, d| ops::unsqueeze(&t, *d))
}

/// The largest or smallest singular value (±2), sum of a column (±1) or of a row (±inf).
pub(crate) fn matrix_norm(t: &Tensor, ord: Scalar, dim: &[i64], keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    const OP: &str = "linalg_matrix_norm";
    let order = ord.to_f64();
    let (last, dims) = matrices(OP, t, dim, dtype)?;
    let sizes = match order.abs() {
        2.0 => ops::linalg_svdvals(&last, None)?,
        1.0 => ops::sum_dim(&ops::abs(&last)?, Some(&[-2]), false, None)?,
        f64::INFINITY => ops::sum_dim(&ops::abs(&last)?, Some(&[-1]), false, None)?,
        _ => {
            return Err(Error::argument(
                OP,
                format!("the order is 1, 2, inf or one of their negatives, found {order}"),
            ));
        }
    };
    let norm = if order > 0.0 { ops::amax(&sizes, &[-1], false)? } else { ops::amin(&sizes, &[-1], false)? };
    kept(norm, &dims, keepdim)
}

/// The root of the sum of squares ("fro"), or the sum of singular values ("nuc").
pub(crate) fn matrix_norm_str_ord(
    t: &Tensor,
    ord: &str,
    dim: &[i64],
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    const OP: &str = "linalg_matrix_norm";
    match ord {
        "fro" => {
            let (_, dims) = matrices(OP, t, dim, dtype)?;
            ops::linalg_vector_norm(t, Scalar::Int(2), Some(&dims), keepdim, dtype)
        }
        "nuc" => {
            let (last, dims) = matrices(OP, t, dim, dtype)?;
            kept(ops::sum_dim(&ops::linalg_svdvals(&last, None)?, Some(&[-1]), false, None)?, &dims, keepdim)
        }
        _ => Err(Error::argument(OP, format!("the order is \"fro\" or \"nuc\", found {ord:?}"))),
    }
}

/// A norm of vectors or of matrices, as the number of dimensions says.
pub(crate) fn norm(
    t: &Tensor,
    ord: Option<Scalar>,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let Some(order) = ord else { return ops::linalg_vector_norm(t, Scalar::Int(2), dim, keepdim, dtype) };
    match dim.map_or(t.ndim(), <[i64]>::len) {
        2 => matrix_norm(t, order, dim.unwrap_or(&[0, 1]), keepdim, dtype),
        1 => ops::linalg_vector_norm(t, order, dim, keepdim, dtype),
        n => Err(Error::argument(
            "linalg_norm",
            format!("an order goes with one or two dimensions, found {n}; name them"),
        )),
    }
}

pub(crate) fn norm_ord_str(
    t: &Tensor,
    ord: &str,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    let all: Vec<i64> = (0..t.ndim() as i64).collect();
    matrix_norm_str_ord(t, ord, dim.unwrap_or(&all), keepdim, dtype)
}

/// `linalg_matrix_power`, `matrix_power`: by repeated squaring, of the inverse for a negative power.
pub(crate) fn matrix_power(a: &Tensor, n: i64) -> Result<Tensor> {
    let [.., rows, columns] = a.shape() else {
        let m = format!("expected matrices, found shape {:?}", a.shape());
        return Err(Error::argument("matrix_power", m));
    };
    if rows != columns {
        let m = format!("expected square matrices, found {rows} by {columns} ones");
        return Err(Error::argument("matrix_power", m));
    }
    let mut square = if n < 0 { inv(a)? } else { a.clone() };
    let mut power: Option<Tensor> = None;
    let mut left = n.unsigned_abs();
    while left > 0 {
        if left & 1 == 1 {
            power = Some(power.map_or_else(|| Ok(square.clone()), |p| ops::matmul(&p, &square))?);
        }
        left >>= 1;
        if left > 0 {
            square = ops::matmul(&square, &square)?;
        }
    }
    match power {
        // A result of its own, also where it is the matrix itself.
        Some(p) if p.is_same(a) => ops::clone(&p, None),
        Some(p) => Ok(p),
        None => {
            let one = ops::eye((*rows).into(), Some(a.dtype()), Some(a.device()))?;
            ops::clone(&ops::expand(&one, &sym(a.shape()), false)?, None)
        }
    }
}
