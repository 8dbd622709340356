//! Normalization within a sample: over its last dimensions, or over groups of channels.

use super::options::{built, filled, options};
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

options! {
    /// Options of a [`LayerNorm`] layer.
    pub struct LayerNormOptions(
        /// Sizes of the last dimensions, which are normalized over.
        normalized_shape: Vec<usize>,
    ) {
        /// Added to the denominator for numerical stability.
        eps: f64 = 1e-5,
        /// Whether to have a learnable scale.
        elementwise_affine: bool = true,
        /// Whether to have a learnable shift too.
        bias: bool = true,
    }
}

impl LayerNormOptions {
    /// Builds the layer: scale 1, shift 0.
    pub fn build(self) -> Result<LayerNorm> {
        let shape = &self.normalized_shape;
        let weight = self.elementwise_affine.then(|| filled(shape, 1.0)).transpose()?;
        let bias = (self.elementwise_affine && self.bias).then(|| filled(shape, 0.0)).transpose()?;
        let sizes = shape.iter().map(|&n| n.into()).collect();
        Ok(LayerNorm { weight, bias, sizes, eps: self.eps, core: ModuleCore::new() })
    }
}

/// Sizes for printing.
fn plain(sizes: &[SymInt]) -> Vec<i64> {
    sizes.iter().map(|n| n.hint()).collect()
}

/// Normalizes to mean 0 and variance 1 over the last dimensions.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct LayerNorm {
    /// Learnable scale.
    pub weight: Option<Parameter>,
    /// Learnable shift.
    pub bias: Option<Parameter>,
    #[module(skip)]
    sizes: Vec<SymInt>,
    eps: f64,
    core: ModuleCore,
}

impl LayerNorm {
    /// Normalizes over a last dimension of this size.
    #[track_caller]
    pub fn new(size: usize) -> LayerNorm {
        built(LayerNormOptions::new(vec![size]).build())
    }

    fn arguments(&self) -> String {
        let text = ExtraRepr::new().value(&plain(&self.sizes)[..]).field("eps", self.eps);
        text.field("elementwise_affine", self.weight.is_some()).field("bias", self.bias.is_some()).finish()
    }
}

impl Forward for LayerNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm(x, &self.sizes, self.weight.as_deref(), self.bias.as_deref(), self.eps, false)
    }
}

options! {
    /// Options of an [`RMSNorm`] layer.
    pub struct RMSNormOptions(
        /// Sizes of the last dimensions, which are normalized over.
        normalized_shape: Vec<usize>,
    ) {
        /// Added to the denominator for numerical stability; the dtype's epsilon if not given.
        eps: Option<f64> = None,
        /// Whether to have a learnable scale.
        elementwise_affine: bool = true,
    }
}

impl RMSNormOptions {
    /// Builds the layer: scale 1.
    pub fn build(self) -> Result<RMSNorm> {
        let weight = self.elementwise_affine.then(|| filled(&self.normalized_shape, 1.0)).transpose()?;
        let sizes = self.normalized_shape.iter().map(|&n| n.into()).collect();
        Ok(RMSNorm { weight, sizes, eps: self.eps, core: ModuleCore::new() })
    }
}

/// Normalizes to a mean square of 1 over the last dimensions.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct RMSNorm {
    /// Learnable scale.
    pub weight: Option<Parameter>,
    #[module(skip)]
    sizes: Vec<SymInt>,
    eps: Option<f64>,
    core: ModuleCore,
}

impl RMSNorm {
    /// Normalizes over a last dimension of this size.
    #[track_caller]
    pub fn new(size: usize) -> RMSNorm {
        built(RMSNormOptions::new(vec![size]).build())
    }

    fn arguments(&self) -> String {
        let text = ExtraRepr::new().value(&plain(&self.sizes)[..]).field("eps", self.eps);
        text.field("elementwise_affine", self.weight.is_some()).finish()
    }
}

impl Forward for RMSNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::rms_norm(x, &self.sizes, self.weight.as_deref(), self.eps)
    }
}

options! {
    /// Options of a [`GroupNorm`] layer.
    pub struct GroupNormOptions(
        /// Number of groups of channels.
        num_groups: usize,
        /// Number of channels.
        num_channels: usize,
    ) {
        /// Added to the denominator for numerical stability.
        eps: f64 = 1e-5,
        /// Whether channels have a learnable scale and shift.
        affine: bool = true,
    }
}

impl GroupNormOptions {
    /// Builds the layer: scale 1, shift 0.
    pub fn build(self) -> Result<GroupNorm> {
        if self.num_groups == 0 || !self.num_channels.is_multiple_of(self.num_groups) {
            let message =
                format!("expected channels divisible by {} groups, found {}", self.num_groups, self.num_channels);
            return Err(Error::argument("GroupNorm", message));
        }
        let affine = |value| self.affine.then(|| filled(&[self.num_channels], value)).transpose();
        let (weight, bias) = (affine(1.0)?, affine(0.0)?);
        Ok(GroupNorm { weight, bias, options: self, core: ModuleCore::new() })
    }
}

/// Normalizes to mean 0 and variance 1 over each group of channels of each sample.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct GroupNorm {
    /// Learnable scale.
    pub weight: Option<Parameter>,
    /// Learnable shift.
    pub bias: Option<Parameter>,
    #[module(skip)]
    options: GroupNormOptions,
    core: ModuleCore,
}

impl GroupNorm {
    /// Creates the layer with PyTorch's defaults.
    #[track_caller]
    pub fn new(num_groups: usize, num_channels: usize) -> GroupNorm {
        built(GroupNormOptions::new(num_groups, num_channels).build())
    }

    fn arguments(&self) -> String {
        let o = &self.options;
        let sizes = ExtraRepr::new().value(o.num_groups).value(o.num_channels).field("eps", o.eps);
        sizes.field("affine", o.affine).field("bias", self.bias.is_some()).finish()
    }
}

impl Forward for GroupNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (w, b) = (self.weight.as_deref(), self.bias.as_deref());
        ops::group_norm(x, self.options.num_groups as i64, w, b, self.options.eps, false)
    }
}
