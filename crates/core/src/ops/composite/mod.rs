//! Ops that are built of other ops: differentiable through them, so they need no formula. One file per family.

mod activations;
mod pointwise;
mod view;

pub(crate) use activations::*;
pub(crate) use pointwise::*;
pub(crate) use view::*;
