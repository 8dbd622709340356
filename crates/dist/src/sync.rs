//! Threads and what they share: the standard library's, or with the feature `shuttle` a model of them that a test drives through
//! thousands of schedules. With the feature on, worlds of several ranks work inside a shuttle test only.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread,
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread,
};
