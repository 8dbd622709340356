//! Signal handling: signals end the program without leaving partial files behind, and the first Ctrl-C during training
//! asks the run to save a checkpoint and stop.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The flag that a first Ctrl-C sets, if the command has asked for one.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A flag that Ctrl-C sets; a second one ends the program.
pub(crate) fn stop_on_interrupt() -> Arc<AtomicBool> {
    STOP.get_or_init(Arc::default).clone()
}

/// Begins to watch for signals.
#[cfg(unix)]
pub(crate) fn watch() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use std::sync::atomic::Ordering::SeqCst;

    // If this fails the program still works; only a signal would leave partial files.
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]) else { return };
    let watch = move || {
        for signal in signals.forever() {
            let first_interrupt = signal == SIGINT && STOP.get().is_some_and(|stop| !stop.swap(true, SeqCst));
            if !first_interrupt {
                firebrand::io::remove_unfinished();
                // As if there were no handler, so that the shell sees which signal it was.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).stack_size(1 << 16).spawn(watch);
}

/// Other systems end programs in their own ways.
#[cfg(not(unix))]
pub(crate) fn watch() {}
