//! Shape functions of copies and of tensors made like others.

use crate::dispatch::MemoryFormat;
use crate::layout::Layout;
use crate::{DType, Device, Result, Scalar, Spec, Tensor};

/// The layout of a copy: dense, in the memory order that the format asks for.
pub(crate) fn copied_layout(t: &Tensor, format: Option<MemoryFormat>) -> Layout {
    match format.unwrap_or_default() {
        MemoryFormat::Preserve => t.layout().dense_like(),
        MemoryFormat::Contiguous => Layout::contiguous(t.shape()),
    }
}

pub(crate) fn clone(_op: &'static str, t: &Tensor, format: Option<MemoryFormat>) -> Result<Spec> {
    Ok(Spec { layout: copied_layout(t, format), dtype: t.dtype(), device: t.device() })
}

pub(crate) fn to_copy(
    op: &'static str,
    t: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    _non_blocking: bool,
    format: Option<MemoryFormat>,
) -> Result<Spec> {
    new_like(op, t, dtype, device, format)
}

/// A tensor of the same shape.
pub(crate) fn new_like(
    _op: &'static str,
    t: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Spec> {
    let (dtype, device) = (dtype.unwrap_or(t.dtype()), device.unwrap_or(t.device()));
    Ok(Spec { layout: copied_layout(t, format), dtype, device })
}

pub(crate) fn fill(op: &'static str, t: &Tensor, _value: Scalar) -> Result<Spec> {
    super::unary(op, t)
}
