//! The processes that train together, and their collective operations.
//!
//! One thread of the process owns the link and processes jobs in order, so a backward pass can continue during communication. All
//! ranks must issue the same collectives in the same order.

use crate::collectives::Collectives;
use crate::link::Link;
use crate::sync::{Mutex, mpsc, thread};
use crate::{Error, Result};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Tensor};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Options for joining a world.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorldOptions {
    /// How long a collective may wait for the other ranks.
    pub timeout: Duration,
    /// The MPI library; found through the launcher's environment variables if `None`. `FIREBRAND_MPI` also sets it.
    pub library: Option<PathBuf>,
}

impl Default for WorldOptions {
    fn default() -> Self {
        WorldOptions { timeout: Duration::from_secs(120), library: None }
    }
}

impl WorldOptions {
    /// How long a collective may wait for the other ranks.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The MPI library to open.
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }
}

/// What the thread that owns the link is asked to do.
type Job = Box<dyn FnOnce(&mut dyn Link) + Send>;

/// The group of processes that train together. Clones are handles to the same membership; when the last one is dropped, the
/// process leaves.
///
/// ```
/// use firebrand_core::{DType, Tensor};
/// use firebrand_dist::World;
///
/// let world = World::from_env()?; // one process, unless mpirun started several
/// let sum = world.all_reduce(&Tensor::ones([3], DType::F32))?;
/// assert_eq!(sum.to_vec::<f32>(), [world.size() as f32; 3]);
/// # Ok::<(), firebrand_dist::Error>(())
/// ```
#[derive(Clone)]
pub struct World(Arc<Membership>);

struct Membership {
    rank: usize,
    size: usize,
    engine: String,
    host: String,
    /// `None` in a world of one.
    worker: Option<Worker>,
}

/// How many threads of this process have nothing to do but wait for communication: then it may have the processor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    #[cfg(unix)]
    pub(crate) fn is_any(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

struct Worker {
    waiting: Waiting,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// Where a process stands, as its link found out.
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) engine: String,
    pub(crate) host: String,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World(rank {} of {}, {})", self.rank(), self.size(), self.engine())
    }
}

impl World {
    /// A world of this process alone.
    pub fn single() -> World {
        let (engine, host) = ("one process".to_string(), String::new());
        World(Arc::new(Membership { rank: 0, size: 1, engine, host, worker: None }))
    }

    /// The world that the launcher of this process started, or [`World::single`] if none did.
    pub fn from_env() -> Result<World> {
        World::with_options(WorldOptions::default())
    }

    /// Like [`World::from_env`], with options.
    pub fn with_options(options: WorldOptions) -> Result<World> {
        #[cfg(unix)]
        if let Some(found) = crate::mpi::open(&options) {
            return World::start(found?);
        }
        let _ = options;
        Ok(World::single())
    }

