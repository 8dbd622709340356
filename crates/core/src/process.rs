//! Process-wide settings and counters: the default dtype, the number of threads, memory.
//!
//! The code that looks at these knows nothing of captures. Users call what is here: as a graph holds none of it, each of these ends
//! the capture of a compiled function, and what is only read is a condition of its graph.

use crate::error::expect_ok;
use crate::{DType, capture, dtype};
use firebrand_kernels::{self as kernels, MemoryStats, parallel};

/// Changes the default dtype of float results ([`dtype::default_dtype`]). Integer dtypes are ignored: it is f32 then.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::{DType, Tensor, dtype, set_default_dtype};
/// set_default_dtype(DType::F64);
/// assert_eq!(dtype::default_dtype(), DType::F64);
/// set_default_dtype(DType::F32);
/// ```
#[track_caller]
pub fn set_default_dtype(d: DType) {
    expect_ok(capture::leave("set_default_dtype"));
    dtype::store_default(d)
}

/// The number of threads kernels use: `FIREBRAND_NUM_THREADS`, or the number of cores, unless set with [`set_num_threads`].
pub fn num_threads() -> usize {
    capture::observed("number of threads", || parallel::num_threads() as i64) as usize
}

/// Uses `n` threads (at least one, at most 256) from now on.
#[track_caller]
pub fn set_num_threads(n: usize) {
    expect_ok(capture::leave("set_num_threads"));
    parallel::set_num_threads(n)
}

/// Current memory statistics. Other threads report their small blocks in steps of 64 KiB, so `live` and `peak` are accurate to that.
#[track_caller]
pub fn memory_stats() -> MemoryStats {
    expect_ok(capture::leave("memory_stats"));
    kernels::memory_stats()
}

/// Resets the peak to the current use.
#[track_caller]
pub fn reset_peak_memory() {
    expect_ok(capture::leave("reset_peak_memory"));
    kernels::reset_peak_memory()
}

/// Returns cached memory to the system: the shared list and this thread's. Other threads keep their lists, which are
/// bounded.
#[track_caller]
pub fn empty_cache() {
    expect_ok(capture::leave("empty_cache"));
    kernels::empty_cache()
}
