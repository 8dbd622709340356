//! Arrays of samples that stay in their file: rows are read when they are asked for.
//!
//! The file is mapped, so the processes of a machine share what they read of it, and what nobody asks for is not read. NumPy does not align
//! the arrays of an `.npz` file; so rows are taken out as bytes, and the copy is aligned.

use crate::{Error, Result};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Layout, PrivatePages, Tensor, ops};
use std::ops::Range;

/// The rows of an array, in memory or in a mapped file.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The elements; in a mapped file, the bytes of each row.
    data: Tensor,
    dtype: DType,
    shape: Vec<usize>,
}

impl Rows {
    /// The rows of a tensor.
    pub fn new(data: Tensor) -> Rows {
        Rows { dtype: data.dtype(), shape: data.shape().to_vec(), data }
    }

    /// Rows whose elements are at these bytes of a mapped file; `None` if they cannot be used from there.
    pub(crate) fn mapped(pages: &PrivatePages, range: Range<usize>, dtype: DType, shape: &[usize]) -> Option<Rows> {
        // Other writers may spell `true` differently.
        let rows = shape.first().copied().filter(|n| *n > 0 && dtype != DType::Bool)?;
        let width = range.len() / rows;
        if width == 0 || width * rows != range.len() || !cfg!(target_endian = "little") {
            return None;
        }
        let start = range.start & !63; // a storage begins where any element could
        let storage = pages.storage(start..range.end)?;
        let layout = Layout::strided(&[rows, width], &[width, 1], range.start - start).ok()?;
        let data = Tensor::try_from_storage(&storage, DType::U8, layout).ok()?;
        Some(Rows { data, dtype, shape: shape.to_vec() })
    }

    /// Sizes; the first is the number of rows.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies these rows.
    pub fn select(&self, rows: &[usize]) -> Result<Tensor> {
        let at = Tensor::new(&rows.iter().map(|&i| i as i64).collect::<Vec<i64>>());
        let select = || -> firebrand_core::Result<Tensor> {
            let copy = ops::index_select(&self.data, 0, &at)?;
            if self.data.dtype() == self.dtype && self.data.shape() == self.shape {
                return Ok(copy);
            }
            let sizes: Vec<usize> = std::iter::once(rows.len()).chain(self.shape[1..].iter().copied()).collect();
            copy.try_view_dtype(self.dtype)?.try_view(&sizes[..])
        };
        no_grad(select).map_err(Error::from)
    }
}
