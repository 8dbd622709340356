//! Programs as text.
//!
//! Three forms: the *short* form says what runs and is what most people and tests read; the *long* form adds types,
//! attributes and metadata, and reads back to an equal program; the *python* form is what PyTorch prints, for the eye
//! only. Short and long form share one parser; printing what was parsed gives the same text back.
//!
//! ```text
//! graph {
//!   %x = placeholder
//!   %y = aten.add.Tensor(%x, 1, alpha=2)
//!   return (%y,)
//! }
//!   child {                      a sub-graph, two spaces further in
//!     …
//!   }
//! # inputs
//! x: USER_INPUT
//!
//! # outputs
//! y: USER_OUTPUT
//! ```

mod atoms;
mod parse;
mod print;
mod python;
mod scan;
mod signature;
mod values;

pub use parse::{parse, parse_module};
pub use print::{Form, print, print_module, print_node};
pub use python::print_python;
