//! Dynamic sizes: expressions over symbols, found by running a program at several sizes.
//!
//! Nothing here is symbolic execution. What a program does with a size is determined by running it on meta tensors at other
//! sizes: [`fit`] turns the integers that come out into an expression ([`SizeExpr`]), `merge` several traces of one
//! function into one graph over symbols, and [`sizes_at`] runs a finished graph and reads sizes inside it.

mod dim;
mod fit;
mod merge;
mod probe;
mod program;
mod remainders;
mod size;

pub use dim::Dim;
pub(crate) use dim::{Places, Symbol};
pub use fit::{Point, fit};
pub(crate) use merge::{Difference, Sample, merge};
pub use probe::{Sizes, sizes_at};
pub(crate) use program::at_all_sizes;
pub(crate) use remainders::remainders;
pub use size::{SizeExpr, size_function};
