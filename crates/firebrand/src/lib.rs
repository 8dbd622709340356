//! PyTorch's autograd stack in Rust: no Python, no libtorch.
//!
//! Eager tensors with a recorded, inspectable graph; gradients of any order; hooks; in-place ops with version checks;
//! views that share memory and history; forward mode; custom functions; gradient checking; function transforms that nest
//! in any order ([`func`]).
//!
//! ```
//! use firebrand::prelude::*;
//!
//! let x = Tensor::new(&[1.0f64, 2.0, 3.0]).requires_grad_();
//! let y = (&x * &x).sum();
//! y.backward();
//! assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 4.0, 6.0]);
//!
//! // The graph is data: nodes, edges, saved values.
//! assert_eq!(y.grad_fn().unwrap().name(), "SumBackward0");
//! ```
//!
//! Models and training are in [`nn`] (layers, losses), [`optim`], [`data`] and [`train`]; programs of PyTorch in [`graph`]; files in
//! [`io`]; pictures of graphs in [`viz`]. The [`guide`] says how things work, chapter by chapter.
//!
//! This crate re-exports the parts; [`firebrand_core`] holds tensors, ops and autograd.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use firebrand_core::{
    Class, Complex, DType, Device, Element, Error, ErrorKind, IntoSizes, JvpRule, Layout, MemoryStats, Result, Scalar,
    Spec, SymInt, Tensor, TensorOptions, WeakTensor, autograd, backends, bf16, collect_warnings, dispatch, dtype,
    empty_cache, f16, func, functional, layout, library, memory_stats, module, num_threads, ops, races, random,
    reset_peak_memory, set_num_threads, state, sym,
};

pub use firebrand_compile as compile;
pub use firebrand_graph as graph;
pub use firebrand_io as io;
pub use firebrand_io::save_on_disk;
pub use firebrand_nn as nn;
pub use firebrand_nn::{data, optim, train};
pub use firebrand_viz as viz;

pub mod digits;
pub mod guide;

/// What most programs need: tensors, gradients, and the traits whose methods are called on models, losses and optimisers.
pub mod prelude {
    pub use firebrand_core::autograd::{
        BackwardOptions, Function, GradOptions, backward, enable_grad, grad, inference_mode, no_grad,
    };
    pub use firebrand_core::module::{Buffer, Forward, Module, ModuleCore, ModuleHooks, Parameter};
    pub use firebrand_core::random::manual_seed;
    pub use firebrand_core::{DType, Device, Error, Result, Scalar, Tensor};
    pub use firebrand_nn::losses::Loss;
    pub use firebrand_nn::optim::Optimizer;
}

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
