//! Options of compiled functions, and the stance of the process towards compiling.

use crate::backend::Backend;
use crate::backends;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Whether sizes may vary within one graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dynamic {
    /// The first graph is for fixed sizes; one that is seen to vary becomes a symbol of the next graph.
    #[default]
    Automatic,
    /// Symbols from the first graph on.
    Always,
    /// One graph per set of sizes.
    Never,
}

/// How to compile a function.
#[derive(Clone)]
pub struct Options {
    /// What graphs are compiled by; `firebrand`, the optimising one, if not given.
    pub backend: Arc<dyn Backend>,
    /// One graph, or an error that says why not.
    pub fullgraph: bool,
    /// Whether sizes may vary within one graph.
    pub dynamic: Dynamic,
    /// How many graphs a function may have; what fits none of them then runs plainly.
    pub cache_limit: usize,
    /// Compiling a second time is an error that says what did not fit.
    pub error_on_recompile: bool,
    /// Whether effects are repeated at every call; without, only the results count.
    pub replay_effects: bool,
    /// Run plainly what a back end cannot compile.
    pub suppress_errors: bool,
    /// Do not compile at all.
    pub disable: bool,
    /// What the function is called in messages; its type's name if not given.
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
    /// The usual options with this back end.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Options {
        Options { backend, ..Options::default() }
    }
}

/// What compiled functions do, all over the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stance {
    /// Compile when needed.
    #[default]
    Default,
    /// Run plainly, and leave what is compiled alone.
    ForcePlain,
    /// Run what is compiled if it fits, and plainly otherwise.
    PlainOnRecompile,
    /// Compiling a second time is an error.
    FailOnRecompile,
}

static STANCE: AtomicU8 = AtomicU8::new(0);

/// Sets the stance of the process.
pub fn set_stance(stance: Stance) {
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
