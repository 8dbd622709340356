//! Resilient backpropagation: every element has its own step size, which grows while the gradient keeps its sign and shrinks when
//! it changes; the gradient's magnitude does not matter. For full-batch training.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, ops};

/// Resilient backpropagation.
pub type Rprop = Grouped<RpropOptions>;

/// Settings of [`Rprop`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct RpropOptions {
    /// Initial step size of every element.
    pub lr: f64,
    /// Factors of the step size when the gradient's sign has changed, and when it has not.
    pub etas: (f64, f64),
    /// Smallest and largest step size.
    pub step_sizes: (f64, f64),
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for RpropOptions {
    fn default() -> RpropOptions {
        RpropOptions {
            lr: 1e-2,
            etas: (0.5, 1.2),
            step_sizes: (1e-6, 50.0),
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl Algorithm for RpropOptions {
    const NAME: &'static str = "Rprop";
    const COUNTS: bool = true;
    settings!(lr, etas, step_sizes, maximize);

    fn validate(&self) -> Result<()> {
        need(Self::NAME, "lr", self.lr >= 0.0, self.lr, "of at least 0")?;
        let (shorter, longer) = self.etas;
        need(Self::NAME, "etas", 0.0 < shorter && shorter < 1.0 && 1.0 < longer, self.etas, "on both sides of 1")
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zeros("prev"), Slot::filled("step_size", self.lr)]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, 0.0)?;
        let [prev, step_size] = &batch.slots[..] else { unreachable!("`slots` names two") };
        let (shorter, longer) = self.etas;
        for (((p, grad), prev), size) in batch.params.iter().zip(&grads).zip(prev).zip(step_size) {
            let agreement = ops::mul(grad, prev)?;
            let turned = ops::lt_scalar(&agreement, 0.into())?;
            let kept = ops::gt_scalar(&agreement, 0.into())?;
            let factor = ops::masked_fill(&ops::ones_like(grad, None, None, None)?, &turned, shorter.into())?;
            let factor = ops::masked_fill(&factor, &kept, longer.into())?;
            ops::mul_(size, &factor)?;
            ops::clamp_(size, Some(self.step_sizes.0.into()), Some(self.step_sizes.1.into()))?;
            // An element that went too far waits for a step.
            let grad = ops::masked_fill(grad, &turned, 0.into())?;
            ops::addcmul_(p, &ops::sign(&grad)?, size, (-1).into())?;
            ops::copy_(prev, &grad, false)?;
        }
        Ok(())
    }
}
