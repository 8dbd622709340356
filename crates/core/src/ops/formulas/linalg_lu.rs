//! Derivatives of LU factors, of eigenvalues of any matrix, of exponentials, pseudo-inverses and least squares.

use super::base::{cast, conj, sym, zeros_like_primal};
use super::linalg::{adjoint, product, real_numbers, transposed};
use super::linalg_factors::{last, narrowed, over_differences, plus};
use crate::ops::arith::{add, mul, neg, sub};
use crate::{Result, SymInt, Tensor, ops};

// ---- LU: with B = Pᵀ A = L U and M = L⁻¹ dB U⁻¹, dL = L tril(M, -1) and dU = triu(M) U. What is beside the square part
//      follows from it: U₂ = L⁻¹ B₂ of a wide matrix, L₂ = B₂ U⁻¹ of a tall one.

/// `L⁻ᴴ X`, or `L⁻¹ X`.
fn under_l(l: &Tensor, x: &Tensor, turned: bool) -> Result<Tensor> {
    let l = if turned { adjoint(l)? } else { l.clone() };
    ops::linalg_solve_triangular(&l, x, turned, true, true)
}

/// `X U⁻ᴴ`, or `X U⁻¹`.
fn over_u(x: &Tensor, u: &Tensor, turned: bool) -> Result<Tensor> {
    let u = if turned { adjoint(u)? } else { u.clone() };
    ops::linalg_solve_triangular(&u, x, !turned, false, false)
}

/// The first `k` rows, and the others.
fn rows(t: &Tensor, k: usize) -> Result<(Tensor, Tensor)> {
    Ok((narrowed(t, -2, 0, k)?, narrowed(t, -2, k, last(t, 2) - k)?))
}

/// The first `k` columns, and the others.
fn columns(t: &Tensor, k: usize) -> Result<(Tensor, Tensor)> {
    Ok((narrowed(t, -1, 0, k)?, narrowed(t, -1, k, last(t, 1) - k)?))
}

fn lower(t: &Tensor) -> Result<Tensor> {
    ops::tril(t, (-1).into())
}

fn upper(t: &Tensor) -> Result<Tensor> {
    ops::triu(t, 0.into())
}

/// Square factors.
fn square_backward(grad_l: Option<&Tensor>, grad_u: Option<&Tensor>, l: &Tensor, u: &Tensor) -> Result<Option<Tensor>> {
    let of_l = grad_l.map(|g| lower(&ops::matmul(&adjoint(l)?, g)?)).transpose()?;
    let of_u = grad_u.map(|g| upper(&ops::matmul(g, &adjoint(u)?)?)).transpose()?;
    plus(of_l, of_u)?.map(|m| over_u(&under_l(l, &m, true)?, u, true)).transpose()
}

pub(crate) fn linalg_lu_backward(
    grad_l: Option<&Tensor>,
    grad_u: Option<&Tensor>,
    p: &Tensor,
    l: &Tensor,
    u: &Tensor,
) -> Result<Option<Tensor>> {
    let (m, n) = (last(l, 2), last(u, 1));
    let k = m.min(n);
    let grad = if m == n {
        square_backward(grad_l, grad_u, l, u)?
    } else if m < n {
        let (u1, u2) = columns(u, k)?;
        let (grad_u1, grad_u2) = grad_u.map(|g| columns(g, k)).transpose()?.unzip();
        let grad_b2 = grad_u2.map(|g| under_l(l, &g, true)).transpose()?;
        let more = grad_b2.as_ref().map(|g| neg(&ops::matmul(g, &adjoint(&u2)?)?)).transpose()?;
        let grad_l = plus(grad_l.cloned(), more)?;
        let grad_b1 = square_backward(grad_l.as_ref(), grad_u1.as_ref(), l, &u1)?;
        joined(grad_b1, grad_b2, || zeros_like_primal(&u2), -1)?
    } else {
        let (l1, l2) = rows(l, k)?;
        let (grad_l1, grad_l2) = grad_l.map(|g| rows(g, k)).transpose()?.unzip();
        let grad_b2 = grad_l2.map(|g| over_u(&g, u, true)).transpose()?;
        let more = grad_b2.as_ref().map(|g| neg(&ops::matmul(&adjoint(&l2)?, g)?)).transpose()?;
        let grad_u = plus(grad_u.cloned(), more)?;
        let grad_b1 = square_backward(grad_l1.as_ref(), grad_u.as_ref(), &l1, u)?;
        joined(grad_b1, grad_b2, || zeros_like_primal(&l2), -2)?
    };
    grad.map(|g| ops::matmul(p, &g)).transpose()
}

