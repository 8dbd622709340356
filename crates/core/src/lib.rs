//! firebrand core.
