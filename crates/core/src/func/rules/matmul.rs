//! Matrix products: the batch becomes a leading dimension, or rows of one larger product.

use super::{Batched, Call, Outs, one};
use crate::dispatch::Value;
use crate::{Error, Result, Scalar, Tensor, ops};

pub(crate) fn mm(call: &Call<'_>) -> Result<Outs> {
    one(mm_of(call.tensor(0)?, call.tensor(1)?)?, 0)
}

pub(crate) fn bmm(call: &Call<'_>) -> Result<Outs> {
    one(bmm_of(call.tensor(0)?, call.tensor(1)?)?, 0)
}

pub(crate) fn mv(call: &Call<'_>) -> Result<Outs> {
    one(mv_of(call.tensor(0)?, call.tensor(1)?)?, 0)
}

pub(crate) fn dot(call: &Call<'_>) -> Result<Outs> {
    one(dot_of(call.tensor(0)?, call.tensor(1)?)?, 0)
}

pub(crate) fn addmm(call: &Call<'_>) -> Result<Outs> {
    add(call, mm_of(call.tensor(1)?, call.tensor(2)?)?, 2)
}

pub(crate) fn addmv(call: &Call<'_>) -> Result<Outs> {
    add(call, mv_of(call.tensor(1)?, call.tensor(2)?)?, 1)
}

pub(crate) fn baddbmm(call: &Call<'_>) -> Result<Outs> {
    add(call, bmm_of(call.tensor(1)?, call.tensor(2)?)?, 3)
}

/// Refuses samples of other ranks: `matmul`, which computes these products here, would take them.
fn need_ranks(op: &'static str, a: (&Batched, usize), b: (&Batched, usize)) -> Result<()> {
    if a.0.ndim() == a.1 && b.0.ndim() == b.1 {
        return Ok(());
    }
    let (found, other) = (a.0.ndim(), b.0.ndim());
    Err(Error::argument(
        op,
        format!("Shape mismatch: expected {} and {} dimensions, found {found} and {other}", a.1, b.1),
    ))
}

/// `matmul` folds a batch on one side into rows and multiplies batches on both sides one by one.
fn mm_of(a: &Batched, b: &Batched) -> Result<Tensor> {
    need_ranks("mm", (a, 2), (b, 2))?;
    if a.dim.is_none() && b.dim.is_some() {
        // [n,k] x [B,k,m]: the transposed product has the batch on the left.
        let turned = ops::matmul(&ops::transpose(&b.front()?, 1, 2)?, &ops::t(&a.value)?)?;
        return ops::transpose(&turned, 1, 2);
    }
    ops::matmul(&a.front()?, &b.front()?)
}

fn bmm_of(a: &Batched, b: &Batched) -> Result<Tensor> {
    need_ranks("bmm", (a, 3), (b, 3))?;
    ops::matmul(&a.front()?, &b.front()?)
}

fn mv_of(a: &Batched, v: &Batched) -> Result<Tensor> {
    need_ranks("mv", (a, 2), (v, 1))?;
    match (a.dim, v.dim) {
        (None, None) => ops::mv(&a.value, &v.value),
        (None, _) => ops::mm(&v.front()?, &ops::t(&a.value)?),
        (Some(_), None) => ops::matmul(&a.front()?, &v.value),
        _ => ops::squeeze_dim(&ops::bmm(&a.front()?, &ops::unsqueeze(&v.front()?, 2)?)?, 2),
    }
}

fn dot_of(a: &Batched, b: &Batched) -> Result<Tensor> {
    need_ranks("dot", (a, 1), (b, 1))?;
    match (a.dim, b.dim) {
        (Some(_), None) => ops::mv(&a.front()?, &b.value),
        (None, _) => ops::mv(&b.front()?, &a.value),
        _ => ops::sum_dim(&ops::mul(&a.front()?, &b.front()?)?, Some(&[1]), false, None),
    }
}

fn scalar(v: Value) -> Scalar {
    match v {
        Value::Scalar(s) => s,
        Value::Int(i) => Scalar::Int(i.int()),
        Value::Float(f) => Scalar::Float(f),
        _ => Scalar::Int(1),
    }
}

/// `beta * self + alpha * product`, where a sample of the product has `ndim` dimensions.
fn add(call: &Call<'_>, product: Tensor, ndim: usize) -> Result<Outs> {
    let b = call.tensor(0)?;
    let (beta, alpha) = (scalar(call.plain(3)), scalar(call.plain(4)));
    let mut x = b.front()?;
    if b.dim.is_some() {
        for _ in b.ndim()..ndim {
            x = ops::unsqueeze(&x, 1)?;
        }
    }
    if beta.equals(0.0) {
        // Whatever is in `self`, NaN included, does not count.
        let product = ops::mul_scalar(&product, alpha)?;
        return one(Batched { dim: (product.ndim() > ndim).then_some(0), value: product }.full(call.size)?, 0);
    }
    let x = if beta.equals(1.0) { x } else { ops::mul_scalar(&x, beta)? };
    one(ops::add(&x, &product, alpha)?, 0)
}
