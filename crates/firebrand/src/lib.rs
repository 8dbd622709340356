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
//! Models and training are in [`nn`] (layers, losses), [`optim`], [`data`] and [`train`]; exported PyTorch programs in [`graph`]; file
//! formats in [`io`]; graph drawing in [`viz`]; the compiler in [`compile`]; distributed training in [`dist`]. Start with the guide's
//! [first model](guide::first_model) or [coming from PyTorch](guide::coming_from_pytorch); the other chapters of the [`guide`]
//! explain hooks, memory, threads and more.
//!
//! Each of these is a feature (`compile`, `dist`, `graph`, `io`, `nn`, `viz`), on by default; tensors, ops, autograd, transforms
//! and modules are always included. Four more features, also on by default, select ops and kernels:
//!
//! - `fft`: Fourier transforms; without it, they return an error.
//! - `linalg`: large decompositions with `faer`; without it, plain loops run instead, and `linalg_eig` and decompositions of complex
//!   matrices return an error.
//! - `torchvision`: the ops of detection models.
//! - `avx512`: kernels for AVX-512; without it, those for AVX2 run.
//!
//! Off by default are `parquet` (tables in Parquet files) and `race-checks` (detects [races between threads](guide::threads) in
//! release builds).
//!
//! This crate re-exports the others; tensors, ops and autograd come from [`firebrand_core`]. Examples in the re-exported crates
//! import them by name (`use firebrand_nn::…`); with this crate, write `use firebrand::nn::…`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(
    not(all(feature = "compile", feature = "dist", feature = "nn", feature = "viz")),
    allow(rustdoc::broken_intra_doc_links)
)]

#[doc(hidden)]
pub use firebrand_core::opaque_debug;
pub use firebrand_core::{
    Class, Complex, DType, Device, Dim, Element, Ellipsis, Error, ErrorKind, Index, IndexMap, IntoDims,
    IntoOptionalDims, IntoOptionalScalar, IntoSizes, Ints, JvpRule, Layout, Literal, MemoryStats, NewAxis, Operand,
    PrintOptions, Result, Scalar, Spec, SymInt, Tensor, TensorOptions, WeakTensor, autograd, backends, bf16,
    collect_warnings, dispatch, dtype, empty_cache, f16, func, functional, indexing, layout, library, memory_stats,
    module, num_threads, ops, profiler, races, random, reset_peak_memory, roofline, set_default_dtype, set_num_threads,
    state, sym,
};

#[cfg(feature = "compile")]
pub use firebrand_compile as compile;
#[cfg(feature = "dist")]
pub use firebrand_dist as dist;
#[cfg(feature = "graph")]
pub use firebrand_graph as graph;
#[cfg(feature = "io")]
pub use firebrand_io as io;
#[cfg(feature = "io")]
pub use firebrand_io::save_on_disk;
#[cfg(feature = "nn")]
pub use firebrand_nn as nn;
#[cfg(feature = "nn")]
pub use firebrand_nn::{data, optim, train};
#[cfg(feature = "viz")]
pub use firebrand_viz as viz;

#[cfg(feature = "nn")]
pub mod digits;
#[cfg(all(feature = "compile", feature = "nn", feature = "viz"))]
pub mod guide;
#[cfg(all(feature = "graph", feature = "nn"))]
pub mod language_model;

/// Common imports: tensors, gradients, and the traits of models, losses and optimizers.
pub mod prelude {
    pub use firebrand_core::autograd::{
        BackwardOptions, Function, GradOptions, backward, enable_grad, grad, inference_mode, no_grad,
    };
    pub use firebrand_core::module::{Buffer, Forward, Module, ModuleCore, ModuleHooks, Parameter};
    pub use firebrand_core::random::manual_seed;
    pub use firebrand_core::{DType, Device, Error, Result, Scalar, Tensor};
    #[cfg(feature = "nn")]
    pub use firebrand_nn::losses::Loss;
    #[cfg(feature = "nn")]
    pub use firebrand_nn::optim::Optimizer;
}

/// Compiles and runs the examples of the README.
#[cfg(all(doctest, feature = "compile", feature = "nn", feature = "viz"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
