//! Pooling: the maximum or mean of windows, of fixed size or for a given output size.

use super::options::{OneOrEach, PerDim, ints, options, sizes};
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Error, Result, Tensor, ops};

macro_rules! layer {
    ($doc:literal, $name:ident, $options:ident, $d:literal, |$o:ident, $x:ident| $f:expr) => {
        impl $options {
            /// Creates the layer.
            pub fn build(self) -> $name {
                $name { options: self, core: ModuleCore::new() }
            }
        }

        #[doc = $doc]
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            #[module(skip)]
            options: $options,
            core: ModuleCore,
        }

        impl $name {
            /// Adjacent windows of this size.
            pub fn new(kernel_size: impl PerDim<$d>) -> $name {
                $options::new(kernel_size.per_dim()).build()
            }

            fn arguments(&self) -> String {
                self.options.show().finish()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $o = &self.options;
                $f
            }
        }
    };
}

macro_rules! max_pool {
    ($($name:ident $options:ident $d:literal $op:ident),*) => {$(
        options! {
            #[doc = concat!("Options of a [`", stringify!($name), "`] layer.")]
            pub struct $options(
                /// Size of the kernel.
                kernel_size: [usize; $d],
            ) {
                /// Stride of the window; the kernel size if not given.
                stride: Option<[usize; $d]> = None,
                /// Padding on both sides of each dimension.
                padding: [usize; $d] = [0; $d],
                /// Spacing between kernel elements.
                dilation: [usize; $d] = [1; $d],
                /// Whether a window may extend past the end.
                ceil_mode: bool = false,
            }
        }
        impl $options {
            fn show(&self) -> ExtraRepr {
                let stride = self.stride.unwrap_or(self.kernel_size);
                let window = ExtraRepr::new().field("kernel_size", OneOrEach(self.kernel_size));
                let padded = window.field("stride", OneOrEach(stride)).field("padding", OneOrEach(self.padding));
                padded.field("dilation", OneOrEach(self.dilation)).field("ceil_mode", self.ceil_mode)
            }
        }
        layer!("The largest element of each window.", $name, $options, $d, |o, x| {
            let (kernel, stride) = (ints(o.kernel_size), ints(o.stride.unwrap_or(o.kernel_size)));
            ops::$op(x, &kernel, &stride, &ints(o.padding), &ints(o.dilation), o.ceil_mode)
        });
    )*};
}
max_pool!(
    MaxPool1d MaxPool1dOptions 1 max_pool1d,
    MaxPool2d MaxPool2dOptions 2 max_pool2d,
    MaxPool3d MaxPool3dOptions 3 max_pool3d
);

impl MaxPool2d {
    /// The maxima and their indices in the image, which [`MaxUnpool2d`] needs.
    pub fn with_indices(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let o = &self.options;
        let (kernel, stride) = (ints(o.kernel_size), ints(o.stride.unwrap_or(o.kernel_size)));
        ops::max_pool2d_with_indices(x, &kernel, &stride, &ints(o.padding), &ints(o.dilation), o.ceil_mode)
    }
}

/// Puts maxima back where [`MaxPool2d::with_indices`] found them; the rest is zero.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct MaxUnpool2d {
    #[module(skip)]
    kernel_size: [usize; 2],
    #[module(skip)]
    stride: [usize; 2],
    #[module(skip)]
    padding: [usize; 2],
    core: ModuleCore,
}

impl MaxUnpool2d {
    /// For adjacent windows of this size.
    pub fn new(kernel_size: impl PerDim<2>) -> MaxUnpool2d {
        MaxUnpool2d::of(&MaxPool2dOptions::new(kernel_size.per_dim()))
    }

    /// Undoes a pooling with these options.
    pub fn of(o: &MaxPool2dOptions) -> MaxUnpool2d {
        let stride = o.stride.unwrap_or(o.kernel_size);
        MaxUnpool2d { kernel_size: o.kernel_size, stride, padding: o.padding, core: ModuleCore::new() }
    }

    fn arguments(&self) -> String {
        let window = ExtraRepr::new().field("kernel_size", self.kernel_size).field("stride", self.stride);
        window.field("padding", self.padding).finish()
    }

    /// Sets the size of the output, where several are possible.
    pub fn to_size(&self, x: &Tensor, indices: &Tensor, size: [usize; 2]) -> Result<Tensor> {
        ops::max_unpool2d(x, indices, &sizes(size))
    }
}

/// Unpools elements at their indices.
impl Forward<(Tensor, Tensor)> for MaxUnpool2d {
    type Output = Tensor;
    fn forward(&self, (x, indices): &(Tensor, Tensor)) -> Result<Tensor> {
        let [.., height, width] = *x.shape() else {
            let message = format!("expected images [channels, height, width], found shape {:?}", x.shape());
            return Err(Error::argument("MaxUnpool2d", message));
        };
        let size = |n: usize, d: usize| {
            (n.saturating_sub(1) * self.stride[d] + self.kernel_size[d]).saturating_sub(2 * self.padding[d])
        };
        self.to_size(x, indices, [size(height, 0), size(width, 1)])
    }
}

