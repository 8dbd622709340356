//! Row instructions: a whole row at once, by the row kernels that eager ops use.
//!
//! What lies between the steps of such a kernel never leaves vector registers, and a kernel has far fewer passes over its row
//! than the same formula as single instructions; the row itself is in cache because the executor put it there.
#![allow(unsafe_code)]

use crate::lanes::{Compute, dispatch};
use crate::norm::layer::{Normalised, RowGrad};
use crate::softmax::{self, line};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// What makes a row of rows. Operands that are one number along a row are so in every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOp {
    /// Softmax of `x`.
    Softmax,
    /// Logarithm of the softmax of `x`.
    LogSoftmax,
    /// The gradient of `x` from that of its softmax and the softmax.
    SoftmaxBackward,
    /// The gradient of `x` from that of its log-softmax and the log-softmax.
    LogSoftmaxBackward,
    /// `(x - mean) * rstd * weight + bias`, where `mean` and `rstd` are one number.
    LayerNorm,
    /// The gradient of `x` from that of its layer norm, `x`, `mean`, `rstd` and `weight`. It can also sum the gradients of
    /// weight and bias over rows ([`Builder::sum_over_rows`](super::Builder::sum_over_rows)).
    LayerNormBackward,
}

impl RowOp {
    /// How many operands it takes.
    pub fn arity(self) -> usize {
        match self {
            RowOp::Softmax | RowOp::LogSoftmax => 1,
            RowOp::SoftmaxBackward | RowOp::LogSoftmaxBackward => 2,
            RowOp::LayerNorm | RowOp::LayerNormBackward => 5,
        }
    }

    /// How many sums over rows it makes.
    pub fn sums(self) -> usize {
        if self == RowOp::LayerNormBackward { 2 } else { 0 }
    }

    /// Whether operand `k` is one number.
    pub(super) fn is_number(self, k: usize) -> bool {
        match self {
            RowOp::LayerNorm => matches!(k, 1 | 2),
            RowOp::LayerNormBackward => matches!(k, 2 | 3),
            _ => false,
        }
    }
}

/// Runs a row instruction on rows of `n`.
///
/// # Safety
/// The first `arity` operands hold `n` registers of type `X` (or one, if they are numbers), `d` has room for as many, and so
/// have the sums; nothing overlaps `d` or the sums.
pub(super) unsafe fn run<X: Compute>(op: RowOp, n: usize, args: [*const u8; 5], d: *mut u8, sums: [*mut u8; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        let row = |k: usize| from_raw_parts(args[k].cast::<X>(), n);
        let number = |k: usize| *args[k].cast::<X>();
        let out = from_raw_parts_mut(d.cast::<X>(), n);
        match op {
            RowOp::Softmax => line(softmax::Op::Softmax, row(0), row(0), out),
            RowOp::LogSoftmax => line(softmax::Op::LogSoftmax, row(0), row(0), out),
            RowOp::SoftmaxBackward => line(softmax::Op::SoftmaxBackward, row(0), row(1), out),
            RowOp::LogSoftmaxBackward => line(softmax::Op::LogSoftmaxBackward, row(0), row(1), out),
            RowOp::LayerNorm => {
                dispatch(Normalised { xs: row(0), mean: number(1), rstd: number(2), w: row(3), b: row(4), out })
            }
            RowOp::LayerNormBackward => {
                let [gw, gb] = sums.map(|s| from_raw_parts_mut(s.cast::<X>(), n));
                dispatch(RowGrad { g: row(0), x: row(1), mean: number(2), rstd: number(3), w: row(4), gw, gb, out })
            }
        }
    }
}
