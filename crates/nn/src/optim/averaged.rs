//! Averages of parameters over training: the arithmetic mean (SWA) or an exponential moving average (EMA).

use super::grouped::IntoParams;
use firebrand_core::autograd::no_grad;
use firebrand_core::{Error, Result, Tensor, ops};

/// How values are averaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// Equal weights.
    Mean,
    /// Decay: the fraction of the old average that is kept at every update.
    Exponential(f64),
}

/// Averages of a list of tensors, usually a model's parameters.
pub struct Averaged {
    sources: Vec<Tensor>,
    averages: Vec<Tensor>,
    how: Averaging,
    updates: u64,
}

impl Averaged {
    /// Averages that start as copies of these tensors.
    pub fn new(tensors: impl IntoParams, how: Averaging) -> Result<Averaged> {
        let sources = tensors.into_params();
        let averages = sources.iter().map(|t| t.detach().try_deep_copy()).collect::<Result<_>>()?;
        Ok(Averaged { sources, averages, how, updates: 0 })
    }

    /// Adds the current values. The first update replaces the initial copies.
    pub fn update(&mut self) -> Result<()> {
        let weight = match (self.updates, self.how) {
            (0, _) => 1.0,
            (_, Averaging::Exponential(decay)) => 1.0 - decay,
            (n, Averaging::Mean) => 1.0 / (n + 1) as f64,
        };
        self.updates += 1;
        no_grad(|| {
            for (average, source) in self.averages.iter().zip(&self.sources) {
                // Counters and the like are not averaged.
                if weight == 1.0 || !source.is_floating_point() {
                    ops::copy_(average, source, false)?;
                } else {
                    ops::lerp_scalar_(average, source, weight.into())?;
                }
            }
            Ok(())
        })
    }

    /// The averages, by position.
    pub fn averages(&self) -> &[Tensor] {
        &self.averages
    }

    /// Number of updates so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Restores averages and the number of updates of a resumed run.
    pub fn load(&mut self, averages: &[Tensor], updates: u64) -> Result<()> {
        let shapes = |list: &[Tensor]| list.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>();
        if shapes(averages) != shapes(&self.averages) {
            let message =
                format!("expected {} averages of the same shapes, found {}", self.averages.len(), averages.len());
            return Err(Error::argument("Averaged", message));
        }
        no_grad(|| self.averages.iter().zip(averages).try_for_each(|(own, t)| ops::copy_(own, t, false).map(drop)))?;
        self.updates = updates;
        Ok(())
    }

    /// Swaps the tensors with their averages; calling it again swaps back.
    pub fn swap(&self) -> Result<()> {
        no_grad(|| {
            for (average, source) in self.averages.iter().zip(&self.sources) {
                let held = source.detach().try_deep_copy()?;
                ops::copy_(source, average, false)?;
                ops::copy_(average, &held, false)?;
            }
            Ok(())
        })
    }
}
