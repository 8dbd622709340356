//! Moving elements by index: gather and scatter, advanced indexing, masks, embeddings.
//!
//! Every kernel takes views of any strides. All indices are checked before the first element is written, so an error
//! leaves the output unchanged. Where several indices name one element, the last in logical order wins, or all are
//! combined in logical order: results never depend on the number of threads.
//! Plain copies are compiled per element size, only arithmetic per dtype. Broadcasting is done by the caller; a scalar is a view
//! whose strides are 0. Mismatched sizes and dtypes are a bug of the caller and panic: once per call they are
//! asserted, since every address below depends on them.
#![allow(unsafe_code)]

mod advanced;
mod arithmetic;
mod gather;
mod mask;

pub use advanced::{
    embedding, embedding_dense_backward, index, index_add, index_copy, index_fill, index_put, index_select,
    index_sizes, put, take,
};
pub use gather::{Reduce, gather, scatter, scatter_add, scatter_reduce};
pub use mask::{count_nonzero, masked_fill, masked_scatter, masked_select, nonzero};

pub(crate) use arithmetic::Arithmetic;

use crate::walk::{for_runs, last};
use crate::{DType, View, parallel};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// An index that names no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOutOfRange {
    /// The index as it was given.
    pub index: i64,
    /// How many elements there are to name.
    pub size: usize,
}

impl std::fmt::Display for IndexOutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "index {} is out of bounds for dimension with size {}", self.index, self.size)
    }
}
impl std::error::Error for IndexOutOfRange {}

/// Elements that one thread handles at once. Chunks depend on sizes only.
const GRAIN: usize = if cfg!(miri) { 64 } else { 1 << 14 };

/// Runs `$body` with `$t` standing for an unsigned integer of this many bytes.
macro_rules! with_bytes {
    ($bytes:expr, $t:ident => $body:expr) => {
        match $bytes {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            16 => {
                type $t = [u64; 2];
                $body
            }
            _ => {
                type $t = u64;
                $body
            }
        }
    };
}
pub(crate) use with_bytes;

/// Whether negative indices count from the end.
#[derive(Clone, Copy, PartialEq)]
enum Negative {
    Wrap,
    Refuse,
}

/// Reads an i32 or i64 index view.
#[derive(Clone, Copy)]
struct Indices<'a> {
    view: View<'a>,
    wide: bool,
}

impl<'a> Indices<'a> {
    fn new(view: &View<'a>) -> Indices<'a> {
        assert!(matches!(view.dtype(), DType::I32 | DType::I64), "indices are i32 or i64");
        Indices { view: *view, wide: view.dtype() == DType::I64 }
    }

    /// # Safety
    /// `offset` is that of an element of the view.
    #[inline(always)]
    unsafe fn read(&self, offset: usize) -> i64 {
        // SAFETY: the caller's promise, and the dtype was asked once.
        unsafe {
            if self.wide {
                self.view.as_ptr().cast::<i64>().add(offset).read()
            } else {
                i64::from(self.view.as_ptr().cast::<i32>().add(offset).read())
            }
        }
    }

    /// The first index in logical order that is out of range, if any.
    fn check(&self, size: usize, negative: Negative) -> Result<(), IndexOutOfRange> {
        let v = self.view;
        let lowest = if negative == Negative::Wrap { -(size as i64) } else { 0 };
        let wrong = AtomicBool::new(false);
        let step = last(v.strides());
        parallel::split(v.numel(), GRAIN, |range| {
            let mut any = false;
            for_runs(v.sizes(), [v.strides()], range, |[offset], len| {
                for i in 0..len {
                    // SAFETY: the walk stays within the view.
                    let index = unsafe { self.read(offset + i * step) };
                    any |= index < lowest || index >= size as i64;
                }
            });
            if any {
                wrong.store(true, Relaxed);
            }
        });
        if !wrong.into_inner() {
            return Ok(());
        }
        self.each(|_, index| match position(index, size, negative) {
            Some(_) => Ok(()),
            None => Err(IndexOutOfRange { index, size }),
        })
    }

    /// Calls `f(position, index)` in logical order until it fails.
    fn each(&self, mut f: impl FnMut(usize, i64) -> Result<(), IndexOutOfRange>) -> Result<(), IndexOutOfRange> {
        let (v, step) = (self.view, last(self.view.strides()));
        let mut at = 0;
        let mut result = Ok(());
        for_runs(v.sizes(), [v.strides()], 0..v.numel(), |[offset], len| {
            for i in 0..len {
                if result.is_ok() {
                    // SAFETY: the walk stays within the view.
                    result = f(at + i, unsafe { self.read(offset + i * step) });
                }
            }
            at += len;
        });
        result
    }
}

/// Fails with the first index in logical order that is not one of `0..size`.
pub fn check(indices: &View, size: usize) -> Result<(), IndexOutOfRange> {
    Indices::new(indices).check(size, Negative::Refuse)
}

/// The element that `index` names among `size`.
#[inline(always)]
fn position(index: i64, size: usize, negative: Negative) -> Option<usize> {
    let at = if index < 0 && negative == Negative::Wrap { index.wrapping_add(size as i64) } else { index };
    ((at as u64) < size as u64).then_some(at as usize)
}

#[cfg(test)]
mod tests;
