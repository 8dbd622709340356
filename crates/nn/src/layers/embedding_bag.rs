//! Sums, means or maxima over rows of a table, without materializing the rows.

use super::embedding::table;
use super::options::{built, options};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Error, Result, Tensor, ops};

/// How the rows of a bag are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// Their elementwise maximum.
    Max,
}

options! {
    /// Options of an [`EmbeddingBag`] layer.
    pub struct EmbeddingBagOptions(
        /// Number of rows of the table.
        num_embeddings: usize,
        /// Size of a row.
        embedding_dim: usize,
    ) {
        /// How the rows of a bag are combined.
        mode: BagMode = BagMode::Mean,
        /// Index of a row that is left out and gets no gradient; starts as zeros.
        padding_idx: Option<usize> = None,
        /// Rows in use with a larger norm are first scaled down to this one.
        max_norm: Option<f64> = None,
        /// Order of the norm.
        norm_type: f64 = 2.0,
        /// Whether to divide gradients by how often a row occurs in the batch.
        scale_grad_by_freq: bool = false,
        /// Whether the gradient of the table is a sparse tensor; [`SGD`](crate::optim::SGD) and
        /// [`SparseAdam`](crate::optim::SparseAdam) take one.
        sparse: bool = false,
    }
}

impl EmbeddingBagOptions {
    /// Builds the layer, with normal values from the default generator.
    pub fn build(self) -> Result<EmbeddingBag> {
        let weight = table("EmbeddingBag", self.num_embeddings, self.embedding_dim, self.padding_idx)?;
        Ok(EmbeddingBag { weight, options: self, core: ModuleCore::new() })
    }
}

/// Combines bags of rows of a table; each bag is one row of the output.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingBagOptions,
    core: ModuleCore,
}

impl EmbeddingBag {
    /// Creates the layer with PyTorch's defaults, which take means.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> EmbeddingBag {
        built(EmbeddingBagOptions::new(num_embeddings, embedding_dim).build())
    }

    fn arguments(&self) -> String {
        let o = &self.options;
        let sizes = ExtraRepr::new().value(o.num_embeddings).value(o.embedding_dim);
        let norms = sizes.field_unless("max_norm", o.max_norm, None).field_unless("norm_type", o.norm_type, 2.0);
        let mode = match o.mode {
            BagMode::Sum => "sum",
            BagMode::Mean => "mean",
            BagMode::Max => "max",
        };
        let text = norms.field_unless("scale_grad_by_freq", o.scale_grad_by_freq, false).field("mode", mode);
        text.field_unless("padding_idx", o.padding_idx, None).finish()
    }

    /// Bags of different sizes: `offsets` says where each begins in the list of indices. Weights, one per index, are for
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
            o.sparse,
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
            let message = format!("expected indices of shape [bags, size], found {:?}", indices.shape());
            return Err(Error::argument("EmbeddingBag", message));
        };
        let starts: Vec<i64> = (0..bags).map(|i| (i * size) as i64).collect();
        let offsets = Tensor::try_from_vec(starts, [bags])?.try_to_dtype(DType::I64)?;
        self.bags(&indices.try_reshape([-1])?, &offsets, None)
    }
}
