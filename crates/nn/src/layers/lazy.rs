//! Layers that infer the size of their input from the first one they see.
//!
//! A lazy layer points to a layer that is created by its first call: before, it has no parameters; afterwards it *is* that
//! layer, with its names, hooks and initial values. Call it once before you pass its parameters to an optimizer.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::{DType, Tensor};
//! use firebrand::nn::layers::{Forward, LazyLinear, Module};
//!
//! let layer = LazyLinear::new(3);
//! assert!(layer.parameters().is_empty());
//! layer.call(&Tensor::ones([2, 7], DType::F32));
//! assert_eq!(layer.named_parameters()[0].1.shape(), [3, 7]);
//! ```

use super::options::PerDim;
use super::*;
use firebrand_core::{Error, Result, Tensor};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A layer that can be built once its input is known.
pub trait LazyLayer: Forward<Tensor, Output = Tensor> + Sized {
    /// Its options; the size of the input is filled in.
    type Options: Clone + Send + Sync + 'static;

    /// Builds the layer for inputs like this one.
    fn for_input(options: Self::Options, input: &Tensor) -> Result<Self>;
}

/// A layer that is built by its first call.
pub struct Lazy<L: LazyLayer> {
    options: L::Options,
    layer: OnceLock<L>,
    /// Held while the layer is built, so that initial values are drawn once.
    making: Mutex<()>,
    core: ModuleCore,
}

impl<L: LazyLayer> Lazy<L> {
    /// With these options; the size of the input in them is ignored.
    pub fn with(options: L::Options) -> Lazy<L> {
        Lazy { options, layer: OnceLock::new(), making: Mutex::new(()), core: ModuleCore::new() }
    }

    /// The layer, if it has been built.
    pub fn get(&self) -> Option<&L> {
        self.layer.get()
    }

    /// The layer; built for inputs like this one if there is none yet.
    pub fn get_or_make(&self, input: &Tensor) -> Result<&L> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layer) = self.layer.get() {
            return Ok(layer);
        }
        let layer = L::for_input(self.options.clone(), input)?;
        layer.set_training(self.core.is_training());
        Ok(self.layer.get_or_init(|| layer))
    }
}

impl<L: LazyLayer> std::fmt::Debug for Lazy<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        firebrand_core::module::fmt_module(self.as_module(), f)
    }
}

impl<L: LazyLayer> Module for Lazy<L> {
    fn core(&self) -> &ModuleCore {
        self.layer.get().map_or(&self.core, Module::core)
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        if let Some(layer) = self.layer.get() {
            layer.visit(visitor)
        }
    }
    fn name(&self) -> &'static str {
        self.layer.get().map_or("Lazy", Module::name)
    }
    fn pointee(&self) -> Option<&dyn Module> {
        self.layer.get().map(AsModule::as_module)
    }
}

impl<L: LazyLayer> Forward for Lazy<L> {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.get_or_make(x)?.forward(x)
    }
}

/// The size of one dimension of the input.
fn size(layer: &'static str, x: &Tensor, dim: Option<usize>) -> Result<usize> {
    dim.and_then(|d| x.shape().get(d)).copied().ok_or_else(|| {
        Error::argument(layer, format!("cannot infer the layer's size from an input of shape {:?}", x.shape()))
    })
}

macro_rules! lazy {
    ($($doc:literal $lazy:ident $layer:ident $options:ident $field:ident |$x:ident| $dim:expr;)*) => {$(
        #[doc = $doc]
        pub type $lazy = Lazy<$layer>;

        impl LazyLayer for $layer {
            type Options = $options;
            fn for_input(options: $options, $x: &Tensor) -> Result<$layer> {
                $options { $field: size(stringify!($lazy), $x, $dim)?, ..options }.build()
            }
        }
    )*};
}

/// The dimension of the channels: the batch may be missing.
fn channels(x: &Tensor, spatial: usize) -> Option<usize> {
    x.ndim().checked_sub(spatial + 1)
}

