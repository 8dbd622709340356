//! Layers that only rearrange elements.

use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

/// Merges several dimensions into one.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Flatten {
    start_dim: i64,
    end_dim: i64,
    core: ModuleCore,
}

impl Flatten {
    /// Merges all dimensions but the first.
    pub fn new() -> Flatten {
        Flatten::dims(1, -1)
    }

    /// Merges `start_dim` to `end_dim`, inclusive.
    pub fn dims(start_dim: i64, end_dim: i64) -> Flatten {
        Flatten { start_dim, end_dim, core: ModuleCore::new() }
    }

    fn arguments(&self) -> String {
        ExtraRepr::new().field("start_dim", self.start_dim).field("end_dim", self.end_dim).finish()
    }
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten::new()
    }
}

impl Forward for Flatten {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::flatten(x, self.start_dim, self.end_dim)
    }
}

/// Splits one dimension into several.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Unflatten {
    dim: i64,
    sizes: Vec<i64>,
    core: ModuleCore,
}

impl Unflatten {
    /// Splits `dim` into dimensions of these sizes; one of them may be -1.
    pub fn new(dim: i64, sizes: impl Into<Vec<i64>>) -> Unflatten {
        Unflatten { dim, sizes: sizes.into(), core: ModuleCore::new() }
    }

    fn arguments(&self) -> String {
        ExtraRepr::new().field("dim", self.dim).field("unflattened_size", &self.sizes[..]).finish()
    }
}

impl Forward for Unflatten {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::unflatten(x, self.dim, &self.sizes.iter().map(|&n| n.into()).collect::<Vec<_>>())
    }
}

macro_rules! moves {
    ($($(#[$doc:meta])* $name:ident $op:ident $factor:ident)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            factor: usize,
            core: ModuleCore,
        }

        impl $name {
            /// By this factor.
            pub fn new(factor: usize) -> $name {
                $name { factor, core: ModuleCore::new() }
            }

            fn arguments(&self) -> String {
                ExtraRepr::new().field(stringify!($factor), self.factor).finish()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                ops::$op(x, (self.factor as i64).into())
            }
        }
    )*};
}
moves! {
    /// Moves channels into space: a larger image.
    PixelShuffle pixel_shuffle upscale_factor
    /// Moves space into channels: a smaller image.
    PixelUnshuffle pixel_unshuffle downscale_factor
    /// Interleaves the channels of groups.
    ChannelShuffle channel_shuffle groups
}
