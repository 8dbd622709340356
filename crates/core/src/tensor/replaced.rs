//! Replaced data of a tensor, without a lock for readers.

use super::Spec;
use firebrand_kernels::Storage;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock, RwLock};

/// What `set_data`, `t_` and their kind put in the place of the first data.
///
/// Readers borrow a description for as long as they hold the tensor, so one is never moved or dropped before the tensor
/// is. But each is kept once, however often it comes back, and the memory of what was replaced is let go.
pub(crate) struct Replaced {
    now: RwLock<Now>,
    /// The index of the current description.
    at: AtomicUsize,
    specs: Descriptions,
}

/// The current memory and the index of its description.
struct Now {
    storage: Storage,
    at: usize,
    numbers: HashMap<Box<[usize]>, usize>,
}

impl Replaced {
    pub(super) fn new(storage: Storage) -> Replaced {
        let now = Now { storage, at: 0, numbers: HashMap::new() };
        Replaced { now: RwLock::new(now), at: AtomicUsize::new(0), specs: Descriptions::default() }
    }

    pub(super) fn set(&self, storage: Storage, spec: Spec) {
        let mut now = self.now.write().unwrap_or_else(|e| e.into_inner());
        let next = now.numbers.len();
        let at = *now.numbers.entry(key(&spec)).or_insert(next);
        if at == next {
            self.specs.put(at, spec);
        }
        let before = std::mem::replace(&mut now.storage, storage);
        now.at = at;
        self.at.store(at, Release);
        drop(now);
        drop(before);
    }

    pub(super) fn spec(&self) -> &Spec {
        self.specs.get(self.at.load(Acquire))
    }

    /// The memory and its description, which belong together.
    pub(super) fn both(&self) -> (Storage, &Spec) {
        let now = self.now.read().unwrap_or_else(|e| e.into_inner());
        (now.storage.clone(), self.specs.get(now.at))
    }
}

/// What tells a description from others.
fn key(spec: &Spec) -> Box<[usize]> {
    let l = &spec.layout;
    let head = [spec.dtype as usize, spec.device as usize, l.offset()];
    head.iter().chain(l.sizes()).chain(l.strides()).copied().collect()
}

/// Descriptions of the tensors that a stand-in has stood for: borrowed like its own, so kept as long as it lives, each once.
#[derive(Default)]
pub(crate) struct StoodFor {
    numbers: Mutex<HashMap<Box<[usize]>, usize>>,
    specs: Descriptions,
}

impl StoodFor {
    pub(super) fn kept(&self, spec: &Spec) -> &Spec {
        let mut numbers = self.numbers.lock().unwrap_or_else(|e| e.into_inner());
        let next = numbers.len();
        let at = *numbers.entry(key(spec)).or_insert(next);
        if at == next {
            self.specs.put(at, spec.clone());
        }
        self.specs.get(at)
    }
}

/// A list that grows while parts of it are borrowed: piece `k` has room for `2^k` more.
#[derive(Default)]
struct Descriptions([OnceLock<Box<[OnceLock<Spec>]>>; 32]);

impl Descriptions {
    fn slot(&self, n: usize) -> &OnceLock<Spec> {
        let piece = (n + 1).ilog2();
        let all = self.0[piece as usize].get_or_init(|| (0..1usize << piece).map(|_| OnceLock::new()).collect());
        &all[n + 1 - (1 << piece)]
    }

    fn put(&self, n: usize, spec: Spec) {
        self.slot(n).get_or_init(|| spec);
    }

    fn get(&self, n: usize) -> &Spec {
        self.slot(n).get().expect("a description has a number once it is in the list")
    }
}
