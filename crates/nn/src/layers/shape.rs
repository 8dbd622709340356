//! Layers that only rearrange elements.

use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

/// Merges several dimensions into one.
#[derive(Module)]
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
}

impl Forward for Unflatten {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::unflatten(x, self.dim, &self.sizes.iter().map(|&n| n.into()).collect::<Vec<_>>())
    }
}

macro_rules! moves {
    ($($(#[$doc:meta])* $name:ident $op:ident)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        pub struct $name {
            factor: usize,
            core: ModuleCore,
        }

        impl $name {
            /// By this factor.
            pub fn new(factor: usize) -> $name {
                $name { factor, core: ModuleCore::new() }
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
    PixelShuffle pixel_shuffle
    /// Moves space into channels: a smaller image.
    PixelUnshuffle pixel_unshuffle
    /// Interleaves the channels of groups.
    ChannelShuffle channel_shuffle
}
