//! Embeddings: rows of a table by index.

use super::options::{built, options, parameter};
use crate::init;
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Error, Result, Tensor, ops};

/// A table of normal values, with zeros in the padding row.
pub(super) fn table(layer: &'static str, rows: usize, size: usize, padding_idx: Option<usize>) -> Result<Parameter> {
    if padding_idx.is_some_and(|p| p >= rows) {
        return Err(Error::argument(layer, format!("expected padding_idx below {rows}, found {padding_idx:?}")));
    }
    let weight = parameter(&[rows, size])?;
    init::normal_(&weight, 0.0, 1.0)?;
    if let Some(row) = padding_idx {
        no_grad(|| init::zeros_(&ops::select(&weight, 0, row.into())?))?;
    }
    Ok(weight)
}

options! {
    /// Options of an [`Embedding`] layer.
    pub struct EmbeddingOptions(
        /// Number of rows of the table.
        num_embeddings: usize,
        /// Size of a row.
        embedding_dim: usize,
    ) {
        /// Index of a row that gets no gradient and starts as zeros.
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

impl EmbeddingOptions {
    /// Builds the layer, with normal values from the default generator.
    pub fn build(self) -> Result<Embedding> {
        let weight = table("Embedding", self.num_embeddings, self.embedding_dim, self.padding_idx)?;
        Ok(Embedding { weight, options: self, core: ModuleCore::new() })
    }
}

/// Looks up rows of a table by index.
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingOptions,
    core: ModuleCore,
}

impl Embedding {
    /// Creates the layer with PyTorch's defaults.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Embedding {
        built(EmbeddingOptions::new(num_embeddings, embedding_dim).build())
    }

    fn arguments(&self) -> String {
        let o = &self.options;
        let sizes = ExtraRepr::new().value(o.num_embeddings).value(o.embedding_dim);
        let norms = sizes.field_unless("padding_idx", o.padding_idx, None).field_unless("max_norm", o.max_norm, None);
        let norms = norms.field_unless("norm_type", o.norm_type, 2.0);
        let rest = norms.field_unless("scale_grad_by_freq", o.scale_grad_by_freq, false);
        rest.field_unless("sparse", o.sparse, false).finish()
    }
}

impl Forward for Embedding {
    type Output = Tensor;
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let o = &self.options;
        if let Some(max_norm) = o.max_norm {
            no_grad(|| ops::embedding_renorm_(&self.weight, indices, max_norm, o.norm_type).map(drop))?;
        }
        let padding = o.padding_idx.map_or(-1, |p| p as i64);
        ops::embedding(&self.weight, indices, padding.into(), o.scale_grad_by_freq, o.sparse)
    }
}
