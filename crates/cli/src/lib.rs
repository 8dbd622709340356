//! firebrand cli.
