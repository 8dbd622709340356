//! Limits on the size of tensors.

/// Maximum number of dimensions of a tensor, as in PyTorch.
pub const MAX_DIMS: usize = 64;

/// Maximum number of elements of a layout, and its reach: with the largest element type they fill the address space.
pub use firebrand_kernels::MAX_ELEMENTS;
