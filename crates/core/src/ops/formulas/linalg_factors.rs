//! Derivatives of QR, of eigenvalues and of singular values, with their vectors. Aᴴ of a real matrix is Aᵀ.
//!
//! Vectors are determined up to their sign (a factor of absolute value 1) only, and not at all where values are equal: there their derivatives are
//! not finite. Those of the values alone are always right.

use super::base::{conj, zeros_like_primal};
use super::linalg::{adjoint, like, product, real_numbers, symmetric};
use super::reduce::zero_where;
use crate::ops::arith::{add, div, mul, neg, sub};
use crate::{DType, Error, Result, Tensor, ops};

/// The sum of what there is.
pub(super) fn plus(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => add(&a, &b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

pub(super) fn narrowed(t: &Tensor, dim: i64, start: usize, length: usize) -> Result<Tensor> {
    ops::narrow(t, dim, start.into(), length.into())
}

pub(super) fn last(t: &Tensor, from_end: usize) -> usize {
    t.ndim().checked_sub(from_end).map_or(0, |d| t.shape()[d])
}

// ---- QR: for m >= n, with B = Qᴴ dA R⁻¹ and K the skew matrix with the lower triangle of B:
//      dR = (B - K) R, dQ = dA R⁻¹ - Q (B - K)

/// Fails for modes whose derivative does not exist.
fn differentiable(q: &Tensor, r: &Tensor, mode: &str) -> Result<()> {
    const OP: &str = "linalg_qr";
    if mode == "r" {
        return Err(Error::argument(OP, "the derivative needs Q, which mode 'r' leaves out; use mode 'reduced'"));
    }
    if mode == "complete" && last(q, 2) > last(r, 1) {
        let m = "not differentiable in mode 'complete' with more rows than columns; use mode 'reduced'";
        return Err(Error::argument(OP, m));
    }
    Ok(())
}

/// `X R⁻¹` for the upper triangular `R`.
fn over(x: &Tensor, r: &Tensor) -> Result<Tensor> {
    ops::linalg_solve_triangular(r, x, true, false, false)
}

/// Square part and rest of the columns of a wide R (or of what goes with it).
fn split(t: &Tensor, k: usize) -> Result<(Tensor, Tensor)> {
    let n = last(t, 1);
    Ok((narrowed(t, -1, 0, k)?, narrowed(t, -1, k, n - k)?))
}

pub(crate) fn linalg_qr_backward(
    grad_q: Option<&Tensor>,
    grad_r: Option<&Tensor>,
    q: &Tensor,
    r: &Tensor,
    mode: &str,
) -> Result<Option<Tensor>> {
    differentiable(q, r, mode)?;
    let (k, n) = (last(q, 1), last(r, 1));
    if k == n {
        return tall_qr_backward(grad_q.cloned(), grad_r.cloned(), q, r);
    }
    // A = [A1 A2] with A1 = Q R1 square and R2 = Qᵀ A2.
    let (r1, r2) = split(r, k)?;
    let (grad_r1, grad_r2) = grad_r.map(|g| split(g, k)).transpose()?.unzip();
    let of_r2 = grad_r2.as_ref().map(|g| product(q, &r2, &adjoint(g)?)).transpose()?;
    let grad_a1 = tall_qr_backward(plus(grad_q.cloned(), of_r2)?, grad_r1, q, &r1)?;
    let grad_a2 = match grad_r2 {
        Some(g) => ops::matmul(q, &g)?,
        None => zeros_like_primal(&ops::matmul(q, &r2)?)?,
    };
    grad_a1.map(|g| ops::cat(&[g, grad_a2], -1)).transpose()
}

fn tall_qr_backward(grad_q: Option<Tensor>, grad_r: Option<Tensor>, q: &Tensor, r: &Tensor) -> Result<Option<Tensor>> {
    let of_r = grad_r.map(|g| ops::matmul(r, &adjoint(&g)?)).transpose()?;
    let of_q = grad_q.as_ref().map(|g| neg(&ops::matmul(&adjoint(g)?, q)?)).transpose()?;
    let Some(m) = plus(of_r, of_q)? else { return Ok(None) };
    // The lower triangle, mirrored; the diagonal is real.
    let mirrored = symmetric(&add(&ops::tril(&m, 0.into())?, &ops::tril(&m, (-1).into())?)?)?;
    let Some(total) = plus(grad_q, Some(ops::matmul(q, &mirrored)?))? else { return Ok(None) };
    // X R⁻ᵀ
    ops::linalg_solve_triangular(&adjoint(r)?, &total, false, false, false).map(Some)
}

/// Tangents of both factors.
fn qr_jvp(tangent: &Tensor, q: &Tensor, r: &Tensor, mode: &str) -> Result<(Tensor, Tensor)> {
    differentiable(q, r, mode)?;
    let (k, n) = (last(q, 1), last(r, 1));
    let (t1, r1) = (narrowed(tangent, -1, 0, k)?, narrowed(r, -1, 0, k)?);
    let scaled = over(&t1, &r1)?;
    let b = ops::matmul(&adjoint(q)?, &scaled)?;
    // What of B + Bᴴ is above the diagonal, and half of what is on it: that of R is real.
    let both = add(&b, &adjoint(&b)?)?;
    let upper = mul(&add(&ops::triu(&both, 0.into())?, &ops::triu(&both, 1.into())?)?, &0.5)?;
    let (dq, dr1) = (sub(&scaled, &ops::matmul(q, &upper)?)?, ops::matmul(&upper, &r1)?);
    if k == n {
        return Ok((dq, dr1));
    }
    let (t2, r2) = (narrowed(tangent, -1, k, n - k)?, narrowed(r, -1, k, n - k)?);
    let dr2 = add(&product(&adjoint(&dq)?, q, &r2)?, &ops::matmul(&adjoint(q)?, &t2)?)?;
    Ok((dq, ops::cat(&[dr1, dr2], -1)?))
}

pub(crate) fn linalg_qr_jvp_q(tangent: &Tensor, q: &Tensor, r: &Tensor, mode: &str) -> Result<Tensor> {
    Ok(qr_jvp(tangent, q, r, mode)?.0)
}

pub(crate) fn linalg_qr_jvp_r(tangent: &Tensor, q: &Tensor, r: &Tensor, mode: &str) -> Result<Tensor> {
    Ok(qr_jvp(tangent, q, r, mode)?.1)
}

// ---- eigenvalues: with C = Vᴴ dA V, dλ = diag C and dV = V (C / E), Eᵢⱼ = λⱼ - λᵢ

/// `t` with a zero diagonal, elsewhere divided by the differences `xⱼ - xᵢ`.
pub(super) fn over_differences(t: &Tensor, x: &Tensor) -> Result<Tensor> {
    let n = x.sym_sizes().last().copied().unwrap_or_default();
    let own = ops::eye(n, Some(DType::Bool), Some(x.device()))?;
    let apart = sub(&ops::unsqueeze(x, -2)?, &ops::unsqueeze(x, -1)?)?;
    let apart = ops::masked_fill(&apart, &own, crate::Scalar::Int(1))?;
    zero_where(&own, &div(t, &apart)?)
}

fn need_vectors(op: &'static str, computed: bool) -> Result<()> {
    match computed {
        true => Ok(()),
        false => Err(Error::argument(op, "derivatives need the vectors, which were not computed")),
    }
}

pub(crate) fn linalg_eigh_backward(
    grad_values: Option<&Tensor>,
    grad_vectors: Option<&Tensor>,
    values: &Tensor,
    vectors: &Tensor,
    compute_v: bool,
) -> Result<Option<Tensor>> {
    need_vectors("linalg_eigh", compute_v)?;
    let turned = adjoint(vectors)?;
    let of_values = grad_values.map(|g| ops::diag_embed(g, 0, -2, -1)).transpose()?;
    let of_vectors = grad_vectors.map(|g| over_differences(&ops::matmul(&turned, g)?, values)).transpose()?;
    let core = plus(of_values, of_vectors)?;
    core.map(|c| product(vectors, &like(&symmetric(&c)?, vectors)?, &turned)).transpose()
}

fn in_eigenbasis(tangent: &Tensor, vectors: &Tensor, compute_v: bool) -> Result<Tensor> {
    need_vectors("linalg_eigh", compute_v)?;
    product(&adjoint(vectors)?, &symmetric(tangent)?, vectors)
}

pub(crate) fn linalg_eigh_jvp_values(tangent: &Tensor, vectors: &Tensor, compute_v: bool) -> Result<Tensor> {
    real_numbers(&ops::diagonal_copy(&in_eigenbasis(tangent, vectors, compute_v)?, 0, -2, -1)?)
}

pub(crate) fn linalg_eigh_jvp_vectors(
    tangent: &Tensor,
    values: &Tensor,
    vectors: &Tensor,
    compute_v: bool,
) -> Result<Tensor> {
    ops::matmul(vectors, &over_differences(&in_eigenbasis(tangent, vectors, compute_v)?, values)?)
}

// ---- singular values: with P = Uᴴ dA V, dS = Re diag P; E as above for the squares of the singular values:
//      dU = U ((P S + S Pᴴ) / E + i Im diag P / 2S) + (I - U Uᴴ) dA V S⁻¹, and the same of the transposed matrix for V

/// The vectors that go with singular values: without those that complete a basis.
fn own_vectors(u: &Tensor, s: &Tensor, vh: &Tensor) -> Result<(Tensor, Tensor)> {
    let k = last(s, 1);
    Ok((narrowed(u, -1, 0, k)?, narrowed(vh, -2, 0, k)?))
}

/// What of `x` lies outside the span of the columns of `u`; none if they span everything.
fn outside(x: &Tensor, u: &Tensor) -> Result<Option<Tensor>> {
    if last(u, 2) == last(u, 1) {
        return Ok(None);
    }
    sub(x, &product(u, &adjoint(u)?, x)?).map(Some)
}

/// `skew(uᵀ g) / E`.
fn turning(u: &Tensor, grad: &Tensor, squares: &Tensor) -> Result<Tensor> {
    let x = ops::matmul(&adjoint(u)?, grad)?;
    over_differences(&sub(&x, &adjoint(&x)?)?, squares)
}

pub(crate) fn linalg_svd_backward(
    grad_u: Option<&Tensor>,
    grad_s: Option<&Tensor>,
    grad_vh: Option<&Tensor>,
    u: &Tensor,
    s: &Tensor,
    vh: &Tensor,
    compute_uv: bool,
) -> Result<Option<Tensor>> {
    need_vectors("linalg_svd", compute_uv)?;
    let k = last(s, 1);
    let (u, vh) = own_vectors(u, s, vh)?;
    let (v, squares) = (adjoint(&vh)?, mul(s, s)?);
    let (row, column) = (ops::unsqueeze(s, -2)?, ops::unsqueeze(s, -1)?);
    let grad_u = grad_u.map(|g| narrowed(g, -1, 0, k)).transpose()?;
    let grad_v = grad_vh.map(|g| adjoint(&narrowed(g, -2, 0, k)?)).transpose()?;
    let mut core = grad_s.map(|g| ops::diag_embed(g, 0, -2, -1)).transpose()?;
    let mut rest = None;
    if let Some(g) = &grad_u {
        core = plus(core, Some(mul(&turning(&u, g, &squares)?, &row)?))?;
        if u.is_complex() {
            // U and V turn by the same angle: it is counted once, here.
            let angles = ops::diagonal(&ops::matmul(&adjoint(&u)?, g)?, 0, -2, -1)?;
            let angles = div(&sub(&angles, &conj(&angles)?)?, &mul(s, &2.0)?)?;
            core = plus(core, Some(ops::diag_embed(&angles, 0, -2, -1)?))?;
        }
        rest = outside(g, &u)?.map(|x| ops::matmul(&div(&x, &row)?, &vh)).transpose()?;
    }
    if let Some(g) = &grad_v {
        core = plus(core, Some(mul(&column, &turning(&v, g, &squares)?)?))?;
        let more = outside(g, &v)?.map(|x| ops::matmul(&u, &adjoint(&div(&x, &row)?)?)).transpose()?;
        rest = plus(rest, more)?;
    }
    plus(core.map(|c| product(&u, &like(&c, &u)?, &vh)).transpose()?, rest)
}

/// The tangent of `u` (all of its columns) for singular values `s` and other vectors `v` (as columns).
fn vectors_jvp(tangent: &Tensor, u: &Tensor, s: &Tensor, v: &Tensor) -> Result<Tensor> {
    let k = last(s, 1);
    let (all, u) = (u, narrowed(u, -1, 0, k)?);
    let (row, moved) = (ops::unsqueeze(s, -2)?, ops::matmul(tangent, v)?);
    let inside = ops::matmul(&adjoint(&u)?, &moved)?;
    let scaled = mul(&inside, &row)?;
    let mut turned = over_differences(&add(&scaled, &adjoint(&scaled)?)?, &mul(s, s)?)?;
    if u.is_complex() {
        let angles = ops::diagonal(&inside, 0, -2, -1)?;
        let angles = div(&sub(&angles, &conj(&angles)?)?, &mul(s, &4.0)?)?;
        turned = add(&turned, &ops::diag_embed(&angles, 0, -2, -1)?)?;
    }
    let mut du = ops::matmul(&u, &turned)?;
    if let Some(x) = outside(&moved, &u)? {
        du = add(&du, &div(&x, &row)?)?;
    }
    let columns = last(all, 1);
    if columns == k {
        return Ok(du);
    }
    // The columns that complete the basis follow only as far as they must to stay orthogonal.
    let spare = narrowed(all, -1, k, columns - k)?;
    let follows = neg(&product(&u, &adjoint(&du)?, &spare)?)?;
    ops::cat(&[du, follows], -1)
}

pub(crate) fn linalg_svd_jvp_u(tangent: &Tensor, u: &Tensor, s: &Tensor, vh: &Tensor, uv: bool) -> Result<Tensor> {
    need_vectors("linalg_svd", uv)?;
    let (_, own) = own_vectors(u, s, vh)?;
    vectors_jvp(tangent, u, s, &adjoint(&own)?)
}

pub(crate) fn linalg_svd_jvp_s(tangent: &Tensor, u: &Tensor, s: &Tensor, vh: &Tensor, uv: bool) -> Result<Tensor> {
    need_vectors("linalg_svd", uv)?;
    let (u, vh) = own_vectors(u, s, vh)?;
    real_numbers(&ops::diagonal_copy(&product(&adjoint(&u)?, tangent, &adjoint(&vh)?)?, 0, -2, -1)?)
}

pub(crate) fn linalg_svd_jvp_vh(tangent: &Tensor, u: &Tensor, s: &Tensor, vh: &Tensor, uv: bool) -> Result<Tensor> {
    need_vectors("linalg_svd", uv)?;
    let (own, _) = own_vectors(u, s, vh)?;
    adjoint(&vectors_jvp(&adjoint(tangent)?, &adjoint(vh)?, s, &own)?)
}
