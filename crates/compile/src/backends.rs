//! The list of backends by name: the only place that knows all of them.

pub use crate::backend::{Counter, EagerRunner, Interpret, Recorded, Recorder, counter, eager, record};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::fused::FusedOptions;
use crate::joint;
use std::sync::Arc;

type Make = fn() -> Arc<dyn Backend>;

/// Every named backend.
const BACKENDS: &[(&str, Make)] = &[
    ("eager", eager),
    ("aot_eager", || Arc::new(joint::aot_eager())),
    ("aot_eager_decomp", || Arc::new(joint::aot_eager_decomp())),
    ("firebrand", firebrand),
];

/// The optimizing backend with its usual options.
pub fn firebrand() -> Arc<dyn Backend> {
    Arc::new(joint::firebrand(FusedOptions::default()))
}

/// The names of the backends.
pub fn list_backends() -> Vec<&'static str> {
    BACKENDS.iter().map(|(name, _)| *name).collect()
}

/// The backend of this name.
pub fn backend(name: &str) -> Result<Arc<dyn Backend>> {
    match BACKENDS.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make()),
        None => Err(Error::UnknownBackend { name: name.to_string(), known: list_backends().join(", ") }),
    }
}
