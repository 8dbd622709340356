//! Warnings: sent to `tracing`, or collected by a test or a front end.

use std::cell::RefCell;

thread_local! {
    static COLLECTOR: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Reports something the user should know and the program can live with.
pub fn warn(message: impl Into<String>) {
    let message = message.into();
    let kept = COLLECTOR.with_borrow_mut(|c| match c {
        Some(list) => {
            list.push(message.clone());
            true
        }
        None => false,
    });
    if !kept {
        tracing::warn!(target: "firebrand", "{message}");
    }
}

/// Runs `f` and returns the warnings it raised on this thread instead of logging them.
pub fn collect_warnings<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    struct Restore(Option<Vec<String>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let old = self.0.take();
            COLLECTOR.with_borrow_mut(|c| *c = old)
        }
    }
    let restore = Restore(COLLECTOR.replace(Some(Vec::new())));
    let result = f();
    let list = COLLECTOR.with_borrow_mut(|c| c.take()).unwrap_or_default();
    drop(restore);
    (result, list)
}
