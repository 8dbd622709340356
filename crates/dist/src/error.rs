//! Errors of communication between processes, with hints on what to do.

use std::time::Duration;

/// The result of a fallible operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of communication between ranks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something failed in this process.
    #[error(transparent)]
    Tensor(#[from] firebrand_core::Error),
    /// The other ranks did not take part in time.
    #[error(
        "rank {rank} waited {} s for the other ranks in {what}: one of them has stopped, or a step takes longer than the time-out",
        .waited.as_secs_f64()
    )]
    Timeout {
        /// This rank.
        rank: usize,
        /// The collective.
        what: &'static str,
        /// How long it waited.
        waited: Duration,
    },
    /// Another rank failed.
    #[error("rank {rank} failed: {reason}")]
    Peer {
        /// Which.
        rank: usize,
        /// Its error message.
        reason: String,
    },
    /// The communication of this process has ended, after an error or at exit.
    #[error("this process no longer communicates: an earlier collective failed")]
    Closed,
    /// A launcher started the process, but no MPI library was found.
    #[error(
        "{launcher} started this process, but none of its libraries could be opened; install MPI, or name the library with \
         WorldOptions::library or FIREBRAND_MPI. Tried:{}",
        .tried.iter().map(|t| format!("\n  {t}")).collect::<String>()
    )]
    NoLibrary {
        /// The launcher.
        launcher: String,
        /// The libraries that were tried, with the loader's errors.
        tried: Vec<String>,
    },
    /// The library lacks a function.
    #[error("{library} is not an MPI library that firebrand knows: {reason}")]
    Library {
        /// Its name.
        library: String,
        /// What it lacks.
        reason: String,
    },
    /// The launcher and the library do not belong together.
    #[error(
        "{launcher} started {launched} processes, but {library} sees {found}: launcher and library belong to different MPI \
         installations; start with the mpirun of that library, or name the launcher's library with FIREBRAND_MPI"
    )]
    WrongLauncher {
        /// The launcher.
        launcher: String,
        /// The number of processes it started.
        launched: usize,
        /// The library, with its version.
        library: String,
        /// The size it reports.
        found: usize,
    },
    /// A call of the library failed.
    #[error("{call} failed: {reason}")]
    Mpi {
        /// The function.
        call: &'static str,
        /// The library's text.
        reason: String,
    },
    /// Ranks have different models or arguments.
    #[error("rank {rank} has {found}, rank 0 has {expected}: every rank must build the same {what}")]
    Replica {
        /// The rank that differs.
        rank: usize,
        /// What should be equal.
        what: &'static str,
        /// What rank 0 has.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// An invalid request.
    #[error("{0}")]
    Argument(String),
}

impl From<Error> for firebrand_core::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Tensor(e) => e,
            e => firebrand_core::Error::user(e),
        }
    }
}
