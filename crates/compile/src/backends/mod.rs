//! The back ends that need no compiler of their own, and the list of those known by name.

mod counter;
mod eager;
mod record;

pub(crate) use counter::count_ops;
pub use counter::{Counter, counter};
pub use eager::{EagerRunner, eager};
pub use record::{Recorded, Recorder, record};

use crate::backend::Backend;
use crate::error::{Error, Result};
use std::sync::Arc;

type Make = fn() -> Arc<dyn Backend>;

/// Every back end with a name.
const BACKENDS: &[(&str, Make)] = &[("eager", eager)];

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
