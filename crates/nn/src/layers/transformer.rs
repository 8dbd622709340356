//! Transformer layers and stacks of them.

use super::attention::{AttentionOptions, MultiheadAttention, MultiheadAttentionOptions};
use super::dropout::Dropout;
use super::linear::Linear;
use super::norm::{LayerNorm, LayerNormOptions};
use super::options::{built, options};
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::random::{get_rng_state, with_generator};
use firebrand_core::{Result, Tensor, ops};

options! {
    /// Options of a transformer layer.
    pub struct TransformerLayerOptions(
        /// Size of each element of the sequence.
        d_model: usize,
        /// Number of attention heads.
        nhead: usize,
    ) {
        /// Size of the feed-forward layer.
        dim_feedforward: usize = 2048,
        /// Dropout probability.
        dropout: f64 = 0.1,
        /// Use exact GELU instead of ReLU.
        gelu: bool = false,
        /// Added to the denominators of norms for numerical stability.
        layer_norm_eps: f64 = 1e-5,
        /// Whether inputs have the batch as their first dimension.
        batch_first: bool = false,
        /// Whether norms come before attention and feed-forward instead of after them.
        norm_first: bool = false,
    }
}

impl TransformerLayerOptions {
    fn attention(&self) -> Result<MultiheadAttention> {
        let base = MultiheadAttentionOptions::new(self.d_model, self.nhead);
        MultiheadAttentionOptions { dropout: self.dropout, batch_first: self.batch_first, ..base }.build()
    }

    pub(super) fn norm(&self) -> Result<LayerNorm> {
        LayerNormOptions { eps: self.layer_norm_eps, ..LayerNormOptions::new(vec![self.d_model]) }.build()
    }

    fn activation(&self, x: &Tensor) -> Result<Tensor> {
        if self.gelu { ops::gelu(x, "none") } else { ops::relu(x) }
    }
}

/// A residual connection, with the norm before the sublayer or after the sum.
fn residual(x: &Tensor, norm: &LayerNorm, first: bool, part: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if first {
        return ops::add(x, &part(&norm.try_call(x)?)?, 1.into());
    }
    norm.try_call(&ops::add(x, &part(x)?, 1.into())?)
}

/// Self-attention, then a feed-forward network for each element.
#[derive(Module)]
pub struct TransformerEncoderLayer {
    self_attn: MultiheadAttention,
    linear1: Linear,
    dropout: Dropout,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(skip)]
    options: TransformerLayerOptions,
    core: ModuleCore,
}

impl TransformerEncoderLayer {
    /// Creates the layer with PyTorch's defaults.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> TransformerEncoderLayer {
        built(TransformerEncoderLayer::with(TransformerLayerOptions::new(d_model, nhead)))
    }

    /// Creates the layer with all options; initial values come from the default generator.
    pub fn with(o: TransformerLayerOptions) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: o.attention()?,
            linear1: Linear::new(o.d_model, o.dim_feedforward),
            dropout: Dropout::try_new(o.dropout)?,
            linear2: Linear::new(o.dim_feedforward, o.d_model),
            norm1: o.norm()?,
            norm2: o.norm()?,
            dropout1: Dropout::try_new(o.dropout)?,
            dropout2: Dropout::try_new(o.dropout)?,
            options: o,
            core: ModuleCore::new(),
        })
    }

    /// Runs the layer with masks.
    pub fn encode(&self, x: &Tensor, masks: &AttentionOptions) -> Result<Tensor> {
        let first = self.options.norm_first;
        let x = residual(x, &self.norm1, first, |x| {
            self.dropout1.try_call(&self.self_attn.attend(x, x, x, masks)?.output)
        })?;
        residual(&x, &self.norm2, first, |x| {
            let wide = self.dropout.try_call(&self.options.activation(&self.linear1.try_call(x)?)?)?;
            self.dropout2.try_call(&self.linear2.try_call(&wide)?)
        })
    }
}

impl Forward for TransformerEncoderLayer {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.encode(x, &AttentionOptions::default())
    }
}

/// Self-attention, attention to another sequence, then a feed-forward network for each element.
#[derive(Module)]
pub struct TransformerDecoderLayer {
    self_attn: MultiheadAttention,
    multihead_attn: MultiheadAttention,
    linear1: Linear,
    dropout: Dropout,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    norm3: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    #[module(skip)]
    options: TransformerLayerOptions,
    core: ModuleCore,
}

