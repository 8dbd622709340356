//! Transposed convolutions over one, two and three dimensions: the gradients of convolutions, as layers.

use super::conv::check_groups;
use super::options::{PerDim, built, options, parameter, sizes};
use crate::init;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Result, Tensor, ops};

macro_rules! conv_transpose {
    ($name:ident, $options:ident, $d:literal, $conv:ident, $sizes:literal) => {
        options! {
            #[doc = concat!("Options of a [`", stringify!($name), "`] layer.")]
            pub struct $options(
                /// Number of input channels.
                in_channels: usize,
                /// Number of output channels.
                out_channels: usize,
                /// Size of the kernel.
                kernel_size: [usize; $d],
            ) {
                /// Stride of the kernel.
                stride: [usize; $d] = [1; $d],
                /// Amount to remove from both sides of each output dimension.
                padding: [usize; $d] = [0; $d],
                /// Amount to add to one side of each output dimension.
                output_padding: [usize; $d] = [0; $d],
                /// Number of groups of channels.
                groups: usize = 1,
                /// Whether to add a learnable bias per output channel.
                bias: bool = true,
                /// Spacing between kernel elements.
                dilation: [usize; $d] = [1; $d],
            }
        }

        impl $options {
            /// Builds the layer, with initial values from the default generator.
            pub fn build(self) -> Result<$name> {
                check_groups(stringify!($name), self.groups, [self.in_channels, self.out_channels])?;
                let shape: Vec<usize> =
                    [self.in_channels, self.out_channels / self.groups].into_iter().chain(self.kernel_size).collect();
                let weight = parameter(&shape)?;
                let bias = self.bias.then(|| parameter(&[self.out_channels])).transpose()?;
                init::default_weight_and_bias(&weight, bias.as_deref())?;
                Ok($name { weight, bias, options: self, core: ModuleCore::new() })
            }
        }

        #[doc = concat!("A transposed convolution of `[batch, channels, ", $sizes, "]`; the batch may be missing.")]
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            /// `[in_channels, out_channels / groups, kernel…]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: $options,
            core: ModuleCore,
        }

        impl $name {
            /// Creates the layer with no padding, stride 1 and a bias.
            #[track_caller]
            pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl PerDim<$d>) -> $name {
                built($options::new(in_channels, out_channels, kernel_size.per_dim()).build())
            }

            fn arguments(&self) -> String {
                let o = &self.options;
                let channels = ExtraRepr::new().value(o.in_channels).value(o.out_channels);
                let window = channels.field("kernel_size", o.kernel_size).field("stride", o.stride);
                let padded = window.field_unless("padding", o.padding, [0; $d]);
                let spaced = padded.field_unless("dilation", o.dilation, [1; $d]);
                let out = spaced.field_unless("output_padding", o.output_padding, [0; $d]);
                out.field_unless("groups", o.groups, 1).field_unless("bias", o.bias, true).finish()
            }

            /// The options it was built with.
            pub fn options(&self) -> &$options {
                &self.options
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let o = &self.options;
                ops::$conv(
                    x,
                    &self.weight,
                    self.bias.as_deref(),
                    &sizes(o.stride),
                    &sizes(o.padding),
                    &sizes(o.output_padding),
                    o.groups.into(),
                    &sizes(o.dilation),
                )
            }
        }
    };
}
conv_transpose!(ConvTranspose1d, ConvTranspose1dOptions, 1, conv_transpose1d, "length");
conv_transpose!(ConvTranspose2d, ConvTranspose2dOptions, 2, conv_transpose2d, "height, width");
conv_transpose!(ConvTranspose3d, ConvTranspose3dOptions, 3, conv_transpose3d, "depth, height, width");
