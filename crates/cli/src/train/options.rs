//! Arguments of `firebrand train`. Which of them can be combined is checked in one place, because any of them may come from a
//! file (`--config`) or from the folder of a resumed run.

use super::data::DataOptions;
use super::objective::ObjectiveOptions;
use super::optimizer::{OptimizerName, Rate, ScheduleName, Warmup};
use crate::program::WeightOptions;
use crate::refusal::{Done, Refusal};
use std::path::PathBuf;

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a positive number".to_string()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v >= 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a number of at least 0".to_string()),
    }
}

/// A number between 0 and 1, exclusive.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v < 1.0 => Ok(v),
        _ => Err("expected a number between 0 and 1".to_string()),
    }
}

/// A file: standard output gets the results of the run.
fn file(text: &str) -> Result<PathBuf, String> {
    if text == "-" { Err("expected the name of a file".to_string()) } else { Ok(PathBuf::from(text)) }
}

/// Arguments of `firebrand train`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program to fine-tune; if omitted, trains the built-in model on the bundled digits
    #[arg(value_name = "MODEL.pt2")]
    pub(super) model: Option<PathBuf>,
    #[command(flatten)]
    pub(super) data: DataOptions,
    /// Validation samples, in the same format as --data
    #[arg(long, value_name = "D", help_heading = "Data", conflicts_with = "val_split")]
    pub(super) val_data: Option<PathBuf>,
    /// Fraction of the samples to hold out for validation, chosen at random with --seed
    #[arg(long, value_name = "F", help_heading = "Data", value_parser = share)]
    pub(super) val_split: Option<f64>,
    /// Samples per forward pass [default: 32, or the batch size the program was exported for]
    #[arg(long, value_name = "N", help_heading = "Data", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) batch_size: Option<u32>,
    /// Threads that prepare batches ahead of time
    #[arg(long, value_name = "N", help_heading = "Data", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(super) workers: u32,
    #[command(flatten)]
    pub(super) objective: ObjectiveOptions,

    /// Number of passes over the data
    #[arg(long, value_name = "N", help_heading = "Optimization", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) epochs: u32,
    /// Optimizer
    #[arg(long, value_enum, help_heading = "Optimization", default_value = "adamw")]
    pub(super) optimizer: OptimizerName,
    /// Learning rate; with a pattern, for the parameters whose names match. May be repeated, later ones win [default: 3e-3]
    #[arg(long, value_name = "[PATTERN=]X", help_heading = "Optimization", action = clap::ArgAction::Append)]
    pub(super) lr: Vec<Rate>,
    /// Learning-rate schedule, per step [default: constant; one_cycle for the built-in model]
    #[arg(long, value_enum, help_heading = "Optimization")]
    pub(super) schedule: Option<ScheduleName>,
    /// Increase the learning rate linearly over the first N steps, or the first N% of all steps
    #[arg(long, value_name = "N|N%", help_heading = "Optimization")]
    pub(super) warmup: Option<Warmup>,
    /// Weight decay [default: the optimizer's]
    #[arg(long, value_name = "X", help_heading = "Optimization", value_parser = not_negative)]
    pub(super) weight_decay: Option<f64>,
    /// No weight decay for the parameters whose names match; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Optimization", action = clap::ArgAction::Append)]
    pub(super) no_decay: Vec<String>,
    /// No weight decay for biases and norms: parameters with fewer than two dimensions
    #[arg(long, help_heading = "Optimization")]
    pub(super) no_decay_1d: bool,
    /// Clip gradients to this total norm
    #[arg(long, value_name = "X", help_heading = "Optimization", value_parser = positive)]
    pub(super) clip: Option<f64>,
    /// Forward passes per optimizer step; K of them give the gradients of one batch K times as large
    #[arg(long, value_name = "K", help_heading = "Optimization", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) accumulate: u32,
    /// Keep an exponential moving average of the weights with this decay, and validate and save that
    #[arg(long, value_name = "DECAY", help_heading = "Optimization", value_parser = share)]
    pub(super) ema: Option<f64>,
    /// Train only the parameters whose names match; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Optimization", action = clap::ArgAction::Append)]
    pub(super) trainable: Vec<String>,
    /// Freeze the parameters whose names match; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Optimization", action = clap::ArgAction::Append)]
    pub(super) freeze: Vec<String>,
    /// Stop early when the watched metric has not improved for more than N epochs
    #[arg(long, value_name = "N", help_heading = "Optimization")]
    pub(super) patience: Option<u32>,
    /// Validation metric to watch, for --patience and --best [default: val_loss]
    #[arg(long, value_name = "METRIC", help_heading = "Optimization")]
    pub(super) watch: Option<String>,
    /// Save the weights of the epoch with the best watched metric instead of the last epoch's (needs --out and validation)
    #[arg(long, help_heading = "Optimization")]
    pub(super) best: bool,

    /// Random seed for initial weights, shuffling and dropout
    #[arg(long, value_name = "S", help_heading = "Computation", default_value_t = 0)]
    pub(super) seed: u64,
    /// Train with bfloat16 autocast; weights keep their dtype
    #[arg(long, help_heading = "Computation")]
    pub(super) bf16: bool,
    /// Compile the forward and backward pass of MODEL.pt2
    #[arg(long, help_heading = "Computation")]
    pub(super) compile: bool,
    #[command(flatten)]
    pub(super) weights: WeightOptions,
    #[command(flatten)]
    pub(super) adapt: crate::adapt::AdaptOptions,
    #[command(flatten)]
    pub(super) ranks: super::ranks::RankOptions,

    /// Write the fine-tuned program to this file [default with --out: DIR/model.pt2]
    #[arg(short, long, value_name = "OUT.pt2", help_heading = "Run", value_parser = file)]
    pub(super) output: Option<PathBuf>,
    /// Run directory for settings, checkpoint, metrics and report [default: the next number under runs/; for MODEL.pt2, none]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub(super) out: Option<PathBuf>,
    /// Resume the run in --out (or the latest one under runs/) with the same settings; only --epochs may be increased
    #[arg(long, help_heading = "Run")]
    pub(super) resume: bool,
    /// Also write a checkpoint every N steps
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) checkpoint_every: Option<u64>,
    /// Read settings from a TOML file whose keys are long option names; the command line takes precedence
    #[arg(long, value_name = "RUN.toml", help_heading = "Run")]
    pub(super) config: Option<PathBuf>,
    /// Run three steps, report parameters, memory, number of steps and time, and write nothing
    #[arg(long, help_heading = "Run")]
    pub(super) dry_run: bool,
    /// Print the result as JSON
    #[arg(long, help_heading = "Run")]
    pub(super) json: bool,
}

