//! Copies, conversions and constants.

use crate::dispatch::MemoryFormat;
use crate::{DType, Device, Result, Scalar, Tensor};

/// Copies numbers, converting the dtype.
pub(crate) fn clone(t: &Tensor, _format: Option<MemoryFormat>, out: &Tensor) -> Result<()> {
    t.need_data("clone")?;
    firebrand_kernels::copy(t.access().view(), out.access().view_mut());
    Ok(())
}

pub(crate) fn to_copy(
    t: &Tensor,
    _dtype: Option<DType>,
    _device: Option<Device>,
    _non_blocking: bool,
    format: Option<MemoryFormat>,
    out: &Tensor,
) -> Result<()> {
    clone(t, format, out)
}

pub(crate) fn fill(_t: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    firebrand_kernels::fill(out.access().view_mut(), value.into());
    Ok(())
}

pub(crate) fn zero(t: &Tensor, out: &Tensor) -> Result<()> {
    fill(t, Scalar::Int(0), out)
}

pub(crate) fn zeros_like(
    t: &Tensor,
    _dtype: Option<DType>,
    _device: Option<Device>,
    _format: Option<MemoryFormat>,
    out: &Tensor,
) -> Result<()> {
    zero(t, out)
}
