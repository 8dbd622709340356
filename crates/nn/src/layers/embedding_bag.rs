//! Sums, means or largest elements of rows of a table, without the rows themselves.

use super::embedding::table;
use super::options::{built, options};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Error, Result, Tensor, ops};

/// What becomes of the rows of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest of each element.
    Max,
}

options! {
    /// What an [`EmbeddingBag`] layer is made of.
    pub struct EmbeddingBagOptions(
        /// Rows of the table.
        num_embeddings: usize,
        /// Size of a row.
        embedding_dim: usize,
    ) {
        /// What becomes of the rows of a bag.
        mode: BagMode = BagMode::Mean,
        /// A row that counts nowhere and stays as it is (zeros at the start).
        padding_idx: Option<usize> = None,
        /// Rows that are used are first scaled down to this norm.
        max_norm: Option<f64> = None,
        /// Which norm.
        norm_type: f64 = 2.0,
        /// Whether gradients are divided by how often a row occurs.
        scale_grad_by_freq: bool = false,
    }
}

impl EmbeddingBagOptions {
    /// The layer, with normal values drawn from the default generator.
    pub fn build(self) -> Result<EmbeddingBag> {
        let weight = table("EmbeddingBag", self.num_embeddings, self.embedding_dim, self.padding_idx)?;
        Ok(EmbeddingBag { weight, options: self, core: ModuleCore::new() })
    }
}

/// Bags of rows of a table, by number: each is one row of the output.
#[derive(Module)]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingBagOptions,
    core: ModuleCore,
}

impl EmbeddingBag {
    /// Means, with PyTorch's defaults.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> EmbeddingBag {
        built(EmbeddingBagOptions::new(num_embeddings, embedding_dim).build())
    }

    /// Bags of different sizes: `offsets` says where each begins in the list of numbers. Weights, one a number, are for
    /// sums only.
    pub fn bags(&self, indices: &Tensor, offsets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let o = &self.options;
        if let Some(max_norm) = o.max_norm {
            no_grad(|| ops::embedding_renorm_(&self.weight, indices, max_norm, o.norm_type).map(drop))?;
        }
        let mode = match o.mode {
            BagMode::Sum => 0,
            BagMode::Mean => 1,
            BagMode::Max => 2,
        };
        let padding = o.padding_idx.map(|p| p as i64);
        let frequency = o.scale_grad_by_freq;
        let bags = ops::embedding_bag_padding_idx(
            &self.weight,
            indices,
            offsets,
            frequency,
            mode,
            false,
            weights,
            false,
            padding,
        )?;
        Ok(bags.0)
    }
}

/// Bags of one size: `[bags, size]`.
impl Forward for EmbeddingBag {
    type Output = Tensor;
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let [bags, size] = *indices.shape() else {
            let message = format!("expected numbers of shape [bags, size], found {:?}", indices.shape());
            return Err(Error::argument("EmbeddingBag", message));
        };
        let starts: Vec<i64> = (0..bags).map(|i| (i * size) as i64).collect();
        let offsets = Tensor::try_from_vec(starts, [bags])?.try_to_dtype(DType::I64)?;
        self.bags(&indices.try_reshape([-1])?, &offsets, None)
    }
}