impl Options {
    /// Checks which options can be combined; violations are usage errors, like invalid arguments.
    pub(super) fn check(&self) -> Done {
        let usage = |message: &str| Err(Refusal::Usage(message.to_string()));
        let program = self.model.is_some();
        let needs_model = [
            (self.data.data.is_some(), "--data"),
            (self.objective.loss.is_some(), "--loss"),
            (self.output.is_some(), "--output"),
            (self.val_data.is_some(), "--val-data"),
            (self.val_split.is_some(), "--val-split"),
            (self.compile, "--compile"),
            (self.adapt.given().is_some(), self.adapt.given().unwrap_or_default()),
        ];
        if let Some((_, name)) = needs_model.iter().find(|(given, _)| *given && !program) {
            return usage(&format!("{name} needs an exported program: add MODEL.pt2"));
        }
        if program && self.data.data.is_none() {
            return usage("--data is missing: the samples to train MODEL.pt2 on");
        }
        if program && self.objective.loss.is_none() {
            return usage("--loss is missing: cross_entropy, mse, …, output, or LOSS.pt2");
        }
        if program && self.output.is_none() && self.out.is_none() && !self.dry_run {
            return usage("-o OUT.pt2 or --out DIR is missing: where to write the fine-tuned program");
        }
        if self.resume && self.out.is_none() && program {
            return usage("--resume needs --out DIR: the run directory");
        }
        let validates = !program || self.val_data.is_some() || self.val_split.is_some();
        if (self.best || self.patience.is_some()) && !validates {
            return usage("--best and --patience need validation samples: --val-split F or --val-data D");
        }
        if self.best && program && self.out.is_none() {
            return usage("--best needs --out DIR, where the best weights are saved");
        }
        self.objective.check()
    }
}
