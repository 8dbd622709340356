//! Losses as modules: from an input and a target to a scalar.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::Tensor;
//! use firebrand::nn::losses::{Loss, MSELoss};
//! let loss = MSELoss::new().loss(&Tensor::new(&[1.0f64, 2.0]), &Tensor::new(&[0.0f64, 4.0]))?;
//! assert_eq!(loss.item::<f64>(), 2.5);
//! # Ok::<(), firebrand::Error>(())
//! ```

mod adaptive;
mod classes;
mod ctc;
mod triplet;

pub use adaptive::AdaptiveLogSoftmaxWithLoss;
pub use classes::cross_entropy_of_classes;
pub use ctc::CTCLoss;
pub use triplet::TripletMarginWithDistanceLoss;

use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Buffer, Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

/// How the losses of single elements are reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// No reduction.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// The integer that ops take.
    fn code(self) -> i64 {
        match self {
            Reduction::None => 0,
            Reduction::Mean => 1,
            Reduction::Sum => 2,
        }
    }
}

/// A loss of an input and a target; implemented for every module of that shape.
pub trait Loss: Forward<(Tensor, Tensor), Output = Tensor> {
    /// The loss.
    fn loss(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        self.try_call(&(input.clone(), target.clone()))
    }
}

impl<L: Forward<(Tensor, Tensor), Output = Tensor> + ?Sized> Loss for L {}

/// Reduces the losses of single elements.
fn reduced(losses: &Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(losses.clone()),
        Reduction::Mean => ops::mean(losses, None),
        Reduction::Sum => ops::sum(losses, None),
    }
}

fn buffer(weight: &Option<Buffer>) -> Option<Tensor> {
    weight.as_ref().map(Buffer::get)
}

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident($input:ty) {
        $($(#[$fdoc:meta])* $field:ident: $ty:ty = $default:expr),* $(,)?
    } |$m:ident, $x:pat_param, $r:ident| $f:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
            /// How the losses of single elements are reduced.
            #[module(skip)]
            pub reduction: Reduction,
            core: ModuleCore,
        }

        impl $name {
            /// Creates it with PyTorch's defaults; set the public fields to change them.
            pub fn new() -> $name {
                $name { $($field: $default,)* reduction: Reduction::Mean, core: ModuleCore::new() }
            }

            /// Sets the reduction.
            pub fn with_reduction(self, reduction: Reduction) -> $name {
                $name { reduction, ..self }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }

        impl Forward<$input> for $name {
            type Output = Tensor;
            fn forward(&self, $x: &$input) -> Result<Tensor> {
                let ($m, $r) = (self, self.reduction.code());
                let _ = ($m, $r);
                $f
            }
        }
    )*};
}

type Pair = (Tensor, Tensor);
type Triple = (Tensor, Tensor, Tensor);

