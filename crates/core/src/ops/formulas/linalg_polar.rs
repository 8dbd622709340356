//! Derivatives of the square root of a Hermitian matrix and of the polar decomposition: both solve Sylvester equations
//! in the eigenvectors of a positive matrix, so equal eigenvalues do no harm.

use crate::ops::arith::{add, div, mul, sub};
use crate::{Result, Scalar, Tensor, ops};

fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::matmul(a, b)
}

/// `X` with `X S + S X = E`, where `S` has these eigenvalues and eigenvectors.
fn sylvester(values: &Tensor, vectors: &Tensor, e: &Tensor) -> Result<Tensor> {
    let turned = ops::adjoint(vectors)?;
    let inside = product(&turned, &product(e, vectors)?)?;
    let sums = add(&ops::unsqueeze(values, -1)?, &ops::unsqueeze(values, -2)?)?;
    product(vectors, &product(&div(&inside, &sums)?, &turned)?)
}

/// The tangent of the root of `a` for the tangent `e`, which is also the gradient of `a` for the gradient `e`; both are
/// those of a Hermitian matrix.
pub(crate) fn matrix_sqrth_differential(a: &Tensor, e: &Tensor) -> Result<Tensor> {
    let (values, vectors) = ops::_linalg_eigh(a, "L", true)?;
    sylvester(&ops::sqrt(&ops::clamp_min(&values, Scalar::Int(0))?)?, &vectors, &half_sum(e)?)
}

fn half_sum(t: &Tensor) -> Result<Tensor> {
    mul(&add(t, &ops::adjoint(t)?)?, &0.5)
}

/// The part of `t` across the columns of `u`, divided by `h`.
fn across(t: &Tensor, u: &Tensor, h: &Tensor) -> Result<Tensor> {
    let rest = sub(t, &product(u, &product(&ops::adjoint(u)?, t)?)?)?;
    ops::linalg_solve(h, &rest, false)
}

fn is_tall(u: &Tensor) -> bool {
    u.shape()[u.ndim() - 2] > u.shape()[u.ndim() - 1]
}

/// How the unitary factor turns: skew-Hermitian `X` with `X H + H X = Uᴴ dA - dAᴴ U`.
fn turn(tangent: &Tensor, u: &Tensor, h: &Tensor) -> Result<Tensor> {
    let m = product(&ops::adjoint(u)?, tangent)?;
    let (values, vectors) = ops::_linalg_eigh(h, "L", true)?;
    sylvester(&values, &vectors, &sub(&m, &ops::adjoint(&m)?)?)
}

pub(crate) fn polar_jvp_u(tangent: &Tensor, u: &Tensor, h: &Tensor) -> Result<Tensor> {
    let along = product(u, &turn(tangent, u, h)?)?;
    if is_tall(u) { add(&along, &across(tangent, u, h)?) } else { Ok(along) }
}

pub(crate) fn polar_jvp_h(tangent: &Tensor, u: &Tensor, h: &Tensor) -> Result<Tensor> {
    let m = product(&ops::adjoint(u)?, tangent)?;
    half_sum(&sub(&m, &product(&turn(tangent, u, h)?, h)?)?)
}

pub(crate) fn polar_backward(grads: &[Option<Tensor>], u: &Tensor, h: &Tensor) -> Result<Option<Tensor>> {
    let (to_u, to_h) = (grads.first().and_then(Option::as_ref), grads.get(1).and_then(Option::as_ref));
    let to_h = to_h.map(half_sum).transpose()?;
    let mut total: Option<Tensor> = None;
    let mut plus = |t: Tensor| -> Result<()> {
        total = Some(match &total {
            Some(sum) => ops::add(sum, &t, Scalar::Int(1))?,
            None => t,
        });
        Ok(())
    };
    if let Some(g) = to_u {
        plus(product(&ops::adjoint(u)?, g)?)?;
    }
    if let Some(g) = &to_h {
        plus(ops::neg(&product(g, h)?)?)?;
    }
    let Some(g) = total else { return Ok(None) };
    let (values, vectors) = ops::_linalg_eigh(h, "L", true)?;
    let k = sylvester(&values, &vectors, &g)?;
    let mut inner = sub(&k, &ops::adjoint(&k)?)?;
    if let Some(g) = &to_h {
        inner = add(&inner, g)?;
    }
    let mut out = product(u, &inner)?;
    if let Some(g) = to_u.filter(|_| is_tall(u)) {
        out = add(&out, &across(g, u, h)?)?;
    }
    Ok(Some(out))
}
