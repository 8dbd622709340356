//! Our own generator: what it writes for a few invented ops, what it refuses, and that the committed files are its own.
#![allow(clippy::unwrap_used)]

mod common;
mod foreach;
mod forms;
mod functions;
mod interface;
mod nodes;
mod python;
mod refusals;
mod repository;
