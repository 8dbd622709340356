//! Helpers of derivative formulas and of the engine, one file per family. All are built of ops, so they can be
//! differentiated again.

mod base;

pub(crate) use base::*;
