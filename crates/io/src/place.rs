//! Placing tensors in memory that a file describes: layouts from untrusted integers, bools from untrusted bytes.

use crate::{Error, Result};
use firebrand_core::{DType, Layout, Storage, Tensor};

/// A layout, if it is valid at all; whether it fits a storage is checked when the tensor is made.
pub fn layout(sizes: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
    Layout::strided(sizes, strides, offset).map_err(|_| Error::Shape { shape: sizes.to_vec() })
}

/// A copy of a storage of bools in which every byte is 0 or 1, as kernels demand; other writers may spell `true`
/// differently.
pub fn bools(storage: &Storage) -> Result<Storage> {
    let bytes: Vec<u8> = bytes(storage)?.into_iter().map(|b| u8::from(b != 0)).collect();
    Ok(Storage::from_bytes(&bytes).map_err(firebrand_core::Error::from)?)
}

/// A copy of all bytes of a storage.
pub fn bytes(storage: &Storage) -> Result<Vec<u8>> {
    let t = Tensor::try_from_storage(storage, DType::U8, Layout::contiguous(&[storage.nbytes()])?)?;
    Ok(t.try_to_vec()?)
}
