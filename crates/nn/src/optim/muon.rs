//! Muon: momentum whose matrix is made nearly orthogonal before the step, by Newton–Schulz iterations in bf16.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, need};
use super::grouped::Grouped;
use super::state_dict::{Setting, SettingValue, settings};
use firebrand_core::{DType, Result, Tensor, ops};

/// Muon, for the matrices of hidden layers; other parameters need another optimizer.
pub type Muon = Grouped<MuonOptions>;

/// How the learning rate depends on the shape of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdjustLr {
    /// `√max(1, rows / columns)` times as large.
    #[default]
    Original,
    /// `0.2 √max(rows, columns)` times as large, so that settings of AdamW fit.
    MatchRmsAdamw,
    /// `√(rows / columns)` times as large.
    SpectralUnclamped,
}

impl AdjustLr {
    fn factor(self, rows: f64, columns: f64) -> f64 {
        match self {
            AdjustLr::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamw => 0.2 * rows.max(columns).sqrt(),
            AdjustLr::SpectralUnclamped => (rows / columns).sqrt(),
        }
    }
}

const NAMES: [(AdjustLr, &str); 3] = [
    (AdjustLr::Original, "original"),
    (AdjustLr::MatchRmsAdamw, "match_rms_adamw"),
    (AdjustLr::SpectralUnclamped, "spectral_unclamped"),
];

/// PyTorch leaves it out for the original rule.
impl SettingValue for AdjustLr {
    fn to_setting(&self) -> Setting {
        let named = NAMES.iter().find(|(a, _)| a == self).filter(|(a, _)| *a != AdjustLr::Original);
        named.map_or(Setting::None, |(_, name)| Setting::Text(name.to_string()))
    }
    fn from_setting(s: &Setting) -> Option<AdjustLr> {
        match s {
            Setting::None => Some(AdjustLr::Original),
            Setting::Text(text) => NAMES.iter().find(|(_, name)| name == text).map(|(a, _)| *a),
            _ => None,
        }
    }
}

/// Settings of [`Muon`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct MuonOptions {
    /// Learning rate.
    pub lr: f64,
    /// Weight-decay coefficient; the parameter shrinks by it.
    pub weight_decay: f64,
    /// Momentum factor.
    pub momentum: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Coefficients of the Newton–Schulz polynomial.
    pub ns_coefficients: (f64, f64, f64),
    /// Lower bound of the norm that a matrix is divided by.
    pub eps: f64,
    /// Number of Newton–Schulz iterations.
    pub ns_steps: usize,
    /// How the learning rate depends on the shape.
    pub adjust_lr_fn: AdjustLr,
    /// Which implementation to use; there is one.
    pub implementation: Implementation,
}

impl Default for MuonOptions {
    fn default() -> MuonOptions {
        MuonOptions {
            lr: 1e-3,
            weight_decay: 0.1,
            momentum: 0.95,
            nesterov: true,
            ns_coefficients: (3.4445, -4.7750, 2.0315),
            eps: 1e-7,
            ns_steps: 5,
            adjust_lr_fn: AdjustLr::Original,
            implementation: Implementation::Auto,
        }
    }
}

impl MuonOptions {
    /// A matrix with the singular vectors of this one and singular values near 1.
    fn orthogonalized(&self, matrix: &Tensor) -> Result<Tensor> {
        let tall = matrix.shape()[0] > matrix.shape()[1];
        let turned = |t: Tensor| if tall { ops::t(&t) } else { Ok(t) };
        let mut x = turned(ops::to_dtype(matrix, DType::BF16, false, false, None)?)?;
        let norm = ops::linalg_vector_norm(&x, 2.into(), None, false, None)?;
        x = ops::div(&x, &ops::clamp(&norm, Some(self.eps.into()), None)?)?;
        let (a, b, c) = self.ns_coefficients;
        for _ in 0..self.ns_steps {
            let gram = ops::mm(&x, &ops::t(&x)?)?;
            let update = ops::addmm(&gram, &gram, &gram, b.into(), c.into())?;
            x = ops::addmm(&x, &update, &x, a.into(), 1.into())?;
        }
        turned(x)
    }
}

impl Algorithm for MuonOptions {
    const NAME: &'static str = "Muon";
    const COUNTS: bool = false;
    settings!(lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn; momentum: momentum);

    fn validate(&self) -> Result<()> {
        need(Self::NAME, "lr", self.lr >= 0.0, self.lr, "of at least 0")?;
        need(Self::NAME, "momentum", self.momentum >= 0.0, self.momentum, "of at least 0")?;
        need(Self::NAME, "weight_decay", self.weight_decay >= 0.0, self.weight_decay, "of at least 0")?;
        need(Self::NAME, "ns_steps", self.ns_steps < 100, self.ns_steps, "below 100")
    }

    fn accepts(&self, p: &Tensor) -> Result<()> {
        need(Self::NAME, "parameters", p.ndim() == 2 && !p.is_complex(), p.shape(), "that are real matrices")
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zeros("momentum_buffer")]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        for ((p, g), mean) in batch.params.iter().zip(&batch.grads).zip(&batch.slots[0]) {
            ops::lerp_scalar_(mean, g, (1.0 - self.momentum).into())?;
            let ahead = if self.nesterov { ops::lerp_scalar(g, mean, self.momentum.into())? } else { mean.clone() };
            let update = self.orthogonalized(&ahead)?;
            let factor = self.adjust_lr_fn.factor(p.shape()[0] as f64, p.shape()[1] as f64);
            ops::mul_scalar_(p, (1.0 - self.lr * self.weight_decay).into())?;
            ops::add_(p, &update, (-self.lr * factor).into())?;
        }
        Ok(())
    }
}
