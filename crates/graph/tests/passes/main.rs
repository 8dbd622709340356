//! Passes on graphs in text form.
//!
//! `cases/NAME.fb` holds graphs; a case begins with `=== title | options`. What PyTorch makes of it is in `NAME.torch`
//! (written by golden/passes.py), what only firebrand does (option `ours`) in `NAME.ours`, which
//! `FIREBRAND_BLESS=1 cargo test` writes anew.

#![allow(clippy::unwrap_used)] // a test that cannot read its data should stop

mod cases;
mod corpus;
mod regions;
mod rewrites;
