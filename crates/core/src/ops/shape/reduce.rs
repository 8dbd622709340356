//! Shape functions of reductions and scans: which dimensions are reduced, what dtype the result has, what cannot be reduced.

use super::{need_float, need_float_or_complex, wrap_dim, wrap_dims};
use crate::dtype::{promote, to_float};
use crate::layout::Dims;
use crate::limits::as_size;
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor};

/// The sizes left after reducing `dims`.
pub(crate) fn reduced_sizes(sizes: &[usize], dims: &[usize], keepdim: bool) -> Dims {
    let kept = sizes.iter().enumerate().filter(|(k, _)| keepdim || !dims.contains(k));
    kept.map(|(k, &n)| if dims.contains(&k) { 1 } else { n }).collect()
}

fn over(op: &'static str, t: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: DType) -> Result<Spec> {
    let dims = wrap_dims(op, dim.unwrap_or(&[]), t.ndim())?;
    Spec::new(&reduced_sizes(t.shape(), &dims, keepdim), dtype, t.device())
}

/// The dtype of a sum: the requested one, else integers and bools add up in i64.
fn sum_type(t: &Tensor, dtype: Option<DType>) -> DType {
    dtype.unwrap_or(if t.dtype().is_differentiable() { t.dtype() } else { DType::I64 })
}

/// The dtype of a mean: a float one.
fn mean_type(op: &'static str, t: &Tensor, dtype: Option<DType>) -> Result<DType> {
    let d = dtype.unwrap_or(t.dtype());
    need_float_or_complex(op, d)?;
    Ok(d)
}

/// An extreme of no elements does not exist: none of the dimensions reduced may be empty.
fn need_elements(op: &'static str, t: &Tensor, dims: &[usize]) -> Result<()> {
    match dims.iter().find(|&&d| t.shape()[d] == 0) {
        None => Ok(()),
        Some(d) => Err(Error::argument(
            op,
            format!(
                "dimension {d} of shape {:?} is empty, and an empty dimension has no maximum or minimum; reduce another dimension",
                t.shape()
            ),
        )),
    }
}

/// All elements; integers add up in i64.
pub(crate) fn reduce_all(_op: &'static str, t: &Tensor, dtype: Option<DType>) -> Result<Spec> {
    Spec::new(&[], sum_type(t, dtype), t.device())
}

/// Some dimensions; integers add up in i64.
pub(crate) fn reduce(
    op: &'static str,
    t: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Spec> {
    over(op, t, dim, keepdim, sum_type(t, dtype))
}

/// One dimension; integers multiply in i64.
pub(crate) fn reduce_dim(op: &'static str, t: &Tensor, dim: i64, keepdim: bool, dtype: Option<DType>) -> Result<Spec> {
    over(op, t, Some(&[dim]), keepdim, sum_type(t, dtype))
}

/// The mean of all.
pub(crate) fn reduce_all_float(op: &'static str, t: &Tensor, dtype: Option<DType>) -> Result<Spec> {
    Spec::new(&[], mean_type(op, t, dtype)?, t.device())
}

/// The mean over some dimensions.
pub(crate) fn reduce_float(
    op: &'static str,
    t: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Spec> {
    over(op, t, dim, keepdim, mean_type(op, t, dtype)?)
}

/// An extreme of all elements, of the same dtype.
pub(crate) fn reduce_all_same(op: &'static str, t: &Tensor) -> Result<Spec> {
    need_elements(op, t, &(0..t.ndim()).collect::<Dims>())?;
    Spec::new(&[], t.dtype(), t.device())
}

/// An extreme over some dimensions, of the same dtype.
pub(crate) fn reduce_same(op: &'static str, t: &Tensor, dim: &[i64], keepdim: bool) -> Result<Spec> {
    let spec = over(op, t, Some(dim), keepdim, t.dtype())?;
    need_elements(op, t, &wrap_dims(op, dim, t.ndim())?)?;
    Ok(spec)
}

/// Both extremes over one dimension or all.
pub(crate) fn aminmax(op: &'static str, t: &Tensor, dim: Option<i64>, keepdim: bool) -> Result<(Spec, Spec)> {
    let dims: Dims = match dim {
        Some(d) => wrap_dims(op, &[d], t.ndim())?,
        None => (0..t.ndim()).collect(),
    };
    need_elements(op, t, &dims)?;
    let spec = Spec::new(&reduced_sizes(t.shape(), &dims, keepdim), t.dtype(), t.device())?;
    Ok((spec.clone(), spec))
}

/// An extreme over one dimension and where it is.
pub(crate) fn reduce_with_indices(op: &'static str, t: &Tensor, dim: i64, keepdim: bool) -> Result<(Spec, Spec)> {
    let values = reduce_same(op, t, &[dim], keepdim)?;
    let indices = Spec { dtype: DType::I64, ..values.clone() };
    Ok((values, indices))
}

/// Where an extreme is, over one dimension or all.
pub(crate) fn arg_reduce(op: &'static str, t: &Tensor, dim: Option<i64>, keepdim: bool) -> Result<Spec> {
    if t.dtype() == DType::Bool {
        let expected = "an integer or floating point dtype";
        return Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected }.into());
    }
    let (spec, _) = aminmax(op, t, dim, keepdim)?;
    Ok(Spec { dtype: DType::I64, ..spec })
}

/// The dtype of `any` and `all`: bool, but bytes stay bytes.
fn truth_type(t: &Tensor) -> DType {
    if t.dtype() == DType::U8 { DType::U8 } else { DType::Bool }
}

/// `any` and `all` of all elements.
pub(crate) fn reduce_all_bool(_op: &'static str, t: &Tensor) -> Result<Spec> {
    Spec::new(&[], truth_type(t), t.device())
}

