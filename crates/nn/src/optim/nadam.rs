//! Adam with Nesterov momentum: the step uses the momentum of the next step.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need, numbers};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Scalar, ops};

/// Adam with Nesterov momentum.
pub type NAdam = Grouped<NAdamOptions>;

/// Settings of [`NAdam`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct NAdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the means of gradients and of their squares.
    pub betas: (f64, f64),
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight-decay coefficient.
    pub weight_decay: f64,
    /// Decay of the momentum schedule.
    pub momentum_decay: f64,
    /// Whether weight decay is decoupled (as in AdamW) instead of added to the gradient.
    pub decoupled_weight_decay: bool,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for NAdamOptions {
    fn default() -> NAdamOptions {
        NAdamOptions {
            lr: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled_weight_decay: false,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl NAdamOptions {
    /// Momentum at step `n`.
    fn momentum_at(&self, n: f64) -> f64 {
        self.betas.0 * (1.0 - 0.5 * 0.96f64.powf(n * self.momentum_decay))
    }
}

impl Algorithm for NAdamOptions {
    const NAME: &'static str = "NAdam";
    const COUNTS: bool = true;
    settings!(lr, betas, eps, weight_decay, momentum_decay, maximize, decoupled_weight_decay; momentum: betas.0);

    fn validate(&self) -> Result<()> {
        let betas = [self.betas.0, self.betas.1];
        need(Self::NAME, "betas", betas.iter().all(|b| (0.0..1.0).contains(b)), self.betas, "from 0 to below 1")?;
        let settings = [
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum_decay", self.momentum_decay),
        ];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::number("mu_product", 1.0), Slot::zeros("exp_avg"), Slot::zeros("exp_avg_sq")]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let added = if self.decoupled_weight_decay { 0.0 } else { self.weight_decay };
        let grads = effective_grads(batch, self.maximize, added)?;
        if self.decoupled_weight_decay && self.weight_decay != 0.0 {
            ops::foreach_mul_scalar_(&batch.params, (1.0 - self.lr * self.weight_decay).into())?;
        }
        let [mu_product, exp_avg, exp_avg_sq] = &batch.slots[..] else { unreachable!("`slots` names three") };
        for (product, n) in mu_product.iter().zip(&batch.counts) {
            ops::mul_scalar_(product, self.momentum_at(*n).into())?;
        }
        let (b1, b2) = self.betas;
        ops::foreach_lerp_scalar_(exp_avg, &grads, (1.0 - b1).into())?;
        ops::foreach_mul_scalar_(exp_avg_sq, b2.into())?;
        ops::foreach_addcmul_scalar_(exp_avg_sq, &grads, &grads, (1.0 - b2).into())?;
        let corrections: Vec<Scalar> = batch.counts.iter().map(|n| (1.0 - b2.powf(*n)).into()).collect();
        let denominators = ops::foreach_div_scalars(exp_avg_sq, &corrections)?;
        ops::foreach_sqrt_(&denominators)?;
        ops::foreach_add_scalar_(&denominators, self.eps.into())?;

        // A part of the step along the gradient itself, a part along the mean with the next step's momentum.
        let products = numbers(mu_product)?;
        let sizes = |part: &dyn Fn(f64, f64) -> f64| -> Vec<Scalar> {
            products.iter().zip(&batch.counts).map(|(product, n)| part(*product, *n).into()).collect()
        };
        let along_gradient = sizes(&|product, n| -self.lr * (1.0 - self.momentum_at(n)) / (1.0 - product));
        let along_mean = sizes(&|product, n| {
            let next = self.momentum_at(n + 1.0);
            -self.lr * next / (1.0 - product * next)
        });
        ops::foreach_addcdiv_scalars_(&batch.params, &grads, &denominators, &along_gradient)?;
        ops::foreach_addcdiv_scalars_(&batch.params, exp_avg, &denominators, &along_mean)
    }
}
