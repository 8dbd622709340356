//! The training loop. It knows models, optimizers, loaders and checkpoints; it prints nothing and knows no task: losses
//! and validation are the caller's closures.

use super::checkpoint::{self, Progress};
use super::metrics::Metrics;
use crate::data::{DataLoader, Dataset};
use crate::optim::schedule::{Goal, LRScheduler, PlateauOptions, ReduceLROnPlateau, Schedule};
use crate::optim::{Optimizer, clip_grad_norm};
use firebrand_core::autograd::{autocast, no_grad};
use firebrand_core::module::Module;
use firebrand_core::random::{Generator, get_rng_state, set_rng_state};
use firebrand_core::{DType, Error, Result, Tensor, ops};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Options of a [`Trainer`].
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Number of passes over the data.
    pub epochs: usize,
    /// Batches whose gradients are averaged before a step.
    pub accumulate: usize,
    /// Clip gradients to this total norm.
    pub clip_norm: Option<f64>,
    /// Autocast dtype (`BF16`, `F16`) of the forward pass; parameters and their gradients keep their dtype.
    pub autocast: Option<DType>,
    /// Whether to advance the schedule every step instead of every epoch.
    pub schedule_every_step: bool,
    /// File for checkpoints, written after every epoch and when the run is stopped.
    pub checkpoint: Option<PathBuf>,
    /// Also write a checkpoint every this many steps.
    pub checkpoint_every: Option<u64>,
    /// Early stopping: epochs without improvement of the watched metric.
    pub patience: Option<usize>,
    /// The watched validation metric, and whether lower is better.
    pub watch: (String, bool),
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
            schedule_every_step: false,
            checkpoint: None,
            checkpoint_every: None,
            patience: None,
            watch: ("loss".to_string(), true),
            stop: Arc::default(),
        }
    }
}

/// What is known after a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Optimizer steps so far.
    pub step: u64,
    /// Loss of the step's last batch.
    pub loss: f64,
    /// Learning rate of the first group.
    pub lr: f64,
}

/// Callbacks of a training run.
pub trait Callback {
    /// Called after every step.
    fn step(&mut self, _step: &Step) -> Result<()> {
        Ok(())
    }
    /// Called after every epoch with the metrics of all epochs so far: `train_loss` and those of validation.
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

/// The training loop.
pub struct Trainer<'a> {
    model: &'a dyn Module,
    optimizer: Box<dyn Optimizer>,
    scheduler: Option<LRScheduler>,
    plateau: Option<ReduceLROnPlateau>,
    callbacks: Vec<Box<dyn Callback + 'a>>,
    options: TrainOptions,
    progress: Progress,
    /// The random state before the current epoch's order was drawn.
    epoch_start: Generator,
}

