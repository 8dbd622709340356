//! Ops based on matrix decompositions: rank, condition number, pseudo-inverse, tensor equations.

use super::linalg::needs_vectors;
use crate::ops::formulas::{cast, sym};
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops};

pub(crate) fn lu_factor(a: &Tensor, pivot: bool) -> Result<(Tensor, Tensor)> {
    let (lu, pivots, _) = ops::linalg_lu_factor_ex(a, pivot, true)?;
    Ok((lu, pivots))
}

/// `_lu_with_info`: errors stay in `info`.
pub(crate) fn lu_with_info(a: &Tensor, pivot: bool, _check_errors: bool) -> Result<(Tensor, Tensor, Tensor)> {
    ops::linalg_lu_factor_ex(a, pivot, false)
}

pub(crate) fn lu_solve(b: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<Tensor> {
    ops::linalg_lu_solve(lu, pivots, b, true, false)
}

pub(crate) fn ldl_factor(a: &Tensor, hermitian: bool) -> Result<(Tensor, Tensor)> {
    let (ld, pivots, _) = ops::linalg_ldl_factor_ex(a, hermitian, true)?;
    Ok((ld, pivots))
}

pub(crate) fn eigvals(a: &Tensor) -> Result<Tensor> {
    if needs_vectors() { Ok(ops::linalg_eig(a)?.0) } else { ops::_linalg_eigvals(a) }
}

pub(crate) fn matrix_exp(a: &Tensor) -> Result<Tensor> {
    ops::linalg_matrix_exp(a)
}

pub(crate) fn orgqr(a: &Tensor, tau: &Tensor) -> Result<Tensor> {
    ops::linalg_householder_product(a, tau)
}

// ---- pseudo-inverses

/// A number as a tensor beside `like`.
fn number(x: f64, like: &Tensor) -> Result<Tensor> {
    ops::full(&[], Scalar::Float(x), Some(DType::F64), Some(like.device()))
}

pub(crate) fn pinv_float(a: &Tensor, atol: Option<f64>, rtol: Option<f64>, hermitian: bool) -> Result<Tensor> {
    let [atol, rtol] = [atol, rtol].map(|x| x.map(|x| number(x, a)).transpose());
    ops::linalg_pinv_atol_rtol_tensor(a, atol?.as_ref(), rtol?.as_ref(), hermitian)
}

pub(crate) fn pinv_rcond(a: &Tensor, rcond: f64, hermitian: bool) -> Result<Tensor> {
    pinv_float(a, Some(0.0), Some(rcond), hermitian)
}

pub(crate) fn pinv_rcond_tensor(a: &Tensor, rcond: &Tensor, hermitian: bool) -> Result<Tensor> {
    ops::linalg_pinv_atol_rtol_tensor(a, Some(&number(0.0, a)?), Some(rcond), hermitian)
}

pub(crate) fn pinverse(a: &Tensor, rcond: f64) -> Result<Tensor> {
    pinv_rcond(a, rcond, false)
}

// ---- ranks

/// Rows and columns.
fn extents(op: &'static str, a: &Tensor) -> Result<(usize, usize)> {
    match a.shape() {
        [.., m, n] => Ok((*m, *n)),
        other => Err(Error::argument(op, format!("expected matrices (at least 2 dimensions), found shape {other:?}"))),
    }
}

pub(crate) fn matrix_rank_tensors(
    a: &Tensor,
    atol: Option<&Tensor>,
    rtol: Option<&Tensor>,
    hermitian: bool,
) -> Result<Tensor> {
    const OP: &str = "linalg_matrix_rank";
    let (m, n) = extents(OP, a)?;
    if let Some(t) = [atol, rtol].into_iter().flatten().find(|t| t.is_complex()) {
        return Err(Error::argument(OP, format!("tolerances are real, found {}", t.dtype())));
    }
    let values = match hermitian {
        true => ops::abs(&ops::linalg_eigvalsh(a, "L")?)?,
        false => ops::linalg_svdvals(a, None)?,
    };
    if m.min(n) == 0 {
        return ops::new_zeros(&values, &sym(&values.shape()[..values.ndim() - 1]), Some(DType::I64), None);
    }
    let precision = if values.dtype() == DType::F32 { f32::EPSILON as f64 } else { f64::EPSILON };
    let default = number(precision * m.max(n) as f64, a)?;
    let zero = number(0.0, a)?;
    // An absolute limit alone stands for itself.
    let rtol = match (rtol, atol) {
        (Some(t), _) => t.clone(),
        (None, Some(t)) => ops::where_self(&ops::gt_scalar(t, Scalar::Int(0))?, &zero, &default)?,
        (None, None) => default,
    };
    let largest = ops::amax(&values, &[-1], false)?;
    let limit = ops::maximum(atol.unwrap_or(&zero), &ops::mul(&rtol, &largest)?)?;
    let counted = ops::gt(&values, &ops::unsqueeze(&limit, -1)?)?;
    ops::sum_dim(&counted, Some(&[-1]), false, Some(DType::I64))
}

pub(crate) fn matrix_rank_floats(a: &Tensor, atol: Option<f64>, rtol: Option<f64>, hermitian: bool) -> Result<Tensor> {
    let [atol, rtol] = [atol, rtol].map(|x| x.map(|x| number(x, a)).transpose());
    matrix_rank_tensors(a, atol?.as_ref(), rtol?.as_ref(), hermitian)
}

pub(crate) fn matrix_rank(a: &Tensor, tol: f64, hermitian: bool) -> Result<Tensor> {
    matrix_rank_floats(a, Some(tol), Some(0.0), hermitian)
}

pub(crate) fn matrix_rank_tensor(a: &Tensor, tol: &Tensor, hermitian: bool) -> Result<Tensor> {
    matrix_rank_tensors(a, Some(tol), Some(&number(0.0, a)?), hermitian)
}

// ---- condition

/// The norm of a matrix times that of its inverse; infinite where there is none.
fn by_inverse(a: &Tensor, norm: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let (inverse, info) = ops::linalg_inv_ex(a, false)?;
    let singular = ops::unsqueeze(&ops::unsqueeze(&ops::gt_scalar(&info, Scalar::Int(0))?, -1)?, -1)?;
    let inverse = ops::masked_fill(&inverse, &singular, Scalar::Float(f64::INFINITY))?;
    ops::mul(&norm(a)?, &norm(&inverse)?)
}

pub(crate) fn cond(a: &Tensor, p: Option<Scalar>) -> Result<Tensor> {
    const OP: &str = "linalg_cond";
    let (m, n) = extents(OP, a)?;
    let order = p.map_or(2.0, Scalar::to_f64);
    let real = a.dtype().to_real();
    if a.numel() == 0 {
        return ops::new_zeros(a, &sym(&a.shape()[..a.ndim() - 2]), Some(real), None);
    }
    if order.abs() == 2.0 {
        let values = ops::linalg_svdvals(a, None)?;
        let (largest, smallest) = (ops::select(&values, -1, 0.into())?, ops::select(&values, -1, (-1).into())?);
        return if order > 0.0 { ops::div(&largest, &smallest) } else { ops::div(&smallest, &largest) };
    }
    square(OP, m, n)?;
    by_inverse(a, |t| ops::linalg_matrix_norm_ord(t, Scalar::Float(order), &[-2, -1], false, None))
}

pub(crate) fn cond_str(a: &Tensor, p: &str) -> Result<Tensor> {
    const OP: &str = "linalg_cond";
    let (m, n) = extents(OP, a)?;
    square(OP, m, n)?;
    if a.numel() == 0 {
        return ops::new_zeros(a, &sym(&a.shape()[..a.ndim() - 2]), Some(a.dtype().to_real()), None);
    }
    by_inverse(a, |t| ops::linalg_matrix_norm(t, p, &[-2, -1], false, None))
}

fn square(op: &'static str, m: usize, n: usize) -> Result<()> {
    match m == n {
        true => Ok(()),
        false => Err(Error::argument(op, format!("expected square matrices, found {m} by {n} ones"))),
    }
}

// ---- tensors as matrices

pub(crate) fn tensorinv(a: &Tensor, ind: i64) -> Result<Tensor> {
    const OP: &str = "linalg_tensorinv";
    let split = usize::try_from(ind).ok().filter(|i| *i > 0 && *i <= a.ndim());
    let Some(split) = split else {
        let m = format!("expected a number of dimensions from 1 to {}, found {ind}", a.ndim());
        return Err(Error::argument(OP, m));
    };
    let (front, back) = a.shape().split_at(split);
    let (rows, columns): (usize, usize) = (front.iter().product(), back.iter().product());
    if rows != columns {
        let m = format!("the first {split} sizes {front:?} and the others {back:?} have different products");
        return Err(Error::argument(OP, m));
    }
    let inverse = ops::linalg_inv_ex(&ops::reshape(a, &sym(&[rows, columns]))?, true)?.0;
    ops::reshape(&inverse, &sym(&[back, front].concat()))
}

pub(crate) fn tensorsolve(a: &Tensor, b: &Tensor, dims: Option<&[i64]>) -> Result<Tensor> {
    const OP: &str = "linalg_tensorsolve";
    let a = match dims {
        Some(dims) => {
            let end = a.ndim() as i64;
            let last: Vec<i64> = (end - dims.len() as i64..end).collect();
            ops::movedim_intlist(a, dims, &last)?
        }
        None => a.clone(),
    };
    let Some((front, back)) = (b.ndim() <= a.ndim()).then(|| a.shape().split_at(b.ndim())) else {
        let m = format!("the right-hand side has {} dimensions, the tensor {}", b.ndim(), a.ndim());
        return Err(Error::argument(OP, m));
    };
    let (rows, columns): (usize, usize) = (front.iter().product(), back.iter().product());
    if rows != columns || b.numel() != rows {
        let m = format!("sizes {front:?} and {back:?} with a right-hand side of {:?} make no square system", b.shape());
        return Err(Error::argument(OP, m));
    }
    let matrix = ops::reshape(&a, &sym(&[rows, columns]))?;
    let x = ops::linalg_solve(&matrix, &ops::reshape(b, &sym(&[rows]))?, true)?;
    ops::reshape(&x, &sym(back))
}

/// Powers 0 to N - 1 of every element.
pub(crate) fn vander(x: &Tensor, n: Option<SymInt>) -> Result<Tensor> {
    const OP: &str = "linalg_vander";
    if x.dtype() == DType::Bool {
        return Err(Error::argument(OP, "expected numbers, found bool"));
    }
    let x = &if x.ndim() == 0 { ops::unsqueeze(x, 0)? } else { x.clone() };
    let count = n.map_or(x.shape()[x.ndim() - 1] as i64, |n| n.int());
    if count <= 1 {
        return Err(Error::argument(OP, format!("expected at least two powers, found {count}")));
    }
    let mut sizes = sym(x.shape());
    sizes.push(SymInt::from(count - 1));
    let powers = ops::cumprod(&ops::expand(&ops::unsqueeze(x, -1)?, &sizes, false)?, -1, None)?;
    let last = sizes.len() - 1;
    sizes[last] = 1.into();
    let ones = ops::new_ones(&cast(x, powers.dtype())?, &sizes, None, None)?;
    ops::cat(&[ones, powers], -1)
}
