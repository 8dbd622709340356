//! Signal handling: signals end the program without leaving partial files behind, and the first Ctrl-C or SIGTERM during
//! training asks the run to save a checkpoint and stop.

use std::sync::atomic::AtomicI32;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// The flag that a first signal sets, if the command has asked for one.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// The signal that set it.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// A flag that Ctrl-C and SIGTERM set; a second signal ends the program.
pub(crate) fn stop_on_interrupt() -> Arc<AtomicBool> {
    STOP.get_or_init(Arc::default).clone()
}

/// The exit code of a run that a signal stopped: 128 plus its number, the shells' convention.
pub(crate) fn exit_code() -> u8 {
    match SIGNAL.load(SeqCst) {
        0 => 130,
        signal => 128u8.wrapping_add(signal as u8),
    }
}

/// Starts watching for signals.
#[cfg(unix)]
pub(crate) fn watch() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    // If this fails the program still works; only a signal would leave partial files.
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]) else { return };
    let watch = move || {
        for signal in signals.forever() {
            let stops = signal == SIGINT || signal == SIGTERM;
            if stops && STOP.get().is_some_and(|stop| !stop.swap(true, SeqCst)) {
                SIGNAL.store(signal, SeqCst);
            } else {
                firebrand::io::remove_unfinished();
                // As if there were no handler, so that the shell sees which signal it was.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).stack_size(1 << 16).spawn(watch);
}

/// Other systems keep their default handling.
#[cfg(not(unix))]
pub(crate) fn watch() {}
