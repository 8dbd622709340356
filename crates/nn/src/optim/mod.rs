//! Optimizers.
//!
//! Every optimizer is a rule ([`Algorithm`]) over groups of parameters ([`Grouped`]), or, if a step needs the loss
//! several times, its own type ([`LBFGS`]). Schedules, clipping and training loops only use [`Optimizer`].
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::Tensor;
//! use firebrand::optim::{Adam, AdamOptions, Optimizer};
//!
//! let x = Tensor::new(&[1.0f64, -2.0]).requires_grad_();
//! let mut adam = Adam::new([&x], AdamOptions { lr: 0.1, ..Default::default() })?;
//! for _ in 0..200 {
//!     adam.zero_grad();
//!     (&x * &x).sum().backward();
//!     adam.step()?;
//! }
//! assert!(x.to_vec::<f64>().iter().all(|v| v.abs() < 0.01));
//! # Ok::<(), firebrand::Error>(())
//! ```

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod algorithm;
mod asgd;
mod averaged;
mod clip;
mod grouped;
mod in_backward;
mod lbfgs;
mod line_search;
mod muon;
mod nadam;
mod radam;
mod rmsprop;
mod rprop;
pub mod schedule;
mod sgd;
mod sparse_adam;
mod state_dict;
mod torch_state;

pub use adadelta::{Adadelta, AdadeltaOptions};
pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use adamax::{Adamax, AdamaxOptions};
pub use algorithm::{Algorithm, Batch, Extent, Implementation, Slot};
pub use asgd::{ASGD, ASGDOptions};
pub use averaged::{Averaged, Averaging};
pub use clip::{clip_grad_norm, clip_grad_value, total_norm};
pub use grouped::{Grouped, IntoParams};
pub use in_backward::{InBackward, step_in_backward};
pub use lbfgs::{LBFGS, LBFGSOptions, LineSearch};
pub use muon::{AdjustLr, Muon, MuonOptions};
pub use nadam::{NAdam, NAdamOptions};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RMSprop, RMSpropOptions};
pub use rprop::{Rprop, RpropOptions};
pub use sgd::{SGD, SGDOptions};
pub use sparse_adam::{SparseAdam, SparseAdamOptions};
pub use state_dict::{GroupDict, Setting, Settings, StateDict};

use firebrand_core::autograd::enable_grad;
use firebrand_core::{Result, Tensor};

/// Updates parameters from their gradients.
pub trait Optimizer: Send {
    /// Takes one step with the current gradients; parameters without a gradient stay unchanged.
    fn step(&mut self) -> Result<()>;

    /// Takes one step that may evaluate the loss itself. The closure clears gradients, computes the loss, runs backward and
    /// returns the loss; the first loss is returned.
    fn step_with(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        let loss = enable_grad(closure)?;
        self.step()?;
        Ok(loss)
    }

    /// Every parameter, group by group.
    fn parameters(&self) -> Vec<Tensor>;

    /// Clears all gradients.
    fn zero_grad(&mut self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }

    /// Number of groups.
    fn groups(&self) -> usize;

    /// Learning rate of a group.
    fn lr(&self, group: usize) -> f64;

    /// Sets the learning rate of a group.
    fn set_lr(&mut self, group: usize, lr: f64);

    /// The value that a one-cycle schedule changes opposite to the learning rate: momentum, or the first beta.
    fn momentum(&self, group: usize) -> Option<f64>;

    /// Sets what [`Optimizer::momentum`] returns; does nothing if there is none.
    fn set_momentum(&mut self, group: usize, momentum: f64);

    /// Everything needed to continue, with PyTorch's names and positions.
    fn state_dict(&self) -> StateDict;

    /// Restores a saved state of an optimizer over parameters of the same shapes in the same order.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;
}

impl Optimizer for Box<dyn Optimizer> {
    fn step(&mut self) -> Result<()> {
        (**self).step()
    }
    fn step_with(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        (**self).step_with(closure)
    }
    fn parameters(&self) -> Vec<Tensor> {
        (**self).parameters()
    }
    fn zero_grad(&mut self) {
        (**self).zero_grad()
    }
    fn groups(&self) -> usize {
        (**self).groups()
    }
    fn lr(&self, group: usize) -> f64 {
        (**self).lr(group)
    }
    fn set_lr(&mut self, group: usize, lr: f64) {
        (**self).set_lr(group, lr)
    }
    fn momentum(&self, group: usize) -> Option<f64> {
        (**self).momentum(group)
    }
    fn set_momentum(&mut self, group: usize, momentum: f64) {
        (**self).set_momentum(group, momentum)
    }
    fn state_dict(&self) -> StateDict {
        (**self).state_dict()
    }
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        (**self).load_state_dict(state)
    }
}
