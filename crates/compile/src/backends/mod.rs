//! The list of back ends by name, and those that need no compiler of their own.

mod counter;
mod eager;
mod record;

pub(crate) use counter::count_ops;
pub use counter::{Counter, counter};
pub use eager::{EagerRunner, Interpret, eager};
pub(crate) use eager::{Interpreted, hook_result, register_hook};
pub use record::{Recorded, Recorder, record};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::fused::FusedOptions;
use crate::joint;
use std::sync::Arc;

type Make = fn() -> Arc<dyn Backend>;

/// Every back end with a name.
const BACKENDS: &[(&str, Make)] = &[
    ("eager", eager),
    ("aot_eager", || Arc::new(joint::aot_eager())),
    ("aot_eager_decomp", || Arc::new(joint::aot_eager_decomp())),
    ("firebrand", firebrand),
];

/// The optimising back end with its usual options.
pub fn firebrand() -> Arc<dyn Backend> {
    Arc::new(joint::firebrand(FusedOptions::default()))
}

/// The names of the back ends.
pub fn list_backends() -> Vec<&'static str> {
    BACKENDS.iter().map(|(name, _)| *name).collect()
}

/// The back end of this name.
pub fn backend(name: &str) -> Result<Arc<dyn Backend>> {
    match BACKENDS.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make()),
        None => Err(Error::UnknownBackend { name: name.to_string(), known: list_backends().join(", ") }),
    }
}
