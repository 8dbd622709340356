//! Linear and bilinear maps.

use super::options::{built, options, parameter};
use crate::init;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Result, Tensor, ops};

options! {
    /// Options of a [`Linear`] layer.
    pub struct LinearOptions(
        /// Size of each input sample.
        in_features: usize,
        /// Size of each output sample.
        out_features: usize,
    ) {
        /// Whether to add a learnable bias.
        bias: bool = true,
    }
}

impl LinearOptions {
    /// Builds the layer, with initial values from the default generator.
    pub fn build(self) -> Result<Linear> {
        let weight = parameter(&[self.out_features, self.in_features])?;
        let bias = self.bias.then(|| parameter(&[self.out_features])).transpose()?;
        init::default_weight_and_bias(&weight, bias.as_deref())?;
        Ok(Linear { weight, bias, core: ModuleCore::new() })
    }
}

/// A linear layer: `x Wᵀ + b`.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
    core: ModuleCore,
}

impl Linear {
    /// Creates the layer with a bias.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize) -> Linear {
        built(LinearOptions::new(in_features, out_features).build())
    }

    fn arguments(&self) -> String {
        let (rows, columns) = (self.weight.shape()[0], self.weight.shape()[1]);
        let sizes = ExtraRepr::new().field("in_features", columns).field("out_features", rows);
        sizes.field("bias", self.bias.is_some()).finish()
    }
}

impl Forward for Linear {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::linear(x, &self.weight, self.bias.as_deref())
    }
}

options! {
    /// Options of a [`Bilinear`] layer.
    pub struct BilinearOptions(
        /// Size of each sample of the first input.
        in1_features: usize,
        /// Size of each sample of the second input.
        in2_features: usize,
        /// Size of each output sample.
        out_features: usize,
    ) {
        /// Whether to add a learnable bias.
        bias: bool = true,
    }
}

impl BilinearOptions {
    /// Builds the layer, with initial values from the default generator.
    pub fn build(self) -> Result<Bilinear> {
        let weight = parameter(&[self.out_features, self.in1_features, self.in2_features])?;
        let bias = self.bias.then(|| parameter(&[self.out_features])).transpose()?;
        let bound = 1.0 / (self.in1_features as f64).sqrt();
        init::uniform_(&weight, -bound, bound)?;
        if let Some(bias) = &bias {
            init::uniform_(bias, -bound, bound)?;
        }
        Ok(Bilinear { weight, bias, core: ModuleCore::new() })
    }
}

/// `x₁ᵀ W x₂ + b`, of a pair of inputs.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Bilinear {
    /// `[out_features, in1_features, in2_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
    core: ModuleCore,
}

impl Bilinear {
    /// Creates the layer with a bias.
    #[track_caller]
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize) -> Bilinear {
        built(BilinearOptions::new(in1_features, in2_features, out_features).build())
    }

    fn arguments(&self) -> String {
        let sizes = self.weight.shape();
        let inputs = ExtraRepr::new().field("in1_features", sizes[1]).field("in2_features", sizes[2]);
        inputs.field("out_features", sizes[0]).field("bias", self.bias.is_some()).finish()
    }
}

impl Forward<(Tensor, Tensor)> for Bilinear {
    type Output = Tensor;
    fn forward(&self, (a, b): &(Tensor, Tensor)) -> Result<Tensor> {
        ops::bilinear(a, b, &self.weight, self.bias.as_deref())
    }
}

/// Returns its input unchanged.
#[derive(Module, Default)]
pub struct Identity {
    core: ModuleCore,
}

impl Identity {
    /// Creates the layer.
    pub fn new() -> Identity {
        Identity::default()
    }
}

impl Forward for Identity {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.clone())
    }
}
