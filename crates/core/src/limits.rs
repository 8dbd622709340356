//! How large a tensor can be.

/// Dimensions a tensor can have, as in PyTorch.
pub const MAX_DIMS: usize = 64;

/// No layout counts or reaches more elements: as many of the largest type fill the address space.
pub use firebrand_kernels::MAX_ELEMENTS;
