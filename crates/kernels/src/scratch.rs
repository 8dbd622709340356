//! Temporary memory of kernels that grows with their operands: running out of it is an error of the op, not the end of the
//! process.
//!
//! A kernel that needs such memory takes it here (or as [`Scratch`], which is the caching allocator's) and goes
//! on as if there were always enough. If there is not, it unwinds with [`OutOfMemory`], through the thread pool if need be,
//! to [`attempt`] in the op that called it. Programs that abort on panic abort here too.

pub use crate::real::Scratch;
use crate::{OutOfMemory, empty_cache};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs a kernel; returns an error if its temporary memory ran out. Its output is then unspecified.
pub fn attempt<R>(kernel: impl FnOnce() -> R) -> Result<R, OutOfMemory> {
    let (mut kernel, mut result) = (Some(kernel), None);
    attempt_dyn(&mut || result = kernel.take().map(|kernel| kernel()))?;
    Ok(result.expect("it returned"))
}

/// [`attempt`], compiled once.
fn attempt_dyn(kernel: &mut dyn FnMut()) -> Result<(), OutOfMemory> {
    catch_unwind(AssertUnwindSafe(kernel)).map_err(|panic| match panic.downcast::<OutOfMemory>() {
        Ok(e) => *e,
        Err(panic) => resume_unwind(panic),
    })
}

/// Leaves the kernel; no message is printed.
#[cold]
pub(crate) fn raise(e: OutOfMemory) -> ! {
    resume_unwind(Box::new(e))
}

/// An empty list with room for `n` elements. What the allocator keeps for reuse is given back before this fails.
pub(crate) fn room<T>(n: usize) -> Vec<T> {
    let mut list = Vec::new();
    if list.try_reserve_exact(n).is_err() {
        empty_cache();
        if list.try_reserve_exact(n).is_err() {
            raise(OutOfMemory { bytes: n.saturating_mul(size_of::<T>()) })
        }
    }
    list
}

/// `n` times the same.
pub(crate) fn filled<T: Clone>(value: T, n: usize) -> Vec<T> {
    let mut list = room(n);
    list.resize(n, value);
    list
}

/// What an iterator gives, which knows how much that is.
pub(crate) fn collected<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = room(items.size_hint().0);
    list.extend(items);
    list
}

/// Makes a list at least as long as `n`.
pub(crate) fn grow<T: Clone>(list: &mut Vec<T>, n: usize, value: T) {
    if list.len() < n {
        *list = filled(value, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel;

    #[test]
    fn exhaustion_is_an_error_from_any_thread() {
        let huge = isize::MAX as usize / 16;
        let e = attempt(|| filled(0.0f64, huge).len()).expect_err("more than there is");
        assert_eq!(e.bytes, huge * 8);
        let e = attempt(|| parallel::run(4, &|i| assert!(i < 3 || !filled(0u8, isize::MAX as usize).is_empty())));
        assert_eq!(e, Err(OutOfMemory { bytes: isize::MAX as usize }));
        assert_eq!(attempt(|| collected(0..5)), Ok(vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn other_panics_pass() {
        let panic = std::panic::catch_unwind(|| attempt(|| std::panic::panic_any(7))).expect_err("it panics");
        assert_eq!(panic.downcast_ref(), Some(&7));
    }
}
