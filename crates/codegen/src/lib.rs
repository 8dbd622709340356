//! The derivative code generator: reads operator declarations and derivative formulas, builds the
//! differentiability model, matches every operator to it and plans the autograd code.
//!
//! The stages are pure functions over plain data, one module each, in this order: [`schema`] and [`yaml`]
//! read text.

pub mod error;
pub mod schema;
pub mod yaml;

pub use error::{CodegenError, Kind, Result, Stage};
