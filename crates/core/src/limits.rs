//! Limits on the size of tensors.

/// Maximum number of dimensions of a tensor, as in PyTorch.
pub const MAX_DIMS: usize = 64;

/// Maximum number of elements of a layout, and its reach: with the largest element type they fill the address space.
pub use firebrand_kernels::MAX_ELEMENTS;

/// A size or count that is not negative, as a position in memory. One that no address can reach (where addresses have 32
/// bits) becomes the largest there is, which no tensor has, so that what is computed from it is refused and never wraps.
pub(crate) fn as_size(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
