//! Tools for people whose compiled function is wrong, slow or puzzling.
//!
//! [`check_accuracy`] compares a back end with the plain run and names the node that differs; [`Checked`] does so at every call.
//! [`minify`] shrinks a graph as long as it still fails and [`reproducer`] writes what is left as text. [`dot`] draws a graph.

mod accuracy;
mod dump;
mod extract;
mod minify;

pub use accuracy::{AccuracyReport, Checked, Deviation, check_accuracy};
pub use dump::dot;
pub use minify::{Minified, minify, reproducer};
