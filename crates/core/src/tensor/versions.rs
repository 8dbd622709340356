//! Version counters: how often a tensor's memory was written in place.

use super::{INFERENCE, OWN_VERSION, Tensor};
use crate::{ErrorKind, Result};
use firebrand_kernels::Storage;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// What counts the writes to a tensor that does not share its memory's version counter.
#[derive(Clone)]
pub(crate) enum VersionCounter {
    /// A separate counter (`data()`), shared with aliases of that tensor.
    Own(std::sync::Arc<AtomicU32>),
    /// The memory it had before its data was replaced; earlier views keep counting with it.
    Memory(Storage),
}

impl VersionCounter {
    fn get(&self) -> u32 {
        match self {
            VersionCounter::Own(v) => v.load(Relaxed),
            VersionCounter::Memory(s) => s.version(),
        }
    }

    fn bump(&self) {
        match self {
            VersionCounter::Own(v) => {
                v.fetch_add(1, Relaxed);
            }
            VersionCounter::Memory(s) => s.bump_version(),
        }
    }

    fn set(&self, to: u32) {
        match self {
            VersionCounter::Own(v) => v.store(to, Relaxed),
            VersionCounter::Memory(s) => s.set_version(to),
        }
    }
}

impl Tensor {
    #[inline]
    pub(crate) fn version_counter(&self) -> u32 {
        if self.flags() & OWN_VERSION != 0 {
            return self.extras().own_version.get().map_or(0, VersionCounter::get);
        }
        self.0.storage.version()
    }

    /// How often the memory was written in place; an error for inference tensors.
    #[track_caller]
    pub fn try_version(&self) -> Result<u32> {
        if let Some(real) = crate::capture::itself(self, "version")? {
            return real.try_version();
        }
        if self.is_inference_here() {
            return Err(ErrorKind::InferenceVersion.into());
        }
        Ok(self.version_counter())
    }

    /// How often the memory was written in place.
    ///
    /// # Panics
    /// For inference tensors, which do not track it.
    #[track_caller]
    pub fn version(&self) -> u32 {
        self.try_version().unwrap_or_else(|e| panic!("{e}"))
    }

    #[inline]
    pub(crate) fn bump_version(&self) {
        if self.flags() & (OWN_VERSION | INFERENCE) == 0 {
            return self.0.storage.bump_version();
        }
        if self.is_inference_here() {
            return;
        }
        if let Some(v) = self.extras().own_version.get() {
            v.bump();
        }
    }

    pub(crate) fn set_version_counter(&self, to: u32) {
        match self.extras_if_any().and_then(|e| e.own_version.get()) {
            Some(v) => v.set(to),
            None => self.0.storage.set_version(to),
        }
    }

    /// Makes `alias`, a new tensor over the same memory, count versions together with this one.
    #[inline]
    pub(crate) fn share_version_with(&self, alias: &Tensor) {
        if self.flags() & OWN_VERSION != 0
            && let Some(v) = self.extras().own_version.get()
        {
            let _ = alias.extras().own_version.set(v.clone());
            alias.set_flag(OWN_VERSION);
        }
    }

    /// Gives a tensor that has not been shared yet its own version counter.
    pub(crate) fn counting_alone(self) -> Tensor {
        let _ = self.extras().own_version.set(VersionCounter::Own(Default::default()));
        self.set_flag(OWN_VERSION);
        self
    }
}
