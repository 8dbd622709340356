//! firebrand codegen.
