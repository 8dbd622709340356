//! Adafactor: squares of the gradients of a matrix are kept as one mean for each row and column, and steps are as large as the
//! parameter.

use super::algorithm::{Algorithm, Batch, Extent, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{DType, Result, Tensor, ops};

/// Adafactor.
pub type Adafactor = Grouped<AdafactorOptions>;

/// Settings of [`Adafactor`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdafactorOptions {
    /// Upper bound of the relative step size.
    pub lr: f64,
    /// The exponent of the step's number in the rate at which the mean of squares follows.
    pub beta2_decay: f64,
    /// Lower bounds: of the squares (`None`: the precision of the dtype) and of the scale of a parameter.
    pub eps: (Option<f64>, f64),
    /// Above which root mean square an update is scaled down.
    pub d: f64,
    /// Weight-decay coefficient; the parameter shrinks by it.
    pub weight_decay: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Which implementation to use; there is one.
    pub implementation: Implementation,
}

impl Default for AdafactorOptions {
    fn default() -> AdafactorOptions {
        AdafactorOptions {
            lr: 1e-2,
            beta2_decay: -0.8,
            eps: (None, 1e-3),
            d: 1.0,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::Auto,
        }
    }
}

/// The distance from 1 to the next number.
fn precision(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f32::EPSILON.into(),
    }
}

/// The root of the mean of squares.
fn root_mean_square(t: &Tensor) -> Result<f64> {
    let norm = ops::item(&ops::linalg_vector_norm(t, 2.into(), None, false, None)?)?;
    Ok(norm.to_f64() / (t.numel() as f64).sqrt())
}

impl AdafactorOptions {
    /// The mean of squares along a dimension, added to its running mean.
    fn follow(&self, mean: &Tensor, grad: &Tensor, dim: i64, rate: f64) -> Result<()> {
        let norm = ops::linalg_vector_norm(grad, 2.into(), Some(&[dim]), true, None)?;
        let n = grad.shape()[(grad.ndim() as i64 + dim) as usize];
        let squares = ops::div_scalar(&ops::square(&norm)?, (n as f64).into())?;
        ops::lerp_scalar_(mean, &squares, rate.into()).map(drop)
    }

    fn step(&self, p: &Tensor, grad: &Tensor, state: [&Tensor; 3], count: f64) -> Result<()> {
        let [rows, columns, variance] = state;
        let least = self.eps.0.unwrap_or_else(|| precision(p.dtype()));
        let rate = count.powf(self.beta2_decay);
        let size = self.eps.1.max(root_mean_square(p)?) * self.lr.min(1.0 / count.sqrt());
        if self.weight_decay != 0.0 {
            ops::mul_scalar_(p, (1.0 - self.lr * self.weight_decay).into())?;
        }
        let squares = if p.ndim() > 1 {
            self.follow(rows, grad, -1, rate)?;
            self.follow(columns, grad, -2, rate)?;
            let mean = ops::clamp(&ops::mean_dim(rows, Some(&[-2]), true, None)?, Some(least.into()), None)?;
            ops::div(&ops::matmul(rows, columns)?, &mean)?
        } else {
            ops::lerp_scalar_(variance, &ops::mul(grad, grad)?, rate.into())?.clone()
        };
        let scale = ops::rsqrt(&ops::clamp(&squares, Some((least * least).into()), None)?)?;
        let update = ops::mul(&scale, grad)?;
        let excess = (root_mean_square(&update)? / self.d).max(1.0);
        ops::add_(p, &update, (-size / excess).into()).map(drop)
    }
}

impl Algorithm for AdafactorOptions {
    const NAME: &'static str = "Adafactor";
    const COUNTS: bool = true;
    settings!(lr, beta2_decay, eps, d, weight_decay, maximize);

    fn validate(&self) -> Result<()> {
        let AdafactorOptions { lr, beta2_decay, eps, d, weight_decay, .. } = *self;
        need(Self::NAME, "lr", lr >= 0.0, lr, "of at least 0")?;
        need(Self::NAME, "beta2_decay", beta2_decay <= 0.0, beta2_decay, "of at most 0")?;
        need(Self::NAME, "eps", eps.0.unwrap_or(0.0) >= 0.0 && eps.1 >= 0.0, eps, "of at least 0")?;
        need(Self::NAME, "d", d >= 1.0, d, "of at least 1")?;
        need(Self::NAME, "weight_decay", weight_decay >= 0.0, weight_decay, "of at least 0")
    }

    fn accepts(&self, p: &Tensor) -> Result<()> {
        need(Self::NAME, "parameters", !p.is_complex(), p.dtype(), "of a real dtype")
    }

    fn slots(&self) -> Vec<Slot> {
        let slot = |name, extent| Slot { extent, ..Slot::zeros(name) };
        vec![slot("row_var", Extent::Rows), slot("col_var", Extent::Columns), slot("variance", Extent::Vector)]
    }

    fn update(&self, batch: &Batch) -> Result<()> {
        let grads = effective_grads(batch, self.maximize, 0.0)?;
        (0..batch.len()).try_for_each(|i| {
            let [rows, columns, variances] = &batch.slots[..] else { unreachable!("three slots are declared") };
            self.step(&batch.params[i], &grads[i], [&rows[i], &columns[i], &variances[i]], batch.counts[i])
        })
    }
}
