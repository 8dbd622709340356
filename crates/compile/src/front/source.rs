//! The source of a compiled function's tensor or number at a call.

use crate::front::leaves::Leaves;
use firebrand_core::capture::TensorCell;
use firebrand_core::{Scalar, Tensor};
use std::sync::Arc;

/// Where an input of a graph comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// A tensor argument.
    Arg(usize),
    /// A tensor that the function holds.
    Captured(Tensor),
    /// A tensor that the function makes of host data: every call has a copy of its own.
    Local(usize),
    /// A cell of a module.
    Cell(Arc<dyn TensorCell>),
    /// A cell of the user's.
    Read(Arc<dyn Fn() -> Tensor + Send + Sync>),
    /// A number argument.
    Number(usize),
    /// A number in a cell.
    ReadNumber(Arc<dyn Fn() -> Scalar + Send + Sync>),
    /// A size that varies.
    Symbol(u32),
}

impl Source {
    /// Whether both are one number.
    pub(crate) fn is_same_number(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Number(a), Source::Number(b)) => a == b,
            (Source::ReadNumber(a), Source::ReadNumber(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The tensor at this call.
    pub(crate) fn tensor(&self, leaves: &Leaves<'_>) -> Option<Tensor> {
        Some(match self {
            Source::Arg(i) => (*leaves.tensors.get(*i)?).clone(),
            Source::Captured(t) => t.clone(),
            Source::Cell(cell) => cell.load(),
            Source::Read(read) => read(),
            Source::Local(_) | Source::Number(_) | Source::ReadNumber(_) | Source::Symbol(_) => return None,
        })
    }

    /// Shows the tensor at this call, without a handle of its own where that is possible.
    pub(crate) fn with_tensor<R>(&self, leaves: &Leaves<'_>, f: impl FnOnce(&Tensor) -> R) -> R {
        match self {
            Source::Captured(t) => f(t),
            other => f(&other.tensor(leaves).expect("guarded sources are tensors")),
        }
    }
}
