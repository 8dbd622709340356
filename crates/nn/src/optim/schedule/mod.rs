//! Learning-rate schedules: the rate as a function of the epoch (or step) and of the rate at the start.
//!
//! A [`Schedule`] is a pure function, so resuming a run only needs its epoch; [`LRScheduler`] counts epochs and writes the rate
//! into an optimizer. [`ReduceLROnPlateau`] is the one that depends on a metric.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::Tensor;
//! use firebrand::optim::schedule::{CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR};
//! use firebrand::optim::{Optimizer, SGD, SGDOptions};
//!
//! let w = Tensor::new(&[1.0f32]).requires_grad_();
//! let mut sgd = SGD::new([&w], SGDOptions { lr: 0.1, ..Default::default() })?;
//! // A warm-up over 5 steps, then down along a cosine.
//! let warm_up = LinearLR { start_factor: 0.1, ..Default::default() };
//! let schedule = SequentialLR::new(warm_up, 5, CosineAnnealingLR { t_max: 100, eta_min: 0.0 });
//! let mut scheduler = LRScheduler::new(schedule, &mut sgd);
//! assert!((sgd.lr(0) - 0.01).abs() < 1e-12);
//! (0..5).for_each(|_| scheduler.step(&mut sgd));
//! assert!((sgd.lr(0) - 0.1).abs() < 1e-12);
//! # Ok::<(), firebrand::Error>(())
//! ```

mod cycles;
mod plateau;
mod steps;

pub use cycles::{Anneal, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, CyclicMode, OneCycleLR, SWALR};
pub use plateau::{Goal, PlateauOptions, PlateauState, ReduceLROnPlateau, ThresholdMode};
pub use steps::{
    ChainedScheduler, ConstantLR, ExponentialLR, LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR, PolynomialLR,
    SequentialLR, StepLR,
};

use super::Optimizer;

/// The rate as a function of the epoch.
pub trait Schedule: Send {
    /// The rate in an epoch, counted from 0, of a group whose initial rate was `base`.
    fn lr(&self, epoch: u64, base: f64, group: usize) -> f64;

    /// The momentum, if the schedule changes it too.
    fn momentum(&self, _epoch: u64) -> Option<f64> {
        None
    }
}

impl Schedule for Box<dyn Schedule> {
    fn lr(&self, epoch: u64, base: f64, group: usize) -> f64 {
        (**self).lr(epoch, base, group)
    }
    fn momentum(&self, epoch: u64) -> Option<f64> {
        (**self).momentum(epoch)
    }
}

/// Counts epochs and writes the schedule's rate into an optimizer.
pub struct LRScheduler {
    schedule: Box<dyn Schedule>,
    base: Vec<f64>,
    epoch: u64,
}

impl LRScheduler {
    /// Takes the optimizer's current rates as the base and sets those of epoch 0.
    pub fn new(schedule: impl Schedule + 'static, optimizer: &mut dyn Optimizer) -> LRScheduler {
        let base = (0..optimizer.groups()).map(|g| optimizer.lr(g)).collect();
        let scheduler = LRScheduler { schedule: Box::new(schedule), base, epoch: 0 };
        scheduler.write(optimizer);
        scheduler
    }

    fn write(&self, optimizer: &mut dyn Optimizer) {
        for (group, base) in self.base.iter().enumerate() {
            optimizer.set_lr(group, self.schedule.lr(self.epoch, *base, group));
            if let Some(m) = self.schedule.momentum(self.epoch) {
                optimizer.set_momentum(group, m);
            }
        }
    }

    /// Advances to the next epoch.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.set_epoch(self.epoch + 1, optimizer);
    }

    /// The current epoch, from 0, which is the whole state.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Jumps to an epoch, for instance when a run is resumed.
    pub fn set_epoch(&mut self, epoch: u64, optimizer: &mut dyn Optimizer) {
        self.epoch = epoch;
        self.write(optimizer);
    }
}
