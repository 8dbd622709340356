//! Adagrad: steps scaled by the sum of all squared gradients so far.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Scalar, ops};

/// Adagrad.
pub type Adagrad = Grouped<AdagradOptions>;

/// Settings of [`Adagrad`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdagradOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the learning rate with the number of steps.
    pub lr_decay: f64,
    /// Weight decay (L2), added to the gradient.
    pub weight_decay: f64,
    /// Initial value of the sums.
    pub initial_accumulator_value: f64,
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for AdagradOptions {
    fn default() -> AdagradOptions {
        AdagradOptions {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl Algorithm for AdagradOptions {
    const NAME: &'static str = "Adagrad";
    const COUNTS: bool = true;
    settings!(lr, lr_decay, eps, weight_decay, initial_accumulator_value, maximize);

    fn validate(&self) -> Result<()> {
        let settings = [
            ("lr", self.lr),
            ("lr_decay", self.lr_decay),
            ("weight_decay", self.weight_decay),
            ("initial_accumulator_value", self.initial_accumulator_value),
            ("eps", self.eps),
        ];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::filled("sum", self.initial_accumulator_value)]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, self.weight_decay)?;
        let sums = &batch.slots[0];
        ops::foreach_addcmul_scalar_(sums, &grads, &grads, 1.into())?;
        let denominators = ops::foreach_sqrt(sums)?;
        ops::foreach_add_scalar_(&denominators, self.eps.into())?;
        let size = |n: &f64| (-self.lr / (1.0 + (n - 1.0) * self.lr_decay)).into();
        let step_sizes: Vec<Scalar> = batch.counts.iter().map(size).collect();
        ops::foreach_addcdiv_scalars_(&batch.params, &grads, &denominators, &step_sizes)
    }

    fn update_fused(&self, batch: &Batch) -> Option<Result<()>> {
        let AdagradOptions { lr, lr_decay, weight_decay, eps, maximize, .. } = *self;
        Some(ops::fused_adagrad_(
            &batch.params,
            &batch.grads,
            &batch.slots[0],
            &batch.steps,
            lr,
            lr_decay,
            weight_decay,
            eps,
            maximize,
            None,
            None,
        ))
    }
}