impl TransformerDecoderLayer {
    /// Creates the layer with PyTorch's defaults.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> TransformerDecoderLayer {
        built(TransformerDecoderLayer::with(TransformerLayerOptions::new(d_model, nhead)))
    }

    /// Creates the layer with all options; initial values come from the default generator.
    pub fn with(o: TransformerLayerOptions) -> Result<TransformerDecoderLayer> {
        Ok(TransformerDecoderLayer {
            self_attn: o.attention()?,
            multihead_attn: o.attention()?,
            linear1: Linear::new(o.d_model, o.dim_feedforward),
            dropout: Dropout::try_new(o.dropout)?,
            linear2: Linear::new(o.dim_feedforward, o.d_model),
            norm1: o.norm()?,
            norm2: o.norm()?,
            norm3: o.norm()?,
            dropout1: Dropout::try_new(o.dropout)?,
            dropout2: Dropout::try_new(o.dropout)?,
            dropout3: Dropout::try_new(o.dropout)?,
            options: o,
            core: ModuleCore::new(),
        })
    }

    /// Runs the layer with masks for the sequence itself and for the memory.
    pub fn decode(
        &self,
        x: &Tensor,
        memory: &Tensor,
        masks: &AttentionOptions,
        memory_masks: &AttentionOptions,
    ) -> Result<Tensor> {
        let first = self.options.norm_first;
        let x = residual(x, &self.norm1, first, |x| {
            self.dropout1.try_call(&self.self_attn.attend(x, x, x, masks)?.output)
        })?;
        let x = residual(&x, &self.norm2, first, |x| {
            self.dropout2.try_call(&self.multihead_attn.attend(x, memory, memory, memory_masks)?.output)
        })?;
        residual(&x, &self.norm3, first, |x| {
            let wide = self.dropout.try_call(&self.options.activation(&self.linear1.try_call(x)?)?)?;
            self.dropout3.try_call(&self.linear2.try_call(&wide)?)
        })
    }
}

/// Runs on a sequence and the memory it attends to.
impl Forward<(Tensor, Tensor)> for TransformerDecoderLayer {
    type Output = Tensor;
    fn forward(&self, (x, memory): &(Tensor, Tensor)) -> Result<Tensor> {
        self.decode(x, memory, &AttentionOptions::default(), &AttentionOptions::default())
    }
}

/// This many layers with the same initial values: PyTorch's stacks copy one layer.
fn copies<L>(n: usize, make: impl Fn() -> Result<L>) -> Result<Vec<L>> {
    let before = get_rng_state();
    let mut layers = vec![make()?];
    for _ in 1..n {
        layers.push(with_generator(before.clone(), &make)?);
    }
    Ok(layers)
}

/// A stack of [`TransformerEncoderLayer`]s.
#[derive(Module)]
pub struct TransformerEncoder {
    layers: Vec<TransformerEncoderLayer>,
    norm: Option<LayerNorm>,
    core: ModuleCore,
}

impl TransformerEncoder {
    /// This many layers with the same initial values, and optionally a final norm.
    pub fn with(options: TransformerLayerOptions, num_layers: usize, norm: Option<LayerNorm>) -> Result<Self> {
        let layers = copies(num_layers, || TransformerEncoderLayer::with(options.clone()))?;
        Ok(TransformerEncoder { layers, norm, core: ModuleCore::new() })
    }

    /// Runs all layers with masks.
    pub fn encode(&self, x: &Tensor, masks: &AttentionOptions) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.encode(&x, masks)?;
        }
        self.norm.as_ref().map_or(Ok(x.clone()), |n| n.try_call(&x))
    }
}

impl Forward for TransformerEncoder {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.encode(x, &AttentionOptions::default())
    }
}

/// A stack of [`TransformerDecoderLayer`]s.
#[derive(Module)]
pub struct TransformerDecoder {
    layers: Vec<TransformerDecoderLayer>,
    norm: Option<LayerNorm>,
    core: ModuleCore,
}

impl TransformerDecoder {
    /// This many layers with the same initial values, and optionally a final norm.
    pub fn with(options: TransformerLayerOptions, num_layers: usize, norm: Option<LayerNorm>) -> Result<Self> {
        let layers = copies(num_layers, || TransformerDecoderLayer::with(options.clone()))?;
        Ok(TransformerDecoder { layers, norm, core: ModuleCore::new() })
    }

    /// Runs all layers with masks for the sequence itself and for the memory.
    pub fn decode(
        &self,
        x: &Tensor,
        memory: &Tensor,
        masks: &AttentionOptions,
        memory_masks: &AttentionOptions,
    ) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.decode(&x, memory, masks, memory_masks)?;
        }
        self.norm.as_ref().map_or(Ok(x.clone()), |n| n.try_call(&x))
    }
}

impl Forward<(Tensor, Tensor)> for TransformerDecoder {
    type Output = Tensor;
    fn forward(&self, (x, memory): &(Tensor, Tensor)) -> Result<Tensor> {
        self.decode(x, memory, &AttentionOptions::default(), &AttentionOptions::default())
    }
}
