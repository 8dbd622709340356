//! The errors of this crate, as one enum with fields. Kinds are the contract, wording may improve.

use crate::breaks::GraphBreak;
use thiserror::Error;

/// The result of a fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. A message says what was expected, what was found and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // fields are named after what the message says of them
pub enum Error {
    /// `fullgraph` is set, and the function cannot be one graph.
    #[error("fullgraph: {0}")]
    GraphBreak(GraphBreak),
    /// A call would recompile although that is forbidden.
    #[error("recompiling {function} is forbidden ({why}), and no compiled entry matches this call:\n{}", .reasons.join("\n"))]
    Recompile { function: String, why: &'static str, reasons: Vec<String> },
    /// A dimension that was marked dynamic is specialized to one value.
    #[error(
        "constraint violation: {argument}, dimension {dim} was marked dynamic, but it must be {value}: {reason}. Either \
         drop the mark (mark_static, maybe_mark_dynamic), or change the function so that it works for every size"
    )]
    ConstraintViolation { argument: String, dim: usize, value: i64, reason: String },
    /// `fullgraph` is set, and the function has reached its limit of graphs.
    #[error(
        "fullgraph: {function} was compiled {limit} times, which is the limit; raise cache_limit, or mark what varies as \
         dynamic. No entry matches this call:\n{}", .reasons.join("\n")
    )]
    CacheLimit { function: String, limit: usize, reasons: Vec<String> },
    /// A backend failed.
    #[error("backend {backend:?} failed to {stage} a graph of {function}: {source}")]
    Backend { backend: String, stage: &'static str, function: String, source: Box<Error> },
    /// There is no backend with this name.
    #[error("unknown backend {name:?}; firebrand_compile::list_backends() lists them: {known}")]
    UnknownBackend { name: String, known: String },
    /// An accuracy check found a difference.
    #[error("accuracy check of backend {backend:?}: its results differ from those of eager execution\n{report}")]
    Accuracy { backend: String, report: String },
    /// An invariant of this crate is violated.
    #[error("internal compiler error: {0}; please report it")]
    Internal(String),
    #[error(transparent)]
    Graph(#[from] firebrand_graph::Error),
    #[error(transparent)]
    Core(#[from] firebrand_core::Error),
}

impl Error {
    /// A violated invariant of this crate.
    #[cold]
    pub fn internal(message: impl Into<String>) -> Error {
        Error::Internal(message.into())
    }
}

impl Error {
    /// The error of an op, a hook or a custom function, unchanged: that a graph ran it does not matter to the caller.
    pub(crate) fn of_the_program(self) -> Error {
        fn cause(e: firebrand_graph::Error) -> Result<firebrand_core::Error, firebrand_graph::Error> {
            match e {
                firebrand_graph::Error::Core(e) => Ok(e),
                firebrand_graph::Error::Run { node, source } => {
                    cause(*source).map_err(|source| firebrand_graph::Error::Run { node, source: Box::new(source) })
                }
                e => Err(e),
            }
        }
        match self {
            Error::Graph(e) => cause(e).map_or_else(Error::Graph, Error::Core),
            e => e,
        }
    }
}

impl From<Error> for firebrand_core::Error {
    fn from(e: Error) -> firebrand_core::Error {
        match e.of_the_program() {
            Error::Core(e) => e,
            e => firebrand_core::Error::user(e),
        }
    }
}
