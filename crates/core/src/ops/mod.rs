//! All ops: generated functions on top; shape functions, kernels, composite ops and hand-written parts below.

pub(crate) mod arith;
pub(crate) mod attention;
pub(crate) mod composite;
pub(crate) mod cpu;
pub(crate) mod devices;
pub(crate) mod foreach;
pub(crate) mod forms;
pub(crate) mod formulas;
pub(crate) mod fused_optim;
#[allow(non_snake_case)] // ATen calls sizes N, C and HxW
pub mod generated;
pub(crate) mod inplace;
pub(crate) mod inplace_view;
pub(crate) mod lists;
pub(crate) mod manual;
pub(crate) mod overwrite;
pub(crate) mod resize;
pub(crate) mod shape;

pub use generated::functions::*;
