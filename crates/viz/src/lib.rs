//! Graph drawings: an exported program, or the history of a tensor, as one self-contained HTML page.
//!
//! `program` and `history` build the `drawing`, `grouping` finds the modules, `layout` decides in which
//! row and in which order everything is placed, `page` writes it. The exact position of a row depends on which modules are
//! expanded, so that part, and only that, is left to the page's script.
//!
//! This crate reads graphs and writes text: it runs nothing, opens no file and prints nothing. The time it takes is linear
//! in nodes and edges, up to the depth of the modules and a logarithm for sorting.
#![forbid(unsafe_code)]

mod drawing;
mod grouping;
mod history;
mod layout;
mod page;
mod program;

pub use history::history_html;
pub use program::program_html;
