//! The samples of one rank, for training loops written by hand. (A [`Trainer`](crate::train::Trainer) shares batches out itself.)

use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, ops};
use firebrand_dist::World;

/// Shares the samples of a set out among ranks, in PyTorch's order. Nothing is padded, so a rank may have one sample less than
/// another: [`DistributedDataParallel::backward_of_nothing`](firebrand_dist::DistributedDataParallel::backward_of_nothing) takes part in a
/// step without samples.
///
/// ```
/// # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; pub use firebrand_dist as dist; }
/// use firebrand::Tensor;
/// use firebrand::dist::World;
/// use firebrand::data::{DistributedSampler, Subset, TensorDataset};
/// use std::sync::Arc;
///
/// let world = World::from_env()?;
/// let set = Arc::new(TensorDataset::new([Tensor::new(&[1.0f32, 2.0, 3.0])])?);
/// let sampler = DistributedSampler::new(3, &world).shuffled(5);
/// for epoch in 0..2 {
///     let share = Subset::new(set.clone(), sampler.indices(epoch)?)?;
/// #   drop(share);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistributedSampler {
    len: usize,
    rank: usize,
    size: usize,
    seed: Option<u64>,
}

impl DistributedSampler {
    /// A sampler for a dataset of `len` samples, in order.
    pub fn new(len: usize, world: &World) -> DistributedSampler {
        DistributedSampler { len, rank: world.rank(), size: world.size(), seed: None }
    }

    /// In another order every epoch, drawn from the seed, which is the same on all ranks.
    #[must_use]
    pub fn shuffled(self, seed: u64) -> DistributedSampler {
        DistributedSampler { seed: Some(seed), ..self }
    }

    /// The samples of this rank in an epoch.
    pub fn indices(&self, epoch: u64) -> Result<Vec<usize>> {
        let order: Vec<usize> = match self.seed {
            None => (0..self.len).collect(),
            Some(seed) => {
                let generator = Generator::new(seed.wrapping_add(epoch));
                let drawn = with_generator(generator, || ops::randperm(self.len.into(), Some(DType::I64), None))?;
                drawn.try_to_vec::<i64>()?.into_iter().map(|i| i as usize).collect()
            }
        };
        Ok(order.into_iter().skip(self.rank).step_by(self.size).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `torch.utils.data.DistributedSampler(range(10), 3, rank, seed=5)` gives in epoch 2, without its padding.
    #[test]
    fn the_order_is_pytorchs() {
        let of = |rank| DistributedSampler { len: 10, rank, size: 3, seed: Some(5) }.indices(2).expect("an order");
        let golden: Vec<Vec<usize>> =
            serde_json::from_str(include_str!("../../../../golden/nn/sampler.json")).expect("JSON");
        assert_eq!((0..3).map(of).collect::<Vec<_>>(), golden);
        let plain = DistributedSampler { len: 5, rank: 1, size: 2, seed: None };
        assert_eq!(plain.indices(7).expect("an order"), [1, 3]);
    }
}
