//! Warnings: sent to `tracing`, or collected by a test or a front end. A program without a `tracing` subscriber sees them on
//! standard error, each once.

use crate::slot::Slot;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tracing::subscriber::NoSubscriber;

/// Where warnings go instead of the log.
static COLLECTOR: Slot<Option<Arc<Mutex<Vec<String>>>>> = Slot::new(|| None);

/// Issues a warning.
pub fn warn(message: impl Into<String>) {
    let message = message.into();
    match COLLECTOR.get() {
        Some(list) => list.lock().unwrap_or_else(|e| e.into_inner()).push(message),
        None if tracing::dispatcher::get_default(|d| d.is::<NoSubscriber>()) => to_stderr(message),
        None => tracing::warn!(target: "firebrand", "{message}"),
    }
}

/// Messages that were printed; a warning in a loop is printed once.
static PRINTED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
/// Number of distinct messages that are remembered; further ones are printed every time.
const REMEMBERED: usize = 1000;

fn to_stderr(message: String) {
    let mut printed = PRINTED.lock().unwrap_or_else(|e| e.into_inner());
    let printed = printed.get_or_insert_default();
    if !printed.contains(&message) {
        eprintln!("warning: {message}");
        if printed.len() < REMEMBERED {
            printed.insert(message);
        }
    }
}

/// Runs `f` and returns the warnings it raised, on this thread and where its work continues, instead of logging them.
pub fn collect_warnings<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    let list = Arc::new(Mutex::new(Vec::new()));
    let result = {
        let _scope = COLLECTOR.enter(Some(list.clone()));
        f()
    };
    let list = std::mem::take(&mut *list.lock().unwrap_or_else(|e| e.into_inner()));
    (result, list)
}
