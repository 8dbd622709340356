//! Schedules that multiply the first rate by a factor, and their sequence.

use super::Schedule;

/// Multiplies the rate by `gamma` every `step_size` epochs.
#[derive(Clone, Copy, Debug)]
pub struct StepLR {
    /// Epochs between two changes.
    pub step_size: u64,
    /// The factor of each change.
    pub gamma: f64,
}

impl Schedule for StepLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        base * self.gamma.powf((epoch / self.step_size.max(1)) as f64)
    }
}

/// Multiplies the rate by `gamma` at every milestone.
#[derive(Clone, Debug)]
pub struct MultiStepLR {
    /// Epochs of the changes, in order; one that occurs twice counts twice.
    pub milestones: Vec<u64>,
    /// The factor of each change.
    pub gamma: f64,
}

impl Schedule for MultiStepLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        base * self.gamma.powf(self.milestones.iter().filter(|m| **m <= epoch).count() as f64)
    }
}

/// Multiplies the rate by `gamma` every epoch.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialLR {
    /// The factor of each epoch.
    pub gamma: f64,
}

impl Schedule for ExponentialLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        base * self.gamma.powf(epoch as f64)
    }
}

/// A factor that changes linearly from one value to another: a warm-up, for instance.
#[derive(Clone, Copy, Debug)]
pub struct LinearLR {
    /// The factor at the start.
    pub start_factor: f64,
    /// The factor from `total_iters` on.
    pub end_factor: f64,
    /// Epochs of the change.
    pub total_iters: u64,
}

impl Default for LinearLR {
    fn default() -> LinearLR {
        LinearLR { start_factor: 1.0 / 3.0, end_factor: 1.0, total_iters: 5 }
    }
}

impl Schedule for LinearLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        let share = epoch.min(self.total_iters) as f64 / self.total_iters.max(1) as f64;
        base * (self.start_factor + (self.end_factor - self.start_factor) * share)
    }
}

/// A factor for the first epochs.
#[derive(Clone, Copy, Debug)]
pub struct ConstantLR {
    /// The factor.
    pub factor: f64,
    /// Epochs it applies to.
    pub total_iters: u64,
}

impl Default for ConstantLR {
    fn default() -> ConstantLR {
        ConstantLR { factor: 1.0 / 3.0, total_iters: 5 }
    }
}

impl Schedule for ConstantLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        if epoch < self.total_iters { base * self.factor } else { base }
    }
}

/// Polynomial decay to zero.
#[derive(Clone, Copy, Debug)]
pub struct PolynomialLR {
    /// Epochs until zero.
    pub total_iters: u64,
    /// The power.
    pub power: f64,
}

impl Default for PolynomialLR {
    fn default() -> PolynomialLR {
        PolynomialLR { total_iters: 5, power: 1.0 }
    }
}

impl Schedule for PolynomialLR {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        let share = epoch.min(self.total_iters) as f64 / self.total_iters.max(1) as f64;
        base * (1.0 - share).powf(self.power)
    }
}

/// Multiplies the base rate by a function of epoch and group.
pub struct LambdaLR<F>(pub F);

impl<F: Fn(u64, usize) -> f64 + Send> Schedule for LambdaLR<F> {
    fn lr(&self, epoch: u64, base: f64, group: usize) -> f64 {
        base * (self.0)(epoch, group)
    }
}

/// Multiplies the rate by a function of the epoch, cumulatively.
pub struct MultiplicativeLR<F>(pub F);

impl<F: Fn(u64) -> f64 + Send> Schedule for MultiplicativeLR<F> {
    fn lr(&self, epoch: u64, base: f64, _: usize) -> f64 {
        (1..=epoch).fold(base, |rate, e| rate * (self.0)(e))
    }
}

/// Several schedules at once: their factors are multiplied.
///
/// This equals PyTorch's for schedules that multiply the rate, that is, all but those with a minimum rate.
pub struct ChainedScheduler {
    schedules: Vec<Box<dyn Schedule>>,
}

impl ChainedScheduler {
    /// These at once.
    pub fn new(schedules: impl IntoIterator<Item = Box<dyn Schedule>>) -> ChainedScheduler {
        ChainedScheduler { schedules: schedules.into_iter().collect() }
    }
}

impl Schedule for ChainedScheduler {
    fn lr(&self, epoch: u64, base: f64, group: usize) -> f64 {
        self.schedules.iter().fold(base, |rate, s| s.lr(epoch, rate, group))
    }
    fn momentum(&self, epoch: u64) -> Option<f64> {
        self.schedules.iter().rev().find_map(|s| s.momentum(epoch))
    }
}

/// One schedule after the other; each counts epochs from its own beginning.
pub struct SequentialLR {
    schedules: Vec<(u64, Box<dyn Schedule>)>,
}

impl SequentialLR {
    /// `first`, then `then` from `milestone` on.
    pub fn new(first: impl Schedule + 'static, milestone: u64, then: impl Schedule + 'static) -> SequentialLR {
        SequentialLR { schedules: vec![(0, Box::new(first))] }.then(milestone, then)
    }

    /// From `milestone` on another one. Milestones are given in order.
    pub fn then(mut self, milestone: u64, schedule: impl Schedule + 'static) -> SequentialLR {
        self.schedules.push((milestone, Box::new(schedule)));
        self
    }

    fn at(&self, epoch: u64) -> (u64, &dyn Schedule) {
        let (start, s) = self.schedules.iter().rev().find(|(start, _)| *start <= epoch).expect("the first starts at 0");
        (epoch - start, &**s)
    }
}

impl Schedule for SequentialLR {
    fn lr(&self, epoch: u64, base: f64, group: usize) -> f64 {
        let (epoch, schedule) = self.at(epoch);
        schedule.lr(epoch, base, group)
    }
    fn momentum(&self, epoch: u64) -> Option<f64> {
        let (epoch, schedule) = self.at(epoch);
        schedule.momentum(epoch)
    }
}
