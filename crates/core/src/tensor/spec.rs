//! The properties of a tensor other than its values, as shape functions return them.

use crate::layout::Layout;
use crate::{DType, Device, Result};

/// Shape, memory order, dtype and device: everything about a tensor except its values.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Sizes and strides.
    pub layout: Layout,
    /// Element type.
    pub dtype: DType,
    /// Its device.
    pub device: Device,
}

impl Spec {
    /// A row-major tensor; returns an error for sizes that no tensor can have.
    #[inline]
    pub fn new(sizes: &[usize], dtype: DType, device: Device) -> Result<Spec> {
        Ok(Spec { layout: Layout::contiguous(sizes)?, dtype, device })
    }

    /// A 0-dim tensor.
    #[inline]
    pub fn scalar(dtype: DType, device: Device) -> Spec {
        Spec { layout: Layout::scalar(), dtype, device }
    }
}

/// What a shape function returns for a result. Naming an operand that it equals avoids copying the spec through the stack,
/// which would slow down small ops.
#[derive(Debug)]
pub enum Shape<'a> {
    /// A new row-major tensor of these sizes, dtype and device.
    Like(&'a Spec),
    /// This spec.
    New(Spec),
}

impl std::ops::Deref for Shape<'_> {
    type Target = Spec;
    #[inline]
    fn deref(&self) -> &Spec {
        match self {
            Shape::Like(spec) => spec,
            Shape::New(spec) => spec,
        }
    }
}

impl From<Spec> for Shape<'_> {
    #[inline]
    fn from(spec: Spec) -> Self {
        Shape::New(spec)
    }
}

impl Shape<'_> {
    /// The description itself.
    #[inline]
    pub(crate) fn into_spec(self) -> Spec {
        match self {
            Shape::Like(spec) => Spec { layout: spec.layout.from_start(), ..*spec },
            Shape::New(spec) => spec,
        }
    }
}
