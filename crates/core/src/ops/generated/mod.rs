//! What `cargo xtask codegen` makes from `schema/ops.yaml` and `schema/derivatives.yaml`; do not edit.
// Each file imports whatever some op may need, and text is written to be uniform rather than short;
// names of arguments are ATen's.
#![allow(unused_imports, unused_variables, non_snake_case, non_upper_case_globals, clippy::all)]

#[rustfmt::skip]
pub(crate) mod below;
#[rustfmt::skip]
pub(crate) mod boxed;
#[rustfmt::skip]
pub(crate) mod forward;
#[rustfmt::skip]
pub mod functions;
#[rustfmt::skip]
mod methods;
#[rustfmt::skip]
pub(crate) mod nodes;
#[rustfmt::skip]
pub mod schema;
