//! Conversions: a copy if anything changes, the tensor itself if not.

use crate::dispatch::MemoryFormat;
use crate::{DType, Device, Result, Tensor, ops};

pub(crate) fn to_dtype_layout(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    non_blocking: bool,
    copy: bool,
    memory_format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let same_type = dtype.is_none_or(|d| d == self_.dtype()) && device.is_none_or(|d| d == self_.device());
    let wanted = ops::shape::creation::memory(self_, memory_format)?;
    let keeps = matches!(memory_format, None | Some(MemoryFormat::Preserve));
    if same_type && !copy && (keeps || wanted.same_geometry(self_.layout())) {
        return Ok(self_.clone());
    }
    ops::to_copy(self_, dtype, device, non_blocking, memory_format)
}

pub(crate) fn to_dtype(
    self_: &Tensor,
    dtype: DType,
    non_blocking: bool,
    copy: bool,
    memory_format: Option<MemoryFormat>,
) -> Result<Tensor> {
    to_dtype_layout(self_, Some(dtype), None, non_blocking, copy, memory_format)
}

pub(crate) fn to_device(
    self_: &Tensor,
    device: Device,
    dtype: DType,
    non_blocking: bool,
    copy: bool,
    memory_format: Option<MemoryFormat>,
) -> Result<Tensor> {
    to_dtype_layout(self_, Some(dtype), Some(device), non_blocking, copy, memory_format)
}

pub(crate) fn to_other(
    self_: &Tensor,
    other: &Tensor,
    non_blocking: bool,
    copy: bool,
    memory_format: Option<MemoryFormat>,
) -> Result<Tensor> {
    to_dtype_layout(self_, Some(other.dtype()), Some(other.device()), non_blocking, copy, memory_format)
}

pub(crate) fn type_as(self_: &Tensor, other: &Tensor) -> Result<Tensor> {
    to_other(self_, other, false, false, None)
}
