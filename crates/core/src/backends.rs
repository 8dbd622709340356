//! Process-wide choices of kernel implementations.
//!
//! ```
//! # use firebrand_core as firebrand;
//! use firebrand::backends;
//!
//! backends::set_winograd(false); // an infinity now reaches only the outputs whose window holds it
//! assert!(!backends::winograd());
//! ```

pub use firebrand_kernels::conv::{set_winograd, winograd};
