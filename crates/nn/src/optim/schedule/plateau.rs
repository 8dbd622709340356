//! Reduces the learning rate when a metric has stopped improving.

use super::super::Optimizer;
use serde::{Deserialize, Serialize};

/// Whether lower or higher is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// Lower is better: a loss.
    #[default]
    Min,
    /// Higher is better: an accuracy.
    Max,
}

/// What an improvement is measured against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThresholdMode {
    /// Relative to the best value.
    #[default]
    Relative,
    /// An absolute amount.
    Absolute,
}

/// Settings of [`ReduceLROnPlateau`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct PlateauOptions {
    /// Whether lower or higher is better.
    pub goal: Goal,
    /// The factor of a reduction.
    pub factor: f64,
    /// Epochs without improvement before a reduction.
    pub patience: u64,
    /// Threshold of an improvement.
    pub threshold: f64,
    /// What it is measured against.
    pub threshold_mode: ThresholdMode,
    /// Cooldown epochs after a reduction.
    pub cooldown: u64,
    /// The minimum learning rate.
    pub min_lr: f64,
    /// Smallest reduction to apply.
    pub eps: f64,
}

impl Default for PlateauOptions {
    fn default() -> PlateauOptions {
        PlateauOptions {
            goal: Goal::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Relative,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
        }
    }
}

/// State for resuming.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlateauState {
    /// The best metric so far; `None` before the first.
    pub best: Option<f64>,
    /// Epochs without improvement.
    pub bad_epochs: u64,
    /// Remaining cooldown epochs.
    pub cooldown: u64,
}

/// Reduces the learning rate when a metric has not improved for a while.
#[derive(Clone, Debug)]
pub struct ReduceLROnPlateau {
    options: PlateauOptions,
    state: PlateauState,
}

impl ReduceLROnPlateau {
    /// With these settings.
    pub fn new(options: PlateauOptions) -> ReduceLROnPlateau {
        ReduceLROnPlateau { options, state: PlateauState { best: None, bad_epochs: 0, cooldown: 0 } }
    }

    fn improves(&self, metric: f64) -> bool {
        let Some(best) = self.state.best else { return true };
        let o = &self.options;
        let step = match o.threshold_mode {
            ThresholdMode::Relative => best * o.threshold,
            ThresholdMode::Absolute => o.threshold,
        };
        match o.goal {
            Goal::Min => metric < best - step,
            Goal::Max => metric > best + step,
        }
    }

    /// Takes the metric of an epoch and reduces the rate if it is time to.
    pub fn step(&mut self, metric: f64, optimizer: &mut dyn Optimizer) {
        if self.improves(metric) {
            self.state.best = Some(metric);
            self.state.bad_epochs = 0;
        } else {
            self.state.bad_epochs += 1;
        }
        if self.state.cooldown > 0 {
            self.state.cooldown -= 1;
            self.state.bad_epochs = 0;
        }
        if self.state.bad_epochs <= self.options.patience {
            return;
        }
        for group in 0..optimizer.groups() {
            let old = optimizer.lr(group);
            let new = (old * self.options.factor).max(self.options.min_lr);
            if old - new > self.options.eps {
                optimizer.set_lr(group, new);
            }
        }
        self.state.cooldown = self.options.cooldown;
        self.state.bad_epochs = 0;
    }

    /// State for resuming.
    pub fn state(&self) -> PlateauState {
        self.state
    }

    /// Restores a saved state.
    pub fn load_state(&mut self, state: PlateauState) {
        self.state = state;
    }
}
