//! Convolution layers over one, two and three dimensions.

use super::options::{PerDim, Setting, Word, built, options, parameter, sizes};
use crate::init;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, ModuleField, ModuleVisitor, Parameter};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

/// Padding of a convolution's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding<const D: usize> {
    /// This much on both sides of each dimension.
    Size([usize; D]),
    /// Padding that preserves the size; requires stride 1.
    Same,
}

/// Values used for padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// Fills with zeros.
    #[default]
    Zeros,
    /// The input, reflected at its edge.
    Reflect,
    /// The edge value, repeated.
    Replicate,
    /// The opposite side of the input.
    Circular,
}

impl PaddingMode {
    fn name(self) -> &'static str {
        match self {
            PaddingMode::Zeros => "constant",
            PaddingMode::Reflect => "reflect",
            PaddingMode::Replicate => "replicate",
            PaddingMode::Circular => "circular",
        }
    }
}

impl ModuleField for PaddingMode {
    fn visit<'a>(&'a self, _: &str, _: &mut dyn ModuleVisitor<'a>) {}
}

impl<const D: usize> Setting<Padding<D>> for usize {
    fn setting(self) -> Padding<D> {
        Padding::Size([self; D])
    }
}
impl<const D: usize> Setting<Padding<D>> for [usize; D] {
    fn setting(self) -> Padding<D> {
        Padding::Size(self)
    }
}

impl<const D: usize> Padding<D> {
    /// Before and after every dimension, last dimension first, as `pad` takes it.
    fn both_sides(self, kernel: [usize; D], dilation: [usize; D]) -> Vec<SymInt> {
        let around = |d: usize| match self {
            Padding::Size(p) => (p[d], p[d]),
            Padding::Same => {
                let total = dilation[d] * (kernel[d] - 1);
                (total / 2, total - total / 2)
            }
        };
        (0..D).rev().flat_map(|d| [around(d).0.into(), around(d).1.into()]).collect()
    }
}

/// Returns an error unless groups divide the channels.
pub(super) fn check_groups(op: &'static str, groups: usize, channels: [usize; 2]) -> Result<()> {
    if groups > 0 && channels.iter().all(|c| c % groups == 0) {
        return Ok(());
    }
    let message =
        format!("expected channels divisible by {groups} groups, found {} in and {} out", channels[0], channels[1]);
    Err(Error::argument(op, message))
}

