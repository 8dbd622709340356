//! `firebrand bench`: prints what the workloads of `firebrand_bench` take, or an exported program.

use crate::program::loss::TrainLoss;
use crate::program::{TARGET, call, compiled, float_outputs, for_predictions, fused, load};
use crate::refusal::{Done, Refusal, say};
use firebrand::io::read_npz;
use firebrand::optim::{AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;
use firebrand_bench::{Bench, Line, Name};
use std::path::{Path, PathBuf};

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
    /// Compile the program with the fused backend; for inference, batch norms are folded into convolutions first
    #[arg(long, requires = "program")]
    compile: bool,
    /// Make the batches of the ddp_* workloads N times as large: more computation for the same communication
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "program")]
    ddp_batches: u32,
}

/// Runs the named workloads, or all, or the program.
pub(crate) fn run(options: &Options) -> Done {
    let report = |line: &Line<'_>| -> firebrand_bench::Done {
        let text = if options.json { serde_json::to_string(line)? } else { line.to_string() };
        Ok(say!("{text}")?)
    };
    match (&options.program, &options.inputs) {
        (Some(model), Some(inputs)) => program(&Bench::new(Name::Program, &report, compiled), model, inputs, options),
        _ => Ok(firebrand_bench::run(&options.names, options.ddp_batches, &report, compiled)?),
    }
}

const SECONDS: f64 = 3.0;
const LR: f64 = 1e-4;

/// Measures milliseconds of a call, or with a loss, of a step: zero gradients, forward, backward, AdamW. `bench/pt2.py` gives
/// PyTorch the same work.
fn program(bench: &Bench<'_>, model: &Path, inputs: &Path, options: &Options) -> Done {
    let mut module = match (options.compile, options.loss) {
        (true, None) => for_predictions(model, Default::default(), true)?,
        _ => load(model, Default::default())?,
    };
    if options.compile {
        module.set_evaluator(if options.loss.is_some() { compiled() } else { fused() });
    }
    let inputs = read_npz(inputs)?;
    let case = model.file_stem().and_then(|s| s.to_str()).unwrap_or("program");
    let way = if options.compile { "_compiled" } else { "" };
    // The clock takes what the library may refuse; what a program refuses is said in the same words.
    let refused = |e: Refusal| Error::from(e);
    let Some(loss) = options.loss else {
        module.eval();
        let run = no_grad(|| bench.measure(SECONDS, || call(&module, &inputs).map(drop).map_err(refused)))?;
        return Ok(bench.emit_ms(&format!("{case}.inference{way}"), run)?);
    };
    let target = inputs.get(TARGET).ok_or_else(|| Refusal::because(format!("no labels: add an array `{TARGET}`")))?;
    module.train();
    let wanted: Vec<Tensor> =
        module.parameters().iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
    let mut optimizer = AdamW::new(&wanted, AdamWOptions { lr: LR, ..Default::default() })?;
    let step = bench.measure(SECONDS, || {
        optimizer.zero_grad();
        let outputs = call(&module, &inputs).map_err(refused)?;
        let loss = loss.of(&float_outputs(&outputs), target).map_err(refused)?;
        loss.try_backward(&BackwardOptions::default())?;
        optimizer.step()
    })?;
    Ok(bench.emit_ms(&format!("{case}.training_step{way}"), step)?)
}