    /// Starts the thread that owns the link. The link is made there too: MPI wants to be called by one thread from beginning to
    /// end.
    pub(crate) fn start(
        make: impl FnOnce(&Waiting) -> Result<(Place, Box<dyn Link>)> + Send + 'static,
    ) -> Result<World> {
        let waiting = Waiting::default();
        let seen = waiting.clone();
        let (jobs, todo) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let body = move || {
            let mut link = match make(&seen) {
                Ok((place, link)) => {
                    let _ = tell.send(Ok(place));
                    link
                }
                Err(e) => {
                    let _ = tell.send(Err(e));
                    return;
                }
            };
            for job in todo {
                job(&mut *link)
            }
            let _ = link.finish(); // the process ends anyway, and every collective has been answered
        };
        let thread = thread::Builder::new().name("firebrand-dist".into()).spawn(body);
        let thread = thread.map_err(|e| Error::Argument(format!("cannot start the communication thread: {e}")))?;
        let Place { rank, size, engine, host } = told.recv().map_err(|_| Error::Closed)??;
        let worker = Worker { waiting, jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) };
        Ok(World(Arc::new(Membership { rank, size, engine, host, worker: Some(worker) })))
    }

    /// The rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether this is rank 0, which prints and writes for all.
    pub fn is_main(&self) -> bool {
        self.rank() == 0
    }

    /// How the ranks communicate: the MPI library with its version, threads, or `one process`.
    pub fn engine(&self) -> &str {
        &self.0.engine
    }

    /// The name of the machine this process runs on, from MPI.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Queues work for the thread that owns the link.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Link) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (answer, receiver) = mpsc::channel();
        let waiting = self.0.worker.as_ref().map_or(Waiting::default(), |w| w.waiting.clone());
        if let Some(worker) = &self.0.worker
            && let Some(jobs) = &*worker.jobs.lock().unwrap_or_else(|e| e.into_inner())
        {
            // A thread that has ended drops the job, and `wait` says so.
            let _ = jobs.send(Box::new(move |link| {
                let _ = answer.send(work(link)); // the receiver may be gone
            }));
        }
        Pending { receiver, waiting }
    }

    fn is_alone(&self) -> bool {
        self.0.worker.is_none() || self.size() == 1
    }

    /// Has the thread that owns the link make collectives, and waits for them.
    fn collect<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Collectives<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (rank, size) = (self.rank(), self.size());
        self.submit(move |link| work(&mut Collectives::new(link, rank, size))).wait()
    }

    /// The sum over all ranks, bitwise identical on every rank. Shape and dtype must be the same on all. Gradients do not flow
    /// through it; [`functional::all_reduce`](crate::functional::all_reduce) is the differentiable version.
    pub fn all_reduce(&self, t: &Tensor) -> Result<Tensor> {
        let t = t.try_detach()?;
        if self.is_alone() {
            return Ok(no_grad(|| t.try_clone_tensor())?);
        }
        self.collect(move |ranks| ranks.all_reduce(&t))
    }

    /// The tensors of all ranks, in order. Shape and dtype must be the same on all.
    pub fn all_gather(&self, t: &Tensor) -> Result<Vec<Tensor>> {
        let t = t.try_detach()?;
        if self.is_alone() {
            return Ok(vec![no_grad(|| t.try_clone_tensor())?]);
        }
        self.collect(move |ranks| ranks.all_gather(&t))
    }

    /// Overwrites the tensor with that of rank `root` (broadcast).
    pub fn broadcast(&self, t: &Tensor, root: usize) -> Result<()> {
        if root >= self.size() {
            return Err(Error::Argument(format!("expected a rank below {}, found {root}", self.size())));
        }
        if self.is_alone() {
            return Ok(());
        }
        let t = t.clone();
        self.collect(move |ranks| ranks.broadcast(&t, root))
    }

    /// Like [`World::broadcast`], for several tensors of one dtype, which are sent together.
    pub fn broadcast_all(&self, tensors: &[&Tensor], root: usize) -> Result<()> {
        let [first, ..] = tensors else { return Ok(()) };
        if self.is_alone() {
            return Ok(());
        }
        let flat = Tensor::zeros([tensors.iter().map(|t| t.numel()).sum::<usize>() as i64], first.dtype());
        let mut at = 0;
        let mut parts = Vec::with_capacity(tensors.len());
        for t in tensors {
            parts.push(no_grad(|| flat.try_narrow(0, at, t.numel())?.try_view(t.shape()))?);
            at += t.numel();
        }
        if self.rank() == root {
            no_grad(|| parts.iter().zip(tensors).try_for_each(|(part, t)| part.try_copy_(t, false).map(drop)))?;
        }
        self.broadcast(&flat, root)?;
        if self.rank() != root {
            no_grad(|| tensors.iter().zip(&parts).try_for_each(|(t, part)| t.try_copy_(part, false).map(drop)))?;
        }
        Ok(())
    }

    /// Waits until every rank gets here (barrier).
    pub fn barrier(&self) -> Result<()> {
        self.all_gather(&Tensor::zeros([1], DType::U8)).map(drop)
    }

    /// The strings of all ranks, in order.
    pub fn gather_text(&self, text: &str) -> Result<Vec<String>> {
        let lengths = self.all_gather(&Tensor::new(&[text.len() as i64]))?;
        let lengths: Vec<usize> = lengths.iter().map(|t| t.to_vec::<i64>()[0] as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(longest, 0);
        let all = self.all_gather(&Tensor::from_slice(&bytes, [longest as i64]))?;
        let text = |(t, n): (&Tensor, &usize)| String::from_utf8_lossy(&t.to_vec::<u8>()[..*n]).into_owned();
        Ok(all.iter().zip(&lengths).map(text).collect())
    }

    /// Tells the other ranks that this one cannot continue. With MPI this ends the job, this process included.
    pub fn fail(&self, reason: &str) {
        let reason = reason.to_string();
        let told = self.submit(move |link| {
            link.fail(&reason);
            Ok(())
        });
        let _ = told.wait(); // no rank is left to tell
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let Some(worker) = &self.worker else { return };
        drop(worker.jobs.lock().unwrap_or_else(|e| e.into_inner()).take());
        if let Some(worker) = worker.thread.lock().unwrap_or_else(|e| e.into_inner()).take() {
            // The last handle may have been part of a job, and then this is that thread.
            if worker.thread().id() != thread::current().id() {
                let _ = worker.join(); // jobs answer for themselves
            }
        }
    }
}

/// A pending operation of the communication thread.
#[derive(Debug)]
#[must_use = "errors of the other ranks arrive here"]
pub struct Pending<T> {
    receiver: mpsc::Receiver<Result<T>>,
    waiting: Waiting,
}

impl<T> Pending<T> {
    /// Waits until it is done.
    pub fn wait(self) -> Result<T> {
        self.waiting.0.fetch_add(1, Relaxed);
        let done = self.receiver.recv().unwrap_or(Err(Error::Closed));
        self.waiting.0.fetch_sub(1, Relaxed);
        done
    }
}
