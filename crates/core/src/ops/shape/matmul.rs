//! Shape functions of matrix products. One dtype for all operands: nothing is promoted.

use super::is_expandable_to;
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};

/// The result of multiplying `a` by `b`, if their inner sizes and dtypes agree.
fn product(op: &'static str, a: &Tensor, b: &Tensor, sizes: &[usize], inner: (usize, usize)) -> Result<Spec> {
    if inner.0 != inner.1 {
        let (a, b) = (a.shape(), b.shape());
        let message = format!("shapes {a:?} and {b:?} cannot be multiplied: {} is not {}", inner.0, inner.1);
        return Err(Error::argument(op, message));
    }
    one_dtype(op, a, b)?;
    if a.dtype() == DType::Bool {
        return Err(ErrorKind::DTypeUnsupported { op, found: a.dtype(), expected: "numbers" }.into());
    }
    Spec::new(sizes, a.dtype(), a.device())
}

fn one_dtype(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype() == b.dtype() {
        return Ok(());
    }
    let message = format!("expected operands of one dtype, found {} and {}; convert one of them", a.dtype(), b.dtype());
    Err(Error::argument(op, message))
}

fn ranks(op: &'static str, expected: &str, a: &[usize], b: &[usize]) -> Error {
    Error::argument(op, format!("expected {expected}, found shapes {a:?} and {b:?}"))
}

pub(crate) fn mm(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    match (a.shape(), b.shape()) {
        (&[m, k], &[l, n]) => product(op, a, b, &[m, n], (k, l)),
        (a, b) => Err(ranks(op, "two matrices", a, b)),
    }
}

pub(crate) fn mv(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    match (a.shape(), b.shape()) {
        (&[m, k], &[l]) => product(op, a, b, &[m], (k, l)),
        (a, b) => Err(ranks(op, "a matrix and a vector", a, b)),
    }
}

pub(crate) fn dot(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    match (a.shape(), b.shape()) {
        (&[k], &[l]) => product(op, a, b, &[], (k, l)),
        (a, b) => Err(ranks(op, "two vectors", a, b)),
    }
}

pub(crate) fn bmm(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Spec> {
    match (a.shape(), b.shape()) {
        (&[p, m, k], &[q, l, n]) if p == q => product(op, a, b, &[p, m, n], (k, l)),
        (a, b) => Err(ranks(op, "two batches of as many matrices", a, b)),
    }
}

/// `beta * bias + alpha * product`: the bias is broadcast to the product.
fn plus(op: &'static str, bias: &Tensor, product: Spec) -> Result<Spec> {
    let sizes = product.layout.sizes();
    if !is_expandable_to(bias.shape(), sizes) {
        let message = format!("expected a term that broadcasts to the product's {sizes:?}, found {:?}", bias.shape());
        return Err(Error::argument(op, message));
    }
    if bias.dtype() != product.dtype {
        let (found, expected) = (bias.dtype(), product.dtype);
        return Err(Error::argument(op, format!("expected a term of the product's dtype {expected}, found {found}")));
    }
    Ok(product)
}

pub(crate) fn addmm(
    op: &'static str,
    bias: &Tensor,
    a: &Tensor,
    b: &Tensor,
    _beta: Scalar,
    _alpha: Scalar,
) -> Result<Spec> {
    plus(op, bias, mm(op, a, b)?)
}

pub(crate) fn addmv(
    op: &'static str,
    bias: &Tensor,
    a: &Tensor,
    v: &Tensor,
    _beta: Scalar,
    _alpha: Scalar,
) -> Result<Spec> {
    plus(op, bias, mv(op, a, v)?)
}

pub(crate) fn baddbmm(
    op: &'static str,
    bias: &Tensor,
    a: &Tensor,
    b: &Tensor,
    _beta: Scalar,
    _alpha: Scalar,
) -> Result<Spec> {
    plus(op, bias, bmm(op, a, b)?)
}

/// Products of groups of matrices. Groups lie along the rows of the first factor, the columns of the second, or what both
/// share; `offs` says where each ends. Factors with a dimension more have one matrix per group.
pub(crate) fn grouped_mm(
    op: &'static str,
    a: &Tensor,
    b: &Tensor,
    offs: Option<&Tensor>,
    bias: Option<&Tensor>,
    out_dtype: Option<DType>,
) -> Result<Spec> {
    if bias.is_some() || out_dtype.is_some_and(|d| d != a.dtype()) {
        return Err(Error::argument(op, "a bias and another dtype of the result are not supported; leave both out"));
    }
    if !a.is_floating_point() {
        return Err(Error::argument(op, format!("expected matrices of floats, found {}", a.dtype())));
    }
    let groups = match offs {
        None => None,
        Some(t) if t.ndim() == 1 && t.dtype() == DType::I32 => Some(t.numel()),
        Some(t) => {
            let m = format!("expected a vector of i32 as ends of groups, found {} of shape {:?}", t.dtype(), t.shape());
            return Err(Error::argument(op, m));
        }
    };
    match (a.shape(), b.shape(), groups) {
        (&[m, k], &[g, l, n], Some(groups)) if g == groups => product(op, a, b, &[m, n], (k, l)),
        (&[g, m, k], &[l, n], Some(groups)) if g == groups => product(op, a, b, &[m, n], (k, l)),
        (&[m, k], &[l, n], Some(groups)) => product(op, a, b, &[groups, m, n], (k, l)),
        (&[p, m, k], &[q, l, n], None) if p == q => product(op, a, b, &[p, m, n], (k, l)),
        (a, b, _) => Err(ranks(op, "matrices and a group end for each matrix of a batch (none for two batches)", a, b)),
    }
}
