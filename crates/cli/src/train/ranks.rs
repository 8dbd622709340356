//! The processes of a run: one, or those that a launcher (`mpirun`) started. Rank 0 alone prints and writes; a rank that fails
//! says where it is and at which step, and ends the others.

use crate::refusal::{Done, Refusal};
use firebrand::DType;
use firebrand::dist::{DdpOptions, World, WorldOptions};
use firebrand::train::{Callback, Progress, Step};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Arguments about many processes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Distributed training (under mpirun)")]
pub(crate) struct RankOptions {
    /// Number of independent parts of a step; results depend on it alone, not on the number of processes that share them [default: one per process]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(super) shards: Option<u32>,
    /// ZeRO stage: 1 partitions the optimizer's state among the processes
    #[arg(long, value_name = "STAGE", default_value = "0", value_parser = ["0", "1"])]
    pub(super) zero: String,
    /// Send gradients in this dtype, which halves the traffic between processes
    #[arg(long, value_name = "DTYPE", value_parser = ["bf16", "f16"])]
    pub(super) wire: Option<String>,
    /// Compare the state of all processes, bit for bit, every N steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) check_replicas: Option<u64>,
    #[command(flatten)]
    pub(crate) world: JoinOptions,
}

/// How the processes find each other.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct JoinOptions {
    /// Seconds to wait for other processes before the run fails
    #[arg(long, value_name = "SEC", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// MPI library to open [default: FIREBRAND_MPI, or that of the launcher]
    #[arg(long, value_name = "PATH")]
    mpi_lib: Option<PathBuf>,
}

impl JoinOptions {
    /// Joins the other processes, if a launcher started this one.
    pub(crate) fn join(&self) -> Done<World> {
        let mut options = WorldOptions::default().timeout(Duration::from_secs(self.timeout));
        if let Some(path) = &self.mpi_lib {
            options = options.library(path);
        }
        World::with_options(options).map_err(Refusal::because)
    }
}

impl RankOptions {
    /// How gradients travel.
    pub(super) fn ddp(&self) -> DdpOptions {
        let wire = self.wire.as_deref().map(|name| if name == "f16" { DType::F16 } else { DType::BF16 });
        DdpOptions::default().wire(wire)
    }
}

/// This process among those of the run.
pub(super) struct Ranks {
    pub(super) world: World,
    step: Arc<AtomicU64>,
}

impl Ranks {
    pub(super) fn join(options: &RankOptions, threads_given: bool) -> Done<Ranks> {
        let world = options.world.join()?;
        if !world.is_main() {
            crate::refusal::silence_notes();
        }
        if world.size() > 1 && !threads_given && std::env::var_os("FIREBRAND_NUM_THREADS").is_none() {
            firebrand::set_num_threads(threads(&world)?);
        }
        Ok(Ranks { world, step: Arc::default() })
    }

    pub(super) fn is_main(&self) -> bool {
        self.world.is_main()
    }

    /// Whether there are others.
    pub(super) fn are_many(&self) -> bool {
        self.world.size() > 1
    }

    /// What this rank came to before the first step, if all came that far; otherwise all end, and rank 0 says why.
    pub(super) fn together<T>(&self, own: Done<T>) -> Done<T> {
        if !self.are_many() {
            return own;
        }
        let reason = own.as_ref().err().map_or(String::new(), ToString::to_string);
        let all = self.world.gather_text(&reason).map_err(|e| self.failed(Refusal::because(e)))?;
        let Some((rank, reason)) = all.iter().enumerate().find(|(_, r)| !r.is_empty()) else { return own };
        match (self.is_main(), own) {
            (false, _) => Err(Refusal::Said(3)),
            // What all ranks find wrong is nobody's in particular.
            (true, Err(e)) if all.iter().all(|r| r == reason) => Err(e),
            (true, _) => Err(Refusal::because(format!("rank {rank}: {reason}"))),
        }
    }

    /// The text of rank 0.
    pub(super) fn text_of_main(&self, text: &str) -> Done<String> {
        let all = self.world.gather_text(text).map_err(|e| self.failed(Refusal::because(e)))?;
        Ok(all.into_iter().next().unwrap_or_default())
    }

    /// Says what went wrong on this rank while it trained, and ends the others. With MPI this ends the process.
    pub(super) fn failed(&self, refusal: Refusal) -> Refusal {
        if !self.are_many() {
            return refusal;
        }
        let (rank, host, step) = (self.world.rank(), self.world.host(), self.step.load(Relaxed) + 1);
        let text =
            crate::refusal::printable(&format!("error: rank {rank} on {host}, step {step}: {refusal}")).into_owned();
        eprintln!("{text}");
        self.world.fail(&refusal.to_string());
        Refusal::Said(3)
    }

    /// Follows the steps of a run.
    pub(super) fn counter(&self) -> impl Callback + 'static {
        Counter(self.step.clone())
    }
}

struct Counter(Arc<AtomicU64>);

impl Callback for Counter {
    fn begin(&mut self, progress: &Progress) -> firebrand::Result<()> {
        self.0.store(progress.step, Relaxed);
        Ok(())
    }
    fn step(&mut self, step: &Step) -> firebrand::Result<()> {
        self.0.store(step.step, Relaxed);
        Ok(())
    }
}

/// This process's share of the cores of its machine. A launcher that binds processes to cores has shared them out already.
fn threads(world: &World) -> Done<usize> {
    let hosts = world.gather_text(world.host()).map_err(Refusal::because)?;
    let here = hosts.iter().filter(|h| *h == world.host()).count().max(1);
    let ours = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let all = info.lines().filter(|l| l.starts_with("processor")).count();
    Ok(if ours < all { ours } else { (ours / here).max(1) })
}