losses! {
    /// Squared difference.
    MSELoss(Pair) {} |m, (x, y), r| ops::mse_loss(x, y, r);
    /// Absolute difference.
    L1Loss(Pair) {} |m, (x, y), r| ops::l1_loss(x, y, r);
    /// Absolute difference, quadratic near zero.
    SmoothL1Loss(Pair) {
        /// The bound.
        beta: f64 = 1.0
    } |m, (x, y), r| ops::smooth_l1_loss(x, y, r, m.beta);
    /// Quadratic near zero, linear beyond.
    HuberLoss(Pair) {
        /// The threshold between the two.
        delta: f64 = 1.0
    } |m, (x, y), r| ops::huber_loss(x, y, r, m.delta);
    /// Cross entropy between scores `[batch, classes, …]` and targets, which are class indices or
    /// probabilities.
    CrossEntropyLoss(Pair) {
        /// Weights of the classes.
        weight: Option<Buffer> = None,
        /// A class index to ignore.
        ignore_index: i64 = -100,
        /// Label smoothing: the probability spread over all classes.
        label_smoothing: f64 = 0.0
    } |m, (x, y), r| {
        ops::cross_entropy_loss(x, y, buffer(&m.weight).as_ref(), r, m.ignore_index.into(), m.label_smoothing)
    };
    /// Negative log likelihood: [`CrossEntropyLoss`] of log-probabilities.
    NLLLoss(Pair) {
        /// Weights of the classes.
        weight: Option<Buffer> = None,
        /// A class index to ignore.
        ignore_index: i64 = -100
    } |m, (x, y), r| ops::nll_loss_nd(x, y, buffer(&m.weight).as_ref(), r, m.ignore_index.into());
    /// Binary cross entropy of probabilities.
    BCELoss(Pair) {
        /// Weights of the elements.
        weight: Option<Buffer> = None
    } |m, (x, y), r| ops::binary_cross_entropy(x, y, buffer(&m.weight).as_ref(), r);
    /// Binary cross entropy of logits.
    BCEWithLogitsLoss(Pair) {
        /// Weights of the elements.
        weight: Option<Buffer> = None,
        /// Weights of positive examples.
        pos_weight: Option<Buffer> = None
    } |m, (x, y), r| {
        ops::binary_cross_entropy_with_logits(x, y, buffer(&m.weight).as_ref(), buffer(&m.pos_weight).as_ref(), r)
    };
    /// Kullback-Leibler divergence; the input holds log-probabilities. The mean is over elements; `batchmean` is the sum divided
    /// by the batch.
    KLDivLoss(Pair) {
        /// Whether targets are log-probabilities too.
        log_target: bool = false
    } |m, (x, y), r| ops::kl_div(x, y, r, m.log_target);
    /// Negative log likelihood of counts under a Poisson distribution.
    PoissonNLLLoss(Pair) {
        /// Whether inputs are logarithms of rates.
        log_input: bool = true,
        /// Whether to add Stirling's approximation term.
        full: bool = false,
        /// Added inside the logarithm for numerical stability.
        eps: f64 = 1e-8
    } |m, (x, y), r| ops::poisson_nll_loss(x, y, m.log_input, m.full, m.eps, r);
    /// Logistic loss for targets of 1 and -1.
    SoftMarginLoss(Pair) {} |m, (x, y), r| ops::soft_margin_loss(x, y, r);
    /// Distances that should be small (1) or larger than the margin (-1).
    HingeEmbeddingLoss(Pair) {
        /// The margin.
        margin: f64 = 1.0
    } |m, (x, y), r| ops::hinge_embedding_loss(x, y, m.margin, r);
    /// Multi-class margin loss: the target's score should exceed all others by the margin.
    MultiMarginLoss(Pair) {
        /// Exponent, 1 or 2.
        p: i64 = 1,
        /// The margin.
        margin: f64 = 1.0,
        /// Weights of the classes.
        weight: Option<Buffer> = None
    } |m, (x, y), r| {
        ops::multi_margin_loss(x, y, m.p.into(), m.margin.into(), buffer(&m.weight).as_ref(), r)
    };
    /// Multi-label margin loss: the scores of the target classes should exceed all others by 1.
    MultiLabelMarginLoss(Pair) {} |m, (x, y), r| ops::multilabel_margin_loss(x, y, r);
    /// Multi-label binary cross entropy of scores `[batch, classes]`.
    MultiLabelSoftMarginLoss(Pair) {
        /// Weights of the classes.
        weight: Option<Buffer> = None
    } |m, (x, y), r| {
        let right = ops::mul(y, &ops::log_sigmoid(x)?)?;
        let wrong = ops::mul(&ops::rsub_scalar(y, 1.into(), 1.into())?, &ops::log_sigmoid(&ops::neg(x)?)?)?;
        let each = ops::neg(&ops::add(&right, &wrong, 1.into())?)?;
        let each = buffer(&m.weight).map_or(Ok(each.clone()), |w| ops::mul(&each, &w))?;
        reduced(&ops::mean_dim(&each, Some(&[-1]), false, None)?, m.reduction)
    };
    /// Gaussian negative log likelihood of a mean, a target and a variance.
    GaussianNLLLoss(Triple) {
        /// Whether to add the constant term.
        full: bool = false,
        /// Smallest variance.
        eps: f64 = 1e-6
    } |m, (x, y, variance), r| {
        // Small variances are raised outside the graph: gradients go on as if nothing had happened.
        let floor = no_grad(|| ops::clamp(&variance.detach(), Some(m.eps.into()), None))?;
        let lift = no_grad(|| ops::sub(&floor, &variance.detach(), 1.into()))?;
        let variance = ops::add(variance, &lift, 1.into())?;
        let off = ops::sub(x, y, 1.into())?;
        let each = ops::add(&ops::log(&variance)?, &ops::div(&ops::mul(&off, &off)?, &variance)?, 1.into())?;
        let constant = if m.full { 0.5 * (2.0 * std::f64::consts::PI).ln() } else { 0.0 };
        reduced(&ops::add_scalar(&ops::mul_scalar(&each, 0.5.into())?, constant.into(), 1.into())?, m.reduction)
    };
    /// Ranking loss: the first input should rank higher (1) or lower (-1) than the second; the target is the third input.
    MarginRankingLoss(Triple) {
        /// The margin.
        margin: f64 = 0.0
    } |m, (a, b, y), r| ops::margin_ranking_loss(a, b, y, m.margin, r);
    /// Cosine embedding loss: angles should be small (1) or large (-1); the target is the third input.
    CosineEmbeddingLoss(Triple) {
        /// The margin: a cosine below it is small enough.
        margin: f64 = 0.0
    } |m, (a, b, y), r| ops::cosine_embedding_loss(a, b, y, m.margin, r);
    /// Triplet loss of anchor, positive and negative: the positive should be nearer by the margin.
    TripletMarginLoss(Triple) {
        /// The margin.
        margin: f64 = 1.0,
        /// Order of the norm.
        p: f64 = 2.0,
        /// Lower bound of norms, for numerical stability.
        eps: f64 = 1e-6,
        /// Whether to use the positive in place of the anchor if it is nearer to the negative.
        swap: bool = false
    } |m, (a, p, n), r| ops::triplet_margin_loss(a, p, n, m.margin, m.p, m.eps, m.swap, r);
}
