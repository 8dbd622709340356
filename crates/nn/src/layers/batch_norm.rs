//! Normalization by the statistics of the batch (batch norm) or of each sample (instance norm), per channel.

use super::options::{built, filled, options};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Buffer, ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Error, Result, Tensor, ops};

macro_rules! channel_norm {
    (
        $doc:literal, $name:ident, $options:ident, dims: $dims:pat, $shape:literal, affine: $affine:literal,
        track: $track:literal, |$m:ident, $x:ident, $momentum:ident| $forward:expr
    ) => {
        options! {
            #[doc = concat!("Options of a [`", stringify!($name), "`] layer.")]
            pub struct $options(
                /// Number of channels.
                num_features: usize,
            ) {
                /// Added to the denominator for numerical stability.
                eps: f64 = 1e-5,
                /// Weight of the batch in the running statistics; `None` averages over all batches.
                momentum: Option<f64> = Some(0.1),
                /// Whether channels have a learnable scale and shift.
                affine: bool = $affine,
                /// Whether to keep running statistics for evaluation mode.
                track_running_stats: bool = $track,
            }
        }

        impl $options {
            /// Builds the layer: scale 1, shift 0, running mean 0, running variance 1.
            pub fn build(self) -> Result<$name> {
                let n = self.num_features;
                let affine = |value| self.affine.then(|| filled(&[n], value)).transpose();
                let (track, f32) = (self.track_running_stats, DType::F32);
                Ok($name {
                    weight: affine(1.0)?,
                    bias: affine(0.0)?,
                    running_mean: track.then(|| Buffer::new(Tensor::zeros([n], f32))),
                    running_var: track.then(|| Buffer::new(Tensor::ones([n], f32))),
                    num_batches_tracked: track.then(|| Buffer::new(Tensor::scalar(0i64))),
                    options: self,
                    core: ModuleCore::new(),
                })
            }
        }

        #[doc = $doc]
        #[doc = concat!("Input: `", $shape, "`.")]
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            /// Learnable scale.
            pub weight: Option<Parameter>,
            /// Learnable shift.
            pub bias: Option<Parameter>,
            /// Mean for evaluation mode.
            pub running_mean: Option<Buffer>,
            /// Variance for evaluation mode.
            pub running_var: Option<Buffer>,
            /// Number of batches in the statistics.
            pub num_batches_tracked: Option<Buffer>,
            #[module(skip)]
            options: $options,
            core: ModuleCore,
        }

        impl $name {
            /// Creates the layer with PyTorch's defaults.
            #[track_caller]
            pub fn new(num_features: usize) -> $name {
                built($options::new(num_features).build())
            }

            /// The options it was built with.
            pub fn options(&self) -> &$options {
                &self.options
            }

            fn arguments(&self) -> String {
                let o = &self.options;
                let head = ExtraRepr::new().value(o.num_features).field("eps", o.eps).field("momentum", o.momentum);
                let affine = head.field("affine", o.affine).field("bias", self.bias.is_some());
                affine.field("track_running_stats", o.track_running_stats).finish()
            }

            fn buffer(b: &Option<Buffer>) -> Option<Tensor> {
                b.as_ref().map(Buffer::get)
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                if !matches!(x.ndim(), $dims) {
                    let message = format!("expected {}, found shape {:?}", $shape, x.shape());
                    return Err(Error::argument(stringify!($name), message));
                }
                let ($m, $x) = (self, x);
                let $momentum = match (self.options.momentum, &self.num_batches_tracked) {
                    (Some(m), _) => m,
                    (None, None) => 0.0,
                    (None, Some(n)) => 1.0 / (n.get().try_item::<i64>()? + i64::from(self.is_training())) as f64,
                };
                $forward
            }
        }
    };
}

macro_rules! batch_norm {
    ($name:ident, $options:ident, $dims:pat, $shape:literal) => {
        channel_norm!(
            "Normalizes each channel over the batch; in evaluation mode with the running statistics.",
            $name, $options, dims: $dims, $shape, affine: true, track: true,
            |m, x, momentum| {
                let (mean, var) = (Self::buffer(&m.running_mean), Self::buffer(&m.running_var));
                if m.is_training() && let Some(n) = &m.num_batches_tracked {
                    no_grad(|| ops::add_scalar_(&n.get(), 1.into(), 1.into()).map(drop))?;
                }
                let batch_statistics = m.is_training() || mean.is_none();
                let (w, b) = (m.weight.as_deref(), m.bias.as_deref());
                ops::batch_norm(x, w, b, mean.as_ref(), var.as_ref(), batch_statistics, momentum, m.options.eps, false)
            }
        );
    };
}
batch_norm!(BatchNorm1d, BatchNorm1dOptions, 2 | 3, "[batch, channels] or [batch, channels, length]");
batch_norm!(BatchNorm2d, BatchNorm2dOptions, 4, "[batch, channels, height, width]");
batch_norm!(BatchNorm3d, BatchNorm3dOptions, 5, "[batch, channels, depth, height, width]");

macro_rules! instance_norm {
    ($name:ident, $options:ident, $batched:literal, $dims:pat, $shape:literal) => {
        channel_norm!(
            "Normalizes each channel of each sample by itself.",
            $name, $options, dims: $dims, $shape, affine: false, track: false,
            |m, x, momentum| {
                let (mean, var) = (Self::buffer(&m.running_mean), Self::buffer(&m.running_var));
                let own_statistics = m.is_training() || mean.is_none();
                let (w, b, eps) = (m.weight.as_deref(), m.bias.as_deref(), m.options.eps);
                let norm = |x: &Tensor| {
                    ops::instance_norm(x, w, b, mean.as_ref(), var.as_ref(), own_statistics, momentum, eps, false)
                };
                if x.ndim() == $batched { norm(x) } else { ops::squeeze_dim(&norm(&ops::unsqueeze(x, 0)?)?, 0) }
            }
        );
    };
}
instance_norm!(InstanceNorm1d, InstanceNorm1dOptions, 3, 2 | 3, "[batch, channels, length]; the batch may be missing");
instance_norm!(
    InstanceNorm2d,
    InstanceNorm2dOptions,
    4,
    3 | 4,
    "[batch, channels, height, width]; the batch may be missing"
);
instance_norm!(
    InstanceNorm3d,
    InstanceNorm3dOptions,
    5,
    4 | 5,
    "[batch, channels, depth, height, width]; the batch may be missing"
);
