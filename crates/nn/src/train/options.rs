//! Options of a run, what its callbacks are told, and how it ended.

use super::checkpoint::Progress;
use super::metrics::Metrics;
use firebrand_core::{DType, Result, Tensor};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of a [`Trainer`](super::Trainer).
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Number of passes over the data.
    pub epochs: usize,
    /// Batches per step; their gradients equal those of one batch with all their samples.
    pub accumulate: usize,
    /// Clip gradients to this total norm.
    pub clip_norm: Option<f64>,
    /// Autocast dtype (`BF16`, `F16`) of the forward pass; parameters and their gradients keep their dtype.
    pub autocast: Option<DType>,
    /// Keep an exponential moving average of the trained parameters with this decay; validation uses it.
    pub ema: Option<f64>,
    /// Whether to advance the schedule every step instead of every epoch.
    pub schedule_every_step: bool,
    /// File for checkpoints, written after every epoch and when the run is stopped.
    pub checkpoint: Option<PathBuf>,
    /// Also write a checkpoint every this many steps.
    pub checkpoint_every: Option<u64>,
    /// Whether checkpoints hold parameters that do not require grad. Without them a run can only be resumed on a model
    /// that starts with the same ones, which is correct unless a parameter was trained before it was frozen.
    pub checkpoint_frozen: bool,
    /// Checkpoints of more bytes than this are written as several files beside the checkpoint, which lists them.
    pub checkpoint_part_bytes: u64,
    /// File for the state of the model (a `.safetensors` file) at the best value of the watched metric so far; with
    /// [`TrainOptions::ema`], of the average.
    pub best: Option<PathBuf>,
    /// Early stopping: epochs without improvement of the watched metric.
    pub patience: Option<usize>,
    /// The watched validation metric, and whether lower is better.
    pub watch: (String, bool),
    /// On several ranks: the number of shards of a step, by default one for each rank. Results depend on it, bit for bit, and not on
    /// the number of ranks.
    pub shards: Option<usize>,
    /// On several ranks: whether each keeps only its part of the optimizer's state (ZeRO, stage 1). Results are bitwise the same.
    /// Only for optimizers that treat every parameter separately: all but [`LBFGS`](crate::optim::LBFGS).
    pub zero: bool,
    /// On several ranks: compare the state of all ranks, bit for bit, every this many steps. A difference, for example between ranks on
    /// different processors, is an error that names the first tensor.
    pub compare_replicas: Option<u64>,
    /// A flag that stops the run after the current step when set (by Ctrl-C, for instance).
    pub stop: Arc<AtomicBool>,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            epochs: 1,
            accumulate: 1,
            clip_norm: None,
            autocast: None,
            ema: None,
            schedule_every_step: false,
            checkpoint: None,
            checkpoint_every: None,
            checkpoint_frozen: true,
            checkpoint_part_bytes: 4 << 30,
            best: None,
            patience: None,
            watch: ("loss".to_string(), true),
            shards: None,
            zero: false,
            compare_replicas: None,
            stop: Arc::default(),
        }
    }
}

/// The loss of a batch: its mean, and over how many labels it was taken.
///
/// The count weighs batches against each other when gradients are accumulated and when the loss of an epoch is computed. A
/// plain tensor counts as one label, so batches weigh the same. A batch whose labels are all ignored is skipped.
#[derive(Clone, Debug)]
pub struct BatchLoss {
    /// The mean loss, a scalar.
    pub mean: Tensor,
    /// Number of labels the mean was taken over.
    pub count: f64,
}

impl From<Tensor> for BatchLoss {
    fn from(mean: Tensor) -> BatchLoss {
        BatchLoss { mean, count: 1.0 }
    }
}

/// State of the run after a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Optimizer steps so far.
    pub step: u64,
    /// Completed batches of the epoch.
    pub batch: usize,
    /// Mean loss of the step's batches.
    pub loss: f64,
    /// Learning rate of the first group.
    pub lr: f64,
    /// Norm of all gradients before clipping, if they are clipped.
    pub grad_norm: Option<f64>,
}

/// Callbacks of a training run.
pub trait Callback {
    /// Called when a run starts or resumes, with its progress.
    fn begin(&mut self, _progress: &Progress) -> Result<()> {
        Ok(())
    }
    /// Called after every step.
    fn step(&mut self, _step: &Step) -> Result<()> {
        Ok(())
    }
    /// Called after every epoch with the metrics of all epochs so far: `train_loss`, `lr` and those of validation.
    fn epoch(&mut self, _epoch: usize, _history: &[Metrics]) -> Result<()> {
        Ok(())
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// All epochs were done.
    Done,
    /// The watched metric stopped improving.
    Early,
    /// It was stopped by the flag; the checkpoint, if there is one, is up to date.
    Stopped,
}
