//! Helpers of derivative formulas and of the engine, one file per family. All are built of ops, so they can be
//! differentiated again.

mod activations;
mod base;
mod conv;
mod creation;
mod fft;
mod index;
mod join;
mod linalg;
mod linalg_factors;
mod loss;
mod matmul;
mod norm;
mod pointwise;
mod pool;
mod products;
mod random;
mod reduce;
mod resample;
mod scan;
mod softmax;
mod vector_norm;
mod view;

pub(crate) use activations::*;
pub(crate) use base::*;
pub(crate) use conv::*;
pub(crate) use creation::*;
pub(crate) use fft::*;
pub(crate) use index::*;
pub(crate) use join::*;
pub(crate) use linalg::*;
pub(crate) use linalg_factors::*;
pub(crate) use loss::*;
pub(crate) use matmul::*;
pub(crate) use norm::*;
pub(crate) use pointwise::*;
pub(crate) use pool::*;
pub(crate) use products::*;
pub(crate) use random::*;
pub(crate) use reduce::*;
pub(crate) use resample::*;
pub(crate) use scan::*;
pub(crate) use softmax::*;
pub(crate) use vector_norm::*;
pub(crate) use view::*;
