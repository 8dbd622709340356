//! Programs as data: graphs of ops with their signature and state.
//!
//! `ir` is the graph; `program` and `signature` are what an export adds to it; `verify` defines which graphs are well formed.
//! This crate knows nothing of kernels. File formats are confined to `pt2/`, and nothing here prints.
#![forbid(unsafe_code)]

mod call;
mod cond;
mod debug;
pub mod dynamic;
mod error;
mod export;
pub mod interpret;
pub mod ir;
pub mod passes;
mod program;
pub mod pt2;
pub mod schema;
mod signature;
pub mod text;
pub mod trace;
pub mod verify;
mod weights;

pub use call::{Evaluator, ProgramModule, blocks_of, recompute_blocks, recompute_cheap, recompute_wide};
pub use cond::{cond, record_cond};
pub use dynamic::Dim;
pub use error::{Error, Result};
pub use export::{Export, InnerTrace, NamedTensor, export};
pub use firebrand_io::Memory;
pub use program::{Constant, Dialect, ExportedProgram, ModuleCallEntry, ModuleCallSignature, State, ValueRange};
pub use pt2::{Extras, LoadOptions, SaveOptions};
pub use signature::{GraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, SpecArg};
pub use weights::WeightsReport;
