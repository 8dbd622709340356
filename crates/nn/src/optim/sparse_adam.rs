//! Adam for sparse gradients: only what a gradient has entries for changes, the means and the parameter alike.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Error, Result, Tensor, ops};

/// Adam that updates the entries of sparse gradients.
pub type SparseAdam = Grouped<SparseAdamOptions>;

/// Settings of [`SparseAdam`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct SparseAdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the means of gradients and of their squares.
    pub betas: (f64, f64),
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use; there is one.
    pub implementation: Implementation,
}

impl Default for SparseAdamOptions {
    fn default() -> SparseAdamOptions {
        SparseAdamOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

impl SparseAdamOptions {
    fn step(&self, p: &Tensor, grad: &Tensor, mean: &Tensor, square: &Tensor, count: f64) -> Result<()> {
        // The update is not linear, so every position must occur once.
        let grad = grad.try_coalesce()?;
        let mut values = grad.try_values()?;
        if values.numel() == 0 {
            return Ok(());
        }
        if self.maximize {
            values = ops::neg(&values)?;
        }
        let at: Vec<Option<Tensor>> = ops::unbind(&grad.try_indices()?, 0)?.into_iter().map(Some).collect();
        // Moves the entries of a running mean towards new values, and returns them.
        let follow = |mean: &Tensor, new: &Tensor, rate: f64| -> Result<Tensor> {
            let old = ops::index(mean, &at)?;
            let change = ops::mul_scalar(&ops::sub(new, &old, 1.into())?, rate.into())?;
            ops::index_put_(mean, &at, &change, true)?;
            ops::add(&change, &old, 1.into())
        };
        let (beta1, beta2) = self.betas;
        let numerator = follow(mean, &values, 1.0 - beta1)?;
        let squares = follow(square, &ops::square(&values)?, 1.0 - beta2)?;
        let denominator = ops::add_scalar(&ops::sqrt(&squares)?, self.eps.into(), 1.into())?;
        let size = self.lr * (1.0 - beta2.powf(count)).sqrt() / (1.0 - beta1.powf(count));
        let update = ops::mul_scalar(&ops::div(&numerator, &denominator)?, (-size).into())?;
        ops::index_put_(p, &at, &update, true).map(drop)
    }
}

impl Algorithm for SparseAdamOptions {
    const NAME: &'static str = "SparseAdam";
    const COUNTS: bool = true;
    settings!(lr, betas, eps, maximize; momentum: betas.0);

    fn validate(&self) -> Result<()> {
        let (b1, b2) = self.betas;
        need(Self::NAME, "lr", self.lr > 0.0, self.lr, "above 0")?;
        need(Self::NAME, "eps", self.eps > 0.0, self.eps, "above 0")?;
        need(Self::NAME, "betas", [b1, b2].iter().all(|b| (0.0..1.0).contains(b)), self.betas, "from 0 to below 1")
    }

    fn accepts(&self, p: &Tensor) -> Result<()> {
        need(Self::NAME, "parameters", !p.is_complex() && !p.is_sparse(), p.dtype(), "that are dense and real")
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zeros("exp_avg"), Slot::zeros("exp_avg_sq")]
    }

    fn update(&self, _: &Batch) -> Result<()> {
        Err(Error::argument(Self::NAME, "expected sparse gradients, found dense ones; use Adam for these parameters"))
    }

    fn update_sparse(&self, batch: &Batch) -> Result<()> {
        (0..batch.len()).try_for_each(|i| {
            let [means, squares] = &batch.slots[..] else { unreachable!("two slots are declared") };
            self.step(&batch.params[i], &batch.grads[i], &means[i], &squares[i], batch.counts[i])
        })
    }
}
