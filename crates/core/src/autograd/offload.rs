//! Saved tensors offloaded to the caller's store (files), or kept in a smaller dtype.
//!
//! Leaves that require grad stay in memory, because they are owned elsewhere anyway, and so does what a store rejects:
//! a full disk costs memory, never a gradient. What stays is version-checked as without hooks. This file knows nothing of
//! files: [`SpillStore`] is implemented elsewhere.

use super::saved::check_version;
use super::saved_scopes::{SavedHooksGuard, saved_tensors_hooks};
use crate::layout::Layout;
use crate::warnings::warn;
use crate::{DType, Error, Result, Tensor, WeakTensor, ops};
use firebrand_kernels::Storage;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// Stores bytes outside memory.
pub trait SpillStore: Send + Sync + 'static {
    /// Stores a copy. An error (a full disk) leaves the store unchanged.
    fn put(&self, bytes: &Storage) -> Result<Box<dyn Spilled>>;
}

/// Bytes that a [`SpillStore`] holds; dropping it frees the space.
pub trait Spilled: Send + Sync {
    /// The bytes, copied into memory.
    fn get(&self) -> Result<Storage>;
}

/// A tensor that stayed in memory.
struct Stayed {
    tensor: Tensor,
    version: u32,
}

impl Stayed {
    fn new(t: &Tensor) -> Stayed {
        Stayed { tensor: t.detach(), version: t.version_counter() }
    }

    fn get(&self) -> Result<Tensor> {
        check_version(&self.tensor, self.version, || None)?;
        Ok(self.tensor.clone())
    }
}

/// Whether moving the tensor would free nothing.
fn is_owned_anyway(t: &Tensor) -> bool {
    t.is_leaf_here() && t.requires_grad()
}

// ---- into a store

struct Away {
    bytes: Box<dyn Spilled>,
    dtype: DType,
    layout: Layout,
}

impl Away {
    fn new(store: &dyn SpillStore, t: &Tensor) -> Result<Away> {
        let dense = t.layout().is_non_overlapping_and_dense();
        let layout = if dense { t.layout().from_start() } else { t.layout().to_contiguous() };
        let whole = dense && t.layout().offset() == 0 && t.storage().nbytes() == t.numel() * t.dtype().size();
        let copied = if whole { t.clone() } else { ops::formulas::clone_with_layout(t, &layout)? };
        Ok(Away { bytes: store.put(&copied.storage())?, dtype: t.dtype(), layout })
    }

    fn get(&self) -> Result<Tensor> {
        Tensor::try_from_storage(&self.bytes.get()?, self.dtype, self.layout.clone())
    }
}

enum Kept {
    Here(Stayed),
    Away(Arc<Away>),
}

/// Tensors already offloaded that are still alive: an op often saves what another one has saved.
#[derive(Default)]
struct Known(Mutex<Vec<(WeakTensor, u32, Weak<Away>)>>);

impl Known {
    fn find(&self, t: &Tensor) -> Option<Arc<Away>> {
        let (mut list, this) = (self.0.lock().unwrap_or_else(|e| e.into_inner()), t.downgrade());
        list.retain(|(tensor, _, away)| away.strong_count() > 0 && tensor.is_alive());
        let same = |w: &WeakTensor| w.is_same(&this);
        list.iter().find(|(w, version, _)| *version == t.version_counter() && same(w)).and_then(|(_, _, a)| a.upgrade())
    }

    fn add(&self, t: &Tensor, away: &Arc<Away>) {
        let entry = (t.downgrade(), t.version_counter(), Arc::downgrade(away));
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(entry);
    }
}

/// While the guard lives, tensors saved for backward are moved to `store` and read back when backward needs them.
/// Tensors smaller than `at_least` bytes stay in memory. Tensors that the store rejects stay in memory too, with one warning.
pub fn save_in_store(store: impl SpillStore, at_least: usize) -> Result<SavedHooksGuard> {
    let (known, warned) = (Known::default(), AtomicBool::new(false));
    saved_tensors_hooks(
        move |t| {
            if is_owned_anyway(t) || t.is_meta() || t.numel() * t.dtype().size() < at_least {
                return Ok(Kept::Here(Stayed::new(t)));
            }
            if let Some(away) = known.find(t) {
                return Ok(Kept::Away(away));
            }
            Ok(match Away::new(&store, t).map(Arc::new) {
                Ok(away) => {
                    known.add(t, &away);
                    Kept::Away(away)
                }
                Err(e) => {
                    if !warned.swap(true, Relaxed) {
                        warn(format!("a saved tensor could not be offloaded and stays in memory: {e}"));
                    }
                    Kept::Here(Stayed::new(t))
                }
            })
        },
        |kept| match kept {
            Kept::Here(t) => t.get(),
            Kept::Away(a) => a.get(),
        },
    )
}

// ---- into a smaller dtype

enum Smaller {
    Here(Stayed),
    Cast { small: Tensor, dtype: DType },
}

/// While the guard lives, floating point tensors saved for backward are kept in `dtype` if that is smaller than their
/// own, and converted back when backward reads them. Gradients have the precision of `dtype`; the forward pass and the
/// dtypes of all results are unchanged.
pub fn save_compressed(dtype: DType) -> Result<SavedHooksGuard> {
    if !dtype.is_floating_point() {
        return Err(Error::argument("save_compressed", format!("expected a floating point dtype, found {dtype}")));
    }
    saved_tensors_hooks(
        move |t| {
            if is_owned_anyway(t) || !t.is_floating_point() || t.dtype().size() <= dtype.size() {
                return Ok(Smaller::Here(Stayed::new(t)));
            }
            Ok(Smaller::Cast { small: t.detach().try_to_dtype(dtype)?, dtype: t.dtype() })
        },
        |kept| match kept {
            Smaller::Here(t) => t.get(),
            Smaller::Cast { small, dtype } => small.try_to_dtype(*dtype),
        },
    )
}
