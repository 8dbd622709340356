//! Multi-head attention.
//!
//! Inputs are `[length, batch, embed_dim]`, or `[batch, length, embed_dim]` with `batch_first`; the batch may be missing.
//! Masks are bool (true hides) or floats (added to the scores).

use super::linear::Linear;
use super::options::{built, filled, options, parameter};
use crate::init;
use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Error, Result, SymInt, Tensor, ops};

options! {
    /// Options of a [`MultiheadAttention`] layer.
    pub struct MultiheadAttentionOptions(
        /// Size of each element of the sequence.
        embed_dim: usize,
        /// Number of heads, which split each element.
        num_heads: usize,
    ) {
        /// Dropout probability of the attention weights.
        dropout: f64 = 0.0,
        /// Whether the projections have a learnable bias.
        bias: bool = true,
        /// Whether inputs have the batch as their first dimension.
        batch_first: bool = false,
    }
}

impl MultiheadAttentionOptions {
    /// Builds the layer, with initial values from the default generator.
    pub fn build(self) -> Result<MultiheadAttention> {
        let (e, heads) = (self.embed_dim, self.num_heads);
        if heads == 0 || !e.is_multiple_of(heads) {
            let message = format!("expected an embed_dim divisible by {heads} heads, found {e}");
            return Err(Error::argument("MultiheadAttention", message));
        }
        let in_proj_weight = parameter(&[3 * e, e])?;
        let in_proj_bias = self.bias.then(|| filled(&[3 * e], 0.0)).transpose()?;
        let out_proj = super::LinearOptions { bias: self.bias, ..super::LinearOptions::new(e, e) }.build()?;
        init::xavier_uniform_(&in_proj_weight, 1.0)?;
        if let Some(bias) = &out_proj.bias {
            init::zeros_(bias)?;
        }
        Ok(MultiheadAttention { in_proj_weight, in_proj_bias, out_proj, options: self, core: ModuleCore::new() })
    }
}

/// Optional arguments of [`MultiheadAttention::attend`].
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// `[batch, length of keys]`: keys to ignore.
    pub key_padding_mask: Option<Tensor>,
    /// `[queries, keys]` or `[batch * heads, queries, keys]`: pairs to ignore, or values to add to the scores.
    pub attn_mask: Option<Tensor>,
    /// Whether a query attends to earlier keys only.
    pub is_causal: bool,
    /// Whether to return the weights too, averaged over heads.
    pub need_weights: bool,
}

/// The result of attention.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The output, shaped like the query.
    pub output: Tensor,
    /// `[batch, queries, keys]`, if requested.
    pub weights: Option<Tensor>,
}

/// Multi-head attention: weighted means of projected values, with weights from projected queries and keys.
#[derive(Module)]
pub struct MultiheadAttention {
    /// Projections of query, key and value, stacked.
    pub in_proj_weight: Parameter,
    /// Biases of query, key and value, concatenated.
    pub in_proj_bias: Option<Parameter>,
    /// Projection of the result.
    pub out_proj: Linear,
    #[module(skip)]
    options: MultiheadAttentionOptions,
    core: ModuleCore,
}

/// A mask as values to add to the scores.
fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    if mask.dtype() != DType::Bool {
        return mask.try_to_dtype(dtype);
    }
    let zeros = ops::zeros_like(mask, Some(dtype), None, None)?;
    ops::masked_fill(&zeros, mask, f64::NEG_INFINITY.into())
}

impl MultiheadAttention {
    /// Creates the layer with PyTorch's defaults.
    #[track_caller]
    pub fn new(embed_dim: usize, num_heads: usize) -> MultiheadAttention {
        built(MultiheadAttentionOptions::new(embed_dim, num_heads).build())
    }

    /// Rows `k·embed_dim` and following of both projections.
    fn project(&self, x: &Tensor, k: usize) -> Result<Tensor> {
        let e = self.options.embed_dim;
        let part = |t: &Tensor| ops::narrow(t, 0, (k * e).into(), e.into());
        let bias = self.in_proj_bias.as_deref().map(part).transpose()?;
        ops::linear(x, &part(&self.in_proj_weight)?, bias.as_ref())
    }

