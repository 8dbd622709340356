//! `firebrand train`: the built-in model on the embedded digits, with progress, metrics, checkpoints and a report.
//!
//! The same seed gives the same results for any number of threads, and also when the run was interrupted and
//! continued with `--resume`.

mod model;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod run_folder;

use crate::program::WeightOptions;
use crate::program::fine_tune::{self, OptimizerName, ScheduleName};
use crate::program::loss::TrainLoss;
use crate::refusal::{Done, Refusal, say};
use firebrand::autograd::GraphView;
use firebrand::data::{DataLoader, LoaderOptions, TensorDataset};
use firebrand::digits::{self, Digits};
use firebrand::nn::layers::{Forward, Module, Sequential};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::optim::schedule::OneCycleLR;
use firebrand::optim::{AdamW, AdamWOptions};
use firebrand::prelude::*;
use firebrand::train::{ConfusionMatrix, Finish, Metrics, TrainOptions, Trainer};
use progress::Progress;
use run_folder::{RunFolder, Writer};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a positive number".to_string()),
    }
}

/// Arguments of `firebrand train`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program to fine-tune; trains the built-in model if omitted
    #[arg(value_name = "MODEL.pt2", requires_all = ["data", "loss", "output"])]
    model: Option<PathBuf>,
    /// Training samples: one array per program input, with samples along the first dimension, and the labels as `__target__`
    #[arg(long, value_name = "D.npz", requires = "model")]
    data: Option<PathBuf>,
    /// Loss to minimize
    #[arg(long, value_enum, requires = "model")]
    loss: Option<TrainLoss>,
    /// Optimizer for MODEL.pt2
    #[arg(long, value_enum, requires = "model", default_value = "adamw")]
    optimizer: OptimizerName,
    /// Learning-rate schedule for MODEL.pt2
    #[arg(long, value_enum, requires = "model", default_value = "constant")]
    schedule: ScheduleName,
    /// Write the fine-tuned program to this file
    #[arg(short, long, value_name = "OUT.pt2", requires = "model")]
    output: Option<PathBuf>,
    /// Number of passes over the data
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Learning rate; for the built-in model, the peak of a one-cycle schedule
    #[arg(long, value_name = "X", default_value_t = 3e-3, value_parser = positive)]
    lr: f64,
    /// Samples per step
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// Compile the forward and backward pass of MODEL.pt2
    #[arg(long, requires = "model")]
    compile: bool,
    #[command(flatten)]
    weights: WeightOptions,
    /// Random seed for initial weights and shuffling
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Train with bfloat16 autocast; weights stay f32 (built-in model only)
    #[arg(long, conflicts_with = "model")]
    bf16: bool,
    /// Directory for metrics and the report [default: the next number under runs/; for MODEL.pt2, none]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume the run in --out, or the latest one under runs/, with its original settings (built-in model only)
    #[arg(long, conflicts_with_all = ["model", "epochs", "lr", "batch_size", "seed", "bf16"])]
    resume: bool,
}

/// The settings of a run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) version: String,
    pub(crate) data: String,
    pub(crate) train_samples: usize,
    pub(crate) test_samples: usize,
    pub(crate) model: String,
    pub(crate) parameters: usize,
    pub(crate) optimizer: String,
    pub(crate) epochs: u32,
    pub(crate) lr: f64,
    pub(crate) batch_size: u32,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) bf16: bool,
    pub(crate) threads: usize,
}

impl Config {
    fn new(o: &Options) -> Config {
        Config {
            version: env!("CARGO_PKG_VERSION").into(),
            data: "digits: 8x8 handwritten digits, ten classes".into(),
            train_samples: digits::TRAIN,
            test_samples: digits::SAMPLES - digits::TRAIN,
            model: model::DESCRIPTION.into(),
            parameters: 0,
            optimizer: "AdamW, one cycle of the learning rate".into(),
            epochs: o.epochs,
            lr: o.lr,
            batch_size: o.batch_size,
            seed: o.seed,
            bf16: o.bf16,
            threads: firebrand::num_threads(),
        }
    }
}

/// A model's results on the test samples.
pub(crate) struct Evaluation {
    loss: f64,
    predicted: Vec<i64>,
    confusion: ConfusionMatrix,
}

/// Images as the model takes them.
fn planes(images: &Tensor) -> Result<Tensor> {
    images.try_view([-1, 1, 8, 8])
}

