//! Views that may have to copy.

use crate::dispatch::MemoryFormat;
use crate::ops::shape;
use crate::{Result, SymInt, Tensor, ops};

/// The same elements in row-major order with another shape: a view if memory allows, otherwise a copy.
pub(crate) fn reshape(self_: &Tensor, sizes: &[SymInt]) -> Result<Tensor> {
    let dims = shape::view::infer_size("reshape", sizes, self_.numel())?;
    let sizes = ops::formulas::sym(&dims);
    if self_.layout().view_strides(&dims).is_some() {
        return ops::view(self_, &sizes);
    }
    ops::view(&ops::clone(self_, Some(MemoryFormat::Contiguous))?, &sizes)
}
