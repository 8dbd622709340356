//! Rows of a table by number.

use super::options::{built, options, parameter};
use crate::init;
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Error, Result, Tensor, ops};

/// A table of normal numbers, with zeros in the row that stays as it is.
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
    /// What an [`Embedding`] layer is made of.
    pub struct EmbeddingOptions(
        /// Rows of the table.
        num_embeddings: usize,
        /// Size of a row.
        embedding_dim: usize,
    ) {
        /// A row that stays as it is (zeros at the start).
        padding_idx: Option<usize> = None,
        /// Rows that are used are first scaled down to this norm.
        max_norm: Option<f64> = None,
        /// Which norm.
        norm_type: f64 = 2.0,
        /// Whether gradients are divided by how often a row occurs.
        scale_grad_by_freq: bool = false,
    }
}

impl EmbeddingOptions {
    /// The layer, with normal values drawn from the default generator.
    pub fn build(self) -> Result<Embedding> {
        let weight = table("Embedding", self.num_embeddings, self.embedding_dim, self.padding_idx)?;
        Ok(Embedding { weight, options: self, core: ModuleCore::new() })
    }
}

/// Rows of a table, by number.
#[derive(Module)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingOptions,
    core: ModuleCore,
}

impl Embedding {
    /// With PyTorch's defaults.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Embedding {
        built(EmbeddingOptions::new(num_embeddings, embedding_dim).build())
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
        ops::embedding(&self.weight, indices, padding.into(), o.scale_grad_by_freq, false)
    }
}
