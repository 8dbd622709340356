//! Distances and norms, composed of other ops.

use crate::ops::formulas::cast;
use crate::ops::shape::wrap_dim;
use crate::{DType, Error, Result, Scalar, Tensor, ops};

/// Slices along `dim` whose norm exceeds `maxnorm` are scaled down to it.
pub(crate) fn renorm(t: &Tensor, p: Scalar, dim: i64, maxnorm: Scalar) -> Result<Tensor> {
    const OP: &str = "renorm";
    if t.ndim() < 2 {
        return Err(Error::argument(OP, format!("expected at least 2 dimensions, found shape {:?}", t.shape())));
    }
    let (p_value, limit) = (p.to_f64(), maxnorm.to_f64());
    if p_value <= 0.0 || limit < 0.0 {
        let m = format!("expected a positive order and a non-negative limit, found {p_value} and {limit}");
        return Err(Error::argument(OP, m));
    }
    let d = wrap_dim(OP, dim, t.ndim())?;
    let others: Vec<i64> = (0..t.ndim()).filter(|k| *k != d).map(|k| k as i64).collect();
    let wide = if t.dtype().to_real() == DType::F64 { DType::F64 } else { DType::F32 };
    let norm = ops::linalg_vector_norm(t, p, Some(&others), true, Some(wide))?;
    // The small number is part of the definition: it keeps the result below the limit in spite of rounding.
    let shrink =
        ops::mul_scalar(&ops::reciprocal(&ops::add_scalar(&norm, Scalar::Float(1e-7), Scalar::Int(1))?)?, maxnorm)?;
    let one = Tensor::try_wrapped_number(Scalar::Float(1.0))?;
    let factor = ops::where_self(&ops::gt_scalar(&norm, maxnorm)?, &shrink, &one)?;
    ops::mul(t, &cast(&factor, t.dtype())?)
}

/// The norm of a difference.
pub(crate) fn dist(a: &Tensor, b: &Tensor, p: Scalar) -> Result<Tensor> {
    ops::norm(&ops::sub(a, b, Scalar::Int(1))?, p)
}

/// The distance of every row of `x1` to every row of `x2`.
pub(crate) fn cdist_forward(x1: &Tensor, x2: &Tensor, p: f64, _compute_mode: Option<i64>) -> Result<Tensor> {
    const OP: &str = "_cdist_forward";
    if x1.ndim() < 2 || x2.ndim() < 2 || x1.shape().last() != x2.shape().last() {
        let m = format!("expected matrices with rows of one length, found {:?} and {:?}", x1.shape(), x2.shape());
        return Err(Error::argument(OP, m));
    }
    if p < 0.0 {
        return Err(Error::argument(OP, format!("the order must not be negative, found {p}")));
    }
    let apart = ops::sub(&ops::unsqueeze(x1, -2)?, &ops::unsqueeze(x2, -3)?, Scalar::Int(1))?;
    ops::linalg_vector_norm(&apart, Scalar::Float(p), Some(&[-1]), false, None)
}

/// As PyTorch's training graphs call it: the way of computing is left to the op.
pub(crate) fn cdist(x1: &Tensor, x2: &Tensor, p: f64, compute_mode: Option<i64>) -> Result<Tensor> {
    ops::_cdist_forward(x1, x2, p, compute_mode)
}

/// The distance of every row to every later one.
pub(crate) fn pdist(t: &Tensor, p: f64) -> Result<Tensor> {
    const OP: &str = "pdist";
    if t.ndim() != 2 || p < 0.0 {
        let m = format!("expected a matrix and a non-negative order, found shape {:?} and {p}", t.shape());
        return Err(Error::argument(OP, m));
    }
    let rows = t.shape()[0] as i64;
    let pairs = ops::triu_indices(rows, rows, 1, None, Some(t.device()))?;
    let side = |k: i64| ops::index_select(t, 0, &ops::select(&pairs, 0, k.into())?);
    ops::linalg_vector_norm(
        &ops::sub(&side(0)?, &side(1)?, Scalar::Int(1))?,
        Scalar::Float(p),
        Some(&[-1]),
        false,
        None,
    )
}
