//! firebrand firebrand.
