//! Ops that are built of other ops: differentiable through them, so they need no formula. One file per family.

mod activations;
mod attention;
mod conv;
pub(crate) mod creation;
mod distance;
mod einsum;
pub(crate) mod embedding;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod linalg;
mod loss;
mod matmul;
mod norm;
mod pointwise;
mod pool;
pub(crate) mod random;
mod reduce;
mod resample;
mod rnn;
mod softmax;
pub(crate) mod sort;
pub(crate) mod view;

pub(crate) use activations::*;
pub(crate) use attention::*;
pub(crate) use conv::*;
pub(crate) use distance::*;
pub(crate) use einsum::*;
pub(crate) use loss::*;
pub(crate) use matmul::*;
pub(crate) use norm::*;
pub(crate) use pointwise::*;
pub(crate) use pool::*;
pub(crate) use reduce::*;
pub(crate) use resample::*;
pub(crate) use rnn::*;
pub(crate) use softmax::*;
