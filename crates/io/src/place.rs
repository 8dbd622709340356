//! Placing tensors in memory that a file describes: layouts from untrusted numbers, bools from untrusted bytes.

use crate::{Error, Result};
use firebrand_core::layout::checked_numel;
use firebrand_core::{DType, Layout, Storage, Tensor};

/// A layout, if its numbers make sense at all; whether it fits a storage is for the tensor to say.
pub fn layout(sizes: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
    let refused = || Error::Shape { shape: sizes.to_vec() };
    if sizes.len() != strides.len() || sizes.len() > 64 || checked_numel(sizes).is_none() {
        return Err(refused());
    }
    let reach = sizes.iter().zip(strides).try_fold(offset, |at, (n, s)| at.checked_add(n.checked_mul(*s)?));
    if reach.is_none_or(|r| r > isize::MAX as usize) {
        return Err(refused());
    }
    Ok(Layout::strided(sizes, strides, offset))
}

/// A copy of a storage of bools in which every byte is 0 or 1, as kernels demand; other writers may spell `true`
/// differently.
pub fn bools(storage: &Storage) -> Result<Storage> {
    let bytes: Vec<u8> = bytes(storage)?.into_iter().map(|b| u8::from(b != 0)).collect();
    Ok(Storage::from_bytes(&bytes).map_err(firebrand_core::Error::from)?)
}

/// A copy of all bytes of a storage.
pub fn bytes(storage: &Storage) -> Result<Vec<u8>> {
    let t = Tensor::try_from_storage(storage, DType::U8, Layout::contiguous(&[storage.nbytes()]))?;
    Ok(t.try_to_vec()?)
}
