//! Programs as text.
//!
//! Three formats: the *short* format shows the calls and is what most people and tests read; the *long* format adds types,
//! attributes and metadata, and parses back to an equal program; the *python* format is what PyTorch prints, for reading
//! only. The short and long formats share one parser; printing a parsed text gives the same text back.
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
