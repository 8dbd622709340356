//! The behaviour of the generator, as tables. Every row names the behaviour it proves.
#![allow(clippy::unwrap_used)]

mod api;
mod cases;
mod common;
mod entries;
mod foreach;
mod forward;
mod lint;
mod matching;
mod native;
mod plan;
mod rust_dialect;
mod saved_attributes;
mod schema;
mod yaml;
