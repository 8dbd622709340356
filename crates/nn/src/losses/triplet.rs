//! The triplet loss with any measure of distance.

use super::{Reduction, reduced};
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

type Distance = dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync;

/// Triplet loss of anchor, positive and negative: the positive should be nearer by the margin.
#[derive(Module)]
pub struct TripletMarginWithDistanceLoss {
    #[module(skip)]
    distance: Box<Distance>,
    /// The margin.
    pub margin: f64,
    /// Whether to use the positive in place of the anchor if it is nearer to the negative.
    pub swap: bool,
    /// How the losses of single elements are reduced.
    #[module(skip)]
    pub reduction: Reduction,
    core: ModuleCore,
}

impl TripletMarginWithDistanceLoss {
    /// With this distance and PyTorch's defaults; fields may be changed.
    pub fn new(
        distance: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> TripletMarginWithDistanceLoss {
        let (distance, reduction) = (Box::new(distance), Reduction::Mean);
        TripletMarginWithDistanceLoss { distance, margin: 1.0, swap: false, reduction, core: ModuleCore::new() }
    }
}

/// By the Euclidean distance along the last dimension.
impl Default for TripletMarginWithDistanceLoss {
    fn default() -> TripletMarginWithDistanceLoss {
        TripletMarginWithDistanceLoss::new(|a, b| ops::pairwise_distance(a, b, 2.0, 1e-6, false))
    }
}

impl Forward<(Tensor, Tensor, Tensor)> for TripletMarginWithDistanceLoss {
    type Output = Tensor;
    fn forward(&self, (anchor, positive, negative): &(Tensor, Tensor, Tensor)) -> Result<Tensor> {
        let near = (self.distance)(anchor, positive)?;
        let mut far = (self.distance)(anchor, negative)?;
        if self.swap {
            far = ops::minimum(&far, &(self.distance)(positive, negative)?)?;
        }
        let excess = ops::add_scalar(&ops::sub(&near, &far, 1.into())?, self.margin.into(), 1.into())?;
        reduced(&ops::clamp_min(&excess, 0.into())?, self.reduction)
    }
}
