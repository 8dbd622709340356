//! The derivative code generator: reads operator declarations and derivative formulas, builds the
//! differentiability model, matches every operator to it and plans the autograd code.
//!
//! The stages are pure functions over plain data, one module each, in this order: [`schema`] and [`yaml`]
//! read text; [`native`] reads declarations; [`load`] reads derivative entries, with [`formula`],
//! [`forward`] and [`dialect`] for the formulas in them; [`matching`] finds the derivative entry of every function;
//! [`outputs`] decides which results can carry a gradient; [`plan`] decides what the autograd code must do. [`Sources`] runs
//! them all. One [`model`] serves PyTorch's C++ formulas and our Rust formulas. [`emit`] writes our own ops.
//! Outside the pipeline, [`lint`] finds misleading formulas, [`coverage`] compares a set of operators with PyTorch's, and
//! [`api`] knows PyTorch's calling conventions.
//!
//! ```
//! use firebrand_codegen::{Dialect, Sources};
//!
//! let sources = Sources {
//!     native: "- func: scale(Tensor self, Tensor by) -> Tensor\n  dispatch: {CPU: scale}\n",
//!     derivatives: "- name: scale(Tensor self, Tensor by) -> Tensor\n  self: grad * by\n  by: grad * self\n",
//!     tags: None,
//!     dialect: Dialect::Cpp,
//! };
//! let model = sources.model()?;
//! let info = &model.infos[0].by_key["Default"];
//! assert_eq!(info.op.as_deref(), Some("ScaleBackward0"));
//! # Ok::<(), firebrand_codegen::CodegenError>(())
//! ```

pub mod api;
pub mod coverage;
pub mod ctype;
mod declarations;
pub mod dialect;
mod dump;
#[cfg(feature = "emit")]
pub mod emit;
pub mod error;
mod foreach;
pub mod formula;
pub mod forward;
mod hash;
mod json;
pub mod lint;
pub mod load;
pub mod matching;
pub mod model;
pub mod names;
pub mod native;
pub mod outputs;
mod pipeline;
pub mod plan;
pub mod schema;
mod view_copy;
pub mod yaml;

pub use dialect::Dialect;
pub use error::{CodegenError, Kind, Result, Stage};
pub use pipeline::{DERIVATIVES_FILE, Model, NATIVE_FILE, Sources, dump, error_json};
