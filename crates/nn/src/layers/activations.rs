//! Activations as layers.

use super::options::filled;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Result, Tensor, ops};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty = $default:expr),* } |$m:ident, $x:ident| $f:expr $(, shown $shown:expr)?;)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
            core: ModuleCore,
        }

        impl $name {
            /// Creates it with PyTorch's defaults; set the public fields to change them.
            pub fn new() -> $name {
                $name { $($field: $default,)* core: ModuleCore::new() }
            }

            fn arguments(&self) -> String {
                let _shown = |_m: &$name| ExtraRepr::new()$(.field(stringify!($field), _m.$field))*;
                $(let _shown: fn(&$name) -> ExtraRepr = $shown;)?
                _shown(self).finish()
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $m = self;
                let _ = $m;
                $f
            }
        }
    )*};
}
activations! {
    /// `max(x, 0)`.
    ReLU {} |m, x| ops::relu(x);
    /// `min(max(x, 0), 6)`.
    ReLU6 {} |m, x| ops::relu6(x);
    /// The logistic function, `1 / (1 + exp(-x))`.
    Sigmoid {} |m, x| ops::sigmoid(x);
    /// The logarithm of the sigmoid.
    LogSigmoid {} |m, x| ops::log_sigmoid(x);
    /// The hyperbolic tangent.
    Tanh {} |m, x| ops::tanh(x);
    /// `x - tanh(x)`.
    Tanhshrink {} |m, x| ops::sub(x, &ops::tanh(x)?, 1.into());
    /// `x / (1 + |x|)`.
    Softsign {} |m, x| ops::div(x, &ops::add_scalar(&ops::abs(x)?, 1.into(), 1.into())?);
    /// `x · sigmoid(x)`.
    SiLU {} |m, x| ops::silu(x);
    /// `x · tanh(softplus(x))`.
    Mish {} |m, x| ops::mish(x);
    /// A piecewise linear sigmoid.
    Hardsigmoid {} |m, x| ops::hardsigmoid(x);
    /// `x · hardsigmoid(x)`.
    Hardswish {} |m, x| ops::hardswish(x);
    /// The scaled exponential linear unit of self-normalizing networks.
    SELU {} |m, x| ops::selu(x);
    /// `x` times the standard normal distribution function at `x`.
    GELU {
        /// Whether to use the tanh approximation.
        tanh: bool = false
    } |m, x| ops::gelu(x, m.approximate()), shown |m| ExtraRepr::new().field("approximate", m.approximate());
    /// `x` above zero, `alpha · (exp(x) - 1)` below.
    ELU {
        /// The negated limit at -∞.
        alpha: f64 = 1.0
    } |m, x| ops::elu(x, m.alpha.into(), 1.into(), 1.into());
    /// Like [`ELU`], with a continuous derivative for any `alpha`.
    CELU {
        /// The negated limit at -∞.
        alpha: f64 = 1.0
    } |m, x| ops::celu(x, m.alpha.into());
    /// `x` above zero, `negative_slope · x` below.
    LeakyReLU {
        /// Slope below zero.
        negative_slope: f64 = 0.01
    } |m, x| ops::leaky_relu(x, m.negative_slope.into());
    /// Like [`LeakyReLU`], with random slopes in training.
    RReLU {
        /// Smallest slope.
        lower: f64 = 1.0 / 8.0,
        /// Largest slope.
        upper: f64 = 1.0 / 3.0
    } |m, x| ops::rrelu(x, m.lower.into(), m.upper.into(), m.is_training());
    /// Limits values to a range.
    Hardtanh {
        /// Smallest value.
        min_val: f64 = -1.0,
        /// Largest value.
        max_val: f64 = 1.0
    } |m, x| ops::hardtanh(x, m.min_val.into(), m.max_val.into());
    /// Replaces values near zero with zero.
    Hardshrink {
        /// The bound.
        lambd: f64 = 0.5
    } |m, x| ops::hardshrink(x, m.lambd.into()), shown |m| ExtraRepr::new().value(m.lambd);
    /// Moves values toward zero by `lambd`; those nearer than that become zero.
    Softshrink {
        /// The bound, and the amount.
        lambd: f64 = 0.5
    } |m, x| ops::softshrink(x, m.lambd.into()), shown |m| ExtraRepr::new().value(m.lambd);
    /// A smooth form of ReLU: `log(1 + exp(beta · x)) / beta`.
    Softplus {
        /// Sharpness; the larger, the closer to ReLU.
        beta: f64 = 1.0,
        /// Above this it is the identity.
        threshold: f64 = 20.0
    } |m, x| ops::softplus(x, m.beta.into(), m.threshold.into());
    /// Multiplies one half of the elements by the sigmoid of the other half.
    GLU {
        /// Dimension to halve.
        dim: i64 = -1
    } |m, x| ops::glu(x, m.dim);
    /// Exponentials, normalized to sum to 1.
    Softmax {
        /// Dimension to normalize along.
        dim: i64 = -1
    } |m, x| ops::softmax(x, m.dim, None);
    /// [`Softmax`] over the channels of images.
    Softmax2d {} |m, x| ops::softmax(x, -3, None);
    /// The logarithm of [`Softmax`].
    LogSoftmax {
        /// Dimension to normalize along.
        dim: i64 = -1
    } |m, x| ops::log_softmax(x, m.dim, None);
    /// [`Softmax`] of the negated input.
    Softmin {
        /// Dimension to normalize along.
        dim: i64 = -1
    } |m, x| ops::softmax(&ops::neg(x)?, m.dim, None);
    /// `x` above a threshold, a constant elsewhere.
    Threshold {
        /// The threshold.
        threshold: f64 = 0.0,
        /// The constant.
        value: f64 = 0.0
    } |m, x| ops::threshold(x, m.threshold.into(), m.value.into());
}

impl GELU {
    fn approximate(&self) -> &'static str {
        if self.tanh { "tanh" } else { "none" }
    }
}

/// Like [`LeakyReLU`], with learnable slopes.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct PReLU {
    /// The slopes: one, or one per channel.
    pub weight: Parameter,
    core: ModuleCore,
}

impl PReLU {
    /// With this many slopes, initially 0.25.
    #[track_caller]
    pub fn new(num_parameters: usize) -> PReLU {
        PReLU { weight: super::options::built(filled(&[num_parameters], 0.25)), core: ModuleCore::new() }
    }

    fn arguments(&self) -> String {
        ExtraRepr::new().field("num_parameters", self.weight.numel()).finish()
    }
}

impl Forward for PReLU {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::prelu(x, &self.weight)
    }
}
