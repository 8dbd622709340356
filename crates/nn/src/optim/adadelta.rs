//! Adadelta: steps scaled by the ratio of recent updates to recent gradients; no learning rate needs to be tuned.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Tensor, ops};

/// Adadelta.
pub type Adadelta = Grouped<AdadeltaOptions>;

/// Settings of [`Adadelta`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdadeltaOptions {
    /// Factor applied to every step.
    pub lr: f64,
    /// Decay of the means of squares.
    pub rho: f64,
    /// Added under the square roots for numerical stability.
    pub eps: f64,
    /// Weight decay (L2), added to the gradient.
    pub weight_decay: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for AdadeltaOptions {
    fn default() -> AdadeltaOptions {
        AdadeltaOptions {
            lr: 1.0,
            rho: 0.9,
            eps: 1e-6,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl AdadeltaOptions {
    /// The square root of the mean of squares plus epsilon.
    fn root(&self, squares: &[Tensor]) -> Result<Vec<Tensor>> {
        ops::foreach_sqrt(&ops::foreach_add_scalar(squares, self.eps.into())?)
    }

    /// Updates a running mean of squares.
    fn follow(&self, mean: &[Tensor], values: &[Tensor]) -> Result<()> {
        ops::foreach_mul_scalar_(mean, self.rho.into())?;
        ops::foreach_addcmul_scalar_(mean, values, values, (1.0 - self.rho).into())
    }
}

impl Algorithm for AdadeltaOptions {
    const NAME: &'static str = "Adadelta";
    const COUNTS: bool = true;
    settings!(lr, rho, eps, weight_decay, maximize);

    fn validate(&self) -> Result<()> {
        need(Self::NAME, "rho", (0.0..=1.0).contains(&self.rho), self.rho, "from 0 to 1")?;
        let settings = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zeros("square_avg"), Slot::zeros("acc_delta")]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, self.weight_decay)?;
        let [square_avg, acc_delta] = &batch.slots[..] else { unreachable!("`slots` names two") };
        self.follow(square_avg, &grads)?;
        let deltas = self.root(acc_delta)?;
        ops::foreach_div_(&deltas, &self.root(square_avg)?)?;
        ops::foreach_mul_(&deltas, &grads)?;
        self.follow(acc_delta, &deltas)?;
        ops::foreach_add_(&batch.params, &deltas, (-self.lr).into())
    }
}
