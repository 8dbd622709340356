//! Helpers of derivative formulas and of the engine, one file per family. All are built of ops, so they can be
//! differentiated again.

mod activations;
mod base;
mod index;
mod matmul;
mod pointwise;
mod reduce;
mod softmax;
mod vector_norm;
mod view;

pub(crate) use activations::*;
pub(crate) use base::*;
pub(crate) use index::*;
pub(crate) use matmul::*;
pub(crate) use pointwise::*;
pub(crate) use reduce::*;
pub(crate) use softmax::*;
pub(crate) use vector_norm::*;
pub(crate) use view::*;