fn evaluate(model: &Sequential, data: &Digits) -> Result<Evaluation> {
    let scores = model.try_call(&planes(&data.images)?)?;
    let loss = CrossEntropyLoss::new().loss(&scores, &data.labels)?.try_item::<f32>()?;
    let predicted = scores.try_argmax(Some(1), false)?.try_to_vec::<i64>()?;
    let confusion = ConfusionMatrix::new(digits::CLASSES, &data.labels.try_to_vec::<i64>()?, &predicted)?;
    Ok(Evaluation { loss: loss.into(), predicted, confusion })
}

/// Fine-tunes a program, or trains the built-in model.
pub(crate) fn run(options: &Options) -> Done {
    let (Some(model), Some(data), Some(loss), Some(output)) =
        (&options.model, &options.data, options.loss, &options.output)
    else {
        return train_digits(options);
    };
    fine_tune::run(&fine_tune::Task {
        model,
        data,
        output,
        loss,
        optimizer: options.optimizer,
        schedule: options.schedule,
        lr: options.lr,
        epochs: options.epochs,
        batch_size: options.batch_size as usize,
        seed: options.seed,
        compile: options.compile,
        weights: options.weights,
        folder: options.out.as_deref(),
    })
}

/// Trains the built-in model, and writes the report.
fn train_digits(options: &Options) -> Done {
    let folder = if options.resume {
        RunFolder::existing(options.out.as_deref())?
    } else {
        RunFolder::make(options.out.as_deref())?
    };
    let mut config = if options.resume { folder.config()? } else { Config::new(options) };
    manual_seed(config.seed);
    let (train, test) = (digits::train(), digits::test());
    let model = model::convolutional()?;
    config.parameters = model.parameters().iter().map(|p| p.numel()).sum();
    let data = TensorDataset::new([planes(&train.images)?, train.labels])?;
    let batch_size = config.batch_size as usize;
    let loader = DataLoader::new(data, LoaderOptions { shuffle: true, ..LoaderOptions::new(batch_size) });
    let steps = loader.len() * config.epochs as usize;
    let settings = TrainOptions {
        epochs: config.epochs as usize,
        schedule_every_step: true,
        autocast: config.bf16.then_some(DType::BF16),
        checkpoint: Some(folder.checkpoint()),
        stop: crate::signals::stop_on_interrupt(),
        ..Default::default()
    };
    let started = Instant::now();
    let progress = Progress::new(steps, config.epochs as usize, config.train_samples);
    let mut trainer = Trainer::new(&model, AdamW::new(model.parameters(), AdamWOptions::default())?, settings)
        .schedule(OneCycleLR::new(config.lr, steps as u64))
        .watch(Writer::new(&folder, &config))
        .watch(progress.clone());
    if options.resume && !trainer.resume()? {
        let m = format!("{}: no checkpoint to resume from", folder.path().display());
        return Err(Refusal::because(m));
    }
    progress.start_at(trainer.progress().step);
    let criterion = CrossEntropyLoss::new();
    let finish = trainer.fit(
        &loader,
        |[x, y]| criterion.loss(&model.try_call(x)?, y),
        || {
            let e = evaluate(&model, &test)?;
            let accuracy = e.confusion.accuracy();
            Ok(Metrics::from_iter([("loss".to_string(), e.loss), ("test_accuracy".to_string(), accuracy)]))
        },
    );
    progress.finish();
    let history = trainer.progress().history.clone();
    if finish? == Finish::Stopped {
        say!("stopped; continue with: firebrand train --resume --out {}", folder.path().display())?;
        return Ok(());
    }
    model.eval();
    report_run(&folder, &config, &history, &model, &test, started.elapsed().as_secs_f64())
}

/// Tests the model, writes the report and says how it went.
fn report_run(
    folder: &RunFolder,
    config: &Config,
    history: &[Metrics],
    model: &Sequential,
    test: &Digits,
    seconds: f64,
) -> Done {
    let tested = no_grad(|| evaluate(model, test))?;
    // The graph of one loss, as the engine sees it.
    let loss = CrossEntropyLoss::new().loss(&model.try_call(&planes(&test.images)?)?, &test.labels)?;
    let names = model.named_parameters();
    let graph = GraphView::of(&[&loss]).all_named(names.iter().map(|(name, t)| (name.as_str(), &**t)));
    let page = report::Page { config, history, test, tested: &tested, graph: &graph, seconds };
    folder.stage_report(&report::page(&page)?)?.commit()?;
    say!("test accuracy {:.2}% after {seconds:.1} s", 100.0 * tested.confusion.accuracy())?;
    Ok(say!("report {}", folder.path().join("report.html").display())?)
}