    /// `[batch, length, embed]` to `[batch, heads, length, embed / heads]`.
    fn heads(&self, x: &Tensor) -> Result<Tensor> {
        let (heads, e) = (self.options.num_heads, self.options.embed_dim);
        let sizes: [SymInt; 4] = [x.size(0), x.size(1), heads.into(), (e / heads).into()];
        ops::transpose(&ops::reshape(x, &sizes)?, 1, 2)
    }

    /// All masks combined into one to add, if there are any.
    fn mask(&self, q: &Tensor, k: &Tensor, options: &AttentionOptions) -> Result<Option<Tensor>> {
        let (dtype, b, h) = (q.dtype(), q.size(0), SymInt::from(self.options.num_heads));
        let (queries, keys) = (q.size(2), k.size(2));
        let mut mask = options.attn_mask.as_ref().map(|m| additive(m, dtype)).transpose()?;
        if let Some(m) = mask.as_mut().filter(|m| m.ndim() == 3) {
            *m = ops::view(m, &[b, h, queries, keys])?;
        }
        if options.is_causal {
            let later = ops::triu(&ops::ones(&[queries, keys], Some(DType::Bool), None)?, 1.into())?;
            let later = additive(&later, dtype)?;
            mask = Some(match mask {
                Some(m) => ops::add(&m, &later, 1.into())?,
                None => later,
            });
        }
        if let Some(padding) = &options.key_padding_mask {
            let padding = ops::view(&additive(padding, dtype)?, &[b, 1.into(), 1.into(), keys])?;
            mask = Some(match mask {
                Some(m) => ops::add(&m, &padding, 1.into())?,
                None => padding,
            });
        }
        Ok(mask)
    }

    /// Attention of `query` to `key` and `value`.
    pub fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: &AttentionOptions,
    ) -> Result<Attention> {
        let single = query.ndim() == 2;
        let first = self.options.batch_first;
        let batched = |x: &Tensor| match (single, first) {
            (true, _) => ops::unsqueeze(x, 0),
            (false, true) => Ok(x.clone()),
            (false, false) => ops::transpose(x, 0, 1),
        };
        let inputs = [batched(query)?, batched(key)?, batched(value)?];
        let mut projected = Vec::with_capacity(3);
        for (k, x) in inputs.iter().enumerate() {
            projected.push(self.heads(&self.project(x, k)?)?);
        }
        let [q, k, v] = &projected[..] else { unreachable!("three inputs were projected") };
        let dropout = if self.is_training() { self.options.dropout } else { 0.0 };
        // A causal mask alone is something the kernel knows better.
        let causal = options.is_causal && options.attn_mask.is_none() && options.key_padding_mask.is_none();
        let (mixed, weights) = if options.need_weights {
            let scale = 1.0 / (q.shape()[3] as f64).sqrt();
            let mut scores = ops::matmul(&ops::mul_scalar(q, scale.into())?, &ops::transpose(k, -2, -1)?)?;
            if let Some(mask) = self.mask(q, k, options)? {
                scores = ops::add(&scores, &mask, 1.into())?;
            }
            let weights = ops::dropout(&ops::softmax(&scores, -1, None)?, dropout, dropout > 0.0)?;
            let mean = ops::mean_dim(&weights, Some(&[1]), false, None)?;
            (ops::matmul(&weights, v)?, Some(if single { ops::squeeze_dim(&mean, 0)? } else { mean }))
        } else {
            let mask = if causal { None } else { self.mask(q, k, options)? };
            (ops::scaled_dot_product_attention(q, k, v, mask.as_ref(), dropout, causal, None, false)?, None)
        };
        let joined = ops::flatten(&ops::transpose(&mixed, 1, 2)?, 2, 3)?;
        let output = self.out_proj.try_call(&joined)?;
        let output = match (single, first) {
            (true, _) => ops::squeeze_dim(&output, 0)?,
            (false, true) => output,
            (false, false) => ops::transpose(&output, 0, 1)?,
        };
        Ok(Attention { output, weights })
    }
}

/// Attention of a query to a key and a value; [`MultiheadAttention::attend`] takes masks too.
impl Forward<(Tensor, Tensor, Tensor)> for MultiheadAttention {
    type Output = Tensor;
    fn forward(&self, (query, key, value): &(Tensor, Tensor, Tensor)) -> Result<Tensor> {
        Ok(self.attend(query, key, value, &AttentionOptions::default())?.output)
    }
}

/// Self-attention.
impl Forward for MultiheadAttention {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.attend(x, x, x, &AttentionOptions::default())?.output)
    }
}
