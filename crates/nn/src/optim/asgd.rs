//! Stochastic gradient descent with a decaying rate, and the average of the points it visits.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need, numbers};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Scalar, ops};

/// Averaged stochastic gradient descent. The averages are the state `ax`.
pub type ASGD = Grouped<ASGDOptions>;

/// Settings of [`ASGD`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct ASGDOptions {
    /// Initial learning rate.
    pub lr: f64,
    /// Decay term, separate from the step.
    pub lambd: f64,
    /// Decay of the learning rate.
    pub alpha: f64,
    /// The step from which points are averaged.
    pub t0: f64,
    /// Weight decay (L2), added to the gradient.
    pub weight_decay: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for ASGDOptions {
    fn default() -> ASGDOptions {
        ASGDOptions {
            lr: 1e-2,
            lambd: 1e-4,
            alpha: 0.75,
            t0: 1e6,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl Algorithm for ASGDOptions {
    const NAME: &'static str = "ASGD";
    const COUNTS: bool = true;
    settings!(lr, lambd, alpha, t0, weight_decay, maximize);

    fn validate(&self) -> Result<()> {
        let settings = [("lr", self.lr), ("weight_decay", self.weight_decay)];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::number("eta", self.lr), Slot::number("mu", 1.0), Slot::zeros("ax")]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, self.weight_decay)?;
        let [eta, mu, ax] = &batch.slots[..] else { unreachable!("`slots` names three") };
        // This step's rate and share were settled by the last one.
        let (rates, shares) = (numbers(eta)?, numbers(mu)?);
        let shrink: Vec<Scalar> = rates.iter().map(|eta| (1.0 - self.lambd * eta).into()).collect();
        ops::foreach_mul_scalars_(&batch.params, &shrink)?;
        for (k, (p, grad)) in batch.params.iter().zip(&grads).enumerate() {
            ops::add_(p, grad, (-rates[k]).into())?;
            ops::lerp_scalar_(&ax[k], p, shares[k].into())?;
            let n = batch.counts[k];
            ops::fill_(&eta[k], (self.lr / (1.0 + self.lambd * self.lr * n).powf(self.alpha)).into())?;
            ops::fill_(&mu[k], (1.0 / (n - self.t0).max(1.0)).into())?;
        }
        Ok(())
    }
}
