//! Distributed training.
//!
//! A [`World`] is a group of processes that train together. [`World::from_env`] joins the group that `mpirun` started, or returns a
//! world of one process; [`threads::run`] creates a world from threads, for tests. [`DistributedDataParallel`] keeps the replicas
//! of a module equal by averaging gradients while the backward pass is still running.
//!
//! - *Guarantee:* a sum over ranks is computed by one rank, along a fixed binary tree ([`tree`]). Its bits do not depend on the MPI
//!   library, the network or timing, and they are the same on every rank.
//! - *Guarantee:* only one thread of a process calls MPI. The library is opened at run time, and only if a launcher started
//!   the process.
//! - *Guarantee:* every collective has a time-out, and a rank that fails ends the others' wait.
//! - *Independent of:* files, losses, optimizers, terminals.
#![deny(missing_docs)]

mod collectives;
mod comm_hook;
mod ddp;
mod error;
pub mod functional;
mod link;
#[cfg(unix)]
mod mpi;
mod reduce;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod shards;
mod sync;
pub mod threads;
pub mod tree;
mod world;

pub use collectives::Collectives;
pub use comm_hook::GradBucket;
pub use ddp::{DdpOptions, DistributedDataParallel};
pub use error::{Error, Result};
pub use shards::check_shards;
pub use world::{Pending, World, WorldOptions};

/// The launcher of MPI programs that started this process, if any.
pub fn launcher() -> Option<String> {
    #[cfg(unix)]
    return mpi::launcher_name();
    #[cfg(not(unix))]
    None
}
