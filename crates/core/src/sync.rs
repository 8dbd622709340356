//! The synchronization that the autograd state machines are built on: the standard library's, or with the feature
//! `shuttle` a model of it that a test drives through thousands of schedules.
//!
//! Only types that are tested that way use it: hook tables, arrivals, gradient slots and stamps. With the feature on,
//! they work inside a shuttle test only.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
