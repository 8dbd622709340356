//! Graph drawings: an exported program, or the history of a tensor, as one self-contained HTML page.
//!
//! `program` and `history` build the `drawing`, `grouping` finds the modules, `layout` assigns rows and the order within them,
//! `page` writes the page. The exact position of a row depends on which modules are expanded, so only that is left to the page's
//! script.
//!
//! This crate reads graphs and writes text: it runs nothing, opens no file and prints nothing. It takes time linear in nodes and
//! edges, times the depth of the modules, plus a logarithmic factor for sorting.
#![forbid(unsafe_code)]

mod drawing;
mod grouping;
mod history;
mod layout;
mod page;
mod program;

pub use history::history_html;
pub use program::program_html;
