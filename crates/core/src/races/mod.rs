//! The check of tensors shared between threads: two ops that touch the same elements at the same time, one of them writing.
//!
//! In-place ops take `&self`, so safe code can write a storage from two threads at once. Where this check is on, that is an
//! error that names both ops instead of a data race: in debug builds, and in release builds with the feature `race-checks`.
//! In other builds `Hold` is zero-sized and compiles to nothing.
//!
//! A kernel reaches a tensor's memory through `Tensor::read` or `Tensor::write`, and what these return holds the tensor's
//! elements for as long as the kernel can use its views. So no op can be forgotten, an op that looks at shapes only
//! holds nothing, and nothing is held while user code runs. A thread never conflicts with itself. Elements are compared
//! exactly (`region`): threads may write disjoint slices of one storage, columns too.
//!
//! What it does not see: accesses that are unordered but happen not to collide. It finds races that occur, not those that might.

pub use crate::error::Role;
use crate::{Result, Tensor};

#[cfg(any(debug_assertions, feature = "race-checks"))]
mod held;
#[cfg(any(debug_assertions, feature = "race-checks"))]
mod region;

#[cfg(any(debug_assertions, feature = "race-checks"))]
pub(crate) use held::{Hold, enter, hold, hold_part};

/// Whether this build checks.
pub const ENABLED: bool = cfg!(any(debug_assertions, feature = "race-checks"));

/// Memory that an op is using; let go when dropped.
#[cfg(not(any(debug_assertions, feature = "race-checks")))]
pub(crate) struct Hold;

#[cfg(not(any(debug_assertions, feature = "race-checks")))]
#[inline(always)]
pub(crate) fn hold(_: &Tensor, _: Role) -> Result<Hold> {
    Ok(Hold)
}

#[cfg(not(any(debug_assertions, feature = "race-checks")))]
#[inline(always)]
pub(crate) fn hold_part(_: &Tensor, _: &crate::Layout, _: Role) -> Result<Hold> {
    Ok(Hold)
}

/// Names the op that runs until the end of the block, and its operands, for the message of a conflict.
macro_rules! op {
    ($op:expr $(, $operand:expr)* $(,)?) => {
        #[cfg(any(debug_assertions, feature = "race-checks"))]
        let _op = $crate::races::enter($op, &[$((stringify!($operand), &$operand)),*]);
    };
}
pub(crate) use op;

/// Memory used by something other than an op: a device, a C library, a test. The tensors' elements are held until this is
/// dropped, on behalf of the thread that created it. Where races are not checked, nothing is held.
#[must_use = "the memory is held while this lives"]
pub struct Use {
    _holds: Vec<Hold>,
}

impl Use {
    /// Holds the elements of `tensors`; returns an error if an op on another thread is using some of them in a way that excludes
    /// this one. `name` is shown in place of an op's name in the message of a conflict. Tensors without data (on
    /// the meta device, inside a transform) are skipped.
    #[cfg_attr(not(any(debug_assertions, feature = "race-checks")), allow(unused_variables))]
    pub fn new(name: &'static str, role: Role, tensors: &[Tensor]) -> Result<Use> {
        op!(name, tensors);
        let holds = tensors.iter().map(|t| hold(t, role)).collect::<Result<_>>()?;
        Ok(Use { _holds: holds })
    }
}