lazy! {
    "A [`Linear`] layer that infers `in_features`."
    LazyLinear Linear LinearOptions in_features |x| x.ndim().checked_sub(1);
    "A [`Conv1d`] layer that infers `in_channels`."
    LazyConv1d Conv1d Conv1dOptions in_channels |x| channels(x, 1);
    "A [`Conv2d`] layer that infers `in_channels`."
    LazyConv2d Conv2d Conv2dOptions in_channels |x| channels(x, 2);
    "A [`Conv3d`] layer that infers `in_channels`."
    LazyConv3d Conv3d Conv3dOptions in_channels |x| channels(x, 3);
    "A [`ConvTranspose1d`] layer that infers `in_channels`."
    LazyConvTranspose1d ConvTranspose1d ConvTranspose1dOptions in_channels |x| channels(x, 1);
    "A [`ConvTranspose2d`] layer that infers `in_channels`."
    LazyConvTranspose2d ConvTranspose2d ConvTranspose2dOptions in_channels |x| channels(x, 2);
    "A [`ConvTranspose3d`] layer that infers `in_channels`."
    LazyConvTranspose3d ConvTranspose3d ConvTranspose3dOptions in_channels |x| channels(x, 3);
    "A [`BatchNorm1d`] layer that infers `num_features`."
    LazyBatchNorm1d BatchNorm1d BatchNorm1dOptions num_features |_x| Some(1);
    "A [`BatchNorm2d`] layer that infers `num_features`."
    LazyBatchNorm2d BatchNorm2d BatchNorm2dOptions num_features |_x| Some(1);
    "A [`BatchNorm3d`] layer that infers `num_features`."
    LazyBatchNorm3d BatchNorm3d BatchNorm3dOptions num_features |_x| Some(1);
    "An [`InstanceNorm1d`] layer that infers `num_features`."
    LazyInstanceNorm1d InstanceNorm1d InstanceNorm1dOptions num_features |x| channels(x, 1);
    "An [`InstanceNorm2d`] layer that infers `num_features`."
    LazyInstanceNorm2d InstanceNorm2d InstanceNorm2dOptions num_features |x| channels(x, 2);
    "An [`InstanceNorm3d`] layer that infers `num_features`."
    LazyInstanceNorm3d InstanceNorm3d InstanceNorm3dOptions num_features |x| channels(x, 3);
}

impl LazyLinear {
    /// Creates the layer with a bias.
    pub fn new(out_features: usize) -> LazyLinear {
        Lazy::with(LinearOptions::new(0, out_features))
    }
}

macro_rules! lazy_conv {
    ($($lazy:ident $options:ident $d:literal),* $(,)?) => {$(
        impl $lazy {
            /// Creates the layer with no padding, stride 1 and a bias.
            pub fn new(out_channels: usize, kernel_size: impl PerDim<$d>) -> $lazy {
                Lazy::with($options::new(0, out_channels, kernel_size.per_dim()))
            }
        }
    )*};
}
lazy_conv!(
    LazyConv1d Conv1dOptions 1,
    LazyConv2d Conv2dOptions 2,
    LazyConv3d Conv3dOptions 3,
    LazyConvTranspose1d ConvTranspose1dOptions 1,
    LazyConvTranspose2d ConvTranspose2dOptions 2,
    LazyConvTranspose3d ConvTranspose3dOptions 3,
);

macro_rules! lazy_norm {
    ($($lazy:ident $options:ident),* $(,)?) => {$(
        impl $lazy {
            /// Creates the layer with PyTorch's defaults: learnable scale and shift, running statistics.
            pub fn new() -> $lazy {
                Lazy::with($options { affine: true, track_running_stats: true, ..$options::new(0) })
            }
        }

        impl Default for $lazy {
            fn default() -> $lazy {
                $lazy::new()
            }
        }
    )*};
}
lazy_norm!(
    LazyBatchNorm1d BatchNorm1dOptions,
    LazyBatchNorm2d BatchNorm2dOptions,
    LazyBatchNorm3d BatchNorm3dOptions,
    LazyInstanceNorm1d InstanceNorm1dOptions,
    LazyInstanceNorm2d InstanceNorm2dOptions,
    LazyInstanceNorm3d InstanceNorm3dOptions,
);
