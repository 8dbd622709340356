//! Normalisation within a sample: over its last dimensions, or over groups of channels.

use super::options::{built, filled, options};
use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

options! {
    /// What a [`LayerNorm`] layer is made of.
    pub struct LayerNormOptions(
        /// Sizes of the last dimensions, over which is normalised.
        normalized_shape: Vec<usize>,
    ) {
        /// Keeps the denominator from zero.
        eps: f64 = 1e-5,
        /// Whether elements are scaled afterwards.
        elementwise_affine: bool = true,
        /// Whether they are shifted too.
        bias: bool = true,
    }
}

impl LayerNormOptions {
    /// The layer: scale 1, shift 0.
    pub fn build(self) -> Result<LayerNorm> {
        let shape = &self.normalized_shape;
        let weight = self.elementwise_affine.then(|| filled(shape, 1.0)).transpose()?;
        let bias = (self.elementwise_affine && self.bias).then(|| filled(shape, 0.0)).transpose()?;
        let sizes = shape.iter().map(|&n| n.into()).collect();
        Ok(LayerNorm { weight, bias, sizes, eps: self.eps, core: ModuleCore::new() })
    }
}

/// To mean 0 and variance 1 over the last dimensions.
#[derive(Module)]
pub struct LayerNorm {
    /// Scale.
    pub weight: Option<Parameter>,
    /// Shift.
    pub bias: Option<Parameter>,
    #[module(skip)]
    sizes: Vec<SymInt>,
    eps: f64,
    core: ModuleCore,
}

impl LayerNorm {
    /// Over a last dimension of this size.
    #[track_caller]
    pub fn new(size: usize) -> LayerNorm {
        built(LayerNormOptions::new(vec![size]).build())
    }
}

impl Forward for LayerNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm(x, &self.sizes, self.weight.as_deref(), self.bias.as_deref(), self.eps, false)
    }
}

options! {
    /// What an [`RMSNorm`] layer is made of.
    pub struct RMSNormOptions(
        /// Sizes of the last dimensions, over which is normalised.
        normalized_shape: Vec<usize>,
    ) {
        /// Keeps the denominator from zero; the dtype's epsilon if not given.
        eps: Option<f64> = None,
        /// Whether elements are scaled afterwards.
        elementwise_affine: bool = true,
    }
}

impl RMSNormOptions {
    /// The layer: scale 1.
    pub fn build(self) -> Result<RMSNorm> {
        let weight = self.elementwise_affine.then(|| filled(&self.normalized_shape, 1.0)).transpose()?;
        let sizes = self.normalized_shape.iter().map(|&n| n.into()).collect();
        Ok(RMSNorm { weight, sizes, eps: self.eps, core: ModuleCore::new() })
    }
}

/// To a mean square of 1 over the last dimensions.
#[derive(Module)]
pub struct RMSNorm {
    /// Scale.
    pub weight: Option<Parameter>,
    #[module(skip)]
    sizes: Vec<SymInt>,
    eps: Option<f64>,
    core: ModuleCore,
}

impl RMSNorm {
    /// Over a last dimension of this size.
    #[track_caller]
    pub fn new(size: usize) -> RMSNorm {
        built(RMSNormOptions::new(vec![size]).build())
    }
}

impl Forward for RMSNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::rms_norm(x, &self.sizes, self.weight.as_deref(), self.eps)
    }
}

options! {
    /// What a [`GroupNorm`] layer is made of.
    pub struct GroupNormOptions(
        /// Groups that channels are cut into.
        num_groups: usize,
        /// Channels.
        num_channels: usize,
    ) {
        /// Keeps the denominator from zero.
        eps: f64 = 1e-5,
        /// Whether channels are scaled and shifted afterwards.
        affine: bool = true,
    }
}

impl GroupNormOptions {
    /// The layer: scale 1, shift 0.
    pub fn build(self) -> Result<GroupNorm> {
        if self.num_groups == 0 || !self.num_channels.is_multiple_of(self.num_groups) {
            let message =
                format!("expected channels that {} groups divide, found {}", self.num_groups, self.num_channels);
            return Err(Error::argument("GroupNorm", message));
        }
        let affine = |value| self.affine.then(|| filled(&[self.num_channels], value)).transpose();
        let (weight, bias) = (affine(1.0)?, affine(0.0)?);
        Ok(GroupNorm { weight, bias, num_groups: self.num_groups, eps: self.eps, core: ModuleCore::new() })
    }
}

/// To mean 0 and variance 1 over each group of channels of each sample.
#[derive(Module)]
pub struct GroupNorm {
    /// Scale.
    pub weight: Option<Parameter>,
    /// Shift.
    pub bias: Option<Parameter>,
    num_groups: usize,
    eps: f64,
    core: ModuleCore,
}

impl GroupNorm {
    /// With PyTorch's defaults.
    #[track_caller]
    pub fn new(num_groups: usize, num_channels: usize) -> GroupNorm {
        built(GroupNormOptions::new(num_groups, num_channels).build())
    }
}

impl Forward for GroupNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (w, b) = (self.weight.as_deref(), self.bias.as_deref());
        ops::group_norm(x, self.num_groups as i64, w, b, self.eps, false)
    }
}
