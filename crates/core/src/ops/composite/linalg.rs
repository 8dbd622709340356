//! Linear algebra based on the decompositions: ops that check for singular input, matrix norms, powers.

use crate::ops::formulas::sym;
use crate::ops::shape::wrap_dims;
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops, state};

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
    if sign.is_complex() {
        return ops::add(&ops::log(&sign)?, &log, Scalar::Int(1));
    }
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
    let turned = ops::adjoint(factor)?;
    let (lower, above) = if upper { (&turned, factor) } else { (factor, &turned) };
    let half = ops::linalg_solve_triangular(lower, b, false, true, false)?;
    ops::linalg_solve_triangular(above, &half, true, true, false)
}

/// Whether derivatives may be asked for: they need the vectors, not only the values. The mode decides, as a tensor
/// inside a transform does not show whether it is differentiated further out.
pub(super) fn needs_vectors() -> bool {
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
    let fits = |d: DType| d.is_floating_point() || d.is_complex();
    if !fits(t.dtype()) || dtype.is_some_and(|d| !fits(d)) {
        return Err(Error::argument(op, format!("expected a floating point or complex dtype, found {}", t.dtype())));
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
                format!("the order must be 1, 2, inf or one of their negatives, found {order}"),
            ));
        }
    };
    let norm = if order > 0.0 && sizes.shape().last() == Some(&0) {
        // Of no columns, rows or values the largest is zero, and the smallest an error.
        ops::sum_dim(&sizes, Some(&[-1]), false, None)?
    } else if order > 0.0 {
        ops::amax(&sizes, &[-1], false)?
    } else {
        ops::amin(&sizes, &[-1], false)?
    };
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

/// The inverse of `A`, given its Cholesky factor.
pub(crate) fn cholesky_inverse(factor: &Tensor, upper: bool) -> Result<Tensor> {
    let n = factor.shape().last().copied().unwrap_or(0) as i64;
    let one = ops::eye(n.into(), Some(factor.dtype()), Some(factor.device()))?;
    let batch: Vec<SymInt> = factor.shape().iter().map(|&s| s.into()).collect();
    ops::cholesky_solve(&ops::expand(&one, &batch, false)?, factor, upper)
}

/// Solves `A X = B` with triangular `A`; the second result is `A` as it was read.
pub(crate) fn triangular_solve(
    b: &Tensor,
    a: &Tensor,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
) -> Result<(Tensor, Tensor)> {
    let turned = if transpose { ops::transpose(a, -2, -1)? } else { a.clone() };
    let x = ops::linalg_solve_triangular(&turned, b, upper != transpose, true, unitriangular)?;
    Ok((x, ops::clone(a, None)?))
}

/// The decomposition with `V` itself, not its transpose.
pub(crate) fn svd_with_v(a: &Tensor, some: bool, compute_uv: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let (u, s, vh) = ops::_linalg_svd(a, !some, compute_uv, None)?;
    if compute_uv {
        return Ok((u, s, ops::adjoint(&vh)?));
    }
    // Without vectors PyTorch answers with zeros in their place.
    let &[.., m, n] = a.shape() else { unreachable!("the shape function has seen matrices") };
    let zeros = |n: usize| {
        let mut sizes: Vec<SymInt> = a.shape()[..a.ndim() - 2].iter().map(|&s| s.into()).collect();
        sizes.extend([SymInt::from(n), SymInt::from(n)]);
        ops::new_zeros(a, &sizes, None, None)
    };
    Ok((zeros(m)?, s, zeros(n)?))
}

/// The sum of products along a dimension, the first factor conjugated.
pub(crate) fn vecdot(x: &Tensor, y: &Tensor, dim: i64) -> Result<Tensor> {
    let x = if x.is_complex() { ops::conj_physical(x)? } else { x.clone() };
    ops::sum_dim(&ops::mul(&x, y)?, Some(&[dim]), false, None)
}

/// The conjugate transpose of a matrix.
pub(crate) fn matrix_h(a: &Tensor) -> Result<Tensor> {
    if a.ndim() != 2 && a.ndim() != 0 {
        return Err(Error::argument("matrix_H", format!("expected a matrix, found shape {:?}", a.shape())));
    }
    if a.ndim() == 0 { Ok(a.clone()) } else { ops::adjoint(a) }
}

/// The product of several matrices, in the order that needs the fewest multiplications; a vector may be at either end.
pub(crate) fn multi_dot(tensors: &[Tensor]) -> Result<Tensor> {
    const OP: &str = "linalg_multi_dot";
    let (Some(first), Some(last), true) = (tensors.first(), tensors.last(), tensors.len() > 1) else {
        return Err(Error::argument(OP, format!("expected at least two tensors, found {}", tensors.len())));
    };
    let (row, column) = (first.ndim() == 1, last.ndim() == 1);
    let mut factors = tensors.to_vec();
    if row {
        factors[0] = ops::unsqueeze(first, 0)?;
    }
    if column {
        factors[tensors.len() - 1] = ops::unsqueeze(last, -1)?;
    }
    if let Some((k, t)) = factors.iter().enumerate().find(|(_, t)| t.ndim() != 2) {
        return Err(Error::argument(OP, format!("tensor {k} must be 2D but got {}D", t.ndim())));
    }
    let n = factors.len();
    let size = |i: usize| if i == 0 { factors[0].shape()[0] } else { factors[i - 1].shape()[1] };
    // cost[i][j]: of the product of factors i to j; cut[i][j]: where it is best divided.
    let (mut cost, mut cut) = (vec![vec![0usize; n]; n], vec![vec![0usize; n]; n]);
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            let price = |k: usize| cost[i][k] + cost[k + 1][j] + size(i) * size(k + 1) * size(j + 1);
            let best = (i..j).min_by_key(|&k| price(k)).unwrap_or(i);
            (cost[i][j], cut[i][j]) = (price(best), best);
        }
    }
    fn product(factors: &[Tensor], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
        if i == j {
            return Ok(factors[i].clone());
        }
        let k = cut[i][j];
        ops::mm(&product(factors, cut, i, k)?, &product(factors, cut, k + 1, j)?)
    }
    let mut out = product(&factors, &cut, 0, n - 1)?;
    if column {
        out = ops::squeeze_dim(&out, -1)?;
    }
    if row { ops::squeeze_dim(&out, 0) } else { Ok(out) }
}

/// `sum over dims of i1 i2 i3`, each expanded first: what a bilinear layer decomposes to.
pub(crate) fn trilinear(
    i1: &Tensor,
    i2: &Tensor,
    i3: &Tensor,
    expand1: &[i64],
    expand2: &[i64],
    expand3: &[i64],
    sumdim: &[i64],
    _unroll_dim: i64,
) -> Result<Tensor> {
    let grown = |t: &Tensor, dims: &[i64]| dims.iter().try_fold(t.clone(), |t, &d| ops::unsqueeze(&t, d));
    let product = ops::mul(&ops::mul(&grown(i1, expand1)?, &grown(i2, expand2)?)?, &grown(i3, expand3)?)?;
    if sumdim.is_empty() { Ok(product) } else { ops::sum_dim(&product, Some(sumdim), false, None) }
}
