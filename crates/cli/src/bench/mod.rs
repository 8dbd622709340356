//! `firebrand bench`: firebrand's side of the comparison that `bench/README.md` defines, case by case.

mod clock;
mod compiled;
mod compiled_backward;
mod ddp;
mod linalg;
mod models;
mod program;
mod roofline;
mod scale;
mod training;
mod transforms;
mod workloads;

use crate::program::loss::TrainLoss;
use crate::refusal::{Done, say};
use clap::ValueEnum;
use clock::{Clock, Times};
use firebrand::Result;
use firebrand::dist::World;
use firebrand::profiler::profile;
use roofline::Limits;
use serde::Serialize;
use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

/// Arguments of `firebrand bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Workloads to run [default: all]
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Print one JSON object per case
    #[arg(long)]
    json: bool,
    /// Benchmark this exported program instead
    #[arg(long, value_name = "MODEL.pt2", requires = "inputs", conflicts_with = "names")]
    program: Option<PathBuf>,
    /// Inputs for the program: one array per input, and `__target__` with --loss
    #[arg(long, value_name = "IN.npz", requires = "program")]
    inputs: Option<PathBuf>,
    /// Benchmark training steps (AdamW) with this loss instead of inference
    #[arg(long, value_enum, requires = "program")]
    loss: Option<TrainLoss>,
    /// Make the batches of the ddp_* benches N times as large: more computation for the same communication
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "program")]
    ddp_batches: u32,
}

/// The workloads.
#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Name {
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

#[derive(Serialize)]
struct Line<'a> {
    bench: Name,
    case: &'a str,
    value: f64,
    unit: &'a str,
    threads: usize,
    #[serde(flatten)]
    measured: Option<Measured>,
}

/// What a call took, beside the value that a line is about.
#[derive(Clone, Copy, Serialize)]
struct Measured {
    /// By the clock that counts.
    #[serde(skip)]
    seconds: f64,
    wall_ms: f64,
    cpu_ms: f64,
    /// The part of the machine's limit that was reached (`roofline`).
    share: f64,
}

/// Measures and prints.
struct Bench {
    name: Name,
    clock: Clock,
    threads: usize,
    json: bool,
    limits: Rc<OnceCell<Limits>>,
}

impl Bench {
    fn new(name: Name, json: bool) -> Bench {
        let threads = firebrand::num_threads();
        Bench { name, clock: Clock::for_threads(threads), threads, json, limits: Rc::default() }
    }

    /// The fastest call within a budget of seconds, and which part of the machine's limit it reaches.
    fn measure(&self, budget: f64, mut f: impl FnMut() -> Result<()>) -> Result<Measured> {
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
    fn emit_ms(&self, case: &str, measured: Measured) -> Done {
        self.emit_measured(case, 1e3 * measured.seconds, "ms", measured)
    }

    fn line(&self, case: &str, value: f64, unit: &str, measured: Option<Measured>) -> Done {
        let line = Line { bench: self.name, case, value, unit, threads: self.threads, measured };
        let text = serde_json::to_string(&line).map_err(crate::refusal::Refusal::because)?;
        if self.json {
            return Ok(say!("{text}")?);
        }
        let name = self.name.to_possible_value().map_or(String::new(), |v| v.get_name().to_string());
        let share = measured.map_or(String::new(), |m| format!("{:>4.0} % of the limit", 100.0 * m.share));
        Ok(say!("{name:<18} {case:<22} {value:>10.3} {unit:<9} {share}")?)
    }
}

/// The ranks of `mpirun`, joined when they are first needed and left when the command ends.
fn joined(world: &OnceCell<World>) -> Done<&World> {
    match world.get() {
        Some(world) => Ok(world),
        None => {
            let joined = World::from_env().map_err(crate::refusal::Refusal::because)?;
            Ok(world.get_or_init(|| joined))
        }
    }
}

/// Runs the named workloads, or all.
pub(crate) fn run(options: &Options) -> Done {
    if let (Some(model), Some(inputs)) = (&options.program, &options.inputs) {
        let bench = Bench::new(Name::Program, options.json);
        return program::run(&bench, model, inputs, options.loss);
    }
    // Ranks would run the others each on their own, and one process has nobody to talk to.
    let all =
        |name: &&Name| name.is_parallel() == firebrand::dist::launcher().is_some() && !matches!(name, Name::Scale);
    let names = match &options.names[..] {
        [] => Name::value_variants().iter().filter(all).copied().collect(),
        names => names.to_vec(),
    };
    let (limits, world) = (Rc::default(), OnceCell::new());
    for name in names {
        firebrand::random::manual_seed(0);
        let bench = Bench { limits: Rc::clone(&limits), ..Bench::new(name, options.json) };
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
            Name::DdpMlp => ddp::mlp(&bench, joined(&world)?, options.ddp_batches)?,
            Name::DdpGpt => ddp::gpt(&bench, joined(&world)?, options.ddp_batches)?,
            Name::DdpConvnet => ddp::convnet(&bench, joined(&world)?, options.ddp_batches)?,
            Name::CompileBackward => {
                compiled_backward::nodes(&bench)?;
                compiled_backward::step(&bench)?;
            }
        }
    }
    Ok(())
}