macro_rules! conv {
    ($name:ident, $options:ident, $d:literal, $conv:ident, $conv_padding:ident, $sizes:literal) => {
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
                /// Padding of the input.
                padding: Padding<$d> = Padding::Size([0; $d]),
                /// Spacing between kernel elements.
                dilation: [usize; $d] = [1; $d],
                /// Number of groups of channels, each convolved separately.
                groups: usize = 1,
                /// Whether to add a learnable bias per output channel.
                bias: bool = true,
                /// Values used for padding.
                padding_mode: PaddingMode = PaddingMode::Zeros,
            }
        }

        impl $options {
            /// Builds the layer, with initial values from the default generator.
            pub fn build(self) -> Result<$name> {
                self.check()?;
                let shape: Vec<usize> =
                    [self.out_channels, self.in_channels / self.groups].into_iter().chain(self.kernel_size).collect();
                let weight = parameter(&shape)?;
                let bias = self.bias.then(|| parameter(&[self.out_channels])).transpose()?;
                init::default_weight_and_bias(&weight, bias.as_deref())?;
                Ok($name {
                    weight,
                    bias,
                    around: self.padding.both_sides(self.kernel_size, self.dilation),
                    options: self,
                    core: ModuleCore::new(),
                })
            }

            fn check(&self) -> Result<()> {
                check_groups(stringify!($name), self.groups, [self.in_channels, self.out_channels])?;
                if self.padding == Padding::Same && self.stride != [1; $d] {
                    let message = format!("expected stride 1 with same padding, found {:?}", self.stride);
                    return Err(Error::argument(stringify!($name), message));
                }
                Ok(())
            }
        }

        #[doc = concat!("A convolution of `[batch, channels, ", $sizes, "]`; the batch may be missing.")]
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            /// `[out_channels, in_channels / groups, kernel…]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: $options,
            #[module(skip)]
            around: Vec<SymInt>,
            core: ModuleCore,
        }

        impl $name {
            /// Creates the layer with no padding, stride 1 and a bias.
            #[track_caller]
            pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl PerDim<$d>) -> $name {
                built($options::new(in_channels, out_channels, kernel_size.per_dim()).build())
            }

            /// The same layer with another stride.
            ///
            /// # Panics
            /// With `Padding::Same`, which needs stride 1.
            #[must_use]
            #[track_caller]
            pub fn stride(self, stride: impl Setting<[usize; $d]>) -> $name {
                self.with(|o| o.stride(stride))
            }

            /// The same layer with padding: a size, one per dimension, or [`Padding::Same`].
            ///
            /// # Panics
            /// With `Padding::Same` and a stride other than 1.
            #[must_use]
            #[track_caller]
            pub fn padding(self, padding: impl Setting<Padding<$d>>) -> $name {
                self.with(|o| o.padding(padding))
            }

            /// The same layer with padding filled in another way.
            #[must_use]
            pub fn padding_mode(self, mode: PaddingMode) -> $name {
                self.with(|o| o.padding_mode(mode))
            }

            /// The same layer with another spacing between kernel elements.
            #[must_use]
            pub fn dilation(self, dilation: impl Setting<[usize; $d]>) -> $name {
                self.with(|o| o.dilation(dilation))
            }

            /// Sets options that its parameters do not depend on.
            #[track_caller]
            fn with(mut self, set: impl FnOnce($options) -> $options) -> $name {
                self.options = set(self.options);
                built(self.options.check());
                self.around = self.options.padding.both_sides(self.options.kernel_size, self.options.dilation);
                self
            }

            fn arguments(&self) -> String {
                let o = &self.options;
                let channels = ExtraRepr::new().value(o.in_channels).value(o.out_channels);
                let window = channels.field("kernel_size", o.kernel_size).field("stride", o.stride);
                let padded = match o.padding {
                    Padding::Size(size) => window.field_unless("padding", size, [0; $d]),
                    Padding::Same => window.field("padding", Word("same")),
                };
                let spaced = padded.field_unless("dilation", o.dilation, [1; $d]).field_unless("groups", o.groups, 1);
                let text = spaced.field_unless("bias", o.bias, true);
                let mode = (o.padding_mode != PaddingMode::Zeros).then(|| Word(o.padding_mode.name()));
                text.field_unless("padding_mode", mode, None).finish()
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
                let (w, b) = (&*self.weight, self.bias.as_deref());
                let (stride, dilation, groups) = (sizes(o.stride), sizes(o.dilation), o.groups.into());
                match (o.padding_mode, o.padding) {
                    (PaddingMode::Zeros, Padding::Size(p)) => {
                        ops::$conv(x, w, b, &stride, &sizes(p), &dilation, groups)
                    }
                    (PaddingMode::Zeros, Padding::Same) => {
                        ops::$conv_padding(x, w, b, &stride, "same", &dilation, groups)
                    }
                    (mode, _) => {
                        let x = ops::pad(x, &self.around, mode.name(), None)?;
                        ops::$conv(&x, w, b, &stride, &sizes([0; $d]), &dilation, groups)
                    }
                }
            }
        }
    };
}
conv!(Conv1d, Conv1dOptions, 1, conv1d, conv1d_padding, "length");
conv!(Conv2d, Conv2dOptions, 2, conv2d, conv2d_padding, "height, width");
conv!(Conv3d, Conv3dOptions, 3, conv3d, conv3d_padding, "depth, height, width");
