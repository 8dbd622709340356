//! Tools for debugging compiled functions.
//!
//! [`check_accuracy`] compares a backend with the eager run and names the node that differs; [`Checked`] does so at every call.
//! [`minify`] shrinks a graph as long as it still fails and [`reproducer`] writes the rest as text. [`dot`] draws a graph.

mod accuracy;
mod dump;
mod extract;
mod minify;

pub use accuracy::{AccuracyReport, Checked, Deviation, check_accuracy};
pub use dump::dot;
pub use minify::{Minified, minify, reproducer};
