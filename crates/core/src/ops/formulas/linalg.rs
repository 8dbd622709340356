//! Derivatives of inverses, systems, determinants and Cholesky factors. Aᴴ of a real matrix is Aᵀ.

use super::base::{cast, conj, sum_to_size, sym, zeros_like_primal};
use crate::ops::arith::{add, mul, neg, sub};
use crate::ops::shape::linalg::is_vector;
use crate::{Result, Scalar, SymInt, Tensor, ops};

pub(super) fn transposed(t: &Tensor) -> Result<Tensor> {
    ops::transpose(t, -2, -1)
}

/// The conjugate transpose.
pub(super) fn adjoint(t: &Tensor) -> Result<Tensor> {
    conj(&transposed(t)?)
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

/// The self-adjoint part.
pub(super) fn symmetric(t: &Tensor) -> Result<Tensor> {
    mul(&add(t, &adjoint(t)?)?, &0.5)
}

// ---- inverse: dA⁻¹ = -A⁻¹ dA A⁻¹

pub(crate) fn linalg_inv_backward(grad: &Tensor, inverse: &Tensor) -> Result<Tensor> {
    let turned = adjoint(inverse)?;
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
    let grad_b = solve(&adjoint(a)?, &grad, left)?;
    let grad_a = wanted[0].then(|| matrix_grad(&grad_b, &x, left)).transpose()?;
    // A vector is broadcast over the matrices, which the engine's own rule for shapes does not see.
    let grad_b = wanted[1].then(|| sum_to_size(&squeezed_if(vector, grad_b)?, &b_sizes)).transpose()?;
    Ok((grad_a, grad_b))
}

/// The gradient of the matrix of a system, given that of the right-hand side.
fn matrix_grad(grad_b: &Tensor, x: &Tensor, left: bool) -> Result<Tensor> {
    let turned = adjoint(x)?;
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
    let grad_b = ops::linalg_solve_triangular(&adjoint(a)?, grad, !upper, left, unit)?;
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

/// The matrix of cofactors. Of a singular matrix it comes from singular values: with A = U S Vᴴ it is
/// det(U) det(V) times the conjugate of U C Vᴴ, where C has on its diagonal the products of all the other singular values.
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
    mul(&per_matrix(&sign)?, &conj(&ops::matmul(&mul(&u, &ops::unsqueeze(&others, -2)?)?, &vh)?)?)
}

fn has_zero(t: &Tensor) -> Result<bool> {
    let _plain = crate::autograd::NoGrad::new();
    ops::any(&ops::eq_scalar(&t.detach(), Scalar::Int(0))?)?.try_item::<bool>()
}

pub(crate) fn linalg_det_backward(grad: &Tensor, det: &Tensor, a: &Tensor) -> Result<Tensor> {
    mul(&per_matrix(grad)?, &conj(&cofactors(a, det)?)?)
}

pub(crate) fn linalg_det_jvp(tangent: &Tensor, det: &Tensor, a: &Tensor) -> Result<Tensor> {
    inner(&cofactors(a, det)?, tangent)
}

// ---- log |det| and the sign: with t = tr(A⁻¹ dA), d log |det| = Re t and d sign = i sign Im t

/// `i Im z`.
fn imaginary_part(z: &Tensor) -> Result<Tensor> {
    mul(&sub(z, &conj(z)?)?, &0.5)
}

pub(crate) fn linalg_slogdet_backward(
    grad_sign: Option<&Tensor>,
    grad_logabsdet: Option<&Tensor>,
    a: &Tensor,
    sign: &Tensor,
) -> Result<Tensor> {
    // The sign of a real determinant is constant.
    let of_sign = match grad_sign {
        Some(g) if a.is_complex() => Some(imaginary_part(&mul(g, &conj(sign)?)?)?),
        _ => None,
    };
    let factor = match (grad_logabsdet, of_sign) {
        (Some(g), Some(more)) => add(g, &more)?,
        (Some(g), None) => g.clone(),
        (None, Some(more)) => more,
        (None, None) => return zeros_like_primal(a),
    };
    mul(&per_matrix(&factor)?, &adjoint(&ops::linalg_inv_ex(a, false)?.0)?)
}

/// `tr(A⁻¹ dA)`.
fn log_derivative(tangent: &Tensor, a: &Tensor) -> Result<Tensor> {
    inner(&transposed(&ops::linalg_inv_ex(a, false)?.0)?, tangent)
}

pub(crate) fn linalg_slogdet_jvp(tangent: &Tensor, a: &Tensor) -> Result<Tensor> {
    real_numbers(&log_derivative(tangent, a)?)
}

/// The tangent of a sign; that of a real determinant does not change.
pub(crate) fn linalg_sign_jvp(tangent: &Tensor, a: &Tensor, sign: &Tensor) -> Result<Tensor> {
    match a.is_complex() {
        true => mul(sign, &imaginary_part(&log_derivative(tangent, a)?)?),
        false => zeros_like_primal(sign),
    }
}

/// The real part, as a tensor of its own.
pub(super) fn real_numbers(t: &Tensor) -> Result<Tensor> {
    if t.is_complex() { ops::clone(&ops::real(t)?, None) } else { Ok(t.clone()) }
}

/// Real numbers as factors of matrices of another dtype.
pub(super) fn like(t: &Tensor, matrices: &Tensor) -> Result<Tensor> {
    cast(t, matrices.dtype())
}

// ---- Cholesky: dL = L Φ(L⁻¹ dA L⁻ᴴ), Φ the lower triangle with half the diagonal

fn phi(t: &Tensor) -> Result<Tensor> {
    mul(&add(&ops::tril(t, 0.into())?, &ops::tril(t, (-1).into())?)?, &0.5)
}

fn adjoint_if(yes: bool, t: &Tensor) -> Result<Tensor> {
    if yes { adjoint(t) } else { Ok(t.clone()) }
}

/// Only one triangle of the matrix is read, but it stands for a symmetric one: so is the gradient.
pub(crate) fn linalg_cholesky_backward(grad: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    let (grad, l) = (adjoint_if(upper, grad)?, adjoint_if(upper, factor)?);
    let turned = adjoint(&l)?;
    let core = ops::matmul(&turned, &grad)?;
    // The lower triangle, mirrored.
    let core = add(&ops::tril(&core, 0.into())?, &adjoint(&ops::tril(&core, (-1).into())?)?)?;
    let half = ops::linalg_solve_triangular(&l, &mul(&core, &0.5)?, false, false, false)?;
    ops::linalg_solve_triangular(&turned, &half, true, true, false)
}

pub(crate) fn linalg_cholesky_jvp(tangent: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    let l = adjoint_if(upper, factor)?;
    let half = ops::linalg_solve_triangular(&l, &symmetric(tangent)?, false, true, false)?;
    let core = ops::linalg_solve_triangular(&adjoint(&l)?, &half, true, false, false)?;
    adjoint_if(upper, &ops::matmul(&l, &phi(&core)?)?)
}
