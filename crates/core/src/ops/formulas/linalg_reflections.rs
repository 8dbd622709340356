//! Derivatives of products of reflections `H = I - tau v vᴴ`, one reflection after the other.
//!
//! With `Y = H Z` and `s = vᴴ Z`: `dY = H dZ - (dtau v s + tau dv s + tau v dvᴴ Z)`.

use super::base::{conj, sym};
use super::linalg::adjoint;
use super::linalg_factors::{last, narrowed};
use crate::ops::arith::{add, div, mul, neg, sub};
use crate::{Result, Tensor, ops};

/// The reflections of a matrix and their factors, one by one.
struct Reflections {
    vectors: Tensor,
    factors: Tensor,
    count: usize,
}

impl Reflections {
    /// Below the diagonal of `a`, with ones on it.
    fn new(a: &Tensor, tau: &Tensor) -> Result<Reflections> {
        let count = last(tau, 1);
        let below = ops::tril(&narrowed(a, -1, 0, count)?, (-1).into())?;
        let ones = ops::eye_m(last(a, 2).into(), count.into(), Some(a.dtype()), Some(a.device()))?;
        Ok(Reflections { vectors: add(&below, &ones)?, factors: tau.clone(), count })
    }

    fn vector(&self, i: usize) -> Result<Tensor> {
        narrowed(&self.vectors, -1, i, 1)
    }

    fn factor(&self, i: usize, turned: bool) -> Result<Tensor> {
        let tau = ops::unsqueeze(&narrowed(&self.factors, -1, i, 1)?, -1)?;
        if turned { conj(&tau) } else { Ok(tau) }
    }

    /// The order in which `Q`, or its adjoint, is multiplied out, outermost first.
    fn order(&self, turned: bool) -> Vec<usize> {
        if turned { (0..self.count).rev().collect() } else { (0..self.count).collect() }
    }
}

/// `x - by v (vᴴ x)`.
fn reflected(x: &Tensor, v: &Tensor, by: &Tensor) -> Result<Tensor> {
    sub(x, &mul(by, &ops::matmul(v, &ops::matmul(&adjoint(v)?, x)?)?)?)
}

/// Columns side by side.
fn side_by_side(columns: Vec<Tensor>, like: &Tensor) -> Result<Tensor> {
    if columns.is_empty() { ops::new_zeros(like, &sym(like.shape()), None, None) } else { ops::cat(&columns, -1) }
}

/// Gradients of the reflections (as `a` holds them), of the factors and of `C`, for `Y = Q C` or `Qᴴ C`.
fn backward(grad: &Tensor, y: &Tensor, a: &Tensor, tau: &Tensor, turned: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let all = Reflections::new(a, tau)?;
    let (mut g, mut z) = (grad.clone(), y.clone());
    let mut grads = vec![None; all.count];
    for i in all.order(turned) {
        let (v, by) = (all.vector(i)?, all.factor(i, turned)?);
        // What the reflection was applied to: its inverse is a reflection as well.
        let square = ops::matmul(&adjoint(&v)?, &v)?;
        let back = div(&by, &sub(&mul(&by, &square)?, &1.0)?)?;
        z = reflected(&z, &v, &back)?;
        let (seen, pulled) = (ops::matmul(&adjoint(&z)?, &v)?, ops::matmul(&adjoint(&g)?, &v)?);
        let of_factor = neg(&ops::matmul(&adjoint(&pulled)?, &seen)?)?;
        let of_vector =
            neg(&add(&mul(&conj(&by)?, &ops::matmul(&g, &seen)?)?, &mul(&by, &ops::matmul(&z, &pulled)?)?)?)?;
        let of_factor = if turned { conj(&of_factor)? } else { of_factor };
        grads[i] = Some((of_vector, ops::squeeze_dim(&of_factor, -1)?));
        g = reflected(&g, &v, &conj(&by)?)?;
    }
    let (vectors, factors): (Vec<Tensor>, Vec<Tensor>) = grads.into_iter().flatten().unzip();
    let mut grad_a = ops::tril(&side_by_side(vectors, &narrowed(a, -1, 0, all.count)?)?, (-1).into())?;
    let unused = last(a, 1) - all.count;
    if unused > 0 {
        let rest = narrowed(a, -1, all.count, unused)?;
        grad_a = ops::cat(&[grad_a, ops::new_zeros(&rest, &sym(rest.shape()), None, None)?], -1)?;
    }
    Ok((grad_a, side_by_side(factors, tau)?, g))
}