macro_rules! avg_pool {
    ($($name:ident $options:ident $d:literal $op:ident ($($divisor:tt)?)),*) => {$(
        options! {
            #[doc = concat!("Options of an [`", stringify!($name), "`] layer.")]
            pub struct $options(
                /// Size of the kernel.
                kernel_size: [usize; $d],
            ) {
                /// Stride of the window; the kernel size if not given.
                stride: Option<[usize; $d]> = None,
                /// Padding on both sides of each dimension.
                padding: [usize; $d] = [0; $d],
                /// Whether a window may extend past the end.
                ceil_mode: bool = false,
                /// Whether padding is included in the mean.
                count_include_pad: bool = true,
            }
        }
        impl $options {
            fn show(&self) -> ExtraRepr {
                // PyTorch keeps a tuple of one size, and several as they were given.
                let shown = |extra: ExtraRepr, name: &str, sizes: [usize; $d]| match $d {
                    1 => extra.field(name, sizes),
                    _ => extra.field(name, OneOrEach(sizes)),
                };
                let window = shown(ExtraRepr::new(), "kernel_size", self.kernel_size);
                shown(shown(window, "stride", self.stride.unwrap_or(self.kernel_size)), "padding", self.padding)
            }
        }
        layer!("The mean of each window.", $name, $options, $d, |o, x| {
            let (kernel, stride) = (ints(o.kernel_size), ints(o.stride.unwrap_or(o.kernel_size)));
            ops::$op(x, &kernel, &stride, &ints(o.padding), o.ceil_mode, o.count_include_pad $(, $divisor)?)
        });
    )*};
}
avg_pool!(
    AvgPool1d AvgPool1dOptions 1 avg_pool1d (),
    AvgPool2d AvgPool2dOptions 2 avg_pool2d (None),
    AvgPool3d AvgPool3dOptions 3 avg_pool3d (None)
);

macro_rules! lp_pool {
    ($($name:ident $options:ident $d:literal $op:ident ($($divisor:tt)?)),*) => {$(
        options! {
            #[doc = concat!("Options of an [`", stringify!($name), "`] layer.")]
            pub struct $options(
                /// Order of the norm.
                norm_type: f64,
                /// Size of the kernel.
                kernel_size: [usize; $d],
            ) {
                /// Stride of the window; the kernel size if not given.
                stride: Option<[usize; $d]> = None,
                /// Whether a window may extend past the end.
                ceil_mode: bool = false,
            }
        }

        impl $options {
            /// Creates the layer.
            pub fn build(self) -> $name {
                $name { options: self, core: ModuleCore::new() }
            }
        }

        /// The norm of each window.
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            #[module(skip)]
            options: $options,
            core: ModuleCore,
        }

        impl $name {
            /// For adjacent windows of this size.
            pub fn new(norm_type: f64, kernel_size: impl PerDim<$d>) -> $name {
                $options::new(norm_type, kernel_size.per_dim()).build()
            }

            fn arguments(&self) -> String {
                let o = &self.options;
                let norm = ExtraRepr::new().field("norm_type", o.norm_type);
                let window = norm.field("kernel_size", OneOrEach(o.kernel_size));
                window.field("stride", o.stride.map(OneOrEach)).field("ceil_mode", o.ceil_mode).finish()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let o = &self.options;
                let (kernel, stride) = (ints(o.kernel_size), ints(o.stride.unwrap_or(o.kernel_size)));
                let powers = ops::pow_scalar(x, o.norm_type.into())?;
                let means = ops::$op(&powers, &kernel, &stride, &[0; $d], o.ceil_mode, true $(, $divisor)?)?;
                let sums = ops::mul(&ops::sign(&means)?, &ops::relu(&ops::abs(&means)?)?)?;
                let count: i64 = kernel.iter().product();
                ops::pow_scalar(&ops::mul_scalar(&sums, count.into())?, (1.0 / o.norm_type).into())
            }
        }
    )*};
}
lp_pool!(
    LPPool1d LPPool1dOptions 1 avg_pool1d (),
    LPPool2d LPPool2dOptions 2 avg_pool2d (None),
    LPPool3d LPPool3dOptions 3 avg_pool3d (None)
);

macro_rules! adaptive {
    ($($doc:literal $name:ident $d:literal |$x:ident, $n:ident| $f:expr;)*) => {$(
        #[doc = $doc]
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            #[module(skip)]
            output_size: [usize; $d],
            core: ModuleCore,
        }

        impl $name {
            /// Creates the layer for this output size.
            pub fn new(output_size: impl PerDim<$d>) -> $name {
                $name { output_size: output_size.per_dim(), core: ModuleCore::new() }
            }

            fn arguments(&self) -> String {
                ExtraRepr::new().field("output_size", OneOrEach(self.output_size)).finish()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $n = self.output_size;
                $f
            }
        }
    )*};
}
adaptive! {
    "The mean of each window, for a given output size." AdaptiveAvgPool1d 1 |x, n| ops::adaptive_avg_pool1d(x, &ints(n));
    "The mean of each window, for a given output size." AdaptiveAvgPool2d 2 |x, n| ops::adaptive_avg_pool2d(x, &sizes(n));
    "The mean of each window, for a given output size." AdaptiveAvgPool3d 3 |x, n| ops::adaptive_avg_pool3d(x, &sizes(n));
    "The largest element of each window, for a given output size." AdaptiveMaxPool1d 1 |x, n| Ok(ops::adaptive_max_pool1d(x, &ints(n))?.0);
    "The largest element of each window, for a given output size." AdaptiveMaxPool2d 2 |x, n| Ok(ops::adaptive_max_pool2d(x, &ints(n))?.0);
    "The largest element of each window, for a given output size." AdaptiveMaxPool3d 3 |x, n| Ok(ops::adaptive_max_pool3d(x, &ints(n))?.0);
}
