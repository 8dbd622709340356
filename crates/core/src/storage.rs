//! Tensors over existing memory, and copies of whole states.
//!
//! A loader makes storages (often mapped files) and places tensors in them with [`Tensor::try_from_storage`]; a writer
//! asks for the memory behind a tensor with [`Tensor::untyped_storage`]. [`Fork`] copies a family of tensors so that those
//! that shared memory still do. Nothing here knows files.

use crate::layout::{Dims, Layout};
use crate::{DType, Device, Error, Result, Spec, Tensor};
use firebrand_kernels::{Flat, Storage, mapped};

impl Tensor {
    /// A tensor over `storage` with this layout. It shares the memory with every other tensor over it.
    /// It is where its storage is: a meta storage, which has no memory, gives a meta tensor.
    pub fn try_from_storage(storage: &Storage, dtype: DType, layout: Layout) -> Result<Tensor> {
        let refuse = |m: String| Err(Error::argument("from_storage", m));
        if layout.end().max(layout.offset()) * dtype.size() > storage.nbytes() {
            return refuse(format!(
                "sizes {:?} and strides {:?} from element {} of {dtype} do not fit a storage of {} bytes",
                layout.sizes(),
                layout.strides(),
                layout.offset(),
                storage.nbytes()
            ));
        }
        let device = if storage.is_meta() { Device::Meta } else { Device::Cpu };
        let t = Tensor::from_parts(storage.clone(), Spec { layout, dtype, device }, 0);
        // Kernels treat any byte but 0 as true; a file with other bytes is damaged, or was written by another program.
        if dtype == DType::Bool && !t.is_meta() && t.bytes_of_bools().into_iter().any(|b| b > 1) {
            return refuse("bytes other than 0 and 1 stand for bools".into());
        }
        Ok(t)
    }

    /// The bytes behind a tensor of bools: each at least once, and never more than its memory has, however often strides
    /// show them.
    fn bytes_of_bools(&self) -> Vec<u8> {
        let l = self.layout();
        let once = |(&n, &s): (&usize, &usize)| if s == 0 { n.min(1) } else { n };
        let sizes: Dims = l.sizes().iter().zip(l.strides()).map(once).collect();
        let mut layout = Layout::derived(&sizes, l.strides(), l.offset());
        let span = l.end().saturating_sub(l.offset());
        if layout.numel() > span {
            layout = Layout::derived(&[span], &[1], l.offset());
        }
        let spec = Spec { layout, dtype: DType::U8, device: Device::Cpu };
        Tensor::from_parts(self.storage().clone(), spec, 0).to_vec()
    }

    /// The address of the first element, for foreign code; null on the meta device. It is valid as long as the tensor, and
    /// the caller orders accesses through it as between threads.
    pub fn data_ptr(&self) -> *mut u8 {
        if self.is_meta() {
            return std::ptr::null_mut();
        }
        let (storage, l) = (self.storage(), self.layout());
        Flat { storage: &storage, offset: l.offset(), len: l.numel().min(1) }.as_ptr(self.dtype())
    }

    /// The memory behind the tensor, which others may share.
    pub fn untyped_storage(&self) -> Storage {
        self.storage().clone()
    }
}

/// Copies tensors into a separate state; tensors that share memory still share it in the copy.
///
/// Memory of a mapped file that was never written is mapped again instead of copied, and costs nothing until it is
/// written. Writes through [`Tensor::data`] hide from the version that tells: do not fork after them.
#[derive(Default)]
pub struct Fork(mapped::Fork);

impl Fork {
    /// The copy of a tensor: a leaf with the same layout and the same `requires_grad`.
    pub fn tensor(&mut self, t: &Tensor) -> Result<Tensor> {
        let copy = Tensor::from_parts(self.0.storage(&t.storage())?, t.spec().clone(), 0);
        copy.try_set_requires_grad(t.requires_grad())?;
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_elements() {
        let t = Tensor::zeros([4, 3], DType::F32);
        let row = t.narrow(0, 1, 1);
        assert_eq!(row.data_ptr().addr() - t.data_ptr().addr(), 12);
        assert!(Tensor::zeros([3], DType::F32).try_to_device(Device::Meta).unwrap().data_ptr().is_null());
    }

    #[test]
    fn tensors_stay_inside_their_storage() {
        let storage = Storage::from_bytes(&[0; 16]).unwrap();
        let at = |sizes: &[usize], strides: &[usize], offset| {
            Tensor::try_from_storage(&storage, DType::F32, Layout::strided(sizes, strides, offset)?)
        };
        assert!(at(&[2, 2], &[2, 1], 0).is_ok());
        assert!(at(&[2], &[1], 2).is_ok());
        assert!(at(&[0], &[1], 4).is_ok());
        assert!(at(&[1000], &[0], 3).is_ok(), "an expanded tensor needs one element");
        assert!(at(&[2], &[1], 3).is_err());
        assert!(at(&[2], &[usize::MAX / 2], 0).is_err());
        assert!(at(&[3], &[usize::MAX / 2 + 1], 0).is_err());
        assert!(at(&[0], &[1], 5).is_err());
    }

    #[test]
    fn bools_are_zero_or_one() {
        let make = |bytes: &[u8]| {
            Tensor::try_from_storage(
                &Storage::from_bytes(bytes).unwrap(),
                DType::Bool,
                Layout::contiguous(&[2]).unwrap(),
            )
        };
        assert_eq!(make(&[0, 1]).unwrap().to_vec::<bool>(), [false, true]);
        assert!(make(&[0, 2]).is_err());
        // However large the tensor is, its memory is looked at once.
        let storage = Storage::from_bytes(&[1, 0, 1, 7]).unwrap();
        let at = |sizes: &[usize], strides: &[usize], offset| {
            Tensor::try_from_storage(&storage, DType::Bool, Layout::strided(sizes, strides, offset).unwrap())
        };
        const LARGE: usize = 1 << (usize::BITS - 14);
        const HALF: usize = 1 << (usize::BITS / 2 - 7);
        assert_eq!(at(&[LARGE], &[0], 2).unwrap().numel(), LARGE);
        assert!(at(&[LARGE], &[0], 3).is_err() && at(&[HALF, HALF, 2], &[0, 0, 1], 2).is_err());
        assert!(at(&[2, 2, 2, 2], &[1, 1, 0, 0], 0).is_ok() && at(&[2, 2, 2], &[1, 1, 1], 0).is_err());
    }

    #[test]
    fn forks_keep_sharing() {
        let a = Tensor::new(&[1.0f32, 2.0, 3.0]).requires_grad_();
        let row = a.detach().slice(0, Some(1.into()), Some(3.into()), 1);
        let mut fork = Fork::default();
        let (fa, frow) = (fork.tensor(&a).unwrap(), fork.tensor(&row).unwrap());
        assert!(fa.shares_storage(&frow) && !fa.shares_storage(&a));
        assert!(fa.requires_grad() && !frow.requires_grad());
        frow.fill_(9.0);
        assert_eq!((fa.to_vec::<f32>(), a.to_vec::<f32>()), (vec![1.0, 9.0, 9.0], vec![1.0, 2.0, 3.0]));
    }
}
