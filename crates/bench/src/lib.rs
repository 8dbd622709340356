//! The workloads of `firebrand bench`: firebrand's side of the comparison that `bench/README.md` defines, case by case.
//!
//! This is a separate crate so that it is optimized like a user's program: small ops cost tens of nanoseconds, and a part of their
//! code is compiled at the call site. The command line around it is compiled for size.

mod clock;
mod compiled;
mod compiled_backward;
mod ddp;
mod linalg;
mod models;
mod roofline;
mod scale;
mod training;
mod transforms;
mod workloads;

use clap::ValueEnum;
use clock::{Clock, Times};
use firebrand::Result;
use firebrand::dist::World;
use firebrand::graph::Evaluator;
use firebrand::profiler::profile;
use roofline::Limits;
use serde::Serialize;
use std::cell::OnceCell;
use std::rc::Rc;

/// What a workload returns: nothing, or why it ended early.
pub type Done<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The workloads.
#[derive(Clone, Copy, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// Peaks of the machine: multiply-adds, and memory bandwidth by size
    Roofline,
    /// Overhead of a small op, of its backward node, of a hook
    Ops,
    /// Ten pointwise ops on 2²⁴ elements
    Pointwise,
    /// Softmax and layer norm, forward and backward
    SoftmaxLayernorm,
    /// Matrix multiplication
    Matmul,
    /// Matrix decompositions
    Linalg,
    /// The convolutions of a small ResNet
    Conv,
    /// Training steps of an MLP
    Mlp,
    /// Training steps of a small transformer
    Gpt,
    /// Training steps of a small ResNet
    Convnet,
    /// Peak memory and time of a transformer training step, with several ways to store saved tensors
    SavedMemory,
    /// Function transforms: per-sample gradients, a Hessian, a Hessian-vector product
    Transforms,
    /// Fused backend: the pointwise chain, forward, backward and both
    CompilePointwise,
    /// Fused backend: softmax and layer norm, forward and backward
    CompileSoftmaxLayernorm,
    /// Fused backend: compile time of a graph, and call overhead of a small one
    CompileCold,
    /// Fused backend: forward and backward of an MLP
    CompileMlp,
    /// Compiled backward: many small nodes, and training steps of an MLP
    CompileBackward,
    /// How cost grows with elements, nodes and layers (minutes; only by name)
    Scale,
    /// Collectives between the ranks of `mpirun`: per message, per byte
    DdpCollectives,
    /// Data-parallel training steps of the MLP, on the ranks of `mpirun`
    DdpMlp,
    /// Data-parallel training steps of the transformer, on the ranks of `mpirun`
    DdpGpt,
    /// Data-parallel training steps of the ResNet, on the ranks of `mpirun`
    DdpConvnet,
    /// An exported program, given by --program
    #[value(skip)]
    Program,
}

impl Name {
    fn is_parallel(self) -> bool {
        matches!(self, Name::DdpCollectives | Name::DdpMlp | Name::DdpGpt | Name::DdpConvnet)
    }
}

/// A result.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    #[serde(rename = "bench")]
    name: Name,
    case: &'a str,
    value: f64,
    unit: &'a str,
    threads: usize,
    #[serde(flatten)]
    measured: Option<Measured>,
}

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Line { case, value, unit, .. } = self;
        let name = self.name.to_possible_value().map_or(String::new(), |v| v.get_name().to_string());
        let share = self.measured.map_or(String::new(), |m| format!("{:>4.0} % of the limit", 100.0 * m.share));
        write!(f, "{name:<18} {case:<22} {value:>10.3} {unit:<9} {share}")
    }
}

/// What a call took, beside the value that a line is about.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// By the clock that counts.
    #[serde(skip)]
    seconds: f64,
    wall_ms: f64,
    cpu_ms: f64,
    /// The part of the machine's limit that was reached (`roofline`).
    share: f64,
}

