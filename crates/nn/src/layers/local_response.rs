//! Normalization by neighboring channels.

use super::options::options;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Error, Result, Tensor, ops};

options! {
    /// Options of a [`LocalResponseNorm`] layer.
    pub struct LocalResponseNormOptions(
        /// Number of neighboring channels.
        size: usize,
    ) {
        /// Multiplier of the mean of squares.
        alpha: f64 = 1e-4,
        /// Exponent of the denominator.
        beta: f64 = 0.75,
        /// Constant added to the denominator.
        k: f64 = 1.0,
    }
}

impl LocalResponseNormOptions {
    /// Creates the layer.
    pub fn build(self) -> LocalResponseNorm {
        LocalResponseNorm { options: self, core: ModuleCore::new() }
    }
}

/// `x / (k + alpha · mean of squares of neighboring channels)^beta`.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct LocalResponseNorm {
    #[module(skip)]
    options: LocalResponseNormOptions,
    core: ModuleCore,
}

impl LocalResponseNorm {
    /// Over this many channels.
    pub fn new(size: usize) -> LocalResponseNorm {
        LocalResponseNormOptions::new(size).build()
    }

    fn arguments(&self) -> String {
        let o = &self.options;
        ExtraRepr::new().value(o.size).field("alpha", o.alpha).field("beta", o.beta).field("k", o.k).finish()
    }
}

impl Forward for LocalResponseNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let o = &self.options;
        let [batch, channels, ..] = *x.shape() else {
            let message = format!("expected [batch, channels, …], found shape {:?}", x.shape());
            return Err(Error::argument("LocalResponseNorm", message));
        };
        // The means over channels are a pooling of images whose rows are channels.
        let squares = ops::mul(x, x)?.try_reshape([batch as i64, 1, channels as i64, -1])?;
        let (before, after) = (o.size / 2, o.size.saturating_sub(1) / 2);
        let padded = ops::pad(&squares, &[0.into(), 0.into(), before.into(), after.into()], "constant", None)?;
        let means = ops::avg_pool2d(&padded, &[o.size as i64, 1], &[1, 1], &[0, 0], false, true, None)?;
        let scaled = ops::add_scalar(&ops::mul_scalar(&means, o.alpha.into())?, o.k.into(), 1.into())?;
        let denominator = ops::pow_scalar(&scaled, o.beta.into())?;
        ops::div(x, &ops::view_as(&denominator, x)?)
    }
}
