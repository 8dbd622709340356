//! Matrix products: operands of any strides go to the kernel as they are.

use super::expand;
use super::pointwise::scalar_op;
use crate::layout::Layout;
use crate::{DType, Error, Result, Scalar, Tensor};
use firebrand_kernels::copy;
use firebrand_kernels::pointwise::{self, Op, Operand};

fn multiply(a: &Tensor, b: &Tensor, out: &Tensor, alpha: f64, beta: f64) -> Result<()> {
    firebrand_kernels::matmul(a.read()?.view(), b.read()?.view(), out.write()?.view_mut(), alpha, beta);
    Ok(())
}

/// A vector as a matrix of one column.
fn column(t: &Tensor) -> Tensor {
    t.alias_with(Layout::derived(&[t.shape()[0], 1], &[t.strides()[0], 1], t.layout().offset()))
}

/// `out = beta * term + alpha * a @ b`, the term stretched to the result. With `beta == 0` the term is not read.
fn multiply_add(term: &Tensor, a: &Tensor, b: &Tensor, out: &Tensor, alpha: f64, beta: f64) -> Result<()> {
    if beta == 0.0 {
        return multiply(a, b, out, alpha, beta);
    }
    let term = expand(term, out.shape())?;
    firebrand_kernels::addmm(term.view(), a.read()?.view(), b.read()?.view(), out.write()?.view_mut(), alpha, beta);
    Ok(())
}

pub(crate) fn mm(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    multiply(a, b, out, 1.0, 0.0)
}

pub(crate) fn bmm(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    mm(a, b, out)
}

pub(crate) fn mv(a: &Tensor, v: &Tensor, out: &Tensor) -> Result<()> {
    mm(a, &column(v), &column(out))
}

pub(crate) fn dot(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    let (n, stride) = (a.shape()[0], a.strides()[0]);
    let row = a.alias_with(Layout::strided(&[1, n], &[n.max(1), stride], a.layout().offset())?);
    mm(&row, &column(b), &out.alias_with(Layout::strided(&[1, 1], &[1, 1], out.layout().offset())?))
}

/// `beta * term + alpha * out` where one of the numbers is complex: kernels of products take real ones.
fn scaled(term: &Tensor, beta: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    let target = out.write()?;
    scalar_op(Op::Mul, out.dtype(), out, alpha, out)?;
    if beta.equals(0.0) {
        return Ok(());
    }
    let (term, beta) = (expand(term, out.shape())?, Operand::Value(beta.into()));
    pointwise::ternary(Op::MulAdd, out.dtype(), term.view().into(), beta, target.view().into(), target.view_mut());
    Ok(())
}

/// A factor in the dtype of the result: of integers, its whole part.
fn factor(s: Scalar, out: &Tensor) -> f64 {
    if out.dtype().is_differentiable() { s.to_f64() } else { s.to_f64().trunc() }
}

pub(crate) fn addmm(term: &Tensor, a: &Tensor, b: &Tensor, beta: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    if beta.is_complex() || alpha.is_complex() {
        multiply(a, b, out, 1.0, 0.0)?;
        return scaled(term, beta, alpha, out);
    }
    multiply_add(term, a, b, out, factor(alpha, out), factor(beta, out))
}

pub(crate) fn baddbmm(term: &Tensor, a: &Tensor, b: &Tensor, beta: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    addmm(term, a, b, beta, alpha, out)
}

pub(crate) fn addmv(term: &Tensor, a: &Tensor, v: &Tensor, beta: Scalar, alpha: Scalar, out: &Tensor) -> Result<()> {
    if beta.is_complex() || alpha.is_complex() {
        multiply(a, &column(v), &column(out), 1.0, 0.0)?;
        return scaled(term, beta, alpha, out);
    }
    let (alpha, beta) = (factor(alpha, out), factor(beta, out));
    if beta != 0.0 {
        copy(expand(term, out.shape())?.view(), out.write()?.view_mut());
    }
    multiply(a, &column(v), &column(out), alpha, beta)
}

/// The matrix at `g` of a batch.
fn matrix(t: &Tensor, g: usize) -> Tensor {
    let (n, s) = (t.shape(), t.strides());
    t.alias_with(Layout::derived(&n[1..], &s[1..], t.layout().offset() + g * s[0]))
}

/// Rows (`dim` 0) or columns of a matrix.
fn band(t: &Tensor, dim: usize, from: usize, to: usize) -> Tensor {
    let mut sizes = [t.shape()[0], t.shape()[1]];
    sizes[dim] = to - from;
    t.alias_with(Layout::derived(&sizes, t.strides(), t.layout().offset() + from * t.strides()[dim]))
}

/// What no group reaches is zero.
pub(crate) fn grouped_mm(
    a: &Tensor,
    b: &Tensor,
    offs: Option<&Tensor>,
    _bias: Option<&Tensor>,
    _out_dtype: Option<DType>,
    out: &Tensor,
) -> Result<()> {
    const OP: &str = "_grouped_mm";
    let Some(offs) = offs else { return mm(a, b, out) };
    offs.need_data(OP)?;
    let ends = offs.try_to_vec::<i32>()?;
    let (along, limit) = match (a.ndim(), b.ndim()) {
        (2, 3) => ("rows", a.shape()[0]),
        (3, 2) => ("columns", b.shape()[1]),
        _ => ("inner elements", a.shape()[1]),
    };
    super::zero_into(out)?;
    let mut from = 0;
    for (g, &end) in ends.iter().enumerate() {
        let to = usize::try_from(end).ok().filter(|to| (from..=limit).contains(to)).ok_or_else(|| {
            let m = format!("expected non-decreasing ends of groups, up to {limit} {along}, found {ends:?}");
            Error::argument(OP, m)
        })?;
        match (a.ndim(), b.ndim()) {
            _ if from == to => {}
            (2, 3) => mm(&band(a, 0, from, to), &matrix(b, g), &band(out, 0, from, to))?,
            (3, 2) => mm(&matrix(a, g), &band(b, 1, from, to), &band(out, 1, from, to))?,
            _ => mm(&band(a, 1, from, to), &band(b, 0, from, to), &matrix(out, g))?,
        }
        from = to;
    }
    Ok(())
}
