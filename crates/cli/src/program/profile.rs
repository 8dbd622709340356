//! `firebrand profile`: which kernels a program runs, how long they take, and how fast that is.

use super::loss::TrainLoss;
use super::{TARGET, WeightOptions, call, compiled, float_outputs, for_predictions, fused, load, read_arrays};
use crate::refusal::{Done, Refusal, say};
use clap::ValueEnum;
use firebrand::io::{check_outputs, export_chrome_trace};
use firebrand::optim::{AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::{BackwardOptions, Module, no_grad};
use firebrand::profiler::{Average, EventKind, Order, Profile, profile, record_function};
use serde_json::json;
use std::path::PathBuf;

/// Calls before the profile is taken: caches are filled and graphs compiled.
const WARM_UP: usize = 2;

/// Arguments of `firebrand profile`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// One array per program input, and labels as `__target__` with --loss
    #[arg(long, value_name = "IN.npz")]
    inputs: PathBuf,
    /// Profile training steps (AdamW) with this loss instead of inference
    #[arg(long, value_enum)]
    loss: Option<TrainLoss>,
    /// Compile the program with the fused backend
    #[arg(long)]
    compile: bool,
    /// Number of calls or steps to profile
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// What to sort the table by
    #[arg(long, value_enum, default_value = "time")]
    sort: Sort,
    /// Number of rows to print
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Write all events to this file, for `chrome://tracing` or ui.perfetto.dev
    #[arg(long, value_name = "TRACE.json")]
    trace: Option<PathBuf>,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    weights: WeightOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    /// Total time
    Time,
    /// Number of calls
    Calls,
    /// Bytes read and written
    Bytes,
}

impl From<Sort> for Order {
    fn from(sort: Sort) -> Order {
        match sort {
            Sort::Time => Order::Time,
            Sort::Calls => Order::Calls,
            Sort::Bytes => Order::Bytes,
        }
    }
}

/// Profiles the program and prints the table.
pub(crate) fn run(options: &Options) -> Done {
    check_outputs(&options.trace)?;
    let profile = taken(options)?;
    if let Some(path) = &options.trace {
        export_chrome_trace(&profile, path)?;
    }
    if options.json {
        return Ok(say!("{}", json(&profile, options.steps))?);
    }
    Ok(say!("{}", profile.table(options.sort.into(), options.rows).trim_end())?)
}

fn taken(options: &Options) -> Done<Profile> {
    let mut module = match (options.compile, options.loss) {
        (true, None) => for_predictions(&options.model, options.weights, true)?,
        _ => load(&options.model, options.weights)?,
    };
    let inputs = read_arrays(&options.inputs)?;
    if options.compile {
        module.set_evaluator(if options.loss.is_some() { compiled() } else { fused() });
    }
    let Some(loss) = options.loss else {
        module.eval();
        return repeated(options.steps, || no_grad(|| call(&module, &inputs)).map(drop));
    };
    let target = inputs.get(TARGET).ok_or_else(|| Refusal::because(format!("no labels: add an array `{TARGET}`")))?;
    module.train();
    let wanted: Vec<_> = module.parameters().iter().map(|p| p.tensor().clone()).filter(|t| t.requires_grad()).collect();
    let mut optimizer = AdamW::new(&wanted, AdamWOptions { lr: 1e-4, ..Default::default() })?;
    repeated(options.steps, || {
        optimizer.zero_grad();
        let loss = {
            let _label = record_function("forward");
            loss.of(&float_outputs(&call(&module, &inputs)?), target)?
        };
        {
            let _label = record_function("backward");
            loss.try_backward(&BackwardOptions::default())?;
        }
        let _label = record_function("optimizer step");
        Ok(optimizer.step()?)
    })
}

/// The profile of some calls, after others.
fn repeated(steps: u32, mut step: impl FnMut() -> Done) -> Done<Profile> {
    for _ in 0..WARM_UP {
        step()?;
    }
    let (result, profile) = profile(|| (0..steps).try_for_each(|_| step()));
    result.map(|()| profile)
}

fn json(profile: &Profile, steps: u32) -> serde_json::Value {
    let row = |a: &Average| {
        let kind = match a.kind {
            EventKind::Op => "op",
            EventKind::Compiled => "compiled",
            _ => "function",
        };
        json!({
            "name": a.name,
            "kind": kind,
            "pass": if a.backward { "backward" } else { "forward" },
            "calls": a.calls,
            "total_ms": a.duration.as_secs_f64() * 1e3,
            "flops": a.work.flops,
            "bytes": a.work.bytes,
        })
    };
    json!({
        "schema": "firebrand.profile/1",
        "steps": steps,
        "total_ms": profile.duration.as_secs_f64() * 1e3,
        "kernels_ms": profile.in_kernels().as_secs_f64() * 1e3,
        "rows": profile.averages().iter().map(row).collect::<Vec<_>>(),
    })
}
