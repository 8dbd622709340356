//! The errors of this crate, as one enum with fields.

use firebrand_io::plain;
use thiserror::Error;

/// The result of a fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. A message says what was expected, what was found and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    #[error("expression, byte {position}: expected {expected}, found {found:?}")]
    Expression { position: usize, expected: String, found: String },
    #[error("node %{node} belongs to a different graph than the one asked to {what}")]
    WrongGraph { node: String, what: &'static str },
    #[error("node %{node} still has {count} users ({users}); replace its uses before erasing it")]
    StillUsed { node: String, count: usize, users: String },
    #[error("{0}")]
    Verify(#[from] crate::verify::Violation),
    #[error("line {line}: {message}")]
    Text { line: usize, message: String },
    #[error("the program has no signature; give one in the text (`# inputs`, `# outputs`) or export it with one")]
    NoSignature,
    #[error("{pass}: {message}")]
    Pass { pass: &'static str, message: String },
    #[error("{pass}, node %{node}: {message}")]
    PassNode { pass: &'static str, node: String, message: String },
    #[error("unknown pass {name:?}; the passes are {known}")]
    UnknownPass { name: String, known: String },
    #[error("while running node {node}: {source}")]
    Run { node: String, source: Box<Error> },
    #[error("{0}")]
    Value(String),
    #[error("{}: {}", plain(.entry), plain(.message))]
    Pt2 { entry: String, message: String },
    #[error("{}, node %{}: {}", plain(.entry), plain(.node), plain(.message))]
    Pt2Node { entry: String, node: String, message: String },
    #[error("this build cannot run: {}", list_unsupported(.targets))]
    Unsupported { targets: Vec<(String, Vec<String>)> },
    #[error("Dim {dim} ({place}) cannot vary: {op} forces the value {value}: {message}")]
    Specialized { dim: String, place: String, value: i64, op: String, message: String },
    #[error("input {}: {message}", plain(.name))]
    Input { name: String, message: String },
    #[error(transparent)]
    Io(#[from] firebrand_io::Error),
    #[error("{0}")]
    Core(#[from] firebrand_core::Error),
}

/// So that `?` works in functions that return `firebrand::Result`; an error that is not core's becomes the source.
impl From<Error> for firebrand_core::Error {
    fn from(e: Error) -> firebrand_core::Error {
        match e {
            Error::Core(e) => e,
            e => firebrand_core::Error::user(e),
        }
    }
}

/// Every target with the nodes that call it.
fn list_unsupported(targets: &[(String, Vec<String>)]) -> String {
    let one = |(target, nodes): &(String, Vec<String>)| {
        let shown: Vec<String> = nodes.iter().take(5).map(|n| format!("%{n}")).collect();
        let more = if nodes.len() > 5 { format!(", … {} in all", nodes.len()) } else { String::new() };
        plain(&format!("{target} ({}{more})", shown.join(", "))).into_owned()
    };
    targets.iter().map(one).collect::<Vec<_>>().join("; ")
}
