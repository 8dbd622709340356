//! Global settings: versions, gradient mode, threads, the random seed.

use crate::boundary::status;
use firebrand::autograd::{is_grad_enabled, set_grad_enabled};
use std::ffi::c_char;

/// The version of this interface: a header with another number does not fit this library.
pub const ABI_VERSION: i32 = 1;

/// [`ABI_VERSION`], to be compared with `FB_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn fb_abi_version() -> i32 {
    ABI_VERSION
}

/// The release, as text.
#[unsafe(no_mangle)]
pub extern "C" fn fb_version() -> *const c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}

/// Turns recording for gradients off (1) or on (0) for this thread; returns what it was before, in the same terms.
#[unsafe(no_mangle)]
pub extern "C" fn fb_no_grad(on: i32) -> i32 {
    let before = is_grad_enabled();
    set_grad_enabled(on == 0);
    i32::from(!before)
}

/// The number of threads that ops use.
#[unsafe(no_mangle)]
pub extern "C" fn fb_num_threads() -> usize {
    firebrand::num_threads()
}

/// Sets the number of threads that ops use, in the whole process: at least 1, at most 256.
#[unsafe(no_mangle)]
pub extern "C" fn fb_set_num_threads(count: usize) {
    firebrand::set_num_threads(count)
}

/// Seeds the random numbers of the process: dropout, the order of samples, initial values of adapters.
#[unsafe(no_mangle)]
pub extern "C" fn fb_manual_seed(seed: u64) -> i32 {
    status(|| {
        firebrand::random::manual_seed(seed);
        Ok(())
    })
}
