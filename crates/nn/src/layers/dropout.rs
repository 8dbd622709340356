//! Dropout: in training mode, elements or whole channels are zeroed with some probability and the rest is scaled up.

use super::options::built;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore};
use firebrand_core::{Error, Result, Tensor, ops};

macro_rules! dropout {
    ($($(#[$doc:meta])* $name:ident $op:ident)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            p: f64,
            core: ModuleCore,
        }

        impl $name {
            /// Zeros with probability `p`.
            ///
            /// # Panics
            /// If `p` is not between 0 and 1.
            #[track_caller]
            pub fn new(p: f64) -> $name {
                built($name::try_new(p))
            }

            /// Zeros with probability `p`; an error unless it is between 0 and 1.
            pub fn try_new(p: f64) -> Result<$name> {
                if !(0.0..=1.0).contains(&p) {
                    return Err(Error::argument(stringify!($name), format!("expected p from 0 to 1, found {p}")));
                }
                Ok($name { p, core: ModuleCore::new() })
            }

            fn arguments(&self) -> String {
                ExtraRepr::new().field("p", self.p).field("inplace", false).finish()
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name { p: 0.5, core: ModuleCore::new() }
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                ops::$op(x, self.p, self.is_training())
            }
        }
    )*};
}
dropout! {
    /// Zeros elements.
    Dropout dropout
    /// Zeros channels of `[batch, channels, length]`.
    Dropout1d feature_dropout
    /// Zeros channels of `[batch, channels, height, width]`.
    Dropout2d feature_dropout
    /// Zeros channels of `[batch, channels, depth, height, width]`.
    Dropout3d feature_dropout
    /// Preserves the mean and variance of self-normalizing networks.
    AlphaDropout alpha_dropout
    /// Like [`AlphaDropout`], for whole channels.
    FeatureAlphaDropout feature_alpha_dropout
}
