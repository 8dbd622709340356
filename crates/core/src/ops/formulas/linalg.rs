//! Derivatives of inverses, systems, determinants and Cholesky factors. Matrices are real: Aᴴ is Aᵀ.

use super::base::{sum_to_size, sym, zeros_like_primal};
use crate::ops::arith::{add, mul, neg, sub};
use crate::ops::shape::linalg::is_vector;
use crate::{Result, Scalar, SymInt, Tensor, ops};

pub(super) fn transposed(t: &Tensor) -> Result<Tensor> {
    ops::transpose(t, -2, -1)
}

/// The product of three.
pub(super) fn product(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<Tensor> {
    ops::matmul(&ops::matmul(a, b)?, c)
}

/// One number for each matrix, so that it can be multiplied with them.
fn per_matrix(t: &Tensor) -> Result<Tensor> {
    ops::unsqueeze(&ops::unsqueeze(t, -1)?, -1)
}

/// Σ aᵢⱼ bᵢⱼ of each matrix.
fn inner(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::sum_dim(&mul(a, b)?, Some(&[-2, -1]), false, None)
}

/// The symmetric part.
pub(super) fn symmetric(t: &Tensor) -> Result<Tensor> {
    mul(&add(t, &transposed(t)?)?, &0.5)
}

// ---- inverse: dA⁻¹ = -A⁻¹ dA A⁻¹

pub(crate) fn linalg_inv_backward(grad: &Tensor, inverse: &Tensor) -> Result<Tensor> {
    let turned = transposed(inverse)?;
    neg(&product(&turned, grad, &turned)?)
}

pub(crate) fn linalg_inv_jvp(tangent: &Tensor, inverse: &Tensor) -> Result<Tensor> {
    neg(&product(inverse, tangent, inverse)?)
}

// ---- systems: A dX = dB - dA X

/// The solution of a system with right-hand sides that are matrices.
fn solve(a: &Tensor, b: &Tensor, left: bool) -> Result<Tensor> {
    Ok(ops::_linalg_solve_ex(a, b, left, false)?.0)
}

fn column_if(yes: bool, t: &Tensor) -> Result<Tensor> {
    if yes { ops::unsqueeze(t, -1) } else { Ok(t.clone()) }
}

fn squeezed_if(yes: bool, t: Tensor) -> Result<Tensor> {
    if yes { ops::squeeze_dim(&t, -1) } else { Ok(t) }
}

pub(crate) fn linalg_solve_backward(
    grad: &Tensor,
    result: &Tensor,
    a: &Tensor,
    b_sizes: &[SymInt],
    left: bool,
    wanted: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let b_sizes: Vec<usize> = b_sizes.iter().map(|n| usize::from(*n)).collect();
    let vector = is_vector(a.shape(), &b_sizes);
    let (grad, x) = (column_if(vector, grad)?, column_if(vector, result)?);
    let grad_b = solve(&transposed(a)?, &grad, left)?;
    let grad_a = wanted[0].then(|| matrix_grad(&grad_b, &x, left)).transpose()?;
    // A vector is broadcast over the matrices, which the engine's own rule for shapes does not see.
    let grad_b = wanted[1].then(|| sum_to_size(&squeezed_if(vector, grad_b)?, &b_sizes)).transpose()?;
    Ok((grad_a, grad_b))
}

/// The gradient of the matrix of a system, given that of the right-hand side.
fn matrix_grad(grad_b: &Tensor, x: &Tensor, left: bool) -> Result<Tensor> {
    let turned = transposed(x)?;
    neg(&if left { ops::matmul(grad_b, &turned)? } else { ops::matmul(&turned, grad_b)? })
}

/// `dB - dA X`, or `dB - X dA`.
fn moved(a_t: &Tensor, b_t: &Tensor, x: &Tensor, left: bool) -> Result<Tensor> {
    sub(b_t, &if left { ops::matmul(a_t, x)? } else { ops::matmul(x, a_t)? })
}

pub(crate) fn linalg_solve_jvp(a_t: &Tensor, b_t: &Tensor, a: &Tensor, result: &Tensor, left: bool) -> Result<Tensor> {
    let vector = is_vector(a.shape(), b_t.shape());
    let (b_t, x) = (column_if(vector, b_t)?, column_if(vector, result)?);
    squeezed_if(vector, solve(a, &moved(a_t, &b_t, &x, left)?, left)?)
}

/// The part of a gradient or tangent that a triangular matrix has.
fn triangle(t: &Tensor, upper: bool, unit: bool) -> Result<Tensor> {
    let off = i64::from(unit);
    if upper { ops::triu(t, off.into()) } else { ops::tril(t, (-off).into()) }
}

pub(crate) fn linalg_solve_triangular_backward(
    grad: &Tensor,
    a: &Tensor,
    x: &Tensor,
    upper: bool,
    left: bool,
    unit: bool,
    wanted: [bool; 2],
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let grad_b = ops::linalg_solve_triangular(&transposed(a)?, grad, !upper, left, unit)?;
    let grad_a = wanted[0].then(|| triangle(&matrix_grad(&grad_b, x, left)?, upper, unit)).transpose()?;
    Ok((grad_a, wanted[1].then_some(grad_b)))
}

pub(crate) fn linalg_solve_triangular_jvp(
    a_t: &Tensor,
    b_t: &Tensor,
    a: &Tensor,
    x: &Tensor,
    upper: bool,
    left: bool,
    unit: bool,
) -> Result<Tensor> {
    let a_t = triangle(a_t, upper, unit)?;
    ops::linalg_solve_triangular(a, &moved(&a_t, b_t, x, left)?, upper, left, unit)
}

// ---- determinants: d det = Σ cofactorᵢⱼ dAᵢⱼ, cofactors = det · A⁻ᵀ

/// The matrix of cofactors. Of a singular matrix it comes from singular values: with A = U S Vᵀ it is
/// det(U) det(V) U C Vᵀ, where C has on its diagonal the products of all the other singular values.
fn cofactors(a: &Tensor, det: &Tensor) -> Result<Tensor> {
    // Inside vmap no number can be read: there the formula serves that always holds.
    if a.is_meta() || !has_zero(det).unwrap_or(true) {
        return mul(&per_matrix(det)?, &transposed(&ops::linalg_inv_ex(a, false)?.0)?);
    }
    let (u, s, vh) = ops::_linalg_svd(a, false, true, None)?;
    let sign = {
        let _plain = crate::autograd::NoGrad::new();
        mul(&ops::linalg_det(&u.detach())?, &ops::linalg_det(&vh.detach())?)?
    };
    let n = s.sym_sizes().last().copied().unwrap_or_default();
    let own = ops::eye(n, Some(crate::DType::Bool), Some(s.device()))?;
    let others =
        ops::masked_fill(&ops::expand(&ops::unsqueeze(&s, -2)?, &sym(a.shape()), false)?, &own, Scalar::Int(1))?;
    let others = ops::prod_dim(&others, -1, false, None)?;
    mul(&per_matrix(&sign)?, &ops::matmul(&mul(&u, &ops::unsqueeze(&others, -2)?)?, &vh)?)
}

fn has_zero(t: &Tensor) -> Result<bool> {
    let _plain = crate::autograd::NoGrad::new();
    ops::any(&ops::eq_scalar(&t.detach(), Scalar::Int(0))?)?.try_item::<bool>()
}

pub(crate) fn linalg_det_backward(grad: &Tensor, det: &Tensor, a: &Tensor) -> Result<Tensor> {
    mul(&per_matrix(grad)?, &cofactors(a, det)?)
}

pub(crate) fn linalg_det_jvp(tangent: &Tensor, det: &Tensor, a: &Tensor) -> Result<Tensor> {
    inner(&cofactors(a, det)?, tangent)
}

/// A⁻ᵀ, the derivative of log |det A|.
fn inverse_transposed(a: &Tensor) -> Result<Tensor> {
    transposed(&ops::linalg_inv_ex(a, false)?.0)
}

pub(crate) fn linalg_slogdet_backward(grad_logabsdet: Option<&Tensor>, a: &Tensor) -> Result<Tensor> {
    match grad_logabsdet {
        Some(g) => mul(&per_matrix(g)?, &inverse_transposed(a)?),
        None => zeros_like_primal(a), // the sign of a real determinant is constant
    }
}

pub(crate) fn linalg_slogdet_jvp(tangent: &Tensor, a: &Tensor) -> Result<Tensor> {
    inner(&inverse_transposed(a)?, tangent)
}

/// The tangent of a sign, which does not change.
pub(crate) fn linalg_sign_jvp(_tangent: &Tensor, sign: &Tensor) -> Result<Tensor> {
    zeros_like_primal(sign)
}

// ---- Cholesky: dL = L Φ(L⁻¹ dA L⁻ᵀ), Φ the lower triangle with half the diagonal

fn phi(t: &Tensor) -> Result<Tensor> {
    mul(&add(&ops::tril(t, 0.into())?, &ops::tril(t, (-1).into())?)?, &0.5)
}

fn transposed_if(yes: bool, t: &Tensor) -> Result<Tensor> {
    if yes { transposed(t) } else { Ok(t.clone()) }
}

/// Only one triangle of the matrix is read, but it stands for a symmetric one: so is the gradient.
pub(crate) fn linalg_cholesky_backward(grad: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    let (grad, l) = (transposed_if(upper, grad)?, transposed_if(upper, factor)?);
    let turned = transposed(&l)?;
    let core = phi(&ops::matmul(&turned, &grad)?)?;
    let half = ops::linalg_solve_triangular(&l, &core, false, false, false)?;
    symmetric(&ops::linalg_solve_triangular(&turned, &half, true, true, false)?)
}

pub(crate) fn linalg_cholesky_jvp(tangent: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    let l = transposed_if(upper, factor)?;
    let half = ops::linalg_solve_triangular(&l, &symmetric(tangent)?, false, true, false)?;
    let core = ops::linalg_solve_triangular(&transposed(&l)?, &half, true, false, false)?;
    transposed_if(upper, &ops::matmul(&l, &phi(&core)?)?)
}