/// `any` and `all` over one dimension.
pub(crate) fn reduce_bool(op: &'static str, t: &Tensor, dim: i64, keepdim: bool) -> Result<Spec> {
    over(op, t, Some(&[dim]), keepdim, truth_type(t))
}

/// `any` and `all` over some dimensions; an empty list means none, no list means all.
pub(crate) fn reduce_bool_dims(op: &'static str, t: &Tensor, dim: Option<&[i64]>, keepdim: bool) -> Result<Spec> {
    if dim.is_some_and(<[i64]>::is_empty) {
        return Spec::new(t.shape(), truth_type(t), t.device());
    }
    over(op, t, dim, keepdim, truth_type(t))
}

/// `count_nonzero` over one dimension or all.
pub(crate) fn count_nonzero(op: &'static str, t: &Tensor, dim: Option<i64>) -> Result<Spec> {
    over(op, t, dim.as_ref().map(std::slice::from_ref), false, DType::I64)
}

/// `count_nonzero` over some dimensions.
pub(crate) fn count_nonzero_dims(op: &'static str, t: &Tensor, dim: &[i64]) -> Result<Spec> {
    over(op, t, Some(dim), false, DType::I64)
}

/// Variance and standard deviation.
pub(crate) fn variance(
    op: &'static str,
    t: &Tensor,
    dim: Option<&[i64]>,
    _correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Spec> {
    need_float_or_complex(op, t.dtype())?;
    over(op, t, dim, keepdim, t.dtype().to_real())
}

/// Variance or standard deviation, and the mean.
pub(crate) fn variance_mean(
    op: &'static str,
    t: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<(Spec, Spec)> {
    let spec = variance(op, t, dim, correction, keepdim)?;
    let mean = Spec { dtype: t.dtype(), ..spec.clone() };
    Ok((spec, mean))
}

/// `norm.Scalar`.
pub(crate) fn norm_all(op: &'static str, t: &Tensor, _p: Scalar) -> Result<Spec> {
    need_float_or_complex(op, t.dtype())?;
    Spec::new(&[], t.dtype().to_real(), t.device())
}

/// `norm.ScalarOpt_dim`.
pub(crate) fn norm_dim(op: &'static str, t: &Tensor, p: Option<Scalar>, dim: &[i64], keepdim: bool) -> Result<Spec> {
    vector_norm(op, t, p.unwrap_or(Scalar::Int(2)), Some(dim), keepdim, None)
}

/// `linalg_vector_norm`.
pub(crate) fn vector_norm(
    op: &'static str,
    t: &Tensor,
    ord: Scalar,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Spec> {
    need_float_or_complex(op, t.dtype())?;
    let to = dtype.unwrap_or(t.dtype()).to_real();
    need_float(op, to)?;
    if promote(to, t.dtype().to_real()) != to {
        return Err(Error::argument(
            op,
            format!(
                "the result would lose precision: the input is {} and dtype is {to}; convert the result",
                t.dtype()
            ),
        ));
    }
    let spec = over(op, t, dim, keepdim, to)?;
    let p = ord.to_f64();
    if p < 0.0 || p == f64::INFINITY {
        need_elements(op, t, &wrap_dims(op, dim.unwrap_or(&[]), t.ndim())?)?;
    }
    Ok(spec)
}

/// `logsumexp`: integers give the default float dtype.
pub(crate) fn logsumexp(op: &'static str, t: &Tensor, dim: &[i64], keepdim: bool) -> Result<Spec> {
    over(op, t, Some(dim), keepdim, to_float(t.dtype()))
}

/// `cumsum` and `cumprod`.
pub(crate) fn scan(op: &'static str, t: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Spec> {
    wrap_dim(op, dim, t.ndim())?;
    Spec::new(t.shape(), sum_type(t, dtype), t.device())
}

/// `cummax` and `cummin`.
pub(crate) fn scan_extreme(op: &'static str, t: &Tensor, dim: i64) -> Result<(Spec, Spec)> {
    wrap_dim(op, dim, t.ndim())?;
    let indices = Spec::new(t.shape(), DType::I64, t.device())?;
    Ok((Spec { dtype: t.dtype(), ..indices.clone() }, indices))
}

/// `logcumsumexp`.
pub(crate) fn scan_float(op: &'static str, t: &Tensor, dim: i64) -> Result<Spec> {
    super::need_float_or_complex(op, t.dtype())?;
    wrap_dim(op, dim, t.ndim())?;
    Spec::new(t.shape(), t.dtype(), t.device())
}

/// `trace`.
pub(crate) fn trace(op: &'static str, t: &Tensor) -> Result<Spec> {
    if t.ndim() != 2 {
        return Err(Error::argument(op, format!("expected a matrix, found shape {:?}", t.shape())));
    }
    if t.dtype() == DType::Bool {
        let expected = "an integer or floating point dtype";
        return Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected }.into());
    }
    Spec::new(&[], sum_type(t, None), t.device())
}

/// `histc`.
pub(crate) fn histc(op: &'static str, t: &Tensor, bins: i64, min: Scalar, max: Scalar) -> Result<Spec> {
    need_float(op, t.dtype())?;
    let Some(n) = (bins > 0).then(|| as_size(bins)) else {
        return Err(Error::argument(op, format!("the number of bins must be positive, found {bins}")));
    };
    let (lo, hi) = (min.to_f64(), max.to_f64());
    if !(lo.is_finite() && hi.is_finite() && lo <= hi) {
        return Err(Error::argument(op, format!("expected finite bounds with min <= max, found {lo} and {hi}")));
    }
    Spec::new(&[n], t.dtype(), t.device())
}
