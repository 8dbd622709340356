//! Options of compiled functions, and the process-wide stance towards compiling.

use crate::backend::Backend;
use crate::backends;
use firebrand_core::capture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Whether sizes may be dynamic within one graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dynamic {
    /// The first graph has static sizes; a size that changes becomes symbolic in the next graph.
    #[default]
    Automatic,
    /// Symbolic sizes from the first graph on.
    Always,
    /// One graph per set of sizes.
    Never,
}

/// How to compile a function.
#[derive(Clone)]
pub struct Options {
    /// The backend; `firebrand`, the optimizing one, if not given.
    pub backend: Arc<dyn Backend>,
    /// Require one graph; a graph break is an error.
    pub fullgraph: bool,
    /// Whether sizes may be dynamic within one graph.
    pub dynamic: Dynamic,
    /// The maximum number of graphs per function; beyond that, calls that match none run eagerly.
    pub cache_limit: usize,
    /// Recompiling is an error that says which guards failed.
    pub error_on_recompile: bool,
    /// Whether effects are replayed at every call; otherwise only the results are computed.
    pub replay_effects: bool,
    /// Run eagerly what a backend cannot compile.
    pub suppress_errors: bool,
    /// Do not compile at all.
    pub disable: bool,
    /// The function's name in messages; its type's name if not given.
    pub name: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backend: backends::firebrand(),
            fullgraph: false,
            dynamic: Dynamic::Automatic,
            cache_limit: 8,
            error_on_recompile: false,
            replay_effects: true,
            suppress_errors: false,
            disable: false,
            name: None,
        }
    }
}

impl Options {
    /// The default options with this backend.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Options {
        Options { backend, ..Options::default() }
    }
}

/// What compiled functions do, process-wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stance {
    /// Compile when needed.
    #[default]
    Default,
    /// Run eagerly; compiled graphs stay cached.
    ForcePlain,
    /// Use compiled graphs that match, otherwise run eagerly.
    PlainOnRecompile,
    /// Recompiling is an error.
    FailOnRecompile,
}

static STANCE: AtomicU8 = AtomicU8::new(0);

/// Sets the stance of the process. In a captured function it ends the capture.
///
/// # Panics
/// There, if the function must be one graph.
#[track_caller]
pub fn set_stance(stance: Stance) {
    if let Err(e) = capture::leave("set_stance") {
        e.raise();
    }
    STANCE.store(stance as u8, Relaxed)
}

/// The stance of the process.
pub fn stance() -> Stance {
    match STANCE.load(Relaxed) {
        1 => Stance::ForcePlain,
        2 => Stance::PlainOnRecompile,
        3 => Stance::FailOnRecompile,
        _ => Stance::Default,
    }
}
