//! Distances and similarities as layers.

use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor, ops};

/// The cosine of the angle between vectors.
#[derive(Module)]
pub struct CosineSimilarity {
    /// Dimension of the vectors.
    pub dim: i64,
    /// Lower bound of norms, for numerical stability.
    pub eps: f64,
    core: ModuleCore,
}

impl CosineSimilarity {
    /// Along dimension 1.
    pub fn new() -> CosineSimilarity {
        CosineSimilarity { dim: 1, eps: 1e-8, core: ModuleCore::new() }
    }
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity::new()
    }
}

impl Forward<(Tensor, Tensor)> for CosineSimilarity {
    type Output = Tensor;
    fn forward(&self, (a, b): &(Tensor, Tensor)) -> Result<Tensor> {
        ops::cosine_similarity(a, b, self.dim, self.eps)
    }
}

/// The norm of the difference of vectors along the last dimension.
#[derive(Module)]
pub struct PairwiseDistance {
    /// Order of the norm.
    pub p: f64,
    /// Added to the difference for numerical stability.
    pub eps: f64,
    /// Whether to keep the dimension, with size 1.
    pub keepdim: bool,
    core: ModuleCore,
}

impl PairwiseDistance {
    /// Euclidean distance.
    pub fn new() -> PairwiseDistance {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdim: false, core: ModuleCore::new() }
    }
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance::new()
    }
}

impl Forward<(Tensor, Tensor)> for PairwiseDistance {
    type Output = Tensor;
    fn forward(&self, (a, b): &(Tensor, Tensor)) -> Result<Tensor> {
        ops::pairwise_distance(a, b, self.p, self.eps, self.keepdim)
    }
}
