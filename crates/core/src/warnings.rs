//! Warnings: sent to `tracing`, or collected by a test or a front end.

use crate::slot::Slot;
use std::sync::{Arc, Mutex};

/// Where warnings go instead of the log.
static COLLECTOR: Slot<Option<Arc<Mutex<Vec<String>>>>> = Slot::new(|| None);

/// Issues a warning.
pub fn warn(message: impl Into<String>) {
    let message = message.into();
    match COLLECTOR.get() {
        Some(list) => list.lock().unwrap_or_else(|e| e.into_inner()).push(message),
        None => tracing::warn!(target: "firebrand", "{message}"),
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