/// Both parts side by side; the second may be missing.
fn joined(
    first: Option<Tensor>,
    second: Option<Tensor>,
    empty: impl Fn() -> Result<Tensor>,
    dim: i64,
) -> Result<Option<Tensor>> {
    let Some(first) = first else { return Ok(None) };
    ops::cat(&[first, second.map_or_else(empty, Ok)?], dim).map(Some)
}

/// Tangents of both factors.
fn lu_jvp(tangent: &Tensor, p: &Tensor, l: &Tensor, u: &Tensor) -> Result<(Tensor, Tensor)> {
    let (m, n) = (last(l, 2), last(u, 1));
    let k = m.min(n);
    let db = ops::matmul(&transposed(p)?, tangent)?;
    let (l1, u1) = (rows(l, k)?.0, columns(u, k)?.0);
    let db1 = columns(&rows(&db, k)?.0, k)?.0;
    let middle = over_u(&under_l(&l1, &db1, false)?, &u1, false)?;
    let (dl, du) = (ops::matmul(&l1, &lower(&middle)?)?, ops::matmul(&upper(&middle)?, &u1)?);
    if m < n {
        let (db2, u2) = (columns(&db, k)?.1, columns(u, k)?.1);
        let du2 = under_l(l, &sub(&db2, &ops::matmul(&dl, &u2)?)?, false)?;
        return Ok((dl, ops::cat(&[du, du2], -1)?));
    }
    if m > n {
        let (db2, l2) = (rows(&db, k)?.1, rows(l, k)?.1);
        let dl2 = over_u(&sub(&db2, &ops::matmul(&l2, &du)?)?, u, false)?;
        return Ok((ops::cat(&[dl, dl2], -2)?, du));
    }
    Ok((dl, du))
}

pub(crate) fn linalg_lu_jvp_l(tangent: &Tensor, p: &Tensor, l: &Tensor, u: &Tensor) -> Result<Tensor> {
    Ok(lu_jvp(tangent, p, l, u)?.0)
}

pub(crate) fn linalg_lu_jvp_u(tangent: &Tensor, p: &Tensor, l: &Tensor, u: &Tensor) -> Result<Tensor> {
    Ok(lu_jvp(tangent, p, l, u)?.1)
}

/// `tril(L, -1) + triu(U)` in one matrix.
fn packed(l: &Tensor, u: &Tensor) -> Result<Tensor> {
    let (m, n) = (last(l, 2), last(u, 1));
    let k = m.min(n);
    let (lower, upper) = (lower(l)?, upper(u)?);
    if m > n {
        let (top, bottom) = rows(&lower, k)?;
        return ops::cat(&[add(&top, &upper)?, bottom], -2);
    }
    let (left, right) = columns(&upper, k)?;
    let square = add(&lower, &left)?;
    if m < n { ops::cat(&[square, right], -1) } else { Ok(square) }
}

