//! Shapes of copies: memory order, dtype and device of `clone`, `_to_copy` and the `_like` forms.

use crate::dispatch::MemoryFormat;
use crate::layout::{Dims, Layout};
use crate::sym::SymInt;
use crate::sym::checked_sizes;
use crate::{DType, Device, Error, Result, Scalar, Spec, Tensor};

/// Channels innermost: the memory order of images that convolutions like.
pub(crate) fn channels_last(op: &'static str, sizes: &[usize]) -> Result<Layout> {
    if sizes.len() != 4 {
        let m = format!("channels_last needs 4 dimensions, found {sizes:?}");
        return Err(Error::argument(op, m));
    }
    let mut strides = Dims::from_elem(0, sizes.len());
    let mut step = 1;
    for d in [1, 3, 2, 0] {
        strides[d] = step;
        step *= sizes[d].max(1);
    }
    Layout::strided(sizes, &strides, 0)
}

/// The layout of a new tensor of these sizes.
pub(crate) fn ordered(op: &'static str, sizes: &[usize], format: Option<MemoryFormat>) -> Result<Layout> {
    match format {
        Some(MemoryFormat::ChannelsLast) => channels_last(op, sizes),
        _ => Layout::contiguous(sizes),
    }
}

/// The layout of a copy.
pub(crate) fn memory(t: &Tensor, format: Option<MemoryFormat>) -> Result<Layout> {
    match format {
        None | Some(MemoryFormat::Preserve) => Ok(t.layout().dense_like()),
        other => ordered("memory_format", t.shape(), other),
    }
}

/// `clone`.
pub(crate) fn clone(_op: &'static str, self_: &Tensor, format: Option<MemoryFormat>) -> Result<Spec> {
    Ok(Spec { layout: memory(self_, format)?, dtype: self_.dtype(), device: self_.device() })
}

/// `lift_fresh_copy`.
pub(crate) fn lift_fresh_copy(op: &'static str, self_: &Tensor) -> Result<Spec> {
    clone(op, self_, None)
}

/// `_to_copy`.
pub(crate) fn to_copy(
    op: &'static str,
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    _non_blocking: bool,
    format: Option<MemoryFormat>,
) -> Result<Spec> {
    let device = device.unwrap_or(self_.device());
    if self_.is_meta() && device != Device::Meta {
        return Err(Error::argument(op, "a tensor on the meta device has no data to copy to another device"));
    }
    Ok(Spec { layout: memory(self_, format)?, dtype: dtype.unwrap_or(self_.dtype()), device })
}

/// `copy`: the shape and dtype of `self_`, the values of `src`.
pub(crate) fn copy(op: &'static str, self_: &Tensor, src: &Tensor, _non_blocking: bool) -> Result<Spec> {
    if !super::is_expandable_to(src.shape(), self_.shape()) {
        let m = format!("a source of shape {:?} cannot be broadcast to shape {:?}", src.shape(), self_.shape());
        return Err(Error::argument(op, m));
    }
    Ok(Spec { layout: memory(self_, None)?, dtype: self_.dtype(), device: self_.device() })
}

/// `fill` with a number.
pub(crate) fn fill(op: &'static str, self_: &Tensor, _value: Scalar) -> Result<Spec> {
    clone(op, self_, None)
}

/// `fill` with the number in a tensor.
pub(crate) fn fill_tensor(op: &'static str, self_: &Tensor, value: &Tensor) -> Result<Spec> {
    if value.ndim() != 0 {
        return Err(Error::argument(op, format!("expected a 0-dim value, found shape {:?}", value.shape())));
    }
    clone(op, self_, None)
}

/// `zero`.
pub(crate) fn zero(op: &'static str, self_: &Tensor) -> Result<Spec> {
    clone(op, self_, None)
}

/// Row-major, with what options leave open taken from defaults.
pub(crate) fn fresh(op: &'static str, sizes: &[SymInt], dtype: Option<DType>, device: Option<Device>) -> Result<Spec> {
    let dtype = dtype.unwrap_or_else(crate::dtype::default_dtype);
    Spec::new(&checked_sizes(op, sizes)?, dtype, device.unwrap_or_default())
}

/// As another tensor, but for what options say.
pub(crate) fn like(
    self_: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Spec> {
    let (dtype, device) = (dtype.unwrap_or(self_.dtype()), device.unwrap_or(self_.device()));
    Ok(Spec { layout: memory(self_, format)?, dtype, device })
}

/// As another tensor, with sizes of its own.
pub(crate) fn new(
    op: &'static str,
    self_: &Tensor,
    sizes: &[SymInt],
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Spec> {
    fresh(op, sizes, Some(dtype.unwrap_or(self_.dtype())), Some(device.unwrap_or(self_.device())))
}

/// Sizes with strides of their own.
pub(crate) fn strided(
    op: &'static str,
    sizes: &[SymInt],
    strides: &[SymInt],
    dtype: DType,
    device: Device,
) -> Result<Spec> {
    if sizes.len() != strides.len() {
        return Err(Error::argument(op, format!("{} sizes and {} strides given", sizes.len(), strides.len())));
    }
    let (sizes, strides) = (checked_sizes(op, sizes)?, checked_sizes(op, strides)?);
    let mut last = Some(0usize);
    for (&n, &s) in sizes.iter().zip(&strides) {
        last = last.and_then(|l| (n.max(1) - 1).checked_mul(s).and_then(|x| l.checked_add(x)));
    }
    if last.is_none_or(|l| l > isize::MAX as usize / 16) {
        return Err(Error::argument(op, format!("sizes {sizes:?} with strides {strides:?} overflow")));
    }
    Ok(Spec { layout: Layout::strided(&sizes, &strides, 0)?, dtype, device })
}
