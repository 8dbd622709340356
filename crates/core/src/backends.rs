//! Process-wide choices of kernel implementations.
//!
//! ```
//! # use firebrand_core as firebrand;
//! use firebrand::backends;
//!
//! backends::set_winograd(false); // an infinity now reaches only the outputs whose window holds it
//! assert!(!backends::winograd());
//! ```

use crate::capture;
use crate::error::expect_ok;
use firebrand_kernels::conv;

/// Sets whether 3 x 3 convolutions of stride 1 in f32 may be computed by Winograd's algorithm, process-wide.
/// They are by default: it takes 16 multiplications where the direct sum takes 36, and is equally accurate. It differs where
/// values are not finite: an infinity or NaN in the input reaches all outputs of a tile of 2 x 2 as NaN, not only those
/// whose window contains it; and inputs beyond about 1e37 may overflow.
#[track_caller]
pub fn set_winograd(on: bool) {
    expect_ok(capture::leave("set_winograd"));
    conv::set_winograd(on)
}

/// Whether convolutions may be computed by Winograd's algorithm; see [`set_winograd`].
pub fn winograd() -> bool {
    capture::observed("Winograd's algorithm", || i64::from(conv::winograd())) != 0
}
