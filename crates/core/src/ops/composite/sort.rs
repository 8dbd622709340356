//! Ops composed of `sort`.

use crate::{Result, Scalar, Tensor, ops};

pub(crate) fn argsort(self_: &Tensor, dim: i64, descending: bool) -> Result<Tensor> {
    Ok(ops::sort(self_, dim, descending)?.1)
}

pub(crate) fn argsort_stable(self_: &Tensor, stable: bool, dim: i64, descending: bool) -> Result<Tensor> {
    Ok(ops::sort_stable(self_, Some(stable), dim, descending)?.1)
}

pub(crate) fn msort(self_: &Tensor) -> Result<Tensor> {
    Ok(ops::sort(self_, 0, false)?.0)
}

/// Where one number belongs.
pub(crate) fn searchsorted_scalar(
    sorted: &Tensor,
    value: Scalar,
    out_int32: bool,
    right: bool,
    side: Option<&str>,
    sorter: Option<&Tensor>,
) -> Result<Tensor> {
    let value = ops::scalar_tensor(value, Some(sorted.dtype()), Some(sorted.device()))?;
    ops::searchsorted(sorted, &value, out_int32, right, side, sorter)
}