pub(crate) fn lu_factor_ex_backward(grad: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<Option<Tensor>> {
    let (p, l, u) = ops::lu_unpack(lu, pivots, true, true)?;
    let (grad_l, grad_u) = (lu_unpack_jvp_l(grad)?, lu_unpack_jvp_u(grad)?);
    linalg_lu_backward(Some(&grad_l), Some(&grad_u), &p, &l, &u)
}

pub(crate) fn lu_factor_ex_jvp(tangent: &Tensor, lu: &Tensor, pivots: &Tensor) -> Result<Tensor> {
    let (p, l, u) = ops::lu_unpack(lu, pivots, true, true)?;
    let (dl, du) = lu_jvp(tangent, &p, &l, &u)?;
    packed(&dl, &du)
}

pub(crate) fn lu_unpack_backward(
    grad_l: Option<&Tensor>,
    grad_u: Option<&Tensor>,
    sizes: &[SymInt],
) -> Result<Option<Tensor>> {
    let Some(some) = grad_l.or(grad_u) else { return Ok(None) };
    let (m, n) = match sizes {
        [.., m, n] => (usize::from(*m), usize::from(*n)),
        _ => return Ok(None),
    };
    let k = m.min(n);
    let zeros = |rows: usize, columns: usize| {
        let mut sizes = sizes.to_vec();
        let end = sizes.len();
        (sizes[end - 2], sizes[end - 1]) = (rows.into(), columns.into());
        ops::new_zeros(some, &sizes, None, None)
    };
    let l = grad_l.map_or_else(|| zeros(m, k), |g| Ok(g.clone()))?;
    let u = grad_u.map_or_else(|| zeros(k, n), |g| Ok(g.clone()))?;
    packed(&l, &u).map(Some)
}

pub(crate) fn lu_unpack_jvp_l(tangent: &Tensor) -> Result<Tensor> {
    lower(&narrowed(tangent, -1, 0, last(tangent, 2).min(last(tangent, 1)))?)
}

pub(crate) fn lu_unpack_jvp_u(tangent: &Tensor) -> Result<Tensor> {
    upper(&narrowed(tangent, -2, 0, last(tangent, 2).min(last(tangent, 1)))?)
}

// ---- systems with given factors: A dX = dB - dA X, dA = P (dL U + L dU)

pub(crate) fn linalg_lu_solve_lu(
    grad: &Tensor,
    lu: &Tensor,
    pivots: &Tensor,
    x: &Tensor,
    left: bool,
    turned: bool,
) -> Result<Tensor> {
    let grad_b = ops::linalg_lu_solve(lu, pivots, grad, left, !turned)?;
    let grad_a = neg(&match (left, turned) {
        (true, false) => ops::matmul(&grad_b, &adjoint(x)?)?,
        (true, true) => ops::matmul(x, &adjoint(&grad_b)?)?,
        (false, false) => ops::matmul(&adjoint(x)?, &grad_b)?,
        (false, true) => ops::matmul(&adjoint(&grad_b)?, x)?,
    })?;
    let (p, l, u) = ops::lu_unpack(lu, pivots, true, true)?;
    let moved = ops::matmul(&transposed(&p)?, &grad_a)?;
    add(&lower(&ops::matmul(&moved, &adjoint(&u)?)?)?, &upper(&ops::matmul(&adjoint(&l)?, &moved)?)?)
}

pub(crate) fn linalg_lu_solve_jvp(
    x: &Tensor,
    lu: &Tensor,
    pivots: &Tensor,
    lu_t: &Tensor,
    b_t: &Tensor,
    left: bool,
    turned: bool,
) -> Result<Tensor> {
    let (p, l, u) = ops::lu_unpack(lu, pivots, true, true)?;
    let inside = add(&ops::matmul(&lower(lu_t)?, &u)?, &ops::matmul(&l, &upper(lu_t)?)?)?;
    let da = ops::matmul(&p, &inside)?;
    let da = if turned { adjoint(&da)? } else { da };
    let moved = if left { ops::matmul(&da, x)? } else { ops::matmul(x, &da)? };
    ops::linalg_lu_solve(lu, pivots, &sub(b_t, &moved)?, left, turned)
}

// ---- eigenvalues of any matrix: with C = V⁻¹ dA V, dλ = diag C and dV = V (C / E), kept at norm 1

/// `V⁻ᴴ X`, or `V⁻¹ X`.
fn under(v: &Tensor, x: &Tensor, turned: bool) -> Result<Tensor> {
    let v = if turned { adjoint(v)? } else { v.clone() };
    Ok(ops::_linalg_solve_ex(&v, x, true, false)?.0)
}

pub(crate) fn linalg_eig_backward(
    grad_values: Option<&Tensor>,
    grad_vectors: Option<&Tensor>,
    values: &Tensor,
    vectors: &Tensor,
) -> Result<Option<Tensor>> {
    let turned = adjoint(vectors)?;
    let of_values = grad_values.map(|g| ops::diag_embed(g, 0, -2, -1)).transpose()?;
    let of_vectors = match grad_vectors {
        None => None,
        Some(g) => {
            let inside = ops::matmul(&turned, g)?;
            let norms = real_numbers(&ops::diagonal(&inside, 0, -2, -1)?)?;
            let along = mul(&ops::matmul(&turned, vectors)?, &ops::unsqueeze(&norms, -2)?)?;
            Some(over_differences(&sub(&inside, &along)?, &conj(values)?)?)
        }
    };
    let core = plus(of_values, of_vectors)?;
    core.map(|c| under(vectors, &ops::matmul(&c, &turned)?, true)).transpose()
}

fn in_basis(tangent: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    under(vectors, &ops::matmul(&cast(tangent, vectors.dtype())?, vectors)?, false)
}

pub(crate) fn linalg_eig_jvp_values(tangent: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    ops::diagonal_copy(&in_basis(tangent, vectors)?, 0, -2, -1)
}

pub(crate) fn linalg_eig_jvp_vectors(tangent: &Tensor, values: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    let dv = ops::matmul(vectors, &over_differences(&in_basis(tangent, vectors)?, values)?)?;
    // The norm stays 1.
    let along = real_numbers(&ops::sum_dim(&mul(&conj(vectors)?, &dv)?, Some(&[-2]), true, None)?)?;
    sub(&dv, &mul(vectors, &along)?)
}

// ---- exponentials: exp of (A X; 0 A) holds the derivative of exp(A) along X in its upper right part

pub(crate) fn matrix_exp_differential(a: &Tensor, x: &Tensor, turned: bool) -> Result<Tensor> {
    let a = if turned { adjoint(a)? } else { a.clone() };
    let n = last(&a, 1);
    let zero = ops::new_zeros(&a, &sym(a.shape()), None, None)?;
    let (top, bottom) = (ops::cat(&[a.clone(), x.clone()], -1)?, ops::cat(&[zero, a], -1)?);
    let whole = ops::linalg_matrix_exp(&ops::cat(&[top, bottom], -2)?)?;
    narrowed(&narrowed(&whole, -2, 0, n)?, -1, n, n)
}

// ---- pseudo-inverses of constant rank, X = A⁺:
//      dX = -X dA X + X Xᴴ dAᴴ (I - A X) + (I - X A) dAᴴ Xᴴ X

pub(crate) fn pinv_jvp(a: &Tensor, x: &Tensor, tangent: &Tensor) -> Result<Tensor> {
    let (turned, x_turned) = (adjoint(tangent)?, adjoint(x)?);
    let moved = neg(&product(x, tangent, x)?)?;
    let left = product(x, &x_turned, &turned)?;
    let left = sub(&left, &product(&left, a, x)?)?;
    let right = product(&turned, &x_turned, x)?;
    let right = sub(&right, &product(x, a, &right)?)?;
    add(&moved, &add(&left, &right)?)
}

/// The adjoint of [`pinv_jvp`].
pub(crate) fn pinv_backward(grad: &Tensor, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    let (turned, x_turned) = (adjoint(grad)?, adjoint(x)?);
    let moved = neg(&product(&x_turned, grad, &x_turned)?)?;
    let left = sub(&turned, &product(a, x, &turned)?)?;
    let left = product(&left, x, &x_turned)?;
    let right = sub(&turned, &product(&turned, x, a)?)?;
    let right = product(&x_turned, x, &right)?;
    add(&moved, &add(&left, &right)?)
}

// ---- least squares: X = A⁺ B, residuals Σ |A X - B|²

fn pinv(a: &Tensor) -> Result<Tensor> {
    ops::linalg_pinv_atol_rtol_tensor(a, None, None, false)
}

pub(crate) fn linalg_lstsq_backward(
    grad_solution: Option<&Tensor>,
    grad_residuals: Option<&Tensor>,
    a: &Tensor,
    b: &Tensor,
    solution: &Tensor,
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let vector = b.ndim() < a.ndim();
    let matrix = |t: &Tensor| if vector { ops::unsqueeze(t, -1) } else { Ok(t.clone()) };
    let (b, x) = (matrix(b)?, matrix(solution)?);
    let (mut grad_a, mut grad_b) = (None, None);
    if let Some(g) = grad_solution {
        let (g, inverse) = (matrix(g)?, pinv(a)?);
        grad_a = Some(pinv_backward(&ops::matmul(&g, &adjoint(&b)?)?, &inverse, a)?);
        grad_b = Some(ops::matmul(&adjoint(&inverse)?, &g)?);
    }
    if let Some(g) = grad_residuals.filter(|g| g.numel() > 0) {
        // What is left is orthogonal to the columns of A: the solution's own change does not count.
        let left = mul(&sub(&ops::matmul(a, &x)?, &b)?, &mul(&ops::unsqueeze(g, -2)?, &2.0)?)?;
        grad_a = plus(grad_a, Some(ops::matmul(&left, &adjoint(&x)?)?))?;
        grad_b = plus(grad_b, Some(neg(&left)?))?;
    }
    let grad_b = match grad_b {
        Some(g) if vector => Some(ops::squeeze_dim(&g, -1)?),
        other => other,
    };
    Ok((grad_a, grad_b))
}

pub(crate) fn linalg_lstsq_solution_jvp(a: &Tensor, a_t: &Tensor, b: &Tensor, b_t: &Tensor) -> Result<Tensor> {
    let vector = b.ndim() < a.ndim();
    let matrix = |t: &Tensor| if vector { ops::unsqueeze(t, -1) } else { Ok(t.clone()) };
    let inverse = pinv(a)?;
    let moved = ops::matmul(&pinv_jvp(a, &inverse, a_t)?, &matrix(b)?)?;
    let dx = add(&moved, &ops::matmul(&inverse, &matrix(b_t)?)?)?;
    if vector { ops::squeeze_dim(&dx, -1) } else { Ok(dx) }
}

pub(crate) fn linalg_lstsq_residuals_jvp(
    a: &Tensor,
    a_t: &Tensor,
    b: &Tensor,
    b_t: &Tensor,
    solution: &Tensor,
    residuals: &Tensor,
) -> Result<Tensor> {
    if residuals.numel() == 0 {
        return zeros_like_primal(residuals);
    }
    let vector = b.ndim() < a.ndim();
    let matrix = |t: &Tensor| if vector { ops::unsqueeze(t, -1) } else { Ok(t.clone()) };
    let (x, b, b_t) = (matrix(solution)?, matrix(b)?, matrix(b_t)?);
    let left = sub(&ops::matmul(a, &x)?, &b)?;
    let change = sub(&ops::matmul(a_t, &x)?, &b_t)?;
    let sums = ops::sum_dim(&mul(&conj(&left)?, &change)?, Some(&[-2]), false, None)?;
    real_numbers(&mul(&sums, &2.0)?)
}
