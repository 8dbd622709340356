//! Tensors, op dispatch and PyTorch's autograd engine.
//!
//! When an op is called, a generated function (`ops::generated`) tests one thread-local word (`state`), calls the op's shape
//! function (`ops::shape`), runs a kernel (`ops::cpu`), and records a node (`autograd`) if gradients are needed. This crate
//! knows nothing of graphs as data, file formats and terminals.
#![forbid(unsafe_code)]

// `#[derive(Module)]` names this crate by its full path, also inside it.
extern crate self as firebrand_core;

mod arguments;
pub mod autograd;
pub mod backends;
pub mod capture;
mod convert;
mod create;
mod debug;
mod device;
pub mod dispatch;
pub mod dtype;
mod error;
mod factories;
pub mod func;
pub mod functional;
pub mod fusion;
mod generator;
pub mod indexing;
pub mod layout;
pub mod library;
mod limits;
pub mod module;
mod number;
mod operators;
pub mod ops;
mod print;
mod process;
pub mod profiler;
pub mod races;
pub mod random;
pub mod record;
mod scalar;
pub mod schema;
mod slot;
pub mod state;
mod storage;
pub mod sym;
mod sync;
pub mod system;
mod tensor;
pub mod tree;
mod warnings;

pub use arguments::{Dim, IntoDims, IntoOptionalDims, IntoOptionalScalar, Ints, Operand};
pub use create::{Literal, TensorOptions};
pub use device::Device;
pub use error::{Class, Error, ErrorKind, JvpRule, Result};
pub use firebrand_kernels::mapped::{MappedFile, PrivatePages};
#[doc(hidden)]
pub use firebrand_kernels::opaque_debug;
pub use firebrand_kernels::parallel::HAVE_THREADS;
pub use firebrand_kernels::roofline;
pub use firebrand_kernels::{Complex, DType, Element, MemoryStats, Storage, bf16, f16};
pub use indexing::{Ellipsis, Index, IntoIndex, NewAxis};
pub use indexmap::IndexMap;
pub use layout::Layout;
pub use number::Number;
pub use print::PrintOptions;
pub use process::{empty_cache, memory_stats, num_threads, reset_peak_memory, set_default_dtype, set_num_threads};
pub use scalar::Scalar;
pub use storage::Fork;
pub use sym::{IntoSizes, SymInt};
pub use tensor::{Spec, Tensor, TensorMap, WeakTensor};
pub use tree::{Outcome, TensorTree};
pub use warnings::{collect_warnings, warn};

/// Cases that Rust's types rule out, as pairs of code that compiles and code that does not.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/behaviour/types.md")]
struct RefusedByTheCompiler;
