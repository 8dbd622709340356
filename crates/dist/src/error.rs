//! What can go wrong between processes, with what to do about it.

use std::time::Duration;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why ranks cannot work together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something failed in this process.
    #[error(transparent)]
    Tensor(#[from] firebrand_core::Error),
    /// The others did not take part in time.
    #[error(
        "rank {rank} waited {} s for the other ranks in {what}: one of them has stopped, or a step takes longer than the time-out",
        .waited.as_secs_f64()
    )]
    Timeout {
        /// This rank.
        rank: usize,
        /// The collective.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// Another rank gave up.
    #[error("rank {rank} failed: {reason}")]
    Peer {
        /// Which.
        rank: usize,
        /// What it said.
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
        /// What was tried, with the loader's answers.
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
        /// What it says it started.
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
    /// Ranks do not hold the same thing.
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
    /// A request that cannot be met.
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
