//! Shape functions of reductions.

use super::{need_float, wrap_dims};
use crate::layout::Dims;
use crate::{DType, Error, Result, Spec, Tensor};

/// The dims to reduce: none or an empty list means all.
pub(crate) fn reduced_dims(op: &'static str, t: &Tensor, dim: Option<&[i64]>) -> Result<Dims> {
    wrap_dims(op, dim.unwrap_or_default(), t.ndim())
}

/// What is left of the sizes.
pub(crate) fn reduced_sizes(t: &Tensor, dims: &[usize], keepdim: bool) -> Dims {
    let sizes = t.shape().iter().enumerate();
    match keepdim {
        true => sizes.map(|(k, &n)| if dims.contains(&k) { 1 } else { n }).collect(),
        false => sizes.filter(|(k, _)| !dims.contains(k)).map(|(_, &n)| n).collect(),
    }
}

fn sum_dtype(t: &Tensor, dtype: Option<DType>) -> DType {
    dtype.unwrap_or(if t.dtype().is_integer() || t.dtype() == DType::Bool { DType::I64 } else { t.dtype() })
}

fn mean_dtype(op: &'static str, t: &Tensor, dtype: Option<DType>) -> Result<DType> {
    let dtype = dtype.unwrap_or(t.dtype());
    need_float(op, dtype)?;
    Ok(dtype)
}

/// Sums: integers are added up as i64.
pub(crate) fn reduce(
    op: &'static str,
    t: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Spec> {
    let dims = reduced_dims(op, t, dim)?;
    Ok(Spec::new(&reduced_sizes(t, &dims, keepdim), sum_dtype(t, dtype), t.device()))
}

pub(crate) fn reduce_all(_op: &'static str, t: &Tensor, dtype: Option<DType>) -> Result<Spec> {
    Ok(Spec::new(&[], sum_dtype(t, dtype), t.device()))
}

/// Means: only of floats.
pub(crate) fn reduce_float(
    op: &'static str,
    t: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Spec> {
    let dims = reduced_dims(op, t, dim)?;
    Ok(Spec::new(&reduced_sizes(t, &dims, keepdim), mean_dtype(op, t, dtype)?, t.device()))
}

pub(crate) fn reduce_all_float(op: &'static str, t: &Tensor, dtype: Option<DType>) -> Result<Spec> {
    Ok(Spec::new(&[], mean_dtype(op, t, dtype)?, t.device()))
}

/// Extremes of all elements: there must be one.
pub(crate) fn reduce_all_same(op: &'static str, t: &Tensor) -> Result<Spec> {
    if t.numel() == 0 {
        return Err(Error::argument(op, "an empty tensor has no extreme element; give it at least one element"));
    }
    Ok(Spec::new(&[], t.dtype(), t.device()))
}

pub(crate) fn reduce_all_bool(_op: &'static str, t: &Tensor) -> Result<Spec> {
    let dtype = if t.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
    Ok(Spec::new(&[], dtype, t.device()))
}