/// What workloads share: the one at work, the clock, where results go.
pub struct Bench<'a> {
    name: Name,
    clock: Clock,
    threads: usize,
    limits: Rc<OnceCell<Limits>>,
    report: &'a dyn Fn(&Line<'_>) -> Done,
    compiled: fn() -> Evaluator,
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("name", &self.name).field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl<'a> Bench<'a> {
    /// Measures workload `name` and passes each result to `report`. Models are compiled by `compiled`.
    pub fn new(name: Name, report: &'a dyn Fn(&Line<'_>) -> Done, compiled: fn() -> Evaluator) -> Bench<'a> {
        let threads = firebrand::num_threads();
        Bench { name, clock: Clock::for_threads(threads), threads, limits: Rc::default(), report, compiled }
    }

    /// The fastest call within a budget of seconds, and which part of the machine's limit it reaches.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn measure(&self, budget: f64, mut f: impl FnMut() -> Result<()>) -> Result<Measured> {
        let Times { seconds, wall, cpu } = self.clock.times(budget, &mut f)?;
        let (result, profile) = profile(f);
        result?;
        let limit = self.limits.get_or_init(|| Limits::measure(self.threads)).of(&profile);
        Ok(Measured { seconds, wall_ms: 1e3 * wall, cpu_ms: 1e3 * cpu, share: limit / seconds })
    }

    fn emit(&self, case: &str, value: f64, unit: &str) -> Done {
        self.line(case, value, unit, None)
    }

    /// A line about a call that was measured.
    fn emit_measured(&self, case: &str, value: f64, unit: &str, measured: Measured) -> Done {
        self.line(case, value, unit, Some(measured))
    }

    /// A line about the milliseconds of a call.
    ///
    /// # Errors
    /// That of the report.
    pub fn emit_ms(&self, case: &str, measured: Measured) -> Done {
        self.emit_measured(case, 1e3 * measured.seconds, "ms", measured)
    }

    fn line(&self, case: &str, value: f64, unit: &str, measured: Option<Measured>) -> Done {
        (self.report)(&Line { name: self.name, case, value, unit, threads: self.threads, measured })
    }
}

/// The ranks of `mpirun`, joined when they are first needed and left when the command ends.
fn joined(world: &OnceCell<World>) -> Done<&World> {
    match world.get() {
        Some(world) => Ok(world),
        None => {
            let joined = World::from_env()?;
            Ok(world.get_or_init(|| joined))
        }
    }
}

/// Runs the named workloads, or all. `ddp_batches` of the usual batches make one of the data-parallel workloads.
///
/// # Errors
/// The first error of a workload or of `report`.
pub fn run(names: &[Name], ddp_batches: u32, report: &dyn Fn(&Line<'_>) -> Done, compiled: fn() -> Evaluator) -> Done {
    // Ranks would run the others each on their own, and one process has nobody to talk to.
    let all =
        |name: &&Name| name.is_parallel() == firebrand::dist::launcher().is_some() && !matches!(name, Name::Scale);
    let names = match names {
        [] => Name::value_variants().iter().filter(all).copied().collect(),
        names => names.to_vec(),
    };
    let (limits, world) = (Rc::default(), OnceCell::new());
    for name in names {
        firebrand::random::manual_seed(0);
        let bench = Bench { limits: Rc::clone(&limits), ..Bench::new(name, report, compiled) };
        match name {
            Name::Program => unreachable!("no argument names it, --program does"),
            Name::Roofline => roofline::roofline(&bench)?,
            Name::Ops => workloads::ops(&bench)?,
            Name::Pointwise => workloads::pointwise(&bench)?,
            Name::SoftmaxLayernorm => workloads::softmax_layernorm(&bench)?,
            Name::Matmul => workloads::matmul(&bench)?,
            Name::Linalg => linalg::linalg(&bench)?,
            Name::Conv => workloads::conv(&bench)?,
            Name::Mlp => training::mlp(&bench)?,
            Name::Gpt => training::gpt(&bench)?,
            Name::Convnet => training::convnet(&bench)?,
            Name::SavedMemory => training::saved_memory(&bench)?,
            Name::Transforms => transforms::transforms(&bench)?,
            Name::CompilePointwise => compiled::pointwise(&bench)?,
            Name::CompileSoftmaxLayernorm => compiled::softmax_layernorm(&bench)?,
            Name::CompileCold => compiled::cold(&bench)?,
            Name::CompileMlp => compiled::mlp(&bench)?,
            Name::Scale => scale::scale(&bench)?,
            Name::DdpCollectives => ddp::collectives(&bench, joined(&world)?)?,
            Name::DdpMlp => ddp::mlp(&bench, joined(&world)?, ddp_batches)?,
            Name::DdpGpt => ddp::gpt(&bench, joined(&world)?, ddp_batches)?,
            Name::DdpConvnet => ddp::convnet(&bench, joined(&world)?, ddp_batches)?,
            Name::CompileBackward => {
                compiled_backward::nodes(&bench)?;
                compiled_backward::step(&bench)?;
            }
        }
    }
    Ok(())
}
