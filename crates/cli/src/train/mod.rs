//! `firebrand train`: the built-in model on the embedded digits, with progress, metrics and a report.
//!
//! The same seed gives the same numbers, whatever the number of threads.

mod adam;
mod model;
mod progress;
mod report;
mod run_folder;

use crate::program::fine_tune::{self, OptimizerName};
use crate::program::loss::TrainLoss;
use crate::refusal::{Done, Refusal, say};
use adam::Adam;
use firebrand::digits::{self, Digits};
use firebrand::ops;
use firebrand::prelude::*;
use model::Mlp;
use progress::Progress;
use run_folder::RunFolder;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
pub(crate) use {adam::Adam as Optimizer, model::Mlp as Network, model::cross_entropy};

/// Sizes of the built-in model: pixels, two hidden layers, classes.
const LAYERS: [usize; 4] = [64, 128, 64, digits::CLASSES];

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() => Ok(v),
        _ => Err("a positive number is needed".to_string()),
    }
}

/// Arguments of `firebrand train`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// An exported program to fine-tune instead of the built-in model
    #[arg(value_name = "MODEL.pt2", requires_all = ["data", "loss", "output"])]
    model: Option<PathBuf>,
    /// Samples for the program: an array per input along the first dimension, and `__target__`
    #[arg(long, value_name = "D.npz", requires = "model")]
    data: Option<PathBuf>,
    /// What is made small when a program is fine-tuned
    #[arg(long, value_enum, requires = "model")]
    loss: Option<TrainLoss>,
    /// How a program is fine-tuned
    #[arg(long, value_enum, requires = "model", default_value = "adamw")]
    optimizer: OptimizerName,
    /// Where the fine-tuned program goes
    #[arg(short, long, value_name = "OUT.pt2", requires = "model")]
    output: Option<PathBuf>,
    /// How often every sample is seen
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Learning rate; with the built-in model it falls to zero along a cosine
    #[arg(long, value_name = "X", default_value_t = 3e-3, value_parser = positive)]
    lr: f64,
    /// Samples per step
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// Seed of initial weights and shuffling
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder for the report [default: the next number under runs/]
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    out: Option<PathBuf>,
}

/// What a run was asked to do.
#[derive(Serialize)]
struct Config {
    version: &'static str,
    data: &'static str,
    train_samples: usize,
    test_samples: usize,
    layers: [usize; 4],
    parameters: usize,
    optimizer: &'static str,
    epochs: u32,
    lr: f64,
    batch_size: u32,
    seed: u64,
    threads: usize,
}

/// What one epoch gave.
#[derive(Clone, Serialize)]
struct Metrics {
    epoch: u32,
    train_loss: f64,
    test_loss: f64,
    test_accuracy: f64,
    samples_per_second: f64,
    seconds: f64,
}

/// A model's view of the test samples.
struct Evaluation {
    loss: f64,
    predicted: Vec<i64>,
    accuracy: f64,
}

fn evaluate(model: &Mlp, data: &Digits) -> Result<Evaluation> {
    no_grad(|| {
        let logits = model.forward(&data.images)?;
        let loss = model::cross_entropy(&logits, &data.labels)?.try_item::<f32>()?;
        let predicted = ops::argmax(&logits, Some(1), false)?.try_to_vec::<i64>()?;
        let truth = data.labels.try_to_vec::<i64>()?;
        let right = predicted.iter().zip(&truth).filter(|(p, t)| p == t).count();
        Ok(Evaluation { loss: loss.into(), predicted, accuracy: right as f64 / truth.len() as f64 })
    })
}

/// Trains, and writes the report.
pub(crate) fn run(options: &Options) -> Done {
    if let (Some(model), Some(data), Some(loss), Some(output)) =
        (&options.model, &options.data, options.loss, &options.output)
    {
        return fine_tune::run(&fine_tune::Task {
            model,
            data,
            output,
            loss,
            optimizer: options.optimizer,
            lr: options.lr,
            epochs: options.epochs,
            batch_size: options.batch_size as usize,
            seed: options.seed,
        });
    }
    manual_seed(options.seed);
    let (train, test) = (digits::train(), digits::test());
    let model = Mlp::new(&LAYERS)?;
    let mut adam = Adam::new(model.parameters(), options.lr);
    let (samples, batch) = (train.labels.numel(), options.batch_size as usize);
    let steps = samples.div_ceil(batch) * options.epochs as usize;
    let config = Config {
        version: env!("CARGO_PKG_VERSION"),
        data: "digits: 8x8 handwritten digits, ten classes",
        train_samples: samples,
        test_samples: test.labels.numel(),
        layers: LAYERS,
        parameters: model.parameters().iter().map(Tensor::numel).sum(),
        optimizer: "Adam, betas (0.9, 0.999), eps 1e-8, cosine schedule to 0",
        epochs: options.epochs,
        lr: options.lr,
        batch_size: options.batch_size,
        seed: options.seed,
        threads: firebrand::num_threads(),
    };
    let folder = RunFolder::make(options.out.as_deref())?;
    let progress = Progress::new(steps, options.epochs);
    let started = Instant::now();
    let mut metrics: Vec<Metrics> = Vec::new();
    let mut step = 0usize;
    for epoch in 1..=options.epochs {
        let began = Instant::now();
        let mut loss_sum = 0.0;
        for index in ops::split(&ops::randperm(samples.into(), None, None)?, batch.into(), 0)? {
            let (x, y) = (ops::index_select(&train.images, 0, &index)?, ops::index_select(&train.labels, 0, &index)?);
            let loss = model::cross_entropy(&model.forward(&x)?, &y)?;
            loss.try_backward(&BackwardOptions::default())?;
            adam.lr = 0.5 * options.lr * (1.0 + (std::f64::consts::PI * step as f64 / steps as f64).cos());
            adam.step()?;
            let loss = f64::from(loss.try_item::<f32>()?);
            if !loss.is_finite() {
                progress.abandon();
                let m = format!("the loss became {loss} in epoch {epoch}; try a smaller --lr than {}", options.lr);
                return Err(Refusal::because(m));
            }
            loss_sum += loss * index.numel() as f64;
            step += 1;
            progress.step(epoch, loss);
        }
        let samples_per_second = samples as f64 / began.elapsed().as_secs_f64();
        let tested = evaluate(&model, &test)?;
        let now = Metrics {
            epoch,
            train_loss: loss_sum / samples as f64,
            test_loss: tested.loss,
            test_accuracy: tested.accuracy,
            samples_per_second,
            seconds: started.elapsed().as_secs_f64(),
        };
        progress.epoch(&now);
        metrics.push(now);
    }
    progress.finish();
    let tested = evaluate(&model, &test)?;
    // The graph of one loss, as the engine sees it.
    let loss = model::cross_entropy(&model.forward(&test.images)?, &test.labels)?;
    let html =
        report::page(&report::Page { config: &config, metrics: &metrics, test: &test, tested: &tested, loss: &loss })?;
    folder.write(&config, &metrics, &html)?;
    say!("test accuracy {:.2}% after {:.1} s", 100.0 * tested.accuracy, started.elapsed().as_secs_f64())?;
    Ok(say!("report {}", folder.path().join("report.html").display())?)
}
