//! Ops that are built of other ops: differentiable through them, so they need no formula. One file per family.

mod activations;
mod distance;
mod pointwise;
mod reduce;
mod softmax;
mod view;

pub(crate) use activations::*;
pub(crate) use distance::*;
pub(crate) use pointwise::*;
pub(crate) use reduce::*;
pub(crate) use softmax::*;
pub(crate) use view::*;
