//! Activations as layers.

use super::options::filled;
use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Result, Tensor, ops};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty = $default:expr),* } |$m:ident, $x:ident| $f:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
            core: ModuleCore,
        }

        impl $name {
            /// With PyTorch's defaults; fields may be changed.
            pub fn new() -> $name {
                $name { $($field: $default,)* core: ModuleCore::new() }
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
    /// The logistic function.
    Sigmoid {} |m, x| ops::sigmoid(x);
    /// Its logarithm.
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
    /// A sigmoid of three straight pieces.
    Hardsigmoid {} |m, x| ops::hardsigmoid(x);
    /// `x` times that.
    Hardswish {} |m, x| ops::hardswish(x);
    /// The scaled exponential unit of self-normalising networks.
    SELU {} |m, x| ops::selu(x);
    /// `x` times the normal distribution's share below `x`.
    GELU {
        /// Whether the hyperbolic tangent stands in for it.
        tanh: bool = false
    } |m, x| ops::gelu(x, if m.tanh { "tanh" } else { "none" });
    /// `x`, or exponential below zero.
    ELU {
        /// Depth below zero.
        alpha: f64 = 1.0
    } |m, x| ops::elu(x, m.alpha.into(), 1.into(), 1.into());
    /// As [`ELU`], with a continuous derivative for any depth.
    CELU {
        /// Depth below zero.
        alpha: f64 = 1.0
    } |m, x| ops::celu(x, m.alpha.into());
    /// `x`, or a slope below zero.
    LeakyReLU {
        /// The slope.
        negative_slope: f64 = 0.01
    } |m, x| ops::leaky_relu(x, m.negative_slope.into());
    /// As [`LeakyReLU`] with slopes drawn at random while training.
    RReLU {
        /// Smallest slope.
        lower: f64 = 1.0 / 8.0,
        /// Largest slope.
        upper: f64 = 1.0 / 3.0
    } |m, x| ops::rrelu(x, m.lower.into(), m.upper.into(), m.is_training());
    /// Cut off on both sides.
    Hardtanh {
        /// Smallest value.
        min_val: f64 = -1.0,
        /// Largest value.
        max_val: f64 = 1.0
    } |m, x| ops::hardtanh(x, m.min_val.into(), m.max_val.into());
    /// Zero near zero.
    Hardshrink {
        /// How near.
        lambd: f64 = 0.5
    } |m, x| ops::hardshrink(x, m.lambd.into());
    /// Zero near zero, and moved towards it elsewhere.
    Softshrink {
        /// How near, and how far.
        lambd: f64 = 0.5
    } |m, x| ops::softshrink(x, m.lambd.into());
    /// A smooth rectifier.
    Softplus {
        /// Sharpness.
        beta: f64 = 1.0,
        /// From where on it is the identity.
        threshold: f64 = 20.0
    } |m, x| ops::softplus(x, m.beta.into(), m.threshold.into());
    /// Half of the elements gated by the other half.
    GLU {
        /// The dimension that is halved.
        dim: i64 = -1
    } |m, x| ops::glu(x, m.dim);
    /// Exponentials that sum to one.
    Softmax {
        /// Along which dimension.
        dim: i64 = -1
    } |m, x| ops::softmax(x, m.dim, None);
    /// [`Softmax`] over the channels of images.
    Softmax2d {} |m, x| ops::softmax(x, -3, None);
    /// Their logarithms.
    LogSoftmax {
        /// Along which dimension.
        dim: i64 = -1
    } |m, x| ops::log_softmax(x, m.dim, None);
    /// [`Softmax`] of the negative.
    Softmin {
        /// Along which dimension.
        dim: i64 = -1
    } |m, x| ops::softmax(&ops::neg(x)?, m.dim, None);
    /// `x`, or a constant at or below a threshold.
    Threshold {
        /// The threshold.
        threshold: f64 = 0.0,
        /// The constant.
        value: f64 = 0.0
    } |m, x| ops::threshold(x, m.threshold.into(), m.value.into());
}

/// As [`LeakyReLU`] with slopes that are trained.
#[derive(Module)]
pub struct PReLU {
    /// The slopes: one, or one for each channel.
    pub weight: Parameter,
    core: ModuleCore,
}

impl PReLU {
    /// So many slopes, all 0.25 at the start.
    #[track_caller]
    pub fn new(num_parameters: usize) -> PReLU {
        PReLU { weight: super::options::built(filled(&[num_parameters], 0.25)), core: ModuleCore::new() }
    }
}

impl Forward for PReLU {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::prelu(x, &self.weight)
    }
}