impl<'a> Trainer<'a> {
    /// Creates a trainer for a model and an optimizer over its parameters.
    pub fn new(model: &'a dyn Module, optimizer: impl Optimizer + 'static, options: TrainOptions) -> Trainer<'a> {
        Trainer {
            model,
            optimizer: Box::new(optimizer),
            scheduler: None,
            plateau: None,
            callbacks: Vec::new(),
            options: TrainOptions { accumulate: options.accumulate.max(1), ..options },
            progress: Progress::default(),
            epoch_start: get_rng_state(),
        }
    }

    /// Sets the learning-rate schedule.
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Trainer<'a> {
        self.scheduler = Some(LRScheduler::new(schedule, &mut *self.optimizer));
        self
    }

    /// Reduces the learning rate when the watched metric stops improving.
    pub fn reduce_on_plateau(mut self, options: PlateauOptions) -> Trainer<'a> {
        let goal = if self.options.watch.1 { Goal::Min } else { Goal::Max };
        self.plateau = Some(ReduceLROnPlateau::new(PlateauOptions { goal, ..options }));
        self
    }

    /// Adds a callback.
    pub fn watch(mut self, callback: impl Callback + 'a) -> Trainer<'a> {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// How far the run has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Resumes from the checkpoint if there is one; returns whether there was.
    pub fn resume(&mut self) -> Result<bool> {
        let Some(path) = self.options.checkpoint.as_ref().filter(|p| p.exists()) else { return Ok(false) };
        (self.progress, self.epoch_start) = checkpoint::load(path, self.model, &mut *self.optimizer)?;
        if let Some(s) = &mut self.scheduler {
            s.set_epoch(self.progress.schedule, &mut *self.optimizer);
        }
        if let (Some(plateau), Some(state)) = (&mut self.plateau, self.progress.plateau) {
            plateau.load_state(state);
        }
        Ok(true)
    }

    fn save(&self) -> Result<()> {
        let Some(path) = &self.options.checkpoint else { return Ok(()) };
        checkpoint::save(path, self.model, &*self.optimizer, &self.progress, &self.epoch_start)
    }

    /// Trains to the end, or until stopped. `loss` is the mean loss of a batch; `validate` runs in evaluation mode
    /// without gradients after every epoch.
    pub fn fit<D: Dataset>(
        &mut self,
        loader: &DataLoader<D>,
        mut loss: impl FnMut(&D::Sample) -> Result<Tensor>,
        mut validate: impl FnMut() -> Result<Metrics>,
    ) -> Result<Finish> {
        if loader.is_empty() {
            return Err(Error::argument("Trainer", "the loader has no batches; add samples or make batches smaller"));
        }
        while self.progress.epoch < self.options.epochs {
            if !self.train_epoch(loader, &mut loss)? {
                self.save()?;
                return Ok(Finish::Stopped);
            }
            self.model.eval();
            let validated = self.computing(|| no_grad(&mut validate));
            self.model.train();
            let mut metrics = Metrics::new();
            metrics.insert("train_loss".into(), self.progress.loss_sum / loader.len() as f64);
            metrics.extend(validated?);
            let ends = self.finish_epoch(metrics);
            self.save()?;
            for c in &mut self.callbacks {
                c.epoch(self.progress.epoch, &self.progress.history)?;
            }
            if ends {
                return Ok(Finish::Early);
            }
        }
        Ok(Finish::Done)
    }

    /// Runs one epoch, or the rest of it; returns false if stopped.
    fn train_epoch<D: Dataset>(
        &mut self,
        loader: &DataLoader<D>,
        loss: &mut dyn FnMut(&D::Sample) -> Result<Tensor>,
    ) -> Result<bool> {
        self.model.train();
        let batches = if self.progress.batch == 0 {
            self.epoch_start = get_rng_state();
            loader.iter()
        } else {
            // The order is drawn again from where the epoch began; the stream then goes on from where the run stopped.
            let now = get_rng_state();
            set_rng_state(self.epoch_start.clone());
            let rest = loader.iter_from(self.progress.batch);
            set_rng_state(now);
            rest
        };
        let total = loader.len();
        for batch in batches {
            let value = self.backward(&batch?, loss)?;
            self.progress.loss_sum += value;
            self.progress.batch += 1;
            if !self.progress.batch.is_multiple_of(self.options.accumulate) && self.progress.batch != total {
                continue;
            }
            self.step(value)?;
            let due = self.options.checkpoint_every.is_some_and(|n| self.progress.step.is_multiple_of(n.max(1)));
            // A checkpoint at the end of an epoch follows its validation.
            if self.progress.batch < total {
                if self.options.stop.load(Relaxed) {
                    return Ok(false);
                }
                if due {
                    self.save()?;
                }
            }
        }
        Ok(true)
    }

    /// Runs the forward pass, under autocast if set. Backward follows the dtypes that forward used.
    fn computing<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.options.autocast {
            Some(dtype) => autocast(dtype, work),
            None => work(),
        }
    }

    fn backward<S>(&mut self, batch: &S, loss: &mut dyn FnMut(&S) -> Result<Tensor>) -> Result<f64> {
        let loss = self.computing(|| loss(batch))?;
        let value = ops::item(&loss)?.to_f64();
        if !value.is_finite() {
            let message =
                format!("the loss became {value} at step {}; try a smaller learning rate", self.progress.step);
            return Err(Error::argument("Trainer", message));
        }
        let share = match self.options.accumulate {
            1 => loss,
            n => ops::div_scalar(&loss, (n as f64).into())?,
        };
        share.try_backward(&Default::default())?;
        Ok(value)
    }

    fn step(&mut self, loss: f64) -> Result<()> {
        if let Some(limit) = self.options.clip_norm {
            clip_grad_norm(self.optimizer.parameters(), limit, 2.0)?;
        }
        self.optimizer.step()?;
        self.optimizer.zero_grad();
        self.progress.step += 1;
        let step = Step { epoch: self.progress.epoch + 1, step: self.progress.step, loss, lr: self.optimizer.lr(0) };
        if self.options.schedule_every_step {
            self.advance_schedule();
        }
        self.callbacks.iter_mut().try_for_each(|c| c.step(&step))
    }

    fn advance_schedule(&mut self) {
        if let Some(s) = &mut self.scheduler {
            s.step(&mut *self.optimizer);
            self.progress.schedule = s.epoch();
        }
    }

    /// Records the epoch; returns whether the run should end early.
    fn finish_epoch(&mut self, metrics: Metrics) -> bool {
        if !self.options.schedule_every_step {
            self.advance_schedule();
        }
        let (name, less) = &self.options.watch;
        if let Some(&value) = metrics.get(name) {
            let better = self.progress.best.is_none_or(|best| if *less { value < best } else { value > best });
            self.progress.epochs_since_best = if better { 0 } else { self.progress.epochs_since_best + 1 };
            if better {
                self.progress.best = Some(value);
            }
            if let Some(plateau) = &mut self.plateau {
                plateau.step(value, &mut *self.optimizer);
                self.progress.plateau = Some(plateau.state());
            }
        }
        self.progress.history.push(metrics);
        self.progress.epoch += 1;
        (self.progress.batch, self.progress.loss_sum) = (0, 0.0);
        self.epoch_start = get_rng_state();
        self.options.patience.is_some_and(|p| self.progress.epochs_since_best > p)
    }
}
