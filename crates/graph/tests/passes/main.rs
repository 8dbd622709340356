//! Passes on graphs in text form.
//!
//! `cases/PASS/NAME.fb` holds graphs; a case begins with `=== title | options`. What PyTorch makes of it is in `NAME.torch`
//! (written by golden/passes.py), what only firebrand does in `NAME.ours`, which `FIREBRAND_BLESS=1 cargo test` writes anew.
//! Options: `ours` (PyTorch is not asked), `passes=a,b`, `ambient=off`, `compat`, `long` (print metadata), `grows` (a second run
//! adds more), and constants by name (`w=0.25,0.5`).

#![allow(clippy::unwrap_used)] // a test that cannot read its data should stop

mod cases;
mod corpus;
mod regions;
mod rewrites;
