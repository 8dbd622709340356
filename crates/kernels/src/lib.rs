//! Compute kernels on strided memory.
//!
//! This crate deals with memory, element types, strides, threads and instruction sets. It knows nothing of tensors, shape rules and
//! derivatives: callers check shapes and dtypes first. Everything that memory safety depends on is asserted here again, once per
//! call, so that safe functions are safe for every caller. One thing is up to the callers: no two threads may write and read one
//! element at the same time (see `Storage`). Nearly all `unsafe` of the workspace is here.

mod along;
pub mod attention;
pub mod conv;
mod copy;
pub mod cpu;
mod debug;
mod dtype;
#[cfg(feature = "fft")]
pub mod fft;
mod geometry;
pub mod grid_sample;
pub mod index;
mod lanes;
pub mod linalg;
pub mod mapped;
mod matmul;
mod memory;
mod moves;
pub mod norm;
pub mod optim;
pub mod owned;
pub mod parallel;
pub mod pointwise;
pub mod pooling;
pub mod quantized;
pub mod random;
pub mod ranges;
mod real;
pub mod reduce;
pub mod remap;
pub mod roofline;
pub mod scan;
pub mod scratch;
mod sets;
pub mod shared;
mod slices;
mod small;
pub mod softmax;
pub mod sort;
pub mod special;
#[cfg(test)]
mod test_tensors;
#[cfg(test)]
mod testing;
pub mod triangle;
pub mod upsample;
mod view;
pub mod vmath;
pub mod vmath64;
mod walk;

pub use copy::{copy, fill};
pub use dtype::{DType, Element, Truth};
pub use half::{bf16, f16};
pub use matmul::{addmm, matmul};
pub use memory::{Flat, MAX_ELEMENTS, MemoryStats, OutOfMemory, Storage, empty_cache, memory_stats, reset_peak_memory};
pub use num_complex::Complex;
pub use slices::{read_slice, write_slice};
pub use view::{View, ViewMut, is_contiguous};
