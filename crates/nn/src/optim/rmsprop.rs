//! RMSprop: steps scaled by the running mean of squared gradients, or of their variance (`centered`).

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, ops};

/// RMSprop.
pub type RMSprop = Grouped<RMSpropOptions>;

/// Settings of [`RMSprop`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct RMSpropOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the means.
    pub alpha: f64,
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight decay (L2), added to the gradient.
    pub weight_decay: f64,
    /// Momentum factor.
    pub momentum: f64,
    /// Whether to normalize by the variance instead of the mean of squares.
    pub centered: bool,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use; there is no fused one.
    pub implementation: Implementation,
}

impl Default for RMSpropOptions {
    fn default() -> RMSpropOptions {
        RMSpropOptions {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl Algorithm for RMSpropOptions {
    const NAME: &'static str = "RMSprop";
    const COUNTS: bool = true;
    settings!(lr, momentum, alpha, eps, centered, weight_decay, maximize; momentum: momentum);

    fn validate(&self) -> Result<()> {
        let settings = [
            ("lr", self.lr),
            ("alpha", self.alpha),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum", self.momentum),
        ];
        settings.iter().try_for_each(|(name, v)| need(Self::NAME, name, *v >= 0.0, v, "of at least 0"))
    }

    fn slots(&self) -> Vec<Slot> {
        let wanted = [("square_avg", true), ("momentum_buffer", self.momentum > 0.0), ("grad_avg", self.centered)];
        wanted.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| Slot::zeros(name)).collect()
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, self.weight_decay)?;
        let squares = &batch.slots[0];
        ops::foreach_mul_scalar_(squares, self.alpha.into())?;
        ops::foreach_addcmul_scalar_(squares, &grads, &grads, (1.0 - self.alpha).into())?;
        let denominators = if self.centered {
            let means = batch.slots.last().expect("the slot of the means comes last");
            ops::foreach_lerp_scalar_(means, &grads, (1.0 - self.alpha).into())?;
            let variances = ops::foreach_addcmul_scalar(squares, means, means, (-1).into())?;
            ops::foreach_sqrt_(&variances)?;
            variances
        } else {
            ops::foreach_sqrt(squares)?
        };
        ops::foreach_add_scalar_(&denominators, self.eps.into())?;
        if self.momentum == 0.0 {
            return ops::foreach_addcdiv_scalar_(&batch.params, &grads, &denominators, (-self.lr).into());
        }
        let velocities = &batch.slots[1];
        ops::foreach_mul_scalar_(velocities, self.momentum.into())?;
        ops::foreach_addcdiv_scalar_(velocities, &grads, &denominators, 1.into())?;
        ops::foreach_add_(&batch.params, velocities, (-self.lr).into())
    }
}