/// The tangent of `Q C`, or of `Qᴴ C`.
fn jvp(
    (a, a_t): (&Tensor, &Tensor),
    (tau, tau_t): (&Tensor, &Tensor),
    (c, c_t): (&Tensor, Option<&Tensor>),
    turned: bool,
) -> Result<Tensor> {
    let (all, moving) = (Reflections::new(a, tau)?, Reflections::new(a_t, tau_t)?);
    let mut z = c.clone();
    let mut dz = match c_t {
        Some(t) => t.clone(),
        None => ops::new_zeros(c, &sym(c.shape()), None, None)?,
    };
    let still = ops::tril(&moving.vectors, (-1).into())?;
    for i in all.order(turned).into_iter().rev() {
        let (v, by) = (all.vector(i)?, all.factor(i, turned)?);
        let (dv, dby) = (narrowed(&still, -1, i, 1)?, moving.factor(i, turned)?);
        let seen = ops::matmul(&adjoint(&v)?, &z)?;
        let of_factor = mul(&dby, &ops::matmul(&v, &seen)?)?;
        let of_vector = add(&ops::matmul(&dv, &seen)?, &ops::matmul(&v, &ops::matmul(&adjoint(&dv)?, &z)?)?)?;
        dz = sub(&reflected(&dz, &v, &by)?, &add(&of_factor, &mul(&by, &of_vector)?)?)?;
        z = reflected(&z, &v, &by)?;
    }
    Ok(dz)
}

pub(crate) fn householder_product_backward(
    grad: &Tensor,
    result: &Tensor,
    a: &Tensor,
    tau: &Tensor,
) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let (grad_a, grad_tau, _) = backward(grad, result, a, tau, false)?;
    Ok((Some(grad_a), Some(grad_tau)))
}

pub(crate) fn householder_product_jvp(a_t: &Tensor, tau_t: &Tensor, a: &Tensor, tau: &Tensor) -> Result<Tensor> {
    let one = ops::eye_m(last(a, 2).into(), last(a, 1).into(), Some(a.dtype()), Some(a.device()))?;
    let one = ops::expand(&one, &sym(a.shape()), false)?;
    jvp((a, a_t), (tau, tau_t), (&one, None), false)
}

/// `C Q` is `(Qᴴ Cᴴ)ᴴ`.
fn adjoint_if(yes: bool, t: &Tensor) -> Result<Tensor> {
    if yes { adjoint(t) } else { Ok(t.clone()) }
}

pub(crate) fn ormqr_backward(
    grad: &Tensor,
    result: &Tensor,
    a: &Tensor,
    tau: &Tensor,
    left: bool,
    transpose: bool,
) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
    let (g, y) = (adjoint_if(!left, grad)?, adjoint_if(!left, result)?);
    let (grad_a, grad_tau, grad_c) = backward(&g, &y, a, tau, transpose == left)?;
    Ok((Some(grad_a), Some(grad_tau), Some(adjoint_if(!left, &grad_c)?)))
}

pub(crate) fn ormqr_jvp(
    a: (&Tensor, &Tensor),
    tau: (&Tensor, &Tensor),
    (c, c_t): (&Tensor, &Tensor),
    left: bool,
    transpose: bool,
) -> Result<Tensor> {
    let (c, c_t) = (adjoint_if(!left, c)?, adjoint_if(!left, c_t)?);
    adjoint_if(!left, &jvp(a, tau, (&c, Some(&c_t)), transpose == left)?)
}
