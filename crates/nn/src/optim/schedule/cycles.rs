//! Cyclic schedules: cosine annealing, warm restarts, triangles, one cycle.

use super::Schedule;
use std::f64::consts::PI;

/// From `a` to `b` as the share goes from 0 to 1, along half a cosine.
fn cosine(a: f64, b: f64, share: f64) -> f64 {
    b + (a - b) / 2.0 * (1.0 + (PI * share).cos())
}

/// Cosine annealing: down to `eta_min` in `t_max` epochs (and up again in the next).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLR {
    /// Epochs of the descent.
    pub t_max: u64,
    /// The minimum learning rate.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        cosine(base, self.eta_min, epoch as f64 / self.t_max.max(1) as f64)
    }
}

/// Anneals to the constant rate for stochastic weight averaging.
#[derive(Clone, Copy, Debug)]
pub struct SWALR {
    /// The constant rate.
    pub swa_lr: f64,
    /// Epochs of annealing.
    pub anneal_epochs: u64,
    /// Shape of the annealing.
    pub anneal: Anneal,
}

impl SWALR {
    /// With PyTorch's defaults: ten epochs along half a cosine.
    pub fn new(swa_lr: f64) -> SWALR {
        SWALR { swa_lr, anneal_epochs: 10, anneal: Anneal::Cosine }
    }
}

impl Schedule for SWALR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        self.anneal.between(base, self.swa_lr, (epoch as f64 / self.anneal_epochs.max(1) as f64).min(1.0))
    }
}

/// Cosine annealing with warm restarts; each descent is `t_mult` times as long as the one before.
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingWarmRestarts {
    /// Epochs of the first descent.
    pub t_0: u64,
    /// Factor between the lengths of descents.
    pub t_mult: u64,
    /// The minimum learning rate.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        let (mut at, mut length) = (epoch, self.t_0.max(1));
        if self.t_mult <= 1 {
            at %= length;
        }
        while at >= length {
            at -= length;
            length *= self.t_mult;
        }
        cosine(base, self.eta_min, at as f64 / length as f64)
    }
}

/// How the triangles of [`CyclicLR`] change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CyclicMode {
    /// Constant height.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// The height shrinks by this factor every step.
    ExpRange(f64),
}

/// Cycles linearly between two rates; momentum goes the opposite way. Stepped once per batch.
#[derive(Clone, Copy, Debug)]
pub struct CyclicLR {
    /// The minimum learning rate.
    pub base_lr: f64,
    /// The maximum learning rate.
    pub max_lr: f64,
    /// Steps of the ascent.
    pub step_size_up: u64,
    /// Steps of the descent.
    pub step_size_down: u64,
    /// How the triangles change.
    pub mode: CyclicMode,
    /// Lowest and highest momentum; `None` leaves momentum alone.
    pub momentum: Option<(f64, f64)>,
}

impl CyclicLR {
    /// PyTorch's defaults for two rates.
    pub fn new(base_lr: f64, max_lr: f64) -> CyclicLR {
        CyclicLR {
            base_lr,
            max_lr,
            step_size_up: 2000,
            step_size_down: 2000,
            mode: CyclicMode::Triangular,
            momentum: Some((0.8, 0.9)),
        }
    }

    /// How far from the lowest to the highest.
    fn share(&self, step: u64) -> f64 {
        let total = (self.step_size_up + self.step_size_down).max(1);
        let (cycle, at) = (step / total, (step % total) as f64);
        let height = if at <= self.step_size_up as f64 {
            at / self.step_size_up.max(1) as f64
        } else {
            (total as f64 - at) / self.step_size_down.max(1) as f64
        };
        height
            * match self.mode {
                CyclicMode::Triangular => 1.0,
                CyclicMode::Triangular2 => 0.5f64.powf(cycle as f64),
                CyclicMode::ExpRange(gamma) => gamma.powf(step as f64),
            }
    }
}

impl Schedule for CyclicLR {
    fn lr(&self, step: u64, _base: f64, _: usize) -> f64 {
        self.base_lr + (self.max_lr - self.base_lr) * self.share(step)
    }
    fn momentum(&self, step: u64) -> Option<f64> {
        self.momentum.map(|(low, high)| high - (high - low) * self.share(step))
    }
}

/// The shape of the change between two rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anneal {
    /// Half-cosine.
    #[default]
    Cosine,
    /// Linear.
    Linear,
}

impl Anneal {
    /// From one number to another as the share goes from 0 to 1.
    fn between(self, from: f64, to: f64, share: f64) -> f64 {
        match self {
            Anneal::Cosine => cosine(from, to, share),
            Anneal::Linear => from + (to - from) * share,
        }
    }
}

/// The one-cycle policy: up to a high rate, then far down; momentum goes the opposite way. Stepped once per batch.
#[derive(Clone, Copy, Debug)]
pub struct OneCycleLR {
    /// The maximum learning rate.
    pub max_lr: f64,
    /// Steps of the whole cycle.
    pub total_steps: u64,
    /// Fraction of the cycle spent increasing the rate.
    pub pct_start: f64,
    /// Shape of both phases.
    pub anneal: Anneal,
    /// Lowest and highest momentum; `None` leaves momentum alone.
    pub momentum: Option<(f64, f64)>,
    /// The first rate is the maximum divided by this.
    pub div_factor: f64,
    /// The last rate is the first divided by this.
    pub final_div_factor: f64,
    /// Whether to use three phases, the second mirroring the first.
    pub three_phase: bool,
}

impl OneCycleLR {
    /// PyTorch's defaults for a highest rate and a number of steps.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycleLR {
        OneCycleLR {
            max_lr,
            total_steps,
            pct_start: 0.3,
            anneal: Anneal::Cosine,
            momentum: Some((0.85, 0.95)),
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }

    /// A quantity that moves through the phases' corner values.
    fn at(&self, step: u64, low: f64, high: f64, last: f64) -> f64 {
        let total = self.total_steps as f64;
        let up = self.pct_start * total - 1.0;
        let two = [(up, low, high), (total - 1.0, high, last)];
        let three = [(up, low, high), (2.0 * up, high, low), (total - 1.0, low, last)];
        let phases: &[(f64, f64, f64)] = if self.three_phase { &three } else { &two };
        let step = (step as f64).min(total - 1.0);
        let mut start = 0.0;
        for (k, &(end, from, to)) in phases.iter().enumerate() {
            if step <= end || k + 1 == phases.len() {
                let share = (step - start) / (end - start);
                return self.anneal.between(from, to, share);
            }
            start = end;
        }
        last
    }
}

impl Schedule for OneCycleLR {
    fn lr(&self, step: u64, _base: f64, _: usize) -> f64 {
        let first = self.max_lr / self.div_factor;
        self.at(step, first, self.max_lr, first / self.final_div_factor)
    }
    fn momentum(&self, step: u64) -> Option<f64> {
        self.momentum.map(|(low, high)| self.at(step, high, low, high))
    }
}
