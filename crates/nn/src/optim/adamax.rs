//! Adamax: Adam with the infinity norm of gradients in the denominator instead of the mean of squares.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Scalar, ops};

/// Adamax.
pub type Adamax = Grouped<AdamaxOptions>;

/// Settings of [`Adamax`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdamaxOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the mean of gradients and of the largest one.
    pub betas: (f64, f64),
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight decay (L2), added to the gradient.
    pub weight_decay: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for AdamaxOptions {
    fn default() -> AdamaxOptions {
        AdamaxOptions {
            lr: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl Algorithm for AdamaxOptions {
    const NAME: &'static str = "Adamax";
    const COUNTS: bool = true;
    settings!(lr, betas, eps, weight_decay, maximize; momentum: betas.0);

    fn validate(&self) -> Result<()> {
        let betas = [self.betas.0, self.betas.1];
        need(Self::NAME, "betas", betas.iter().all(|b| (0.0..1.0).contains(b)), self.betas, "from 0 to below 1")?;
        let settings = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zeros("exp_avg"), Slot::zeros("exp_inf")]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, self.weight_decay)?;
        let [exp_avg, exp_inf] = &batch.slots[..] else { unreachable!("`slots` names two") };
        ops::foreach_lerp_scalar_(exp_avg, &grads, (1.0 - self.betas.0).into())?;
        ops::foreach_mul_scalar_(exp_inf, self.betas.1.into())?;
        for (largest, grad) in exp_inf.iter().zip(&grads) {
            let size = ops::add_scalar(&ops::abs(grad)?, self.eps.into(), 1.into())?;
            ops::copy_(largest, &ops::maximum(largest, &size)?, false)?;
        }
        let size = |n: &f64| (-self.lr / (1.0 - self.betas.0.powf(*n))).into();
        let step_sizes: Vec<Scalar> = batch.counts.iter().map(size).collect();
        ops::foreach_addcdiv_scalars_(&batch.params, exp_avg, exp_inf, &step_sizes)
    }
}
