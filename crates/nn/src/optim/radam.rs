//! Rectified Adam: the first steps, while the variance is not known yet, use plain momentum.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Scalar, ops};

/// Rectified Adam.
pub type RAdam = Grouped<RAdamOptions>;

/// Settings of [`RAdam`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct RAdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the means of gradients and of their squares.
    pub betas: (f64, f64),
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight-decay coefficient.
    pub weight_decay: f64,
    /// Whether weight decay is decoupled (as in AdamW) instead of added to the gradient.
    pub decoupled_weight_decay: bool,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for RAdamOptions {
    fn default() -> RAdamOptions {
        RAdamOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled_weight_decay: false,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl RAdamOptions {
    /// The rectification of Adam's step at step `n`; `None` while too few gradients were seen to know their variance.
    fn rectification(&self, n: f64) -> Option<f64> {
        let beta = self.betas.1;
        let most = 2.0 / (1.0 - beta) - 1.0;
        let seen = most - 2.0 * n * beta.powf(n) / (1.0 - beta.powf(n));
        let share = (seen - 4.0) * (seen - 2.0) * most / ((most - 4.0) * (most - 2.0) * seen);
        (seen > 5.0).then(|| share.sqrt())
    }
}

impl Algorithm for RAdamOptions {
    const NAME: &'static str = "RAdam";
    const COUNTS: bool = true;
    settings!(lr, betas, eps, weight_decay, maximize, decoupled_weight_decay; momentum: betas.0);

    fn validate(&self) -> Result<()> {
        let betas = [self.betas.0, self.betas.1];
        need(Self::NAME, "betas", betas.iter().all(|b| (0.0..1.0).contains(b)), self.betas, "from 0 to below 1")?;
        let settings = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zeros("exp_avg"), Slot::zeros("exp_avg_sq")]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let added = if self.decoupled_weight_decay { 0.0 } else { self.weight_decay };
        let grads = effective_grads(batch, self.maximize, added)?;
        if self.decoupled_weight_decay && self.weight_decay != 0.0 {
            ops::foreach_mul_scalar_(&batch.params, (1.0 - self.lr * self.weight_decay).into())?;
        }
        let [exp_avg, exp_avg_sq] = &batch.slots[..] else { unreachable!("`slots` names two") };
        let (b1, b2) = self.betas;
        ops::foreach_lerp_scalar_(exp_avg, &grads, (1.0 - b1).into())?;
        ops::foreach_mul_scalar_(exp_avg_sq, b2.into())?;
        ops::foreach_addcmul_scalar_(exp_avg_sq, &grads, &grads, (1.0 - b2).into())?;

        // Early steps divide by one.
        let denominators = ops::foreach_sqrt(exp_avg_sq)?;
        ops::foreach_add_scalar_(&denominators, self.eps.into())?;
        for (denominator, n) in denominators.iter().zip(&batch.counts) {
            if self.rectification(*n).is_none() {
                ops::fill_(denominator, 1.into())?;
            }
        }
        let size = |n: &f64| {
            let adaptive = self.rectification(*n).map_or(1.0, |share| share * (1.0 - b2.powf(*n)).sqrt());
            (-self.lr / (1.0 - b1.powf(*n)) * adaptive).into()
        };
        let step_sizes: Vec<Scalar> = batch.counts.iter().map(size).collect();
        ops::foreach_addcdiv_scalars_(&batch.params, exp_avg, &denominators, &step_sizes)
    }
}
