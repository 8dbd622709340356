//! In-place ops that replace a tensor's memory or size (`resize_`, `set_`). They keep no history, so a tensor that requires grad is
//! an error unless nothing changes. Only a leaf may get other memory by `set_`, where nothing is recorded: it is then another leaf to
//! graphs that were recorded before.

use crate::dispatch::MemoryFormat;
use crate::layout::Layout;
use crate::ops::shape;
use crate::{Error, Result, Spec, SymInt, Tensor, state};

/// Fails for tensors whose history would no longer be theirs, and inside transforms, where memory is another's.
fn check(op: &'static str, t: &Tensor) -> Result<()> {
    if state::is(state::LEVEL) {
        return Err(Error::argument(op, "a tensor cannot get other memory inside vmap or a nested jvp"));
    }
    if t.is_sparse() {
        return Err(crate::tensor::sparse::refused(op, "the tensor"));
    }
    // Inference tensors have no history.
    let is_free = t.is_inference_here() && state::is(state::INFERENCE);
    if t.requires_grad() && !is_free {
        return Err(Error::argument(op, "a tensor that requires grad cannot get other memory; detach() it first"));
    }
    t.check_writable(op)
}

/// Gives the tensor a layout; memory that is too small is replaced by larger, which begins with what there was.
fn become_<'a>(op: &'static str, t: &'a Tensor, layout: Layout) -> Result<&'a Tensor> {
    if layout.same_geometry(t.layout()) && layout.sizes() == t.shape() {
        return Ok(t);
    }
    check(op, t)?;
    let bytes = layout.end().checked_mul(t.dtype().size());
    let spec = Spec { layout, ..t.spec().clone() };
    if t.is_meta() || bytes.is_some_and(|bytes| bytes <= t.storage().nbytes()) {
        t.replace_data(t.storage().clone(), spec);
    } else {
        let room = Tensor::try_empty(Spec::new(&[spec.layout.end()], spec.dtype, spec.device)?)?;
        super::cpu::zero_into(&room)?;
        let old = Layout::strided(&[t.storage().nbytes() / t.dtype().size()], &[1], 0)?;
        let front = room.alias_with(Layout::strided(old.sizes(), &[1], 0)?);
        super::manual::copy_data(&t.alias_with(old), &front)?;
        t.replace_data(room.storage().clone(), spec);
    }
    t.bump_version();
    Ok(t)
}

/// `resize_`: another size; elements keep their places in memory.
pub(crate) fn resize_<'a>(
    self_: &'a Tensor,
    size: &[SymInt],
    memory_format: Option<MemoryFormat>,
) -> Result<&'a Tensor> {
    const OP: &str = "resize_";
    let spec = shape::creation::fresh(OP, size, Some(self_.dtype()), Some(self_.device()))?;
    let layout = shape::creation::ordered(OP, spec.layout.sizes(), memory_format)?;
    if layout.sizes() == self_.shape() && memory_format.is_none() {
        return Ok(self_);
    }
    become_(OP, self_, layout.with_offset(self_.layout().offset())?)
}

/// `resize_as_`: the size of another tensor.
pub(crate) fn resize_as_<'a>(
    self_: &'a Tensor,
    the_template: &Tensor,
    memory_format: Option<MemoryFormat>,
) -> Result<&'a Tensor> {
    const OP: &str = "resize_as_";
    if let None | Some(MemoryFormat::Contiguous) = memory_format {
        return resize_(self_, &the_template.sym_sizes(), memory_format);
    }
    if the_template.shape() == self_.shape() {
        return Ok(self_);
    }
    let layout = match memory_format {
        Some(MemoryFormat::Preserve) => the_template.layout().dense_like(),
        other => shape::creation::ordered(OP, the_template.shape(), other)?,
    };
    become_(OP, self_, layout.with_offset(self_.layout().offset())?)
}

fn share<'a>(op: &'static str, t: &'a Tensor, source: &Tensor, layout: Layout) -> Result<&'a Tensor> {
    let leaf = t.requires_grad() && t.is_leaf_here() && !state::is(state::GRAD);
    if leaf {
        t.check_writable(op)?;
        t.forget_accumulator();
    } else {
        check(op, t)?;
    }
    if source.dtype() != t.dtype() || source.device() != t.device() {
        let found = format!("{} on {}", source.dtype(), source.device());
        let m = format!("expected a source of {} on {}, found {found}", t.dtype(), t.device());
        return Err(Error::argument(op, m));
    }
    t.replace_data(source.storage().clone(), Spec { layout, ..t.spec().clone() });
    t.bump_version();
    Ok(t)
}

/// `set_.source_Tensor`: the memory, size and strides of another tensor.
pub(crate) fn set_source<'a>(self_: &'a Tensor, source: &Tensor) -> Result<&'a Tensor> {
    share("set_", self_, source, source.layout().clone())
}

/// `set_.source_Tensor_storage_offset`: a region of the memory of another tensor.
pub(crate) fn set_source_region<'a>(
    self_: &'a Tensor,
    source: &Tensor,
    storage_offset: SymInt,
    size: &[SymInt],
    stride: &[SymInt],
) -> Result<&'a Tensor> {
    let layout = match stride.is_empty() && !size.is_empty() {
        true => {
            let spec = shape::creation::fresh("set_", size, Some(source.dtype()), Some(source.device()))?;
            let strides: Vec<SymInt> = spec.layout.strides().iter().map(|&s| s.into()).collect();
            shape::view::as_strided(source, size, &strides, Some(storage_offset))?
        }
        false => shape::view::as_strided(source, size, stride, Some(storage_offset))?,
    };
    share("set_", self_, source, layout)
}

/// `set_`: no elements.
pub(crate) fn set_(self_: &Tensor) -> Result<&Tensor> {
    let empty = Tensor::try_empty(Spec::new(&[0], self_.dtype(), self_.device())?)?;
    share("set_", self_, &empty, empty.layout().clone())
}
