//! A world whose ranks are threads of this process: for tests and experiments. It is not faster than one rank.

use crate::link::Link;
use crate::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::world::{Place, World};
use crate::{Error, Result};
use firebrand_core::autograd::no_grad;
use firebrand_core::{HAVE_THREADS, Tensor};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs `f` once per rank, each on its own thread, and returns their results in order. A rank that returns an error or
/// panics ends the collectives of the others with [`Error::Peer`]; a panic is resumed here once all have ended.
///
/// ```
/// use firebrand_core::Tensor;
/// use std::time::Duration;
///
/// let sums = firebrand_dist::threads::run(3, Duration::from_secs(60), |world| {
///     world.all_reduce(&Tensor::new(&[world.rank() as f32]))
/// });
/// for sum in sums {
///     assert_eq!(sum?.to_vec::<f32>(), [3.0]);
/// }
/// # Ok::<(), firebrand_dist::Error>(())
/// ```
pub fn run<R: Send>(ranks: usize, timeout: Duration, f: impl Fn(&World) -> Result<R> + Sync) -> Vec<Result<R>> {
    if !HAVE_THREADS {
        let none = || Error::Argument("ranks cannot be threads: this platform has none".into());
        return (0..ranks).map(|_| Err(none())).collect();
    }
    let meeting = Arc::new(Meeting::new(ranks));
    thread::scope(|scope| {
        let rank = |rank| {
            let (meeting, f) = (meeting.clone(), &f);
            scope.spawn(move || {
                let told = meeting.clone();
                let guard = Leaving { meeting: told, rank, well: false };
                let done = member(rank, meeting, timeout).and_then(|world| f(&world));
                guard.done(done.as_ref().err().map(ToString::to_string));
                done
            })
        };
        let threads: Vec<_> = (0..ranks).map(rank).collect();
        let ended: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        ended.into_iter().map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn member(rank: usize, meeting: Arc<Meeting>, timeout: Duration) -> Result<World> {
    let size = meeting.size;
    World::start(move |_| {
        let place = Place { rank, size, engine: format!("{size} threads"), host: "this process".into() };
        Ok((place, Box::new(Thread { rank, meeting, timeout }) as Box<dyn Link>))
    })
}

/// Tells the others if its rank leaves by an error or a panic.
struct Leaving {
    meeting: Arc<Meeting>,
    rank: usize,
    well: bool,
}

impl Leaving {
    fn done(mut self, failed: Option<String>) {
        self.well = true;
        if let Some(reason) = failed {
            self.meeting.fail(self.rank, &reason);
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.well {
            self.meeting.fail(self.rank, "it panicked");
        }
    }
}

/// Where threads meet: every collective is a round in which each rank shows one tensor.
struct Meeting {
    size: usize,
    round: Mutex<Round>,
    changed: Condvar,
}

struct Round {
    shown: Vec<Option<Tensor>>,
    /// Ranks that have read what they need.
    read: usize,
    number: u64,
    failed: Option<(usize, String)>,
}

impl Meeting {
    fn new(size: usize) -> Meeting {
        let round = Round { shown: vec![None; size], read: 0, number: 0, failed: None };
        Meeting { size, round: Mutex::new(round), changed: Condvar::new() }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn fail(&self, rank: usize, reason: &str) {
        self.round().failed.get_or_insert((rank, reason.to_string()));
        self.changed.notify_all();
    }
}

/// One rank's end.
struct Thread {
    rank: usize,
    meeting: Arc<Meeting>,
    timeout: Duration,
}

impl Thread {
    /// Waits until `ready`; an error if a rank has failed or the time is over.
    fn wait<'a>(
        &'a self,
        what: &'static str,
        mut round: MutexGuard<'a, Round>,
        ready: impl Fn(&Round) -> bool,
    ) -> Result<MutexGuard<'a, Round>> {
        let began = Instant::now();
        loop {
            if ready(&round) {
                return Ok(round);
            }
            if let Some((rank, reason)) = &round.failed {
                return Err(Error::Peer { rank: *rank, reason: reason.clone() });
            }
            let waited = began.elapsed();
            let Some(left) = self.timeout.checked_sub(waited) else {
                return Err(Error::Timeout { rank: self.rank, what, waited });
            };
            round =
                self.meeting.changed.wait_timeout(round, left).map_or_else(|e| e.into_inner().0, |(round, _)| round);
        }
    }

    /// Shows a tensor to the others, reads theirs, and returns when all have read.
    fn meet(&self, what: &'static str, mine: &Tensor, read: impl FnOnce(&[Tensor]) -> Result<()>) -> Result<()> {
        let mut round = self.meeting.round();
        let number = round.number;
        round.shown[self.rank] = Some(mine.clone());
        self.meeting.changed.notify_all();
        let round = self.wait(what, round, |r| r.shown.iter().all(Option::is_some))?;
        let shown: Vec<Tensor> = round.shown.iter().flatten().cloned().collect();
        drop(round);
        let done = read(&shown);
        let mut round = self.meeting.round();
        round.read += 1;
        if round.read == self.meeting.size {
            (round.read, round.number) = (0, number + 1);
            round.shown.fill(None);
        }
        self.meeting.changed.notify_all();
        drop(self.wait(what, round, |r| r.number > number)?);
        done
    }
}

impl Link for Thread {
    fn all_to_all(&mut self, send: &Tensor, receive: &Tensor) -> Result<()> {
        let n = send.shape()[0] / self.meeting.size;
        let rank = self.rank;
        self.meet("an all-to-all", send, |shown| copy_parts(shown, receive, n, |_| rank * n))
    }

    fn all_gather(&mut self, send: &Tensor, receive: &Tensor) -> Result<()> {
        let n = send.shape()[0];
        self.meet("an all-gather", send, |shown| copy_parts(shown, receive, n, |_| 0))
    }

    fn broadcast(&mut self, root: usize, tensor: &Tensor) -> Result<()> {
        let rank = self.rank;
        self.meet("a broadcast", tensor, |shown| {
            if rank != root {
                no_grad(|| tensor.try_copy_(&shown[root], false).map(drop))?;
            }
            Ok(())
        })
    }

    fn fail(&mut self, reason: &str) {
        self.meeting.fail(self.rank, reason)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Part `k` of `receive` becomes `n` elements of what rank `k` showed, from `start(k)` on.
fn copy_parts(shown: &[Tensor], receive: &Tensor, n: usize, start: impl Fn(usize) -> usize) -> Result<()> {
    no_grad(|| {
        for (k, t) in shown.iter().enumerate() {
            receive.try_narrow(0, k * n, n)?.try_copy_(&t.try_narrow(0, start(k), n)?, false)?;
        }
        Ok(())
    })
}
