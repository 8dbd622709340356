//! Stochastic gradient descent, with momentum in PyTorch's form: the learning rate multiplies the velocity.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Tensor, ops};

/// Stochastic gradient descent.
pub type SGD = Grouped<SGDOptions>;

/// Settings of [`SGD`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct SGDOptions {
    /// Learning rate.
    pub lr: f64,
    /// Momentum factor.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// Weight decay (L2), added to the gradient.
    pub weight_decay: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use.
    pub implementation: Implementation,
}

impl Default for SGDOptions {
    fn default() -> SGDOptions {
        SGDOptions {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl Algorithm for SGDOptions {
    const NAME: &'static str = "SGD";
    const COUNTS: bool = false;
    settings!(lr, momentum, dampening, weight_decay, nesterov, maximize; momentum: momentum);

    fn validate(&self) -> Result<()> {
        need(Self::NAME, "lr", self.lr >= 0.0, self.lr, "of at least 0")?;
        need(Self::NAME, "momentum", self.momentum >= 0.0, self.momentum, "of at least 0")?;
        need(Self::NAME, "weight_decay", self.weight_decay >= 0.0, self.weight_decay, "of at least 0")?;
        let ok = !self.nesterov || (self.momentum > 0.0 && self.dampening == 0.0);
        need(Self::NAME, "nesterov", ok, (self.momentum, self.dampening), "with momentum and without dampening")
    }

    fn slots(&self) -> Vec<Slot> {
        if self.momentum == 0.0 { Vec::new() } else { vec![Slot::zeros("momentum_buffer")] }
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, self.weight_decay)?;
        let Some(velocities) = batch.slots.first() else {
            return ops::foreach_add_(&batch.params, &grads, (-self.lr).into());
        };
        for ((v, g), count) in velocities.iter().zip(&grads).zip(&batch.counts) {
            if *count == 1.0 {
                ops::copy_(v, g, false)?;
            } else {
                ops::add_(ops::mul_scalar_(v, self.momentum.into())?, g, (1.0 - self.dampening).into())?;
            }
        }
        if !self.nesterov {
            return ops::foreach_add_(&batch.params, velocities, (-self.lr).into());
        }
        let ahead: Vec<Tensor> = ops::foreach_add(&grads, velocities, self.momentum.into())?;
        ops::foreach_add_(&batch.params, &ahead, (-self.lr).into())
    }

    /// The velocities are dense, unlike PyTorch's; the values are the same.
    fn update_sparse(&self, batch: &Batch) -> Result<()> {
        let ok = self.weight_decay == 0.0;
        need(Self::NAME, "weight_decay", ok, self.weight_decay, "of 0, since some gradients are sparse")?;
        let sign = if self.maximize { -1.0 } else { 1.0 };
        for (i, (p, g)) in batch.params.iter().zip(&batch.grads).enumerate() {
            let Some(v) = batch.slots.first().map(|velocities| &velocities[i]) else {
                ops::add_(p, g, (-self.lr * sign).into())?;
                continue;
            };
            let first = batch.counts[i] == 1.0;
            ops::mul_scalar_(v, if first { 0.0 } else { self.momentum }.into())?;
            ops::add_(v, g, (sign * if first { 1.0 } else { 1.0 - self.dampening }).into())?;
            if self.nesterov {
                let ahead = ops::add(&ops::mul_scalar(v, self.momentum.into())?, g, sign.into())?;
                ops::add_(p, &ahead, (-self.lr).into())?;
            } else {
                ops::add_(p, v, (-self.lr).into())?;
            }
        }
        Ok(())
    }

    fn update_fused(&self, batch: &Batch) -> Option<Result<()>> {
        // The kernel takes one answer to "is this the first step" for a whole list.
        let (first, later): (Vec<usize>, Vec<usize>) = (0..batch.len()).partition(|&i| batch.counts[i] == 1.0);
        let run = |positions: &[usize], first: bool| {
            if positions.is_empty() {
                return Ok(());
            }
            let part = batch.select(positions);
            let velocities = part.slots.first().map_or(&[][..], |v| v);
            let SGDOptions { lr, momentum, dampening, weight_decay, nesterov, maximize, .. } = *self;
            ops::fused_sgd_(
                &part.params,
                &part.grads,
                velocities,
                weight_decay,
                momentum,
                lr,
                dampening,
                nesterov,
                maximize,
                first,
                None,
                None,
            )
        };
        Some(run(&first, true).and_then(|()| run(&later, false)))
    }
}
