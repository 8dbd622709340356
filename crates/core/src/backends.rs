//! How kernels compute where there is a choice: settings of the whole process.
//!
//! ```
//! use firebrand_core::backends;
//!
//! backends::set_winograd(false); // an infinity now reaches only the outputs whose window holds it
//! assert!(!backends::winograd());
//! ```

pub use firebrand_kernels::conv::{set_winograd, winograd};
