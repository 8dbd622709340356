//! The op table: samples of every op with PyTorch's results, and the checks that each sample drives.
//!
//! A [`Family`] is one file of `golden/opinfo`; a [`Row`] is one call. A [`Check`] is a property that a row can be tested for:
//! [`Check::applies`] says whether it makes sense for a row, [`Check::run`] tests it. Tests run every check on every row;
//! [`coverage`] counts them.
//!
//! All of this needs the feature `samples`, on by default; without it there are only the counts ([`recorded_coverage`]). Nothing
//! here knows how an op works, and nothing needs Python.

#[cfg(feature = "samples")]
mod call;
mod check;
#[cfg(feature = "samples")]
mod compare;
#[cfg(feature = "samples")]
pub mod complete;
#[cfg(feature = "samples")]
mod derivatives;
#[cfg(feature = "samples")]
pub mod deviations;
#[cfg(feature = "samples")]
mod results;
#[cfg(feature = "samples")]
mod row;
#[cfg(feature = "samples")]
mod transforms;

#[cfg(feature = "samples")]
pub use call::{Call, Outcome, Place};
#[cfg(feature = "samples")]
pub use results::evaluate;
#[cfg(feature = "samples")]
pub use row::{Argument, Numbers, Row, TensorData, read as read_rows};
#[cfg(feature = "samples")]
mod table;

pub use check::{Check, Counts, UNLISTED, recorded_coverage};
#[cfg(feature = "samples")]
pub use table::{FAMILIES, Family, coverage, coverage_text, in_place_form};
