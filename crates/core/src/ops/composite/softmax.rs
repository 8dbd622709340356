//! Softmax as users call it.

use crate::ops::formulas::cast;
use crate::{DType, Result, Tensor, ops};

pub(crate) fn softmax(t: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    ops::_softmax(&cast(t, dtype.unwrap_or(t.dtype()))?, dim, false)
}

pub(crate) fn log_softmax(t: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    ops::_log_softmax(&cast(t, dtype.unwrap_or(t.dtype()))?, dim, false)
}
