//! MPI, loaded at run time.
//!
//! `launcher` finds out who started this process and which libraries belong to that launcher, `library` opens one and holds its
//! functions (the only unsafe part of this crate), and this file wraps it as a [`Link`].
//!
//! Only bytes travel and no sum is left to the library, so three handles are all that differ between implementations: the
//! world, the byte type and the error handler.

mod launcher;
mod library;

use crate::link::Link;
use crate::world::{Place, Waiting, WorldOptions};
use crate::{Error, Result};
use firebrand_core::Tensor;
use launcher::Launcher;
use library::{Library, Request};
use std::time::{Duration, Instant};

/// What makes the link, on the thread that will own it.
type Make = Box<dyn FnOnce(&Waiting) -> Result<(Place, Box<dyn Link>)> + Send>;

/// The launcher that started this process.
pub(crate) fn launcher_name() -> Option<String> {
    Launcher::from_env(|name| std::env::var(name).ok()).map(|l| l.name.to_string())
}

/// Opens the library of the launcher that started this process; `None` if none did.
pub(crate) fn open(options: &WorldOptions) -> Option<Result<Make>> {
    let launcher = Launcher::from_env(|name| std::env::var(name).ok())?;
    let named = options.library.clone().or_else(|| std::env::var_os("FIREBRAND_MPI").map(Into::into));
    let timeout = options.timeout;
    let make = move |waiting: &Waiting| {
        let library = match named {
            Some(path) => Library::open(&path)?,
            None => launcher.open()?,
        };
        join(&launcher, library, timeout, waiting)
    };
    Some(Ok(Box::new(make)))
}

fn join(launcher: &Launcher, library: Library, timeout: Duration, waiting: &Waiting) -> Result<(Place, Box<dyn Link>)> {
    library.init()?;
    let (rank, size) = (library.rank()?, library.size()?);
    let engine = library.version()?;
    // Two processes that each think they are alone would train two models, and write the same file.
    if let Some(launched) = launcher.size.filter(|n| *n != size) {
        let (launcher, library) = (launcher.name.to_string(), engine);
        return Err(Error::WrongLauncher { launcher, launched, library, found: size });
    }
    // Ranks that share a core would poll in each other's time.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let spins = if launcher.local.is_some_and(|ranks| ranks <= cores) { USUAL } else { Duration::ZERO };
    let place = Place { rank, size, engine, host: library.host()? };
    Ok((place, Box::new(Mpi { library, rank, size, timeout, waiting: waiting.clone(), spins, broken: false })))
}

/// How long polling is worth more than sleeping, whoever else wants the processor.
const BRIEF: Duration = Duration::from_micros(20);
/// How long the sum of a bucket takes in memory, on a machine that has a core for each rank.
const USUAL: Duration = Duration::from_millis(4);
/// How long communication takes if all ranks take part.
const LATE: Duration = Duration::from_millis(50);
/// The time between two polls otherwise; the system adds about as much.
const NAP: Duration = Duration::from_micros(50);

/// One rank's end.
struct Mpi {
    library: Library,
    rank: usize,
    size: usize,
    timeout: Duration,
    waiting: Waiting,
    /// How long to poll without yielding the processor, if no other thread of this process needs it.
    spins: Duration,
    /// A collective failed: ranks no longer agree on what comes next.
    broken: bool,
}

impl Mpi {
    /// Waits for a request. Libraries move bytes only while they are polled, a piece at a time. While the backward pass runs, the cores
    /// are its own, and polling is rare; when all wait for communication, it is eager, and calms down only if another rank is late.
    fn complete(&mut self, what: &'static str, start: impl FnOnce(&Library) -> Result<Request>) -> Result<()> {
        if self.broken {
            return Err(Error::Closed);
        }
        let done = start(&self.library).and_then(|mut request| {
            let began = Instant::now();
            while !self.library.test(&mut request)? {
                let waited = began.elapsed();
                if waited > self.timeout {
                    return Err(Error::Timeout { rank: self.rank, what, waited });
                }
                let waiting = self.waiting.is_any();
                if waited < BRIEF || (waiting && waited < self.spins) {
                    std::hint::spin_loop();
                } else if waiting && waited < LATE {
                    std::thread::yield_now();
                } else {
                    std::thread::sleep(NAP);
                }
            }
            Ok(())
        });
        self.broken = done.is_err();
        done
    }
}

impl Link for Mpi {
    fn all_to_all(&mut self, send: &Tensor, receive: &Tensor) -> Result<()> {
        let size = self.size;
        self.complete("an all-to-all", |library| library.all_to_all(send, receive, size))
    }

    fn all_gather(&mut self, send: &Tensor, receive: &Tensor) -> Result<()> {
        let size = self.size;
        self.complete("an all-gather", |library| library.all_gather(send, receive, size))
    }

    fn broadcast(&mut self, root: usize, tensor: &Tensor) -> Result<()> {
        self.complete("a broadcast", |library| library.broadcast(root, tensor))
    }

    fn fail(&mut self, _: &str) {
        self.library.abort()
    }

    fn finish(&mut self) -> Result<()> {
        if self.broken {
            // Finalizing would wait for ranks that wait for us.
            self.library.abort();
            return Ok(());
        }
        // A rank that has stopped must not keep the others in `MPI_Finalize`, which has no time-out.
        match self.complete("the barrier at the end", Library::barrier) {
            Ok(()) => self.library.finalize(),
            Err(e) => {
                self.library.abort();
                Err(e)
            }
        }
    }
}
